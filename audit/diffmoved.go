package audit

import (
	"cowaudit/pagemap"
)

// findMoves looks in both snapshots for mappings that a process moved.
func (d *differ) findMoves(before, after *pagemap.Snapshot) error {
	lb, err := count(before, nil)
	if err != nil {
		return err
	}
	la, err := count(after, nil)
	if err != nil {
		return err
	}
	for _, p := range d.pairs {
		if p.ib >= 0 && p.ia >= 0 {
			p.before, p.after = lb.moves[p.ib], la.moves[p.ia]
		}
	}
	return nil
}

func (m move) origin() (lo, hi pagemap.Addr) { return m.start - m.delta, m.end - m.delta }

func inRange(a, lo, hi pagemap.Addr) bool { return a >= lo && a < hi }

// touchedByMove reports an address that a moved mapping has come from or gone to: movedPages judges its page.
func (p *pairDiff) touchedByMove(a pagemap.Addr) bool {
	for _, list := range [][]move{p.before, p.after} {
		for _, m := range list {
			if lo, hi := m.origin(); inRange(a, lo, hi) || inRange(a, m.start, m.end) {
				return true
			}
		}
	}
	return false
}

// placeOf gives where a page that the reference has at address a lies in the process.
func placeOf(moves []move, a pagemap.Addr) pagemap.Addr {
	for _, m := range moves {
		if lo, hi := m.origin(); inRange(a, lo, hi) {
			return a + m.delta
		}
	}
	return a
}

// movedPages follows the pages of moved mappings: each page of the reference is compared with the process' page at the
// place where the process had it at that moment.
func (d *differ) movedPages(p *pairDiff, before, after *pagemap.Snapshot) error {
	done := map[pagemap.Addr]bool{}
	for _, list := range [][]move{p.before, p.after} {
		for _, m := range list {
			for at, hi := m.origin(); at < hi; at += d.a.page {
				if done[at] {
					continue
				}
				done[at] = true
				if err := d.movedPage(p, before, after, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// movedPage judges the page that the reference has at address at.
func (d *differ) movedPage(p *pairDiff, before, after *pagemap.Snapshot, at pagemap.Addr) error {
	sb, rb, err := pairAt(before, p, at, placeOf(p.before, at))
	if err != nil {
		return err
	}
	place := placeOf(p.after, at)
	sa, ra, err := pairAt(after, p, at, place)
	if err != nil {
		return err
	}
	maps := d.a.fam.Processes[p.ia].Mappings
	k := mappingAt(maps, place)
	if k == len(maps) || maps[k].Start > place || !inRange(place, d.a.lo, d.a.hi) {
		return nil
	}
	c := copiedAt(p.own, k)
	never := func() bool { return false }
	if place != at {
		// What the process has put since where the mapping came from is its own.
		if o, _, err := pairAt(after, p, at, at); err != nil {
			return err
		} else if o.e.Held() && d.a.anon(o.e) {
			if j := mappingAt(maps, at); j < len(maps) && maps[j].Start <= at {
				copiedAt(p.own, j).NewPages++
			}
		}
	}
	shared := sb.e.Held() && d.b.anon(sb.e) && d.b.anonWord(sb, rb, true, never, noOther) == cShared
	held := sa.e.Held() && d.a.anon(sa.e)
	switch {
	case !shared && held && !(sb.e.Held() && d.b.anon(sb.e)):
		c.NewPages++
		return nil
	case !shared && !held && sb.e.Held() && d.b.anon(sb.e):
		c.FreedPages++
		return nil
	case !shared:
		return nil
	}
	c.SharedBefore++
	if !held {
		c.DroppedPages++
		return nil
	}
	switch d.a.anonWord(sa, ra, true, never, noOther) {
	case cShared:
		c.StillShared++
	case cCopied:
		by := c.sides(sa, ra, sb.e, rb.e, d.a.forked[p.ia], false)
		c.Change.NotCompared++
		if d.pages != nil {
			d.pages.add(p, copiedPage{addr: place, was: placeOf(p.before, at), refAddr: at, by: by, change: cNotCompared, large: sa.large() || ra.large()})
		}
	case cNew, cKept:
		c.KeptPages++
	case cMerged:
		c.ReplacedPages++
	default:
		c.UnknownPages++
	}
	return nil
}

// pairAt gives the process' page at place and the reference's at address at.
func pairAt(s *pagemap.Snapshot, p *pairDiff, at, place pagemap.Addr) (own, ref side, err error) {
	a, b, err := s.ReadPairs(p.proc.PID, place, p.proc.Reference, at, 1)
	if err != nil {
		return own, ref, err
	}
	return sideOf(a, 0), sideOf(b, 0), nil
}
