package audit

import "fmt"

// gateChanges are the fields of Change with their words, in the order of how little was changed.
var gateChanges = []struct {
	words string
	of    func(*Change) int64
}{
	{"identical pages", func(c *Change) int64 { return c.Identical }},
	{"one word changed", func(c *Change) int64 { return c.OneWord }},
	{"2 to 8 words changed", func(c *Change) int64 { return c.FewWords }},
	{"9 to 64 words changed", func(c *Change) int64 { return c.ManyWords }},
	{"rewritten pages", func(c *Change) int64 { return c.Rewritten }},
	{"contents not compared", func(c *Change) int64 { return c.NotCompared }},
}

// gateCause says where most of a rule's copied pages lie, or most of their increase, in words: region, what the writes
// changed, function. It is "" where nothing was copied, or the rule is about something else.
func gateCause(r *Rule, c *CompareReport, increase bool, excuses []Excuse) string {
	if r.Metric != "copied_bytes" {
		return ""
	}
	where, writers := map[gatePlace]float64{}, map[gatePlace]float64{}
	gatePlaces(r, &c.B, 1, excuses, where, writers)
	if increase {
		gatePlaces(r, &c.A, -1, excuses, where, writers)
	}
	place, pages := gateLargest(where)
	writer, written := gateLargest(writers)
	if pages <= 0 && written <= 0 {
		return ""
	}
	text := ""
	if pages > 0 {
		text = fmt.Sprintf("%s, %s", place.region.Label(), gateChanges[place.change].words)
	} else {
		text = writer.region.Label()
	}
	if written > 0 && (pages <= 0 || writer.region == place.region) {
		text += ", written by " + writer.function
	}
	return text
}

// gatePlace is a region with what the writes changed there, or with who wrote there.
type gatePlace struct {
	region   RegionKind
	change   int // an index of gateChanges
	function string
}

// gatePlaces adds up one side's pages, for each worker, times sign.
func gatePlaces(r *Rule, s *Side, sign float64, excuses []Excuse, where, writers map[gatePlace]float64) {
	if n := gateEvents(s.Runs, r.Event, false); n > 0 && r.Function == "" {
		gateEach(s.Runs, r.Event, func(e *Event) {
			for i := range e.Regions {
				g := &e.Regions[i]
				if (r.Region != "" && g.Kind != r.Region) || gateExcuses(excuses, g.Kind, "") {
					continue
				}
				for k, c := range gateChanges {
					where[gatePlace{region: g.Kind, change: k}] += sign * float64(c.of(&g.Change)) / n
				}
			}
		})
	}
	runs := append(gateTraced(s.Runs), s.Traced...)
	if n := gateEvents(runs, r.Event, true); n > 0 {
		gateEach(runs, r.Event, func(e *Event) {
			if e.Attribution == nil {
				return
			}
			for i := range e.Functions {
				f := &e.Functions[i]
				if (r.Region != "" && f.Region != r.Region) || (r.Function != "" && f.Name != r.Function) || gateExcuses(excuses, f.Region, f.Name) {
					continue
				}
				writers[gatePlace{region: f.Region, function: f.Name}] += sign * float64(f.Pages) / n
				if r.Function != "" {
					for k, c := range gateChanges {
						where[gatePlace{region: f.Region, change: k}] += sign * float64(c.of(&f.Change)) / n
					}
				}
			}
		})
	}
}

func gateExcuses(excuses []Excuse, region RegionKind, function string) bool {
	for _, e := range excuses {
		if (e.Region != "" && e.Region == region) || (e.Function != "" && e.Function == function) {
			return true
		}
	}
	return false
}

func gateEach(runs []Run, event string, f func(*Event)) {
	for i := range runs {
		for k := range runs[i].Events {
			if e := &runs[i].Events[k]; e.Name == event {
				f(e)
			}
		}
	}
}

func gateEvents(runs []Run, event string, traced bool) (n float64) {
	gateEach(runs, event, func(e *Event) {
		if !traced || e.Attribution != nil {
			n++
		}
	})
	return n
}

// gateLargest gives the place with the most pages; of equals the first by name, so that a result is the same every time.
func gateLargest(m map[gatePlace]float64) (best gatePlace, pages float64) {
	for p, v := range m {
		if v > pages || (v == pages && v > 0 && p.before(best)) {
			best, pages = p, v
		}
	}
	return best, pages
}

func (p gatePlace) before(q gatePlace) bool {
	if p.region != q.region {
		return p.region < q.region
	}
	if p.change != q.change {
		return p.change < q.change
	}
	return p.function < q.function
}
