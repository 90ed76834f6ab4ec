package audit

import (
	"bytes"
	"math/bits"
	"sort"
	"unsafe"

	"cowaudit/pagemap"
)

// stride is the number of pages that are compared as one block of memory. In a young worker nearly all blocks equal the
// reference's, and one comparison settles 64 pages.
const (
	stride  = 64
	strides = pagemap.WindowPages / stride
)

// ledger is a Visitor that counts the pages of a family by word, for each mapping of each process.
type ledger struct {
	*family
	own          [][]*cell // for each process, its mappings' cells; nil: nothing there
	gone         [][]*cell // for each process, cells of the reference's mappings where the process maps nothing
	moves        [][]move  // for each process, the mappings that it moved
	distinctAnon int64
	distinctFile int64
	partial      bool // a process was counted in part and taken out again

	// of the current window
	w       *pagemap.Window
	equal   []uint32         // for each process, a bit for each stride that equals the reference's
	tally   [][strides]tally // for each process that is a reference, what its strides hold
	tallied []uint32
	heldBy  [][strides]uint64 // for each process that is a reference: pages that a process judged against it shares
	heldSet []bool
	merged  []bool // for each process, whether a page of its row is merged by KSM
}

// tally counts a stride of a reference by kind of entry, so that an equal stride of a worker is counted at once.
type tally struct {
	anon, file, zero, swap, guard, hidden int32
	plain                                 uint64 // the pages counted in anon
}

func newLedger(f *family) *ledger {
	n := len(f.fam.Processes)
	l := &ledger{family: f, own: make([][]*cell, n), gone: make([][]*cell, n), moves: make([][]move, n), equal: make([]uint32, n),
		tally: make([][strides]tally, n), tallied: make([]uint32, n), heldBy: make([][strides]uint64, n), heldSet: make([]bool, n), merged: make([]bool, n)}
	for i := range f.fam.Processes {
		if !f.audited[i] {
			continue
		}
		l.own[i] = make([]*cell, len(f.fam.Processes[i].Mappings))
		if r := f.ref[i]; r >= 0 {
			l.gone[i] = make([]*cell, len(f.fam.Processes[r].Mappings))
		}
	}
	return l
}

func cellAt(cells []*cell, i int) *cell {
	if cells[i] == nil {
		cells[i] = new(cell)
	}
	return cells[i]
}

// merge adds another goroutine's ledger.
func (l *ledger) merge(o *ledger) {
	add := func(to, from [][]*cell) {
		for p := range from {
			for i, c := range from[p] {
				if c != nil {
					cellAt(to[p], i).add(c)
				}
			}
		}
	}
	add(l.own, o.own)
	add(l.gone, o.gone)
	l.distinctAnon += o.distinctAnon
	l.distinctFile += o.distinctFile
}

// Window implements pagemap.Visitor. Processes stand parents before children; they are taken last to first, so that
// which pages of a reference are shared by those judged against it is known when its own turn comes.
func (l *ledger) Window(w *pagemap.Window) error {
	l.w = w
	clear(l.tallied)
	clear(l.heldSet)
	for i := len(w.Rows) - 1; i >= 0; i-- {
		if !l.audited[i] {
			continue
		}
		l.equal[i] = 0
		if l.ref[i] >= 0 {
			l.findEqual(i)
		}
		l.process(i)
	}
	return nil
}

// findEqual compares the strides of process i with its reference's.
func (l *ledger) findEqual(i int) {
	e, r := l.w.Rows[i].Entries, l.w.Rows[l.ref[i]].Entries
	l.merged[i] = l.w.Rows[i].Flags != nil && l.ksmWindow(i)
	if e == nil || r == nil || l.merged[i] || l.w.Rows[i].Unstable != nil {
		return
	}
	for b := range strides {
		if bytes.Equal(raw(e[b*stride:(b+1)*stride]), raw(r[b*stride:(b+1)*stride])) {
			l.equal[i] |= 1 << b
		}
	}
}

// ksmWindow reports whether any page of the row is merged; then each page must be looked at.
func (l *ledger) ksmWindow(i int) bool {
	for _, f := range l.w.Rows[i].Flags {
		if f.Known() && f&pagemap.KFlagKSM != 0 {
			return true
		}
	}
	return false
}

func raw(e []pagemap.Entry) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&e[0])), len(e)*8)
}

