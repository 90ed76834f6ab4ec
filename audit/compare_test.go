package audit

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"cowaudit/pagemap"
)

// subjectSide makes a side of runs that copied these numbers of pages in the first major GC, all of them identical pages of the
// brk heap, but for the null event's three.
func subjectSide(buildID string, pages ...int64) Side {
	s := Side{Subject: Subject{Name: buildID, BuildID: buildID, Runtime: "ruby"}, Scenario: Scenario{Name: "callcache-cold", Workers: 1}}
	s.Capture.PageSize = 4096
	for i, n := range pages {
		s.Runs = append(s.Runs, Run{Seq: i + 1, Events: []Event{eventOf(EventNull, 3), eventOf("first_major_gc", n)}})
	}
	return s
}

func eventOf(name string, pages int64) Event {
	c := Copied{SharedBefore: 100_000, StillShared: 100_000 - pages, CopiedPages: pages, CopiedBytes: pagemap.Bytes(pages) * 4096,
		CopiedByWorker: pages, Change: Change{Identical: pages}}
	return Event{Name: name, Worker: 1, Copied: c, Regions: []RegionDiff{{Kind: RegionBrkHeap, Copied: c}}}
}

func mustCompare(t *testing.T, a, b Side, looks int) *CompareReport {
	t.Helper()
	r, err := Compare(a, b, CompareOptions{Rounds: Rounds{Done: len(a.Runs), Looks: looks, Ended: true}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func rowOf(t *testing.T, r *CompareReport, event, metric string) *CompareRow {
	t.Helper()
	for i := range r.Rows {
		if r.Rows[i].Event == event && r.Rows[i].Metric == metric {
			return &r.Rows[i]
		}
	}
	t.Fatalf("no row %s %s in %+v", event, metric, r.Rows)
	return nil
}

func TestCompareVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b []int64
		want Verdict
		says string
	}{
		{"exact and the same", []int64{7663, 7663, 7663, 7663, 7663}, []int64{7663, 7663, 7663, 7663, 7663}, VerdictSame, "exact"},
		{"exact and less", []int64{7663, 7663, 7663, 7663, 7663}, []int64{130, 130, 130, 130, 130}, VerdictBetter, "exact"},
		{"exact and 2% more", []int64{7663, 7663, 7663, 7663, 7663}, []int64{7816, 7816, 7816, 7816, 7816}, VerdictWorse, "exact"},
		{"exact and less than matters", []int64{7663, 7663, 7663, 7663, 7663}, []int64{7664, 7664, 7664, 7664, 7664}, VerdictSame, "exact"},
		{"too few rounds", []int64{7663, 7660, 7661}, []int64{130, 131, 129}, VerdictInconclusive, "3 rounds: an interval needs"},
		{"apart", []int64{7663, 7660, 7661, 7665, 7668, 7659, 7662, 7664}, []int64{130, 131, 129, 135, 128, 127, 133, 132}, VerdictBetter, "leaves out 0"},
		{"2% more", []int64{7663, 7660, 7661, 7665, 7668, 7659, 7662, 7664}, []int64{7816, 7813, 7814, 7818, 7821, 7812, 7815, 7817}, VerdictWorse, "leaves out 0"},
		{"scattered", []int64{7000, 9000, 6000, 8000, 7500, 8500, 6500, 9500}, []int64{7600, 9600, 6600, 8600, 8100, 9100, 7100, 10100}, VerdictInconclusive, "too wide"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := mustCompare(t, subjectSide("aa", c.a...), subjectSide("bb", c.b...), 1)
			row := rowOf(t, r, "first_major_gc", metricCopied)
			if row.Verdict != c.want || !strings.Contains(row.Why, c.says) {
				t.Errorf("verdict %q because %q, want %q with %q; %+v", row.Verdict, row.Why, c.want, c.says, row)
			}
			if c.want == VerdictInconclusive && row.MoreRounds < 1 {
				t.Errorf("inconclusive, and no number of rounds would tell: %+v", row)
			}
			if null := rowOf(t, r, EventNull, metricCopied); null.Verdict != "" {
				t.Errorf("the null event is judged: %+v", null)
			}
		})
	}
}

