package audit

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"cowaudit/pagemap"
)

// summaryConfidence is the level of a summary's intervals. A median has such an interval from six samples on.
const summaryConfidence = 0.95

// Summarize gives each event's medians over the runs, in the order in which the events first come. page is the size in
// bytes that the counts of pages are in.
//
// A sample is one run: the median over its workers. The workers of one run have one load and one parent in common, so they
// are no independent samples, and counting each as one would make the interval narrower than it is.
func Summarize(runs []Run, page pagemap.Bytes) Summary {
	s := Summary{Events: []EventSummary{}}
	for _, name := range eventNames(runs) {
		s.Events = append(s.Events, summarizeEvent(name, runs, page))
	}
	return s
}

func eventNames(runs []Run) (names []string) {
	for i := range runs {
		for k := range runs[i].Events {
			if name := runs[i].Events[k].Name; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func summarizeEvent(name string, runs []Run, page pagemap.Bytes) EventSummary {
	out := EventSummary{Name: name, Regions: []RegionDiff{}}
	var shared, copied, fresh []float64
	var traced []*Attribution
	for i := range runs {
		var s, c, n []float64
		for k := range runs[i].Events {
			e := &runs[i].Events[k]
			if e.Name != name {
				continue
			}
			s = append(s, float64(pagemap.Bytes(e.SharedBefore)*page))
			c = append(c, float64(pagemap.Bytes(e.CopiedPages)*page))
			n = append(n, float64(pagemap.Bytes(e.NewPages)*page))
			out.Change.Add(&e.Change)
			out.addRegions(e.Regions)
			if e.Attribution != nil {
				traced = append(traced, e.Attribution)
			}
		}
		if len(c) == 0 {
			continue
		}
		out.N++
		shared, copied, fresh = append(shared, median(s)), append(copied, median(c)), append(fresh, median(n))
	}
	SortRegions(out.Regions)
	if len(traced) > 0 {
		out.Attribution = SumAttributions(traced)
	}
	out.SharedBefore, out.CopiedBytes, out.NewBytes = NewInterval(shared), NewInterval(copied), NewInterval(fresh)
	return out
}

func (s *EventSummary) addRegions(regions []RegionDiff) {
	for i := range regions {
		g := &regions[i]
		k := slices.IndexFunc(s.Regions, func(r RegionDiff) bool { return r.Kind == g.Kind })
		if k < 0 {
			k = len(s.Regions)
			s.Regions = append(s.Regions, RegionDiff{Kind: g.Kind})
		}
		s.Regions[k].Add(&g.Copied)
	}
}

// NewInterval gives the median of samples in bytes and its 95% confidence interval, without an assumption about how they
// are distributed (the interval lies between two of the samples). Below six samples there is none: low and high are then
// the smallest and the largest sample, and the confidence is 0. No samples give the zero value.
func NewInterval(samples []float64) Interval {
	if len(samples) == 0 {
		return Interval{}
	}
	t := benchmath.DefaultThresholds
	sample := benchmath.NewSample(slices.Clone(samples), &t)
	s := benchmath.AssumeNothing.Summary(sample, summaryConfidence)
	out := Interval{Median: round(s.Center), Low: round(s.Lo), High: round(s.Hi), Confidence: s.Confidence}
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		out.Low, out.High, out.Confidence = round(slices.Min(samples)), round(slices.Max(samples)), 0
	}
	return out
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func round(f float64) pagemap.Bytes {
	if math.IsInf(f, 0) {
		return 0
	}
	return pagemap.Bytes(math.Round(f))
}
