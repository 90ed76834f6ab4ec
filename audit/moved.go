package audit

import (
	"errors"
	"fmt"
	"slices"

	"cowaudit/pagemap"
)

// movedBatch is the number of pages read at once while a moved mapping is looked for and judged.
const movedBatch = 512

// findMoved finds mappings that a process moved (mremap): they hold frames that others map at another address, while at
// the old address the reference's pages have no counterpart. Such a mapping is judged anew against the reference's pages
// where it came from.
func (l *ledger) findMoved(src pagemap.Source) error {
	pr, ok := src.(pairReader)
	if !ok {
		return nil
	}
	for i := range l.fam.Processes {
		r := l.ref[i]
		if !l.audited[i] || r < 0 || !l.audited[r] {
			continue
		}
		lost := l.lostRanges(i)
		if len(lost) == 0 {
			continue
		}
		if err := l.findMovedOf(pr, i, lost); errors.Is(err, pagemap.ErrGone) {
			// It, or its reference, ended or exec'd after its pages had been read: they stand as they were counted.
			p := &l.fam.Processes[i]
			l.fam.Warnings = append(l.fam.Warnings, pagemap.Warning{Code: "moved_unknown", PID: p.PID,
				Text:   fmt.Sprintf("process %d or its reference ended before its moved mappings could be judged: their pages count as new, and dropped where they came from", p.PID),
				Remedy: "run again for the family as it is now"})
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (l *ledger) findMovedOf(pr pairReader, i int, lost []lostRange) error {
	frames, err := l.lostFrames(pr, l.ref[i], lost)
	if err != nil {
		return err
	}
	for k, c := range l.own[i] {
		if c == nil || c[cElsewhere] == 0 {
			continue
		}
		m := &l.fam.Processes[i].Mappings[k]
		if err := l.judgeMoved(pr, i, m, c, frames, lost); err != nil {
			return err
		}
	}
	return nil
}

// move is a mapping that a process moved: its pages came from start-delta on.
type move struct{ start, end, delta pagemap.Addr }

// lostRange is a mapping of the reference in which the process has lost pages, and the cells that say so.
type lostRange struct {
	start, end pagemap.Addr
	cell       *cell
}

func (l *ledger) lostRanges(i int) []lostRange {
	some := false
	for _, c := range l.own[i] {
		some = some || c != nil && c[cElsewhere] > 0
	}
	if !some {
		return nil
	}
	var out []lostRange
	add := func(m *pagemap.Mapping, c *cell) {
		if c != nil && c[cDropped]+c[cReferenceOnly] > 0 {
			out = append(out, lostRange{m.Start, m.End, c})
		}
	}
	for k, c := range l.gone[i] {
		add(&l.fam.Processes[l.ref[i]].Mappings[k], c)
	}
	for k, c := range l.own[i] {
		add(&l.fam.Processes[i].Mappings[k], c)
	}
	slices.SortFunc(out, func(a, b lostRange) int { return cmpAddr(a.start, b.start) })
	return out
}

func cmpAddr(a, b pagemap.Addr) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// maxLostFrames bounds the table of frames (16 bytes each).
const maxLostFrames = 4 << 20

// lostFrames gives the reference's frames in the lost ranges, with their addresses.
func (l *ledger) lostFrames(pr pairReader, r int, lost []lostRange) (map[pagemap.PFN]pagemap.Addr, error) {
	frames := map[pagemap.PFN]pagemap.Addr{}
	pid := l.fam.Processes[r].PID
	for _, g := range lost {
		for at := g.start; at < g.end && len(frames) < maxLostFrames; at += movedBatch * l.page {
			n := int(min(movedBatch, (g.end-at)/l.page))
			row, _, err := pr.ReadPairs(pid, at, 0, 0, n)
			if err != nil {
				return nil, fmt.Errorf("look for moved pages: %w", err)
			}
			for k, e := range row.Entries {
				if pfn, ok := e.Frame(); ok && l.anon(e) {
					frames[pfn] = at + pagemap.Addr(k)*l.page
				}
			}
		}
	}
	return frames, nil
}

// judgeMoved finds the distance by which most of the mapping's shared frames were moved and, where there is one, counts
// the mapping anew at that distance.
func (l *ledger) judgeMoved(pr pairReader, i int, m *pagemap.Mapping, c *cell, frames map[pagemap.PFN]pagemap.Addr, lost []lostRange) error {
	p, ref := &l.fam.Processes[i], &l.fam.Processes[l.ref[i]]
	votes := map[pagemap.Addr]int{}
	err := l.eachBatch(m, func(at pagemap.Addr, n int) error {
		row, _, err := pr.ReadPairs(p.PID, at, 0, 0, n)
		for k, e := range row.Entries {
			if pfn, ok := e.Frame(); ok && l.anon(e) {
				if from, ok := frames[pfn]; ok {
					votes[at+pagemap.Addr(k)*l.page-from]++
				}
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("look for moved pages of %d: %w", p.PID, err)
	}
	delta, most := pagemap.Addr(0), 0
	for d, n := range votes {
		if n > most || n == most && d < delta {
			delta, most = d, n
		}
	}
	if most == 0 {
		return nil
	}
	l.moves[i] = append(l.moves[i], move{m.Start, m.End, delta})
	err = l.eachBatch(m, func(at pagemap.Addr, n int) error {
		own, theirs, err := pr.ReadPairs(p.PID, at, ref.PID, at-delta, n)
		if err != nil {
			return err
		}
		others, err := l.othersAt(pr, i, at-delta, n)
		if err != nil {
			return err
		}
		for k := range own.Entries {
			from := at + pagemap.Addr(k)*l.page - delta
			if l.recount(c, sideOf(own, k), sideOf(theirs, k), from, lost) {
				l.foundAtReference(l.ref[i], from, theirs.Entries[k], others, k)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("judge moved pages of %d: %w", p.PID, err)
	}
	return nil
}

// othersAt reads the pages at an address of all audited processes but i and its reference.
func (l *ledger) othersAt(pr pairReader, i int, at pagemap.Addr, n int) ([]pagemap.Row, error) {
	var rows []pagemap.Row
	for j := range l.fam.Processes {
		if !l.audited[j] || j == i || j == l.ref[i] {
			continue
		}
		row, _, err := pr.ReadPairs(l.fam.Processes[j].PID, at, 0, 0, n)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// foundAtReference counts a moved page as shared on the side of a reference that has none itself, where no other process
// had it at the same address already.
func (l *ledger) foundAtReference(r int, at pagemap.Addr, e pagemap.Entry, others []pagemap.Row, k int) {
	l.distinctAnon--
	if l.ref[r] >= 0 {
		return
	}
	for _, row := range others {
		if e.SamePage(row.Entries[k]) {
			return
		}
	}
	if c := l.own[r][mappingAt(l.fam.Processes[r].Mappings, at)]; c != nil && c[cUnshared] > 0 {
		c[cUnshared]--
		c[cShared]++
	}
}

// recount takes a page that was counted as new (or kept) and judges it against where it came from; shared reports that
// the two processes have it in common.
func (l *ledger) recount(c *cell, s, r side, from pagemap.Addr, lost []lostRange) (shared bool) {
	if !s.e.Held() || !l.anon(s.e) || !l.anon(r.e) {
		return false
	}
	j, _ := slices.BinarySearchFunc(lost, from, func(g lostRange, a pagemap.Addr) int {
		if g.end <= a {
			return -1
		}
		return 1
	})
	if j == len(lost) || from < lost[j].start {
		return false
	}
	g := lost[j].cell
	// It was one of the mapping's new or kept pages, and one of the lost ones; what is not there to be taken was never
	// counted so and stays as it is.
	was, gone := cNew, cDropped
	if c[cNew] == 0 {
		was = cKept
	}
	if g[cDropped] == 0 {
		gone = cReferenceOnly
	}
	if c[was] == 0 || g[gone] == 0 {
		return false
	}
	c[was]--
	if c[cNewFromFile] > c[cNew] {
		c[cNewFromFile] = c[cNew] // all new pages of a file's mapping are
	}
	g[gone]--
	switch word := l.anonWord(s, r, true, no, noOther); word {
	case cShared:
		c[cShared]++
		c[cMoved]++
		// It was counted as somebody else's too, at this address or at another.
		switch {
		case s.exclusive():
		case c[cElsewhere] > 0:
			c[cElsewhere]--
		case c[cSiblings] > 0:
			c[cSiblings]--
		}
		return true
	case cCopied:
		c[cCopied]++
		c[copiedBy(s, r, true, no, no)]++
		c[cNotCompared]++
	default:
		c[word]++
	}
	return false
}

func sideOf(row pagemap.Row, k int) side {
	s := side{flags: pagemap.FlagsUnread, count: pagemap.CountUnread}
	if k < len(row.Entries) {
		s.e = row.Entries[k]
	}
	if k < len(row.Flags) {
		s.flags = row.Flags[k]
	}
	return s
}

func (l *ledger) eachBatch(m *pagemap.Mapping, f func(at pagemap.Addr, n int) error) error {
	for at := max(m.Start, l.lo); at < min(m.End, l.hi); at += movedBatch * l.page {
		if err := f(at, int(min(movedBatch, (min(m.End, l.hi)-at)/l.page))); err != nil {
			return err
		}
	}
	return nil
}

// mappingAt gives the index of the first mapping that ends after addr.
func mappingAt(maps []pagemap.Mapping, addr pagemap.Addr) int {
	i, _ := slices.BinarySearchFunc(maps, addr, func(m pagemap.Mapping, a pagemap.Addr) int {
		if m.End <= a {
			return -1
		}
		return 1
	})
	return i
}
