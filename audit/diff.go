package audit

import (
	"errors"
	"fmt"
	"slices"

	"cowaudit/pagemap"
)

// ErrUnrelated: two snapshots have no process in common.
var ErrUnrelated = errors.New("the two snapshots have no process in common")

// Diff gives the pages that each process shared with its reference before and does not share after. A process is
// compared with its reference at both moments, never with its own past: frames that migration moved, for both sides at
// once, are no copies. Processes are paired by PID and start time; the error is ErrUnrelated where none pairs.
func Diff(before, after *pagemap.Snapshot, o Options) (*DiffReport, error) {
	r, _, err := diff(before, after, o, false)
	return r, err
}

// DiffPages is Diff, and gives each copied page beside it, for [Attribute].
func DiffPages(before, after *pagemap.Snapshot, o Options) (*DiffReport, *CopiedPages, error) {
	return diff(before, after, o, true)
}

func diff(before, after *pagemap.Snapshot, o Options, keep bool) (*DiffReport, *CopiedPages, error) {
	if before.Fam.Facts.PageSize != after.Fam.Facts.PageSize {
		return nil, nil, fmt.Errorf("%w: page sizes of %d and %d bytes", ErrUnrelated, before.Fam.Facts.PageSize, after.Fam.Facts.PageSize)
	}
	d := &differ{b: newLedger(newFamily(&before.Fam, o.Range)), a: newLedger(newFamily(&after.Fam, o.Range))}
	if !related(&before.Fam, &after.Fam) {
		return nil, nil, ErrUnrelated
	}
	d.pair()
	if len(d.pairs) == 0 {
		return nil, nil, ErrUnrelated
	}
	if err := d.findMoves(before, after); err != nil {
		return nil, nil, err
	}
	if keep {
		d.pages = &CopiedPages{d: d, before: before, after: after}
	}
	for _, start := range windowStarts(before, after) {
		d.b.w, d.a.w = windowAt(before, start), windowAt(after, start)
		for _, p := range d.pairs {
			if p.ib >= 0 && p.ia >= 0 {
				d.process(p)
			} else if p.ib >= 0 {
				d.lost(p)
			}
		}
	}
	for _, p := range d.pairs {
		if err := d.movedPages(p, before, after); err != nil {
			return nil, nil, err
		}
	}
	r := d.report(before, after, o)
	if err := errors.Join(CheckDiff(r), d.pages.check(r)); err != nil {
		return nil, nil, err
	}
	r.Findings = FindingsForDiff(r)
	return r, d.pages, nil
}

// related reports whether any process is in both families.
func related(a, b *pagemap.Family) bool {
	for i := range a.Processes {
		if _, ok := b.Process(a.Processes[i].Identity); ok {
			return true
		}
	}
	return false
}

