package audit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"cowaudit/pagemap"
)

// What a difference must exceed to matter, as a share of the larger side and in bytes.
const (
	mattersCopied = 0.01     // of pages that are counted
	mattersOther  = 0.05     // of what is measured in another way: resident memory, ratios, slopes
	mattersBytes  = 64 << 10 // and at least this, where the unit is bytes
)

// maxMoreRounds is the most that is proposed: beyond, more rounds are no remedy.
const maxMoreRounds = 1000

// metricCopied and metricNew are the metrics that every event has.
const (
	metricCopied = "copied_bytes"
	metricNew    = "new_bytes"
)

// rowSamples are the samples of one metric of one event on both sides: one of each run, the median over its workers.
type rowSamples struct {
	event, metric, unit string
	better              Better
	a, b                []float64
}

// judged reports whether a difference is good or bad.
func (r *rowSamples) judged() bool { return r.better != "" && r.event != EventNull }

// sampleRows gives the metrics of all events that both sides have, in the order of A's.
func sampleRows(a, b *Side) []rowSamples {
	var out []rowSamples
	for _, event := range eventNames(a.Runs) {
		names := []Metric{{Name: metricCopied, Unit: "bytes", Better: BetterLess}, {Name: metricNew, Unit: "bytes", Better: BetterLess}}
		for i := range a.Runs {
			for k := range a.Runs[i].Events {
				e := &a.Runs[i].Events[k]
				for _, m := range e.Metrics {
					if e.Name == event && !slices.ContainsFunc(names, func(n Metric) bool { return n.Name == m.Name }) {
						names = append(names, m)
					}
				}
			}
		}
		for _, m := range names {
			r := rowSamples{event: event, metric: m.Name, unit: m.Unit, better: m.Better, a: samplesOf(a, event, m.Name), b: samplesOf(b, event, m.Name)}
			if event == EventNull {
				r.better = ""
			}
			if len(r.a) > 0 && len(r.b) > 0 {
				out = append(out, r)
			}
		}
	}
	return out
}

func samplesOf(s *Side, event, metric string) (out []float64) {
	for i := range s.Runs {
		var v []float64
		for k := range s.Runs[i].Events {
			e := &s.Runs[i].Events[k]
			if e.Name != event {
				continue
			}
			switch metric {
			case metricCopied:
				v = append(v, float64(pagemap.Bytes(e.CopiedPages)*s.Capture.PageSize))
				continue
			case metricNew:
				v = append(v, float64(pagemap.Bytes(e.NewPages)*s.Capture.PageSize))
				continue
			}
			for _, m := range e.Metrics {
				if m.Name == metric {
					v = append(v, m.Value)
				}
			}
		}
		if len(v) > 0 {
			out = append(out, median(v))
		}
	}
	return out
}

// compareRows makes the rows and judges them. looks is how often the rows could have ended the comparison.
func compareRows(a, b *Side, looks int) []CompareRow {
	samples := sampleRows(a, b)
	judged := 0
	for i := range samples {
		if samples[i].judged() {
			judged++
		}
	}
	alpha := compareAlpha / float64(max(looks, 1))
	each := alpha / float64(max(judged, 1))
	noise := noiseBytes(a, b)
	out := make([]CompareRow, len(samples))
	var p []float64
	var of []*CompareRow
	for i := range samples {
		out[i] = samples[i].row(each, noise)
		if samples[i].judged() {
			p, of = append(p, out[i].P), append(of, &out[i])
		} else {
			out[i].PAdjusted = out[i].P
		}
	}
	for i, adjusted := range holm(p) {
		of[i].PAdjusted = adjusted
		of[i].judge(alpha, fewest(each))
	}
	return out
}

// noiseBytes is what the null event copies: the larger of both medians.
func noiseBytes(a, b *Side) float64 {
	noise := 0.0
	for _, s := range []*Side{a, b} {
		if v := samplesOf(s, EventNull, metricCopied); len(v) > 0 {
			noise = max(noise, median(v))
		}
	}
	return noise
}

func (r *rowSamples) row(alpha, noise float64) CompareRow {
	out := CompareRow{Event: r.event, Metric: r.metric, Unit: r.unit, Better: r.better, A: estimate(r.a), B: estimate(r.b)}
	if r.event == EventNull {
		out.Why = "the noise floor: judged by nobody"
	} else if r.better == "" {
		out.Why = "neither more nor less is better: judged by nobody"
	}
	share, floor := mattersOther, 0.0
	if r.metric == metricCopied || r.metric == metricNew {
		share, floor = mattersCopied, noise
	}
	if r.unit == "bytes" {
		floor = max(floor, mattersBytes)
	}
	out.Matters = max(share*max(math.Abs(out.A.Median), math.Abs(out.B.Median)), floor)
	out.P = uTest(r.a, r.b)
	out.Exact = constant(r.a) && constant(r.b) && min(len(r.a), len(r.b)) >= exactRounds
	out.Difference = pairwise(r.a, r.b, alpha, func(a, b float64) float64 { return b - a })
	if out.Exact {
		out.Difference.Confidence, out.P = 1, 0
		if r.a[0] == r.b[0] {
			out.P = 1
		}
	}
	if slices.Min(r.a) > 0 {
		ratio := pairwise(r.a, r.b, alpha, func(a, b float64) float64 { return b / a })
		out.Ratio, out.RatioLow, out.RatioHigh = out.B.Median/out.A.Median, ratio.Low, ratio.High
	}
	return out
}

