package pagemap

import (
	"bytes"
	"math/bits"
)

// groupPages is the number of pages of a PMD-mapped huge page on the architectures with 4 KiB pages (2 MiB).
const groupPages = 512

// needs reads the flags and counts of those frames of the window whose meaning the entries alone do not give:
//
//   - of a page that differs from the reference's: PG_anon_exclusive tells who wrote; only where bit 56 says that the
//     frame is mapped once, since a frame mapped more than once is never anon-exclusive, and only where no older
//     sibling tells (see [OlderSibling]);
//   - of a page that is in swap on one side and present on the other: whether it is still in the swap cache;
//   - of a page that one side alone holds: whether it was inherited;
//   - of all anonymous pages of a process that may hold pages merged by KSM;
//   - the counts of what looks like a PMD-mapped huge page, where bit 56 speaks of the head page only.
func (r *reader) needs() error {
	if !r.c.fam.Facts.FramesVisible {
		return nil
	}
	if r.c.flags.fd >= 0 {
		if err := r.readFlags(); err != nil {
			return err
		}
	}
	if r.c.counts.fd >= 0 {
		return r.readCounts()
	}
	return nil
}

func (r *reader) readFlags() error {
	r.want = r.want[:0]
	for i, m := range r.c.members {
		e := r.row(i).Entries
		if e == nil {
			if m.ref >= 0 {
				r.wantMissing(m.ref)
			}
			continue
		}
		if m.ksm {
			r.wantAnon(i, e)
			continue
		}
		if m.ref >= 0 {
			r.wantDiffering(i, m.ref)
		}
	}
	if len(r.want) == 0 {
		return nil
	}
	return r.c.flags.read(r.want, r.words, func(i, k int, w uint64) { r.flagsOf(i)[k] = KFlags(w) })
}

func (r *reader) flagsOf(i int) []KFlags {
	row := r.row(i)
	if row.Flags == nil {
		if r.flags[i] == nil {
			r.flags[i] = make([]KFlags, WindowPages)
		}
		for k := range r.flags[i] {
			r.flags[i][k] = FlagsUnread
		}
		row.Flags = r.flags[i]
	}
	return row.Flags
}

func (r *reader) addWant(i, k int, e Entry) {
	if pfn, ok := e.Frame(); ok {
		r.want = append(r.want, packWant(pfn, i, k))
	}
}

// anon reports a present anonymous page that is not the zero page.
func (r *reader) anon(e Entry) bool {
	return e&(entryPresent|entryFile) == entryPresent && PFN(e&entryFrameMask) != r.zero
}

func (r *reader) wantAnon(i int, e []Entry) {
	for k, x := range e {
		if x.Present() && (r.anon(x) || x.File()) {
			r.addWant(i, k, x)
		}
	}
}

// wantMissing asks for the flags of what a reference holds in a window in which the process maps nothing: they tell what was
// given up from what the reference allocated since.
func (r *reader) wantMissing(ref int) {
	for k, y := range r.row(ref).Entries {
		if r.anon(y) && y.Exclusive() {
			r.addWant(ref, k, y)
		}
	}
}

// wantDiffering asks for the flags of pages on which member i and its reference differ. Blocks that are equal, nearly
// all of them in a young worker, are passed over by a comparison of memory.
func (r *reader) wantDiffering(i, ref int) {
	e, f := r.row(i).Entries, r.row(ref).Entries
	if f == nil {
		f = r.none[:]
	}
	for b := 0; b < WindowPages; b += block {
		if bytes.Equal(entryBytes(e[b:b+block]), entryBytes(f[b:b+block])) {
			continue
		}
		for left := differing((*[block]Entry)(e[b:]), (*[block]Entry)(f[b:])); left != 0; left &= left - 1 {
			k := b + bits.TrailingZeros64(left)
			x, y := e[k], f[k]
			if r.olderShares(i, k, y) {
				continue
			}
			// In a huge page bit 56 speaks of the head page: its flags say that it is one.
			swap := x.InSwap() || y.InSwap()
			if r.anon(x) && (swap || x.Exclusive() || r.inHuge(i, k)) {
				r.addWant(i, k, x)
			}
			if r.anon(y) && (swap || y.Exclusive() || r.inHuge(ref, k)) {
				r.addWant(ref, k, y)
			}
		}
	}
}

// block is the number of pages that are compared at once.
const block = 64

// differing gives a bit for each page of a block that is not the same in both.
func differing(x, y *[block]Entry) (mask uint64) {
	for k := range block {
		var bit uint64
		if (x[k]^y[k])&sameMask != 0 {
			bit = 1
		}
		mask |= bit << k
	}
	return mask
}

// olderShares reports that the reference's page y is present and shared by a sibling older than member i.
func (r *reader) olderShares(i, k int, y Entry) bool {
	if !r.anon(y) {
		return false
	}
	for _, j := range r.c.members[i].older {
		if e := r.row(j).Entries; e != nil && e[k].SamePage(y) {
			return true
		}
	}
	return false
}

// readCounts reads the counts of groups that look like a PMD-mapped huge page: frames in a row, aligned. A group that
// is the same in a process and its reference needs none: it is shared, whatever else.
func (r *reader) readCounts() error {
	r.want = r.want[:0]
	for i, m := range r.c.members {
		e := r.row(i).Entries
		if e == nil {
			continue
		}
		for g := 0; g+groupPages <= WindowPages; g += groupPages {
			grp := e[g : g+groupPages]
			if !r.looksHuge(grp) || r.knownShared(i, m, g) {
				continue
			}
			for k := range grp {
				r.addWant(i, g+k, grp[k])
			}
		}
	}
	if len(r.want) == 0 {
		return nil
	}
	return r.c.counts.read(r.want, r.words, func(i, k int, w uint64) { r.countsOf(i)[k] = int32(min(w, 1<<31-1)) })
}

func (r *reader) countsOf(i int) []int32 {
	row := r.row(i)
	if row.Counts == nil {
		if r.counts[i] == nil {
			r.counts[i] = make([]int32, WindowPages)
		}
		for k := range r.counts[i] {
			r.counts[i][k] = CountUnread
		}
		row.Counts = r.counts[i]
	}
	return row.Counts
}

// inHuge reports a page of a group that looks like a PMD-mapped huge page.
func (r *reader) inHuge(i, k int) bool {
	g := k / groupPages * groupPages
	return r.looksHuge(r.row(i).Entries[g : g+groupPages])
}

func (r *reader) looksHuge(g []Entry) bool {
	first, ok := g[0].Frame()
	if !ok || !r.anon(g[0]) || first%groupPages != 0 || g[0]+groupPages-1 != g[groupPages-1] {
		return false
	}
	for k := range g {
		if g[k] != g[0]+Entry(k) {
			return false
		}
	}
	return true
}

// knownShared reports a group that member i has in common with its reference or, where it has none, with all its children.
func (r *reader) knownShared(i int, m *member, g int) bool {
	same := func(j int) bool {
		f := r.row(j).Entries
		e := r.row(i).Entries
		return f != nil && bytes.Equal(entryBytes(e[g:g+groupPages]), entryBytes(f[g:g+groupPages]))
	}
	if m.ref >= 0 {
		return same(m.ref)
	}
	for _, k := range m.children {
		if !same(k) {
			return false
		}
	}
	return len(m.children) > 0
}