// windowStarts joins the places of both snapshots' windows.
func windowStarts(a, b *pagemap.Snapshot) []pagemap.Addr {
	var out []pagemap.Addr
	for _, s := range []*pagemap.Snapshot{a, b} {
		for i := range s.Windows {
			out = append(out, s.Windows[i].Start)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// windowAt gives a snapshot's window, or one in which nobody holds anything.
func windowAt(s *pagemap.Snapshot, start pagemap.Addr) *pagemap.Window {
	if w := s.Find(start); w != nil {
		return w
	}
	return &pagemap.Window{Start: start, Rows: make([]pagemap.Row, len(s.Fam.Processes))}
}

// differ walks two snapshots at once.
type differ struct {
	b, a  *ledger // before and after: they classify, and count nothing
	pairs []*pairDiff
	pages *CopiedPages // nil where nobody asked for them
}

// pairDiff is one process at both moments.
type pairDiff struct {
	ib, ia int // index before and after; -1: not there, or not readable then
	proc   *pagemap.Process
	own    map[int]*Copied // by index of the mapping after
	gone   map[int]*Copied // by index of the mapping before, where there is none after
	before []move          // mappings moved at the first capture
	after  []move          // at the second
	kinds  []RegionKind    // of the mappings after; nil until one is needed
}

// pair matches the processes that have a reference at one of both moments.
func (d *differ) pair() {
	after := d.a.fam
	for ib := range d.b.fam.Processes {
		p := &d.b.fam.Processes[ib]
		if d.b.ref[ib] < 0 {
			continue
		}
		ia, ok := after.Process(p.Identity)
		same := ok && d.a.ref[ia] >= 0 && after.Processes[ia].Reference == p.Reference
		_, refAlive := after.Process(d.b.fam.Processes[d.b.ref[ib]].Identity)
		if !same || !refAlive {
			ia = -1
		}
		d.pairs = append(d.pairs, &pairDiff{ib: ib, ia: ia, proc: p, own: map[int]*Copied{}, gone: map[int]*Copied{}})
	}
	for ia := range after.Processes {
		if d.a.ref[ia] < 0 {
			continue
		}
		if _, ok := d.b.fam.Process(after.Processes[ia].Identity); !ok {
			d.pairs = append(d.pairs, &pairDiff{ib: -1, ia: ia, proc: &after.Processes[ia], own: map[int]*Copied{}, gone: map[int]*Copied{}})
		}
	}
}

// cursor steps through a process' mappings with ascending addresses.
type cursor struct {
	maps []pagemap.Mapping
	k    int
}

func (c *cursor) at(a pagemap.Addr) (int, *pagemap.Mapping) {
	for c.k < len(c.maps) && c.maps[c.k].End <= a {
		c.k++
	}
	if c.k < len(c.maps) && c.maps[c.k].Start <= a {
		return c.k, &c.maps[c.k]
	}
	return -1, nil
}

func cursorAt(maps []pagemap.Mapping, a pagemap.Addr) cursor {
	return cursor{maps, mappingAt(maps, a)}
}

// process compares one process' pages in the current windows.
func (d *differ) process(p *pairDiff) {
	cb := cursorAt(d.b.fam.Processes[p.ib].Mappings, d.b.w.Start)
	ca := cursorAt(d.a.fam.Processes[p.ia].Mappings, d.a.w.Start)
	for k := range pagemap.WindowPages {
		at := d.a.w.Start + pagemap.Addr(k)*d.a.page
		eb, ea := d.b.entry(p.ib, k), d.a.entry(p.ia, k)
		if (eb == 0 && ea == 0) || at < d.a.lo || at >= d.a.hi || p.touchedByMove(at) {
			continue
		}
		nb, mb := cb.at(at)
		na, ma := ca.at(at)
		var c *Copied
		switch {
		case ma != nil:
			c = copiedAt(p.own, na)
		case mb != nil:
			c = copiedAt(p.gone, nb)
		default:
			continue
		}
		d.page(p, k, mb, ma, c)
	}
}

func copiedAt(m map[int]*Copied, k int) *Copied {
	if m[k] == nil {
		m[k] = new(Copied)
	}
	return m[k]
}

// lost counts what a process shared that could not be read again: nothing is known of it.
func (d *differ) lost(p *pairDiff) {
	cb := cursorAt(d.b.fam.Processes[p.ib].Mappings, d.b.w.Start)
	for k := range pagemap.WindowPages {
		at := d.b.w.Start + pagemap.Addr(k)*d.b.page
		if d.b.entry(p.ib, k) == 0 || at < d.b.lo || at >= d.b.hi {
			continue
		}
		if n, m := cb.at(at); m != nil && d.wordBefore(p, m, k) == cShared {
			c := copiedAt(p.gone, n)
			c.SharedBefore++
			c.UnknownPages++
		}
	}
}

func (d *differ) wordBefore(p *pairDiff, m *pagemap.Mapping, k int) counter {
	s := d.b.side(p.ib, k)
	if !s.e.Held() {
		return nCounters
	}
	return d.b.word(p.ib, m, k, s, d.b.refSide(p.ib, k))
}

// wordAfter judges a page at the second capture; nCounters: not held.
func (d *differ) wordAfter(p *pairDiff, m *pagemap.Mapping, k int, s, r side) counter {
	if m == nil || !s.e.Held() {
		return nCounters
	}
	if u := d.a.w.Rows[p.ia].Unstable; u != nil && u[k] {
		return cUnstable
	}
	return d.a.word(p.ia, m, k, s, r)
}

// page judges one page of a process at both moments.
func (d *differ) page(p *pairDiff, k int, mb, ma *pagemap.Mapping, c *Copied) {
	before := nCounters
	if mb != nil {
		before = d.wordBefore(p, mb, k)
	}
	s, r := d.a.side(p.ia, k), d.a.refSide(p.ia, k)
	now := d.wordAfter(p, ma, k, s, r)
	if before != cShared {
		d.unshared(p, k, before, now, ma, c)
		return
	}
	c.SharedBefore++
	switch {
	case now == nCounters:
		c.DroppedPages++
	case now == cShared:
		c.StillShared++
	case now == cCopied, now == cSwapped && d.a.anon(r.e):
		d.copied(p, k, mb, ma, s, r, c)
	case now == cNew, now == cKept:
		c.KeptPages++
	case now == cFile, now == cZero, now == cMerged:
		c.ReplacedPages++
	default:
		c.UnknownPages++
	}
}

// unshared counts a page that was not shared before.
func (d *differ) unshared(p *pairDiff, k int, before, now counter, ma *pagemap.Mapping, c *Copied) {
	own := func(w counter) bool { return w < cDropped && w != cFile && w != cZero && w != cShared }
	switch {
	case own(now) && !own(before):
		c.NewPages++
		if before == cFile || (ma.Inode != 0 && ma.Path != "/dev/zero" && ma.HugePage == 0) {
			c.NewFromFile++
		}
	case own(before) && now == nCounters:
		c.FreedPages++
	}
}

// copied counts a page that was shared and is not: whose frame changed says who copied. Where both frames changed, a
// migration between the captures or two copies, the flags after it may still tell.
func (d *differ) copied(p *pairDiff, k int, mb, ma *pagemap.Mapping, s, r side, c *Copied) {
	by := c.sides(s, r, d.b.entry(p.ib, k), d.b.entry(d.b.ref[p.ib], k), d.a.forked[p.ia], d.a.olderShares(p.ia, k, r.e))
	if mb == nil || ma.Inode != mb.Inode || cutBy(mb.Extent(), ma.Extent()) {
		c.InChangedMappings++
	}
	words, known := int16(0), false
	if row := d.a.w.Rows[p.ia].Words; row != nil {
		words, known = row[k], true
	}
	change := changeOf(words, known)
	c.Change.count(change)
	if d.pages != nil {
		at := d.a.w.Start + pagemap.Addr(k)*d.a.page
		d.pages.add(p, copiedPage{addr: at, was: at, refAddr: at, by: by, change: change, large: s.large() || r.large(), hugeTLB: ma.HugePage > 0})
	}
}

// sides counts a copied page by who copied it, and gives that: s and r are the two sides after, sb and rb their entries
// before.
func (c *Copied) sides(s, r side, sb, rb pagemap.Entry, forked, olderShares bool) counter {
	c.CopiedPages++
	worker, ref := !s.e.SamePage(sb), !r.e.SamePage(rb)
	switch by := copiedBy(s, r, forked, no, func() bool { return olderShares }); {
	case worker && !ref, worker == ref && by == cByWorker:
		c.CopiedByWorker++
		return cByWorker
	case ref && !worker, by == cByReference:
		c.CopiedByReference++
		return cByReference
	}
	sw, sok := s.wrote()
	rw, rok := r.wrote()
	if sok && rok && sw && rw {
		c.CopiedByBoth++
		return cByBoth
	}
	c.CopiedByUndetermined++
	return cByUndetermined
}

// cutBy reports that a mapping has an end inside of what was one mapping before: it was cut or replaced. Growth is neither.
func cutBy(was, is pagemap.Extent) bool {
	return is.Start > was.Start && is.Start < was.End || is.End > was.Start && is.End < was.End
}

func (c *Change) count(k counter) {
	switch k {
	case cIdentical:
		c.Identical++
	case cOneWord:
		c.OneWord++
	case cFewWords:
		c.FewWords++
	case cManyWords:
		c.ManyWords++
	case cRewritten:
		c.Rewritten++
	default:
		c.NotCompared++
	}
}