// The same distribution on both sides, bimodal and with outliers, looked at four times as a comparison does: no verdict but
// "same" and "inconclusive" in 400 comparisons, where one of a hundred would be allowed.
func TestCompareFalseAlarms(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	draw := map[string]func() int64{
		"normal":  func() int64 { return 7600 + int64(150*rng.NormFloat64()) },
		"bimodal": func() int64 { return 7600 + 400*int64(rng.IntN(2)) + int64(3*rng.NormFloat64()) },
		"outlier": func() int64 { return 7600 + int64(5/(rng.Float64()+1e-3)) },
		"two":     func() int64 { return 7600 + 1000*int64(rng.IntN(2)) },
	}
	for name, f := range draw {
		alarms := 0
		for range 100 {
			var a, b []int64
			for n := 1; n <= 12; n++ {
				a, b = append(a, f()), append(b, f())
				if !slices.Contains([]int{5, 8, 10, 12}, n) {
					continue
				}
				if r := mustCompare(t, subjectSide("aa", a...), subjectSide("aa", b...), 3); r.Verdict == VerdictWorse || r.Verdict == VerdictBetter {
					alarms++
					break
				}
			}
		}
		if alarms > 2 {
			t.Errorf("%s: %d of 100 comparisons of equal sides called a difference", name, alarms)
		}
	}
}

func TestCompareSaysWhere(t *testing.T) {
	a, b := subjectSide("aa", 7663, 7660, 7661, 7665, 7668, 7659, 7662, 7664), subjectSide("bb", 130, 131, 129, 135, 128, 127, 133, 132)
	traced := func(pages int64, function string) []Run {
		e := eventOf("first_major_gc", pages)
		e.Attribution = &Attribution{ExplainedPages: pages, Functions: []AttributionRow{{Name: function, Module: "libruby-3.3.so",
			Phase: GCMajor, Region: RegionBrkHeap, Pages: pages, Change: Change{Identical: pages}}}}
		return []Run{{Seq: 1, Events: []Event{e}}}
	}
	a.Traced, b.Traced = traced(7650, "rb_iseq_mark_and_move"), traced(120, "gc_mark_ptr")
	r := mustCompare(t, a, b, 1)
	want := "B copies 29.4 MiB less in the first major GC (0.5 MiB instead of 29.9 MiB); the whole difference is in the brk heap, identical pages written by rb_iseq_mark_and_move."
	if got := strings.ReplaceAll(r.Conclusion, "522 KiB", "0.5 MiB"); got != want {
		t.Errorf("the conclusion is\n%s\nwant\n%s", got, want)
	}
	for _, d := range r.Differences {
		for name, list := range map[string][]Delta{"regions": d.ByRegion, "changes": d.ByChange, "regions and changes": d.ByRegionChange} {
			checkDeltas(t, name, list, d.Total)
		}
		checkDeltas(t, "functions", d.ByFunction, *d.TracedTotal)
	}
}

func checkDeltas(t *testing.T, name string, list []Delta, total Delta) {
	t.Helper()
	var s Delta
	for _, d := range list {
		s.A, s.B, s.Pages, s.Identical = s.A+d.A, s.B+d.B, s.Pages+d.Pages, s.Identical+d.Identical
	}
	for _, p := range [][2]float64{{s.A, total.A}, {s.B, total.B}, {s.Pages, total.Pages}, {s.Identical, total.Identical}} {
		if math.Abs(p[0]-p[1]) > 1e-6 {
			t.Errorf("%s sum to %+v, the total is %+v", name, s, total)
		}
	}
}

