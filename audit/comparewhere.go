package audit

import (
	"cmp"
	"math"
	"slices"
)

// differences says where each event's difference lies, but for the null event.
func differences(a, b *Side) []EventDifference {
	out := []EventDifference{}
	for _, event := range eventNames(a.Runs) {
		if event == EventNull {
			continue
		}
		d := EventDifference{Event: event}
		sa, sb := sumEvent(a.Runs, event), sumEvent(b.Runs, event)
		if sa.n == 0 || sb.n == 0 {
			continue
		}
		d.Total = Delta{A: sa.mean(sa.total.CopiedPages), B: sb.mean(sb.total.CopiedPages)}
		d.Total.Identical = sb.mean(sb.total.Change.Identical) - sa.mean(sa.total.Change.Identical)
		d.Total.Pages = d.Total.B - d.Total.A
		d.ByRegion, d.ByChange, d.ByRegionChange = byRegion(sa, sb), byChange(sa, sb), byRegionChange(sa, sb)
		d.byFunction(tracedRuns(a), tracedRuns(b))
		out = append(out, d)
	}
	return out
}

// eventSum is one event over all runs and workers.
type eventSum struct {
	n       int
	total   Copied
	regions map[RegionKind]*Copied
}

func sumEvent(runs []Run, event string) *eventSum {
	s := &eventSum{regions: map[RegionKind]*Copied{}}
	for i := range runs {
		for k := range runs[i].Events {
			e := &runs[i].Events[k]
			if e.Name != event {
				continue
			}
			s.n++
			s.total.Add(&e.Copied)
			for g := range e.Regions {
				kind := e.Regions[g].Kind
				if s.regions[kind] == nil {
					s.regions[kind] = &Copied{}
				}
				s.regions[kind].Add(&e.Regions[g].Copied)
			}
		}
	}
	return s
}

func (s *eventSum) mean(pages int64) float64 { return float64(pages) / float64(s.n) }

// deltas collects rows by what they are of, which is a Delta without numbers.
type deltas map[Delta]*Delta

func (d deltas) at(key Delta) *Delta {
	if d[key] == nil {
		row := key
		d[key] = &row
	}
	return d[key]
}

// list gives the rows by the size of the difference; those with no page on either side are left out.
func (d deltas) list() []Delta {
	out := []Delta{}
	for _, r := range d {
		r.Pages = r.B - r.A
		if r.A != 0 || r.B != 0 {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(x, y Delta) int {
		return cmp.Or(cmp.Compare(math.Abs(y.Pages), math.Abs(x.Pages)), cmp.Compare(max(y.A, y.B), max(x.A, x.B)),
			cmp.Compare(x.Region, y.Region), cmp.Compare(x.Change, y.Change), cmp.Compare(x.Function, y.Function),
			cmp.Compare(x.Module, y.Module), cmp.Compare(x.Phase, y.Phase), cmp.Compare(x.Step, y.Step))
	})
	return out
}

func byRegion(a, b *eventSum) []Delta {
	d := deltas{}
	for kind, c := range a.regions {
		r := d.at(Delta{Region: kind})
		r.A, r.Identical = a.mean(c.CopiedPages), -a.mean(c.Change.Identical)
	}
	for kind, c := range b.regions {
		r := d.at(Delta{Region: kind})
		r.B, r.Identical = b.mean(c.CopiedPages), r.Identical+b.mean(c.Change.Identical)
	}
	return d.list()
}

// changeIdentical is the JSON name of a page that the write did not change.
const changeIdentical = "identical"

// fields gives a Change's counts by their JSON names.
func (c *Change) fields() []struct {
	name  string
	pages int64
} {
	return []struct {
		name  string
		pages int64
	}{{changeIdentical, c.Identical}, {"one_word", c.OneWord}, {"few_words", c.FewWords}, {"many_words", c.ManyWords},
		{"rewritten", c.Rewritten}, {"not_compared", c.NotCompared}}
}

func byChange(a, b *eventSum) []Delta {
	d := deltas{}
	d.addChange(&a.total.Change, a, "", true)
	d.addChange(&b.total.Change, b, "", false)
	return d.list()
}

func byRegionChange(a, b *eventSum) []Delta {
	d := deltas{}
	for kind, c := range a.regions {
		d.addChange(&c.Change, a, kind, true)
	}
	for kind, c := range b.regions {
		d.addChange(&c.Change, b, kind, false)
	}
	return d.list()
}

func (d deltas) addChange(c *Change, s *eventSum, region RegionKind, first bool) {
	for _, f := range c.fields() {
		r := d.at(Delta{Region: region, Change: f.name})
		pages := s.mean(f.pages)
		sign := 1.0
		if first {
			r.A, sign = pages, -1
		} else {
			r.B = pages
		}
		if f.name == changeIdentical {
			r.Identical += sign * pages
		}
	}
}

// tracedRuns gives the runs of a side whose faults were traced.
func tracedRuns(s *Side) []Run {
	out := slices.Clone(s.Traced)
	for i := range s.Runs {
		if slices.ContainsFunc(s.Runs[i].Events, func(e Event) bool { return e.Attribution != nil }) {
			out = append(out, s.Runs[i])
		}
	}
	return out
}

// byFunction fills in who wrote, where both sides were traced. What the trace does not explain is a row without a function.
func (d *EventDifference) byFunction(a, b []Run) {
	sa, sb := sumEvent(a, d.Event), sumEvent(b, d.Event)
	if sa.n == 0 || sb.n == 0 {
		return
	}
	rows := deltas{}
	for first, runs := range map[bool][]Run{true: a, false: b} {
		s, sign := sb, 1.0
		if first {
			s, sign = sa, -1
		}
		for i := range runs {
			for k := range runs[i].Events {
				if e := &runs[i].Events[k]; e.Name == d.Event && e.Attribution != nil {
					rows.addFunctions(e, s, first, sign)
				}
			}
		}
	}
	d.ByFunction = rows.list()
	d.TracedTotal = &Delta{A: sa.mean(sa.total.CopiedPages), B: sb.mean(sb.total.CopiedPages)}
	d.TracedTotal.Pages = d.TracedTotal.B - d.TracedTotal.A
	d.TracedTotal.Identical = sb.mean(sb.total.Change.Identical) - sa.mean(sa.total.Change.Identical)
}

func (d deltas) addFunctions(e *Event, s *eventSum, first bool, sign float64) {
	add := func(key Delta, pages, identical int64) {
		r := d.at(key)
		if first {
			r.A += s.mean(pages)
		} else {
			r.B += s.mean(pages)
		}
		r.Identical += sign * s.mean(identical)
	}
	identical := e.Change.Identical
	for i := range e.Functions {
		f := &e.Functions[i]
		add(Delta{Region: f.Region, Function: f.Name, Module: f.Module, Phase: f.Phase, Step: f.Step}, f.Pages, f.Change.Identical)
		identical -= f.Change.Identical
	}
	add(Delta{}, e.CopiedPages-e.ExplainedPages, identical)
}