// hold marks pages of stride s of reference r that somebody judged against it shares.
func (l *ledger) hold(r, s int, pages uint64) {
	if !l.heldSet[r] {
		l.heldSet[r] = true
		l.heldBy[r] = [strides]uint64{}
	}
	l.heldBy[r][s] |= pages
}

// process counts one process' part of the window, mapping by mapping, and what lies between its mappings.
func (l *ledger) process(i int) {
	p := &l.fam.Processes[i]
	end := l.w.Start + pagemap.WindowPages*l.page
	at, stop := max(l.w.Start, l.lo), min(end, l.hi)
	if at >= stop {
		return // a snapshot of more than the range
	}
	k := sort.Search(len(p.Mappings), func(k int) bool { return p.Mappings[k].End > at })
	for ; k < len(p.Mappings) && p.Mappings[k].Start < stop; k++ {
		m := &p.Mappings[k]
		lo, hi := max(at, m.Start), min(stop, m.End)
		if lo > at {
			l.between(i, at, lo)
		}
		if m.Readable() && l.w.Rows[i].Entries != nil {
			l.mapping(i, m, k, l.index(lo), l.index(hi+l.page-1))
		}
		at = hi
	}
	if at < stop {
		l.between(i, at, stop)
	}
}

func (l *ledger) index(a pagemap.Addr) int { return int((a - l.w.Start) / l.page) }

// mapping counts pages [a, b) of the window, which lie in mapping k of process i.
func (l *ledger) mapping(i int, m *pagemap.Mapping, k, a, b int) {
	var c *cell
	for a < b {
		s := a / stride
		if a%stride == 0 && a+stride <= b && l.equal[i]&(1<<s) != 0 {
			if t := l.strideTally(l.ref[i], s); t.hidden == 0 && (t.file == 0 || !m.Private() || m.Inode != 0) {
				if *t != (tally{}) {
					if c == nil {
						c = cellAt(l.own[i], k)
					}
					l.addTally(i, m, c, t, s)
				}
				a += stride
				continue
			}
		}
		stop := min(b, (s+1)*stride)
		first := s * stride
		todo := ^uint64(0) << (a - first) & (^uint64(0) >> (first + stride - stop))
		if l.simple(i, m) {
			if c == nil {
				c = cellAt(l.own[i], k)
			}
			todo &^= l.countSimple(i, c, s, todo)
		}
		for ; todo != 0; todo &= todo - 1 {
			a := first + bits.TrailingZeros64(todo)
			if l.trivial(i, a) {
				continue
			}
			if c == nil {
				c = cellAt(l.own[i], k)
			}
			l.count(i, m, c, a)
		}
		a = stop
	}
}

// countSimple counts those pages of a stride that need no closer look, shared ones and plain copies, and gives them as bits.
func (l *ledger) countSimple(i int, c *cell, s int, todo uint64) uint64 {
	r, row := l.ref[i], &l.w.Rows[i]
	e, f := (*[stride]pagemap.Entry)(row.Entries[s*stride:]), (*[stride]pagemap.Entry)(l.w.Rows[r].Entries[s*stride:])
	same, plain := equalPages(e, f), l.strideTally(r, s).plain&todo
	shared := same & plain
	n := int64(bits.OnesCount64(shared))
	c[cShared] += n
	c[cResident] += n
	if n > 0 {
		l.hold(r, s, shared)
	}
	if row.Counts != nil || row.Words != nil || len(l.older[i]) == 0 {
		return shared
	}
	// A page of its own where an older sibling shares the reference's: copied by the worker (see copiedBy).
	copied := uint64(0)
	for left := plain &^ same; left != 0; left &= left - 1 {
		k := bits.TrailingZeros64(left)
		if x := e[k]; x.Present() && !x.File() && x.Exclusive() && !x.Hidden() && !l.isZero(x) && !x.SamePage(f[k]) && l.olderShares(i, s*stride+k, f[k]) {
			copied |= 1 << k
		}
	}
	n = int64(bits.OnesCount64(copied))
	for _, w := range [...]counter{cCopied, cByWorker, cNotCompared, cResident, cPrivate} {
		c[w] += n
	}
	l.distinctAnon += n
	return shared | copied
}

// equalPages gives a bit for each page on which two strides agree.
func equalPages(x, y *[stride]pagemap.Entry) uint64 {
	var same uint64
	for k := range stride {
		var bit uint64
		if x[k] == y[k] {
			bit = 1
		}
		same |= bit << k
	}
	return same
}

