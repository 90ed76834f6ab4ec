package audit

import (
	"fmt"

	"cowaudit/ebpf"
)

// Of which two counts a residue is.
const (
	ResidueTraced = "traced" // between the page tables and the trace
	ResidueKernel = "kernel" // between the trace and the kernel's wpcopy_count
)

// counts sets the page tables' account of process o.PID beside the trace's. The kernel's is added by [Counts.Kernel].
func (a *attributor) counts() *Counts {
	c := &Counts{PageTables: int64(len(a.pages)), Traced: a.ownCopies, KernelWhy: "not asked for", Residue: []Residue{}}
	if int64(len(a.pages)) > 0 {
		p := 100 * share(a.out.ExplainedPages, int64(len(a.pages)))
		c.AgreementPercent = &p
	}
	c.add(ResidueTraced, "by_reference", -a.byRef, "copied by the reference, in its own address space")
	for _, r := range reasons(a.unexplain, false) {
		if r.Code != UnexplainedWithoutAddr {
			c.add(ResidueTraced, r.Code, -r.Pages, r.Text)
		}
	}
	c.add(ResidueTraced, "same_copy", -a.ownSame, "one copy that stands for two pages of a moved mapping")
	// Pages of the reference's for which a copy without an address stands.
	c.add(ResidueTraced, "by_reference_without_fault", -a.unexplain[UnexplainedWithoutAddr]+a.ownByNumber, "copied by the reference without a fault")
	for _, r := range reasons(a.notOwn, true) {
		c.add(ResidueTraced, r.Code, r.Pages, r.Text)
	}
	c.add(ResidueTraced, "repeated", a.ownRepeats, "copied again: threads raced, or the page had been shared again")
	a.wpCopies()
	c.Differs = a.differs
	return c
}

// wpCopies counts the faults of process o.PID that the kernel counts as copies (mm/memory.c wp_page_copy, mm/hugetlb.c
// hugetlb_wp: delayacct_wpcopy_start) and the trace by another name: the first write to a page that maps the zero page, and
// to a file's page that is mapped already (the exception's error code has the bit "present"). A hugetlb page counts once.
func (a *attributor) wpCopies() {
	const present = 1 // arch/x86/include/asm/trap_pf.h, X86_PF_PROT
	for i := range a.trace.Faults {
		f := &a.trace.Faults[i]
		if !a.own(f.Space) || !a.inWindow(f) {
			continue
		}
		switch f.Kind {
		case ebpf.KindZero:
			a.differs.Zero++
		case ebpf.KindFile:
			if f.Code&present != 0 {
				a.differs.File++
			}
		case ebpf.KindHugeTLB:
			a.differs.HugeTLB++
		case ebpf.KindCopied:
			a.differs.Folios += f.Pages() - 1
		}
	}
}

func (c *Counts) add(of, code string, n int64, text string) {
	if n != 0 {
		c.Residue = append(c.Residue, Residue{Of: of, Code: code, Pages: n, Text: text})
	}
}

// Kernel adds how far the kernel's wpcopy_count of the process rose between the captures.
func (c *Counts) Kernel(copies int64) {
	c.KernelWPCopy, c.KernelWhy = &copies, ""
	c.add(ResidueKernel, "zero_page", c.Differs.Zero, "first writes on the zero page: copies to the kernel")
	c.add(ResidueKernel, "private_file", c.Differs.File, "first writes to mapped pages of a file, which the kernel counts as copies")
	c.add(ResidueKernel, "large_folios", -c.Differs.Folios, "pages of larger folios, of which the kernel counts one copy each")
	rest := copies - c.Traced - c.Differs.Zero - c.Differs.File + c.Differs.Folios
	if rest != 0 && c.Differs.HugeTLB > 0 {
		// Of a hugetlb fault the trace does not tell a copy from a reuse, so this many at most.
		n := min(max(rest, 0), c.Differs.HugeTLB)
		c.add(ResidueKernel, "hugetlb", n, "writes to hugetlb pages")
		rest -= n
	}
	c.add(ResidueKernel, "unaccounted", rest, "counted by one and not by the other, for no reason that is known")
}

// NoKernel says why the kernel's count is not known.
func (c *Counts) NoKernel(why string) { c.KernelWPCopy, c.KernelWhy = nil, why }

func (c *Counts) check() error {
	traced := c.PageTables
	kernel := c.Traced
	for i := range c.Residue {
		switch r := &c.Residue[i]; r.Of {
		case ResidueTraced:
			traced += r.Pages
		case ResidueKernel:
			kernel += r.Pages
		default:
			return breach("a residue of %q", r.Of)
		}
	}
	switch {
	case traced != c.Traced:
		return breach("page tables %d and the residue make %d copies, %d were traced", c.PageTables, traced, c.Traced)
	case c.KernelWPCopy != nil && kernel != *c.KernelWPCopy:
		return breach("%d traced copies and the residue make %d, the kernel counted %d", c.Traced, kernel, *c.KernelWPCopy)
	case c.KernelWPCopy == nil && kernel != c.Traced:
		return breach("a residue of a count that is not known")
	}
	return nil
}

// Sentence tells the three counts: "8,061 by the page tables, 8,063 traced, 8,070 by the kernel".
func (c *Counts) Sentence() string {
	s := fmt.Sprintf("%s by the page tables, %s traced, ", number(c.PageTables), number(c.Traced))
	if c.KernelWPCopy == nil {
		return s + "by the kernel: not available (" + c.KernelWhy + ")"
	}
	return s + number(*c.KernelWPCopy) + " by the kernel"
}
