package audit

import (
	"slices"

	"cowaudit/pagemap"
)

// gateSamples are a rule's samples of one side: one for each run, the median over its workers, in the unit of the metric.
type gateSamples struct {
	values  []float64 // less what is excused
	excused []float64 // by excuse: the median over the runs
	unit    string
	missing string // why there are none; "" where there are some
	remedy  string
	once    bool // what is excused by function is known of the traced round only
	blind   bool // a function is excused, and nothing was traced: it was not taken off
}

func (g *gateSamples) taken() (sum float64) {
	for _, v := range g.excused {
		sum += v
	}
	return sum
}

// gateSample reads a rule's samples out of the runs of one side. excuses are those that hold.
func gateSample(r *Rule, s *Side, excuses []Excuse) gateSamples {
	out := gateSamples{unit: "bytes", excused: make([]float64, len(excuses))}
	runs := s.Runs
	if r.Function != "" {
		runs = append(gateTraced(s.Runs), s.Traced...)
		if len(gateTraced(runs)) == 0 {
			out.missing = "which function wrote is not known: no run was traced"
			out.remedy = "measure with --trace"
			return out
		}
		runs = gateTraced(runs)
	}
	page := s.Capture.PageSize
	off := make([][]float64, len(excuses))
	for i := range runs {
		var values []float64
		taken := make([][]float64, len(excuses))
		for k := range runs[i].Events {
			e := &runs[i].Events[k]
			if e.Name != r.Event {
				continue
			}
			v, unit, ok := gateValue(r, e, page)
			if !ok {
				continue
			}
			out.unit = unit
			rest := v
			for x, bytes := range out.excuse(r, s, e, excuses, page) {
				bytes = min(bytes, rest)
				rest -= bytes
				taken[x] = append(taken[x], bytes)
			}
			values = append(values, rest)
		}
		if len(values) == 0 {
			continue
		}
		out.values = append(out.values, median(values))
		for x := range taken {
			off[x] = append(off[x], median(taken[x]))
		}
	}
	if len(out.values) == 0 {
		out.missing = "no run has " + r.Metric + " for the event " + r.Event
		out.remedy = "give an event and a metric that the scenario has"
		return out
	}
	for x := range off {
		out.excused[x] = median(off[x])
	}
	return out
}

// gateTraced keeps the runs that say who wrote.
func gateTraced(runs []Run) (out []Run) {
	for i := range runs {
		if slices.ContainsFunc(runs[i].Events, func(e Event) bool { return e.Attribution != nil }) {
			out = append(out, runs[i])
		}
	}
	return out
}

// gateValue is a rule's metric of one event of one worker. An event without the metric has none.
func gateValue(r *Rule, e *Event, page pagemap.Bytes) (value float64, unit string, ok bool) {
	switch {
	case r.Function != "":
		if e.Attribution == nil {
			return 0, "", false
		}
		var pages int64
		for i := range e.Functions {
			if f := &e.Functions[i]; f.Name == r.Function && (r.Region == "" || f.Region == r.Region) {
				pages += f.Pages
			}
		}
		return gateBytes(pages, page), "bytes", true
	case r.Metric == "copied_bytes" || r.Metric == "new_bytes":
		if r.Region == "" {
			return gateBytes(gatePages(r, &e.Copied), page), "bytes", true
		}
		return gateBytes(gateRegion(r, e, r.Region), page), "bytes", true
	}
	for _, m := range e.Metrics {
		if m.Name == r.Metric {
			return m.Value, m.Unit, true
		}
	}
	return 0, "", false
}

func gateBytes(pages int64, page pagemap.Bytes) float64 { return float64(pagemap.Bytes(pages) * page) }

func gatePages(r *Rule, c *Copied) int64 {
	if r.Metric == "new_bytes" {
		return c.NewPages
	}
	return c.CopiedPages
}

func gateRegion(r *Rule, e *Event, kind RegionKind) (pages int64) {
	for i := range e.Regions {
		if e.Regions[i].Kind == kind {
			pages += gatePages(r, &e.Regions[i].Copied)
		}
	}
	return pages
}

// excuse gives what each excuse takes off one event, in bytes. A page that two excuses name is taken off once: a region's
// excuse comes before a function's, and the first of two alike.
func (g *gateSamples) excuse(r *Rule, s *Side, e *Event, excuses []Excuse, page pagemap.Bytes) []float64 {
	out := make([]float64, len(excuses))
	if r.Metric != "copied_bytes" {
		return out
	}
	var regions []RegionKind
	if r.Function == "" {
		for x, c := range excuses {
			if c.Region != "" && (r.Region == "" || r.Region == c.Region) && !slices.Contains(regions, c.Region) {
				out[x] = gateBytes(gateRegion(r, e, c.Region), page)
				regions = append(regions, c.Region)
			}
		}
	}
	rows, events := gateWriters(s, e)
	if events == 0 {
		g.blind = g.blind || slices.ContainsFunc(excuses, func(c Excuse) bool { return c.Function != "" })
		return out
	}
	for i := range rows {
		f := &rows[i]
		if (r.Function != "" && f.Name != r.Function) || (r.Region != "" && f.Region != r.Region) || slices.Contains(regions, f.Region) {
			continue
		}
		for x, c := range excuses {
			if (r.Function != "" && c.Region == f.Region) || (c.Function != "" && c.Function == f.Name) {
				out[x] += gateBytes(f.Pages, page) / float64(events)
				g.once = g.once || e.Attribution == nil
				break
			}
		}
	}
	return out
}

// gateWriters gives the rows of who wrote in an event: its own, or those of the same event in the traced round; and over
// how many workers they are summed.
func gateWriters(s *Side, e *Event) (rows []AttributionRow, events int) {
	if e.Attribution != nil {
		return e.Functions, 1
	}
	for i := range s.Traced {
		for k := range s.Traced[i].Events {
			if t := &s.Traced[i].Events[k]; t.Name == e.Name && t.Attribution != nil {
				rows = append(rows, t.Functions...)
				events++
			}
		}
	}
	return rows, events
}
