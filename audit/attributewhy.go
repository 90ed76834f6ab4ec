package audit

import (
	"cmp"
	"slices"

	"cowaudit/ebpf"
)

// explain finds out why the trace has no copy of the pages that are left.
func (a *attributor) explain() {
	if len(a.open) > 0 {
		a.explainByAddress()
		a.explainByNumber()
	}
	for i := range a.open {
		a.close(i, UnexplainedUnknown)
	}
}

func (a *attributor) close(i int, reason string) {
	a.unexplain[reason]++
	delete(a.open, i)
}

// opened gives the pages that are left, in order.
func (a *attributor) opened() []int {
	out := make([]int, 0, len(a.open))
	for i := range a.open {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

// spaceOf gives the space in which the copy of a page must have happened.
func (a *attributor) spaceOf(p *copiedPage) ebpf.SpaceID {
	if p.by == cByReference {
		return a.space[p.pair.proc.Reference]
	}
	return a.space[p.pair.proc.PID]
}

// explainByAddress looks for what else the trace saw of the pages.
func (a *attributor) explainByAddress() {
	seen := a.otherFaults()
	for _, i := range a.opened() {
		p := a.pages[i]
		places, others := a.places(p)
		var f *ebpf.Fault
		for _, k := range places {
			if g := seen[k]; g != nil && f == nil {
				f = g
			}
		}
		wrong := false
		for _, k := range others {
			_, ok := a.at[k]
			wrong = wrong || ok && k.space != 0
		}
		space := a.spaceOf(p)
		switch {
		case space == 0:
			a.close(i, UnexplainedNotTraced)
		case f != nil && !a.inWindow(f):
			a.close(i, UnexplainedOutside)
		case f != nil && f.Kind == ebpf.KindHugeTLB || p.hugeTLB:
			a.close(i, UnexplainedHugeTLB)
		case f != nil && (f.Kind == ebpf.KindNew || f.Kind == ebpf.KindZero || f.Kind == ebpf.KindFile):
			a.close(i, UnexplainedRefilled)
		case f != nil && f.Kind == ebpf.KindSwapped:
			a.close(i, UnexplainedFromSwap)
		case f != nil:
			a.close(i, UnexplainedOtherwise)
		case a.late[space]:
			a.close(i, UnexplainedNotTraced)
		case wrong:
			a.close(i, UnexplainedWrongSide)
		case p.large:
			a.close(i, UnexplainedCollapsed)
		}
	}
}

// otherFaults gives the last fault that is about each of the pages left: within the window what was no copy, or a copy
// outside of it.
func (a *attributor) otherFaults() map[spacePage]*ebpf.Fault {
	seen := map[spacePage]*ebpf.Fault{}
	for _, i := range a.opened() {
		places, _ := a.places(a.pages[i])
		for _, k := range places {
			if k.space != 0 {
				seen[k] = nil
			}
		}
	}
	for i := range a.trace.Faults {
		f := &a.trace.Faults[i]
		in := a.inWindow(f)
		if f.Addr == 0 || f.Detail&ebpf.DetailNoFault != 0 || f.Kind == ebpf.KindRead || f.Kind == ebpf.KindShared || in == (f.Kind == ebpf.KindCopied) {
			continue
		}
		a.eachPage(f, func(k spacePage) {
			g, ok := seen[k]
			// What the window has stands before what lies outside of it; of the same, the last.
			if ok && (g == nil || in && !a.inWindow(g) || in == a.inWindow(g) && f.Time >= g.Time) {
				seen[k] = f
			}
		})
	}
	return seen
}

// explainByNumber sets copies whose address is not known, and those whose record was lost, against as many pages.
func (a *attributor) explainByNumber() {
	for _, i := range a.opened() {
		p := a.pages[i]
		space := a.spaceOf(p)
		if q := a.quiet[space]; len(q) > 0 {
			a.byNum.add(a.traceIndex, &a.trace.Faults[q[0]], p, p.by == cByReference)
			a.quiet[space] = q[1:]
			if a.own(space) {
				a.ownByNumber++
			}
			a.close(i, UnexplainedWithoutAddr)
		}
	}
	lost := a.trace.Totals[ebpf.KindCopied].Pages
	for i := range a.trace.Counts {
		if c := &a.trace.Counts[i]; c.Kind == ebpf.KindCopied {
			lost -= c.Pages
		}
	}
	for _, i := range a.opened() {
		if lost <= 0 {
			return
		}
		lost--
		a.close(i, UnexplainedLost)
	}
}

// leftOver finds out why traced pages are no copied pages.
func (a *attributor) leftOver() {
	count := func(space ebpf.SpaceID, reason string, n int64) {
		a.notCopied[reason] += n
		if a.own(space) {
			a.notOwn[reason] += n
		}
	}
	for i := range a.traced {
		t := &a.traced[i]
		if t.used > 0 {
			continue
		}
		s := a.spaces[t.space]
		switch {
		case s == nil:
			count(t.space, NotCopiedUnknown, 1)
		case a.space[s.Process.PID] == 0:
			count(t.space, NotCopiedOtherProcess, 1)
		case a.space[s.Process.PID] != t.space:
			count(t.space, NotCopiedEnded, 1)
		default:
			count(t.space, a.c.fate(s.Process.PID, t.addr, a.o.PID), 1)
		}
	}
	for space, q := range a.quiet {
		if len(q) > 0 {
			count(space, NotCopiedNoAddr, int64(len(q)))
		}
	}
}

// report puts the rows in order.
func (a *attributor) report() *Attribution {
	r := &a.out
	r.Functions = a.rows.list(pageSize(a))
	r.ByNumber = a.byNum.list(pageSize(a))
	r.Unexplained = reasons(a.unexplain, false)
	r.TracedNotCopied = reasons(a.notCopied, true)
	if r.ExplainedPages > 0 {
		p := a.profile.profile()
		r.Profile = &p
	}
	if a.o.PID != 0 {
		r.Counts = a.counts()
	}
	return r
}

// reasons puts counts by reason into a list, the largest first.
func reasons(m map[string]int64, traced bool) []Reason {
	out := []Reason{}
	for code, n := range m {
		if n > 0 {
			out = append(out, Reason{Code: code, Pages: n, Text: reasonText(code, traced)})
		}
	}
	sortReasons(out)
	return out
}

func sortReasons(r []Reason) {
	slices.SortFunc(r, func(a, b Reason) int { return cmp.Or(cmp.Compare(b.Pages, a.Pages), cmp.Compare(a.Code, b.Code)) })
}

func sumReasons(r []Reason) (n int64) {
	for i := range r {
		n += r[i].Pages
	}
	return n
}

// checkAttribution holds an attribution of so many copied pages against the laws that [Attribution] states.
func checkAttribution(r *Attribution, copied int64) error {
	rows := sumRows(r.Functions)
	noAddr := int64(0)
	for i := range r.TracedNotCopied {
		if r.TracedNotCopied[i].Code == NotCopiedNoAddr {
			noAddr += r.TracedNotCopied[i].Pages
		}
	}
	byNumber := int64(0)
	for i := range r.Unexplained {
		if r.Unexplained[i].Code == UnexplainedWithoutAddr {
			byNumber += r.Unexplained[i].Pages
		}
	}
	switch {
	case rows != r.ExplainedPages:
		return breach("the functions sum to %d of %d explained pages", rows, r.ExplainedPages)
	case r.ExplainedPages+sumReasons(r.Unexplained) != copied:
		return breach("%d explained and %d unexplained pages are not %d copied ones", r.ExplainedPages, sumReasons(r.Unexplained), copied)
	case r.MatchedPages+r.SameCopyPages != r.ExplainedPages:
		return breach("%d matched pages and %d by the same copies are not %d explained ones", r.MatchedPages, r.SameCopyPages, r.ExplainedPages)
	case r.TracedPages+r.RepeatedCopies+r.QuietCopies != r.TracedCopies:
		return breach("%d traced pages, %d repeated, %d without an address are not %d copies", r.TracedPages, r.RepeatedCopies, r.QuietCopies, r.TracedCopies)
	case r.MatchedPages+sumReasons(r.TracedNotCopied)-noAddr != r.TracedPages:
		return breach("%d matched pages and %d not copied are not %d traced ones", r.MatchedPages, sumReasons(r.TracedNotCopied)-noAddr, r.TracedPages)
	case byNumber+noAddr != r.QuietCopies, sumRows(r.ByNumber) != byNumber:
		return breach("%d copies without an address: %d matched by number (%d in rows), %d not", r.QuietCopies, byNumber, sumRows(r.ByNumber), noAddr)
	}
	for _, list := range [][]AttributionRow{r.Functions, r.ByNumber} {
		for i := range list {
			if list[i].Change.sum() != list[i].Pages {
				return breach("what %s changed sums to %d of %d pages", list[i].Name, list[i].Change.sum(), list[i].Pages)
			}
		}
	}
	if r.Counts != nil {
		return r.Counts.check()
	}
	return nil
}

func sumRows(rows []AttributionRow) (n int64) {
	for i := range rows {
		n += rows[i].Pages
	}
	return n
}
