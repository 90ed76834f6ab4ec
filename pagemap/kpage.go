package pagemap

// KFlags are the flags of one frame, from /proc/kpageflags (include/uapi/linux/kernel-page-flags.h; fs/proc/page.c,
// stable_page_flags). The file is mode 0400: it needs uid 0 or CAP_DAC_OVERRIDE, not CAP_SYS_ADMIN.
type KFlags uint64

// Bits of KFlags.
const (
	KFlagAnon         KFlags = 1 << 12
	KFlagSwapCache    KFlags = 1 << 13
	KFlagCompoundHead KFlags = 1 << 15
	KFlagCompoundTail KFlags = 1 << 16
	KFlagHuge         KFlags = 1 << 17 // hugetlbfs
	KFlagNoPage       KFlags = 1 << 20
	KFlagKSM          KFlags = 1 << 21 // 2.6.32
	KFlagTHP          KFlags = 1 << 22 // 4.0
	KFlagZeroPage     KFlags = 1 << 24 // 4.0
	// KFlagAnonExclusive is PG_anon_exclusive (5.19): set on the copy that a write made, clear on the page left behind by
	// it. The file shows it as bit 34 (KPF_OWNER_2, before 6.12 KPF_MAPPEDTODISK). It is the flag of the whole folio, so
	// it speaks of one page only where that is not compound.
	KFlagAnonExclusive KFlags = 1 << 34

	// FlagsUnread marks flags that were not read. The kernel uses no bit above 47.
	FlagsUnread KFlags = 1 << 63
)

// Known reports whether the flags were read.
func (f KFlags) Known() bool { return f&FlagsUnread == 0 }

// Compound reports a page that is part of a larger folio.
func (f KFlags) Compound() bool {
	return f&(KFlagCompoundHead|KFlagCompoundTail|KFlagTHP|KFlagHuge) != 0
}

// AnonExclusive gives PG_anon_exclusive of a page; ok is false where the flags cannot tell: not read, or a page of a
// larger folio other than hugetlb.
func (f KFlags) AnonExclusive() (exclusive, ok bool) {
	if !f.Known() || f&KFlagNoPage != 0 || (f.Compound() && f&KFlagHuge == 0) {
		return false, false
	}
	return f&KFlagAnonExclusive != 0, true
}
