package audit

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/pagemap"
)

func TestNewInterval(t *testing.T) {
	tests := []struct {
		name    string
		samples []float64
		want    Interval
	}{
		{"none", nil, Interval{}},
		{"one", []float64{7}, Interval{Median: 7, Low: 7, High: 7}},
		{"two", []float64{20, 10}, Interval{Median: 15, Low: 10, High: 20}},
		{"five have no interval", []float64{5, 1, 4, 2, 3}, Interval{Median: 3, Low: 1, High: 5}},
		// 1 - 2 * 0.5^6: the whole range of six samples covers the median with 96.9%.
		{"six have one", []float64{6, 1, 5, 2, 4, 3}, Interval{Median: 4, Low: 1, High: 6, Confidence: 0.96875}},
		// The second and the eighth of nine: 1 - 2 * (1+9) / 2^9.
		{"nine leave out the ends", []float64{1, 2, 3, 4, 5, 6, 7, 8, 900}, Interval{Median: 5, Low: 2, High: 8, Confidence: 0.9609375}},
		{"all the same", []float64{4, 4, 4, 4, 4, 4}, Interval{Median: 4, Low: 4, High: 4, Confidence: 0.96875}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, NewInterval(tt.samples)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewIntervalKeepsItsSamples(t *testing.T) {
	samples := []float64{3, 1, 2}
	NewInterval(samples)
	if diff := cmp.Diff([]float64{3, 1, 2}, samples); diff != "" {
		t.Errorf("samples were changed (-want +got):\n%s", diff)
	}
}

func event(name string, worker int, copied, fresh int64) Event {
	c := Copied{SharedBefore: 1000, StillShared: 1000 - copied, CopiedPages: copied, CopiedBytes: pagemap.Bytes(copied) * 16384,
		CopiedByWorker: copied, NewPages: fresh, Change: Change{Identical: copied}}
	return Event{Name: name, Worker: worker, Copied: c, Regions: []RegionDiff{{Kind: RegionOther}, {Kind: RegionBrkHeap, Copied: c}}}
}

func TestSummarize(t *testing.T) {
	const page = 16384
	runs := []Run{
		{Seq: 1, Events: []Event{event("null", 1, 1, 0), event("null", 2, 3, 0), event("gc", 1, 100, 7), event("gc", 2, 300, 9)}},
		{Seq: 2, Events: []Event{event("null", 1, 0, 0), event("null", 2, 0, 0), event("gc", 1, 210, 1), event("gc", 2, 230, 1)}},
		{Seq: 3, Events: []Event{event("null", 1, 2, 0), event("null", 2, 2, 0)}}, // ended early
	}
	got := Summarize(runs, page)
	sum := func(copied int64, n int64) RegionDiff {
		return RegionDiff{Kind: RegionBrkHeap, Copied: Copied{SharedBefore: 1000 * n, StillShared: 1000*n - copied, CopiedPages: copied,
			CopiedBytes: pagemap.Bytes(copied) * page, CopiedByWorker: copied, Change: Change{Identical: copied}}}
	}
	gc := sum(840, 4)
	gc.NewPages = 18
	want := Summary{Events: []EventSummary{
		{
			Name: "null", N: 3, SharedBefore: Interval{Median: 1000 * page, Low: 1000 * page, High: 1000 * page},
			CopiedBytes: Interval{Median: 2 * page, Low: 0, High: 2 * page},
			Change:      Change{Identical: 8}, Regions: []RegionDiff{sum(8, 6), {Kind: RegionOther}},
		},
		{
			Name: "gc", N: 2, SharedBefore: Interval{Median: 1000 * page, Low: 1000 * page, High: 1000 * page},
			// Run 1: the median of 100 and 300; run 2: of 210 and 230.
			CopiedBytes: Interval{Median: 210 * page, Low: 200 * page, High: 220 * page},
			NewBytes:    Interval{Median: 9 * page / 2, Low: page, High: 8 * page},
			Change:      Change{Identical: 840}, Regions: []RegionDiff{gc, {Kind: RegionOther}},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSummarizeNothing(t *testing.T) {
	if diff := cmp.Diff(Summary{Events: []EventSummary{}}, Summarize(nil, 4096)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
