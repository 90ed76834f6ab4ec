package audit

import (
	"cowaudit/pagemap"
)

// CopiedPages are the copied pages of a diff, one by one. It keeps both snapshots, and answers questions about any other
// page of them; it is not safe for concurrent use.
type CopiedPages struct {
	d             *differ
	before, after *pagemap.Snapshot
	pages         []copiedPage
}

// copiedPage is a page that a process shared with its reference before and does not share after.
type copiedPage struct {
	pair    *pairDiff
	addr    pagemap.Addr // in the process
	was     pagemap.Addr // in the process at the first capture: another place where its mapping was moved
	refAddr pagemap.Addr // in the reference
	region  RegionKind
	by      counter // cByWorker, …
	change  counter // cIdentical, …
	large   bool    // the page of one of the sides is part of a larger folio now
	hugeTLB bool
}

// Len is the number of copied pages.
func (c *CopiedPages) Len() int { return len(c.pages) }

func (c *CopiedPages) add(p *pairDiff, page copiedPage) {
	maps := c.d.a.fam.Processes[p.ia].Mappings
	if p.kinds == nil {
		p.kinds = regionKinds(maps)
	}
	page.pair = p
	page.region = p.kinds[mappingAt(maps, page.addr)]
	c.pages = append(c.pages, page)
}

// check holds the list against the counts.
func (c *CopiedPages) check(r *DiffReport) error {
	if c != nil && int64(len(c.pages)) != r.Totals.CopiedPages {
		return breach("%d copied pages were handed out of %d", len(c.pages), r.Totals.CopiedPages)
	}
	return nil
}

// fate says why a page that was copied, by the trace, is not among the copied pages: what the two captures say of the page
// that process pid has at address at, as a process that is judged or as somebody's reference; for only, if that is not 0.
func (c *CopiedPages) fate(pid pagemap.PID, at pagemap.Addr, only pagemap.PID) string {
	out := NotCopiedOtherProcess
	for _, p := range c.d.pairs {
		if p.proc.PID != pid && p.proc.Reference != pid || only != 0 && p.proc.PID != only {
			continue
		}
		switch f := c.fateIn(p, at); {
		case f != NotCopiedNotShared:
			return f
		default:
			out = f
		}
	}
	return out
}

func (c *CopiedPages) fateIn(p *pairDiff, at pagemap.Addr) string {
	d := c.d
	switch {
	case at < d.a.lo || at >= d.a.hi:
		return NotCopiedOutsideRange
	case p.ia < 0 || p.ib < 0:
		return NotCopiedEnded
	case p.touchedByMove(at):
		return NotCopiedMoved
	}
	start := at - at%(pagemap.WindowPages*d.a.page)
	d.b.w, d.a.w = windowAt(c.before, start), windowAt(c.after, start)
	k := int((at - start) / d.a.page)
	mb, ma := mappingOf(d.b.fam.Processes[p.ib].Mappings, at), mappingOf(d.a.fam.Processes[p.ia].Mappings, at)
	if mb == nil || d.wordBefore(p, mb, k) != cShared {
		return NotCopiedNotShared
	}
	s, r := d.a.side(p.ia, k), d.a.refSide(p.ia, k)
	switch now := d.wordAfter(p, ma, k, s, r); {
	case now == nCounters, now == cNew, now == cKept:
		return NotCopiedGivenUp
	case now == cShared:
		return NotCopiedStillShared
	case now == cCopied, now == cSwapped && d.a.anon(r.e):
		return NotCopiedOtherSide
	case now == cFile, now == cZero, now == cMerged:
		return NotCopiedReplaced
	}
	return NotCopiedUnknown
}

func mappingOf(maps []pagemap.Mapping, at pagemap.Addr) *pagemap.Mapping {
	if k := mappingAt(maps, at); k < len(maps) && maps[k].Start <= at {
		return &maps[k]
	}
	return nil
}
