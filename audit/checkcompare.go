package audit

import (
	"fmt"
	"math"
)

// CheckCompare holds a comparison against the laws: the runs of each side as [CheckForktest] does, each list of differences
// sums to its total, each row's medians are those of the runs, and the verdicts follow from the numbers.
func CheckCompare(r *CompareReport) error {
	for _, s := range []struct {
		name string
		side *Side
	}{{"A", &r.A}, {"B", &r.B}} {
		for _, runs := range [][]Run{s.side.Runs, s.side.Traced} {
			if err := CheckForktest(&ForktestReport{Capture: s.side.Capture, Runs: runs}); err != nil {
				return fmt.Errorf("side %s: %w", s.name, err)
			}
		}
	}
	for i := range r.Rows {
		if err := checkRow(r, &r.Rows[i]); err != nil {
			return err
		}
	}
	if want := overall(r.Rows); r.Verdict != want && (len(r.Rows) > 0 || r.Verdict != "") {
		return breach("the verdict is %q, the rows say %q", r.Verdict, want)
	}
	for i := range r.Differences {
		d := &r.Differences[i]
		for _, l := range []struct {
			name string
			list []Delta
		}{{"by_region", d.ByRegion}, {"by_change", d.ByChange}, {"by_region_and_change", d.ByRegionChange}} {
			if err := deltasSum(l.list, &d.Total, d.Event+", "+l.name); err != nil {
				return err
			}
		}
		if d.TracedTotal == nil {
			if len(d.ByFunction) > 0 {
				return breach("%s: functions without a total", d.Event)
			}
		} else if err := deltasSum(d.ByFunction, d.TracedTotal, d.Event+", by_function"); err != nil {
			return err
		}
	}
	return nil
}

func checkRow(r *CompareReport, row *CompareRow) error {
	of := fmt.Sprintf("row %s of %s", row.Metric, row.Event)
	for _, e := range []struct {
		name     string
		estimate *Estimate
		samples  []float64
	}{{"a", &row.A, samplesOf(&r.A, row.Event, row.Metric)}, {"b", &row.B, samplesOf(&r.B, row.Event, row.Metric)}} {
		if err := checkEstimate(e.estimate, of+", "+e.name); err != nil {
			return err
		}
		if len(e.samples) == 0 || e.estimate.N != len(e.samples) || !near(median(e.samples), e.estimate.Median) {
			return breach("%s, %s: the median is %g of %d, the runs have %v", of, e.name, e.estimate.Median, e.estimate.N, e.samples)
		}
	}
	if err := checkEstimate(&row.Difference, of+", difference"); err != nil {
		return err
	}
	d, m := &row.Difference, row.Matters
	up, down := VerdictWorse, VerdictBetter
	if row.Better == BetterMore {
		up, down = down, up
	}
	holds := false
	switch row.Verdict {
	case up:
		holds = d.Median > m && d.Low > 0
	case down:
		holds = d.Median < -m && d.High < 0
	case VerdictSame:
		holds = d.Low >= -m && d.High <= m
	case VerdictInconclusive:
		holds = true
	case "":
		holds = row.Better == "" || row.Event == EventNull
	}
	if !holds || row.Better == "" && row.Verdict != "" {
		return breach("%s: the verdict %q does not follow from a difference from %g to %g, of which %g matter", of, row.Verdict, d.Low, d.High, m)
	}
	if row.P < 0 || row.P > 1 || row.PAdjusted < 0 || row.PAdjusted > 1 {
		return breach("%s: p is %g, adjusted %g", of, row.P, row.PAdjusted)
	}
	return nil
}

func checkEstimate(e *Estimate, of string) error {
	least := e.Low <= e.Median || near(e.Low, e.Median)
	most := e.Median <= e.High || near(e.Median, e.High)
	if !least || !most || e.N < 0 || e.Confidence < 0 || e.Confidence > 1 {
		return breach("%s: %g is not between %g and %g, or %g is no confidence", of, e.Median, e.Low, e.High, e.Confidence)
	}
	return nil
}

// deltasSum holds a list against its total; a list that is empty is of an event that copied nothing.
func deltasSum(list []Delta, total *Delta, of string) error {
	var sum Delta
	for i := range list {
		d := &list[i]
		if d.A < 0 || d.B < 0 || !near(d.Pages, d.B-d.A) {
			return breach("%s: a difference of %g from %g to %g pages", of, d.Pages, d.A, d.B)
		}
		sum.A, sum.B, sum.Pages, sum.Identical = sum.A+d.A, sum.B+d.B, sum.Pages+d.Pages, sum.Identical+d.Identical
	}
	if !near(sum.A, total.A) || !near(sum.B, total.B) || !near(sum.Pages, total.Pages) || !near(sum.Identical, total.Identical) || !near(total.Pages, total.B-total.A) {
		return breach("%s: the rows sum to %g, %g, %+g (%+g identical) pages, the total is %g, %g, %+g (%+g)", of,
			sum.A, sum.B, sum.Pages, sum.Identical, total.A, total.B, total.Pages, total.Identical)
	}
	return nil
}

// near allows for the error of sums of floating point numbers.
func near(x, y float64) bool { return math.Abs(x-y) <= 1e-9*max(1, math.Abs(x), math.Abs(y)) }