// judge gives the verdict. The interval decides, and the estimate: a difference is called one where it is larger than what
// matters and its interval leaves out 0, which the rank test confirms; none, where the whole interval is within what matters.
func (r *CompareRow) judge(alpha float64, least int) {
	d, m := &r.Difference, r.Matters
	worse := VerdictWorse
	better := VerdictBetter
	if r.Better == BetterMore {
		worse, better = better, worse
	}
	beyond := func(v Verdict) {
		r.Verdict, r.Why = v, "the interval of the difference leaves out 0, and the difference is larger than "+r.amount(m)
		if r.Exact {
			r.Why = "exact: neither side varied, and they differ by more than " + r.amount(m)
		}
	}
	switch {
	case d.Confidence == 0:
		r.Verdict, r.MoreRounds = VerdictInconclusive, least-d.N
		r.Why = fmt.Sprintf("%s: an interval needs %d", plural(d.N, "round", "rounds"), least)
	case d.Low >= -m && d.High <= m:
		r.Verdict, r.Why = VerdictSame, "the whole interval of the difference is within "+r.amount(m)
		if r.Exact {
			r.Why = "exact: neither side varied, and they differ by no more than " + r.amount(m)
		}
	case d.Median > m && d.Low > 0 && (r.Exact || r.PAdjusted <= alpha):
		beyond(worse)
	case d.Median < -m && d.High < 0 && (r.Exact || r.PAdjusted <= alpha):
		beyond(better)
	default:
		r.Verdict, r.MoreRounds = VerdictInconclusive, d.more(m)
		r.Why = "the interval of the difference is too wide: from " + signedAmountOf(d.Low, r.Unit) + " to " + signedAmountOf(d.High, r.Unit) + ", where " + r.amount(m) + " matter"
		if r.MoreRounds == 0 {
			r.Why += fmt.Sprintf("; not even %d more rounds would tell", maxMoreRounds)
		}
	}
}

// more estimates how many more rounds would narrow the interval enough, to leave out 0 or to lie within what matters: its width
// shrinks with the square root of their number. 0: more than maxMoreRounds.
func (d *Estimate) more(matters float64) int {
	room := math.Abs(d.Median)
	if room <= matters {
		room = matters - room
	}
	half := (d.High - d.Low) / 2
	if room <= 0 || half <= 0 {
		return 0
	}
	n := float64(d.N) * (half / room) * (half / room)
	if n > maxMoreRounds {
		return 0
	}
	return max(int(math.Ceil(n))-d.N, 1)
}

// amount writes a number of the row's unit.
func (r *CompareRow) amount(v float64) string { return amountOf(v, r.Unit) }

func amountOf(v float64, unit string) string {
	switch {
	case unit == "bytes" && math.Abs(v) < 1<<20:
		return fmt.Sprintf("%.0f KiB", v/1024)
	case unit == "bytes":
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	case unit == "" || unit == "ratio":
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.3g %s", v, strings.ReplaceAll(unit, "_", " "))
}

// overall gives the verdict of all rows together; "same" where no row is judged.
func overall(rows []CompareRow) Verdict {
	order := []Verdict{VerdictWorse, VerdictInconclusive, VerdictBetter, VerdictSame}
	best := len(order) - 1
	for i := range rows {
		if k := slices.Index(order, rows[i].Verdict); k >= 0 {
			best = min(best, k)
		}
	}
	return order[best]
}

// mainRow is the row that a sentence is about, of those with a verdict: the metrics that a built-in scenario is about
// come first, in its order, then copied pages, then new ones, then what an application tells; of one metric, the event with the
// largest difference. It is nil where no row has the verdict.
func (r *CompareReport) mainRow(v Verdict) *CompareRow {
	var own, told []string
	for i := range r.Rows {
		switch row := &r.Rows[i]; {
		case row.Metric == metricCopied, row.Metric == metricNew, slices.Contains(own, row.Metric), slices.Contains(told, row.Metric):
		case r.A.Scenario.App != "" || row.Event == EventApp:
			told = append(told, row.Metric)
		default:
			own = append(own, row.Metric)
		}
	}
	ranks := slices.Concat(own, []string{metricCopied, metricNew}, told)
	var best *CompareRow
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Verdict != v || v == "" {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(slices.Index(ranks, best.Metric), slices.Index(ranks, row.Metric)),
			cmp.Compare(math.Abs(row.Difference.Median), math.Abs(best.Difference.Median))) > 0 {
			best = row
		}
	}
	return best
}
