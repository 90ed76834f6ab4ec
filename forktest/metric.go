package forktest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cowaudit/audit"
)

// metricKey begins the keys in an answer that are numbers of the application's own, not counts of the runtime.
const metricKey = "metric_"

// MetricInfo says what a number means that a scenario measures beside the pages.
type MetricInfo struct {
	Name    string // with its unit at the end
	Unit    string // "bytes", "count", "ratio", "flag": 0 or 1, "bytes/request", "count/request"
	Better  audit.Better
	Events  []string // the events that give it
	Meaning string   // one line

	value func(m *measurement) (value float64, ok bool)
}

// measurement is one event of one worker, seen from outside and as the worker tells it.
type measurement struct {
	event         string
	said          map[string]int64
	before, after memory
	earlier       []*measurement // the worker's events before this one, oldest first
}

// find gives an earlier event, or this one; nil where it was not.
func (m *measurement) find(event string) *measurement {
	if m.event == event {
		return m
	}
	i := slices.IndexFunc(m.earlier, func(e *measurement) bool { return e.event == event })
	if i < 0 {
		return nil
	}
	return m.earlier[i]
}

// said is a number that the worker tells.
func said(key string) func(*measurement) (float64, bool) {
	return func(m *measurement) (float64, bool) {
		v, ok := m.said[metricKey+key]
		return float64(v), ok
	}
}

// resident is what the worker has after the event.
func resident(m *measurement) (float64, bool) { return float64(m.after.rss), true }

// peakOverStart is the most that the worker had during the event, over what it had before it.
func peakOverStart(m *measurement) (float64, bool) {
	return float64(m.after.peak - m.before.rss), true
}

// residentOver is what the worker has after the event, over what it had before another one and what it keeps by purpose.
func residentOver(first string) func(*measurement) (float64, bool) {
	return func(m *measurement) (float64, bool) {
		f := m.find(first)
		if f == nil {
			return 0, false
		}
		return float64(m.after.rss-f.before.rss) - float64(m.said[metricKey+"kept_bytes"]), true
	}
}

// residentRatio is what the worker has after the event, per unit of a number that it tells.
func residentRatio(key string) func(*measurement) (float64, bool) {
	return func(m *measurement) (float64, bool) {
		v := m.said[metricKey+key]
		if v <= 0 {
			return 0, false
		}
		return float64(m.after.rss) / float64(v), true
	}
}

// appMetrics are those of an event of the user's.
var appMetrics = []MetricInfo{
	{"rss_growth_bytes", "bytes", audit.BetterLess, []string{eventApp}, "resident after the event, over what was before it", residentOver(eventApp)},
}

// declared gives the metrics that this test must give.
func (p *plan) declared() []MetricInfo {
	var list []MetricInfo
	if p.builtIn != nil {
		list = append(list, p.builtIn.Metrics...)
	}
	if p.Event != "" {
		list = append(list, appMetrics...)
	}
	return list
}

// measured does an event of a worker and keeps what it did to the worker's memory.
func (t *trial) measured(ctx context.Context, w *worker, name string) (map[string]int64, error) {
	if len(t.declared()) == 0 {
		return t.event(ctx, w, name)
	}
	m := &measurement{event: name, earlier: slices.Clone(w.history)}
	err := resetPeak("", w.pid)
	if err == nil {
		m.before, err = readMemory("", w.pid)
	}
	if err != nil {
		return nil, err
	}
	if m.said, err = t.event(ctx, w, name); err != nil {
		return nil, err
	}
	if m.after, err = readMemory("", w.pid); err != nil {
		return nil, err
	}
	w.history = append(w.history, m)
	return m.said, nil
}

// metrics gives the metrics of a worker's event: those that are declared, and what an application of the user's tells.
func (t *trial) metrics(w *worker, name string, stats map[string]int64) ([]audit.Metric, error) {
	var list []audit.Metric
	for _, d := range t.declared() {
		if !slices.Contains(d.Events, name) {
			continue
		}
		var v float64
		ok := false
		if n := len(w.history); n > 0 && w.history[n-1].event == name {
			v, ok = d.value(w.history[n-1])
		}
		if !ok {
			return nil, t.fail("", "worker %d did not give %s in %s", w.number, d.Name, name)
		}
		list = append(list, audit.Metric{Name: d.Name, Unit: d.Unit, Value: v, Better: d.Better})
	}
	if t.builtIn != nil && name != eventApp {
		return list, nil
	}
	for _, m := range toldMetrics(stats) {
		if slices.ContainsFunc(list, func(d audit.Metric) bool { return d.Name == m.Name }) {
			return nil, t.fail("give it another name", "worker %d tells %s in %s, which cowaudit measures", w.number, m.Name, name)
		}
		list = append(list, m)
	}
	return list, nil
}