func TestCompareRefuses(t *testing.T) {
	a, b := subjectSide("aa", 1, 2, 3), subjectSide("bb", 1, 2, 3)
	b.Capture.PageSize = 16384
	var unlike *UnlikeError
	if _, err := Compare(a, b, CompareOptions{}); !errors.As(err, &unlike) || !strings.Contains(err.Error(), "page size in bytes: A has 4096, B has 16384") {
		t.Errorf("page sizes of 4096 and 16384 bytes: %v", err)
	}
	b = subjectSide("bb", 1, 2, 3)
	b.Capture.Kernel = "6.99"
	r, err := Compare(a, b, CompareOptions{})
	if err != nil || len(r.Unlike) != 1 || r.Unlike[0].What != "kernel" {
		t.Errorf("another kernel is not named: %v, %+v", err, r)
	}
}

func TestSameBuildIsToldByIDAndSettings(t *testing.T) {
	a, b := subjectSide("aa", 1), subjectSide("aa", 1)
	b.Subject.Name = "another name"
	if !sameBuild(&a.Subject, &b.Subject) {
		t.Error("the same build under another name is not called out")
	}
	b.Subject.Env = []string{"MALLOC_ARENA_MAX=2"}
	if sameBuild(&a.Subject, &b.Subject) {
		t.Error("another environment is taken for the same")
	}
	b.Subject.Env, b.Subject.Command = nil, "ruby --yjit"
	if sameBuild(&a.Subject, &b.Subject) {
		t.Error("another option is taken for the same")
	}
}

// The level of an interval is what it says: P(U < k) by hand. For 5 and 5 samples there are 252 orders, each end has 1.
func TestIntervalRank(t *testing.T) {
	for _, c := range []struct {
		n     int
		alpha float64
		k     int
	}{{5, 0.01, 1}, {5, 0.005, 0}, {4, 0.05, 1}, {4, 0.02, 0}, {3, 0.1, 1}, {10, 0.05, 24}, {20, 0.05, 128}} {
		if k, confidence := uRank(c.n, c.n, c.alpha); k != c.k || confidence < 1-c.alpha-1e-9 {
			t.Errorf("%d samples, alpha %g: rank %d at confidence %g, want %d", c.n, c.alpha, k, confidence, c.k)
		}
	}
	if k, _ := uRank(60, 60, 0.05); k < 1400 || k > 1450 { // 1424 by the normal distribution
		t.Errorf("60 samples: rank %d", k)
	}
}

func TestHolm(t *testing.T) {
	got := holm([]float64{0.01, 0.04, 0.03, 0.005})
	for i, want := range []float64{0.03, 0.06, 0.06, 0.02} {
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("adjusted p-values %v, want 0.03 0.06 0.06 0.02", got)
		}
	}
}

// The sentence is about what a built-in scenario measures beside the pages, else about copied pages, and in either case about the
// event that differs most.
func TestMainRow(t *testing.T) {
	row := func(event, metric string, difference float64, v Verdict) CompareRow {
		return CompareRow{Event: event, Metric: metric, Difference: Estimate{Median: difference}, Verdict: v}
	}
	rows := []CompareRow{
		row("fill", metricCopied, 900, VerdictWorse), row("fill", metricNew, 9000, VerdictWorse), row("fill", "ratio", 0.2, VerdictWorse),
		row("refill", "ratio", -0.3, VerdictWorse), row("refill", "rss", 5000, VerdictWorse), row("refill", metricCopied, 9e9, VerdictBetter),
	}
	for _, c := range []struct {
		name, app string
		rows      []CompareRow
		verdict   Verdict
		want      string
	}{
		{"a scenario's own metric", "", rows, VerdictWorse, "refill ratio"},
		{"an application's metric", "a.rb", rows, VerdictWorse, "fill copied_bytes"},
		{"only the rows of the verdict", "", rows, VerdictBetter, "refill copied_bytes"},
		{"a metric of the user's event", "", []CompareRow{row(EventApp, "ratio", 3, VerdictWorse), row(EventApp, metricNew, 2, VerdictWorse)}, VerdictWorse, "app_event new_bytes"},
		{"none", "", rows, VerdictSame, ""},
	} {
		r := &CompareReport{Rows: c.rows}
		r.A.Scenario.App = c.app
		got := ""
		if best := r.mainRow(c.verdict); best != nil {
			got = best.Event + " " + best.Metric
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