// simple reports that a page of mapping m which equals the reference's, present and anonymous, is shared without a closer
// look: nothing in the window is merged or unstable.
func (l *ledger) simple(i int, m *pagemap.Mapping) bool {
	w := &l.w.Rows[i]
	return l.ref[i] >= 0 && l.w.Rows[l.ref[i]].Entries != nil && m.Private() && m.HugePage == 0 && l.visible &&
		w.Unstable == nil && !l.merged[i]
}

// trivial reports a page that neither the process nor its reference has anything for.
func (l *ledger) trivial(i, a int) bool {
	if l.w.Rows[i].Entries[a] != 0 {
		return false
	}
	r := l.ref[i]
	return r < 0 || l.w.Rows[r].Entries == nil || l.w.Rows[r].Entries[a] == 0
}

// strideTally counts the kinds of entries in stride s of reference r.
func (l *ledger) strideTally(r, s int) *tally {
	t := &l.tally[r][s]
	if l.tallied[r]&(1<<s) != 0 {
		return t
	}
	l.tallied[r] |= 1 << s
	*t = tally{}
	for k, e := range l.w.Rows[r].Entries[s*stride : (s+1)*stride] {
		switch {
		case e == 0:
		case e.Hidden():
			t.hidden++
		case e.Guard():
			t.guard++
		case e.File():
			t.file++
		case l.isZero(e):
			t.zero++
		case e.Present():
			t.anon++
			t.plain |= 1 << k
		case e.InSwap():
			t.swap++
		default:
			t.hidden++ // markers and what is under migration: page by page
		}
	}
	return t
}

// addTally counts a stride that equals the reference's.
func (l *ledger) addTally(i int, m *pagemap.Mapping, c *cell, t *tally, s int) {
	c[cGuard] += int64(t.guard)
	present := int64(t.anon) + int64(t.file) + int64(t.zero)
	if m.HugePage > 0 {
		c[cHugeTLB] += present
	} else {
		c[cResident] += present - int64(t.zero)
	}
	c[cInSwap] += int64(t.swap)
	if !m.Private() {
		c[cFile] += present + int64(t.swap)
		return
	}
	c[cShared] += int64(t.anon) + int64(t.swap)
	c[cFile] += int64(t.file)
	c[cZero] += int64(t.zero)
	if t.swap > 0 {
		l.hold(l.ref[i], s, ^uint64(0))
	} else if t.anon > 0 {
		l.hold(l.ref[i], s, t.plain)
	}
}

func (l *ledger) side(i, a int) side {
	row := &l.w.Rows[i]
	s := side{flags: pagemap.FlagsUnread, count: pagemap.CountUnread}
	if row.Entries != nil {
		s.e = row.Entries[a]
	}
	if row.Flags != nil {
		s.flags = row.Flags[a]
	}
	if row.Counts != nil {
		s.count = row.Counts[a]
	}
	return s
}

func (l *ledger) refSide(i, a int) side {
	if r := l.ref[i]; r >= 0 {
		return l.side(r, a)
	}
	return side{flags: pagemap.FlagsUnread, count: pagemap.CountUnread}
}

// between counts the pages that the reference holds in [lo, hi), where process i maps nothing.
func (l *ledger) between(i int, lo, hi pagemap.Addr) {
	r := l.ref[i]
	if r < 0 || l.w.Rows[r].Entries == nil {
		return
	}
	maps := l.fam.Processes[r].Mappings
	for k := sort.Search(len(maps), func(k int) bool { return maps[k].End > lo }); k < len(maps) && maps[k].Start < hi; k++ {
		if !maps[k].Private() || !maps[k].Readable() {
			continue
		}
		for a := l.index(max(lo, maps[k].Start)); a < l.index(min(hi, maps[k].End)+l.page-1); a++ {
			if e := l.w.Rows[r].Entries[a]; e != 0 && l.anon(e) {
				cellAt(l.gone[i], k)[l.missing(l.side(r, a))]++
			}
		}
	}
}

// missing judges a page that the reference holds and the process does not: given up since the fork, or the reference's
// own since. A page that the reference wrote since its last fork and nobody shares may be either; it is then counted as
// the reference's own.
func (l *ledger) missing(r side) counter {
	if w, ok := r.wrote(); r.e.Present() && ok && w {
		return cReferenceOnly
	}
	return cDropped
}