// toldMetrics gives what an application tells of itself. Which way is better, nobody knows.
func toldMetrics(stats map[string]int64) []audit.Metric {
	var list []audit.Metric
	for _, key := range slices.Sorted(maps.Keys(stats)) {
		metric, ok := strings.CutPrefix(key, metricKey)
		if !ok || metric == "" {
			continue
		}
		unit := "count"
		for _, u := range []string{"bytes", "ns"} {
			if strings.HasSuffix(metric, "_"+u) {
				unit = u
			}
		}
		list = append(list, audit.Metric{Name: metric, Unit: unit, Value: float64(stats[key])})
	}
	return list
}

// runtimeStats gives the counts of the runtime alone.
func runtimeStats(stats map[string]int64) map[string]int64 {
	out := maps.Clone(stats)
	delete(out, "duration_ns")
	maps.DeleteFunc(out, func(key string, _ int64) bool { return strings.HasPrefix(key, metricKey) })
	return out
}

// Growth is called a slope where it goes on in each of the last two parts by at least this much a request.
const (
	leastBytes   = 64
	leastObjects = 0.05
)

// series names the parts of a scenario that repeats one kind of request: "churn_1" to "churn_4".
type series string

const seriesParts = 4

func (s series) part(i int) string { return fmt.Sprintf("%s_%d", s, i) }

func (s series) events() []string {
	var names []string
	for i := 1; i <= seriesParts; i++ {
		names = append(names, s.part(i))
	}
	return names
}

// growth is how much a number rises a request between the ends of two parts.
func (s series) growth(m *measurement, from, to int, of func(*measurement) float64) (float64, bool) {
	a, b := m.find(s.part(from)), m.find(s.part(to))
	if a == nil || b == nil {
		return 0, false
	}
	var requests int64
	for i := from + 1; i <= to; i++ {
		p := m.find(s.part(i))
		if p == nil {
			return 0, false
		}
		requests += p.said[metricKey+"requests"]
	}
	if requests <= 0 {
		return 0, false
	}
	return (of(b) - of(a)) / float64(requests), true
}

func residentBytes(m *measurement) float64 { return float64(m.after.rss) }

func oldObjects(m *measurement) float64 { return float64(m.said["old_objects"]) }

// growthOf is the growth over the last half.
func (s series) growthOf(of func(*measurement) float64) func(*measurement) (float64, bool) {
	return func(m *measurement) (float64, bool) { return s.growth(m, seriesParts/2, seriesParts, of) }
}

// slopes is 1 where memory or old objects still grow in each of the last two parts, and 0 for a plateau.
func (s series) slopes(m *measurement) (float64, bool) {
	for _, c := range []struct {
		of    func(*measurement) float64
		least float64
	}{{residentBytes, leastBytes}, {oldObjects, leastObjects}} {
		steady := true
		for to := seriesParts - 1; to <= seriesParts; to++ {
			g, ok := s.growth(m, to-1, to, c.of)
			if !ok {
				return 0, false
			}
			steady = steady && g >= c.least
		}
		if steady {
			return 1, true
		}
	}
	return 0, true
}

// metrics gives the metrics of a series, all of its last part.
func (s series) metrics(better audit.Better) []MetricInfo {
	last := []string{s.part(seriesParts)}
	return []MetricInfo{
		{"rss_growth_bytes_per_request", "bytes/request", better, last, "growth of what is resident over the last half of the requests", s.growthOf(residentBytes)},
		{"old_objects_growth_per_request", "count/request", better, last, "growth of Ruby's old objects over the same", s.growthOf(oldObjects)},
		{"slope_flag", "flag", better, last, "1: one of the two goes on in each of the last two parts; 0: a plateau", s.slopes},
	}
}
