package report

import (
	"slices"
	"strings"

	"cowaudit/audit"
)

// metricSum is one metric of one event over all runs and workers.
type metricSum struct {
	event, name, unit string
	values            []float64
}

// metrics lists what the scenario measures beside the pages: the median over all runs and workers, and the range.
func (p *text) metrics(r *audit.ForktestReport) {
	var sums []*metricSum
	for i := range r.Runs {
		for k := range r.Runs[i].Events {
			e := &r.Runs[i].Events[k]
			for _, m := range e.Metrics {
				s := sumOf(&sums, e.Name, m)
				s.values = append(s.values, m.Value)
			}
		}
	}
	if len(sums) == 0 {
		return
	}
	p.section("METRICS of %s", plural(len(r.Runs), "run", "runs"))
	p.table(func(bool) *grid {
		g := &grid{columns: []column{{head: "event, metric", left: true}, {head: "median"}, {head: "least"}, {head: "most"}, {head: "unit", left: true}}}
		last := ""
		for _, s := range sums {
			if s.event != last {
				g.add(printable(audit.EventLabel(s.event)), "", "", "", "")
				last = s.event
			}
			low, mid, high := s.spread()
			scale := newValueScale(s.unit, low, mid, high)
			g.add("  "+metricWords(s.name, s.unit), scale.format(mid), scale.format(low), scale.format(high), scale.unit)
		}
		return g
	})
}

func sumOf(sums *[]*metricSum, event string, m audit.Metric) *metricSum {
	for _, s := range *sums {
		if s.event == event && s.name == m.Name {
			return s
		}
	}
	s := &metricSum{event: event, name: m.Name, unit: m.Unit}
	*sums = append(*sums, s)
	return s
}

// spread gives the least, the median and the most of the values, of which there is one at least.
func (s *metricSum) spread() (low, mid, high float64) {
	v := slices.Sorted(slices.Values(s.values))
	return v[0], (v[(len(v)-1)/2] + v[len(v)/2]) / 2, v[len(v)-1]
}

// metricWords writes a metric without its unit, which has a column.
func metricWords(name, unit string) string {
	return printable(strings.ReplaceAll(strings.TrimSuffix(name, "_"+unit), "_", " "))
}
