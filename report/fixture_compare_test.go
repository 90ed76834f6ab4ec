package report

import (
	"slices"
	"testing"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// Comparisons modelled on two builds of one library that differ in one line: A rewrites what is there already, B does not.

// compareSide gives one side: the runs copied so many pages in the first major GC, all but a few of them identical.
func compareSide(name, buildID string, identical, other []int64) audit.Side {
	s := audit.Side{
		Subject: audit.Subject{Name: name, Version: "ruby 3.3.8 (2025-04-09 revision b200bad6cd) [x86_64-linux-gnu]", Command: "ruby3.3", Runtime: "ruby",
			Executable: "/usr/bin/ruby3.3", Allocator: "glibc", Library: "/opt/" + name + "/libruby-3.3.so.3.3.8", BuildID: buildID,
			Env: []string{"LD_LIBRARY_PATH=/opt/" + name}},
		Scenario: audit.Scenario{Name: "callcache-cold", Methods: 20000, CallSites: 400000, SettleRuns: 4, SettleLimit: "until quiet", Workers: 1},
		Capture:  testCapture(audit.BasisBaseline),
	}
	for i := range identical {
		s.Runs = append(s.Runs, compareRun(i+1, identical[i], other[i]))
	}
	s.Summary = audit.Summarize(s.Runs, s.Capture.PageSize)
	return s
}

func compareRun(seq int, identical, other int64) audit.Run {
	run := audit.Run{Seq: seq}
	for _, e := range []struct {
		name             string
		identical, other int64
	}{{audit.EventNull, 0, 3}, {audit.EventFirstMajorGC, identical, other}, {audit.EventSecondMajorGC, 0, 0}} {
		heap := audit.Copied{SharedBefore: 40 * mibPages, CopiedPages: e.identical, Change: audit.Change{Identical: e.identical}}
		objects := audit.Copied{SharedBefore: 12 * mibPages, CopiedPages: e.other, NewPages: 41, Change: audit.Change{OneWord: e.other / 2, ManyWords: e.other - e.other/2}}
		event := audit.Event{Name: e.name, Worker: 1, PID: pagemap.PID(5000 + seq), DurationNano: 52_000_000}
		for _, g := range []audit.RegionDiff{{Kind: audit.RegionBrkHeap, Copied: heap}, {Kind: audit.RegionRubyHeap, Copied: objects}} {
			g.StillShared, g.CopiedByWorker, g.CopiedBytes = g.SharedBefore-g.CopiedPages, g.CopiedPages, pagemap.Bytes(g.CopiedPages*4096)
			event.Regions = append(event.Regions, g)
			event.Copied.Add(&g.Copied)
		}
		run.Events = append(run.Events, event)
	}
	return run
}

// withTrace adds a traced round in which one function wrote all that did not change.
func withTrace(s audit.Side, identical, other int64) audit.Side {
	run := compareRun(1, identical, other)
	for k := range run.Events {
		e := &run.Events[k]
		a := &audit.Attribution{Functions: []audit.AttributionRow{}, Unexplained: []audit.Reason{}, ByNumber: []audit.AttributionRow{}, TracedNotCopied: []audit.Reason{}}
		if n := e.Change.Identical; n > 0 {
			a.Functions = append(a.Functions, writer("rb_iseq_mark_and_move", "libruby-3.3.so.3.3.8", audit.GCMajor, audit.StepMarking, audit.RegionBrkHeap, audit.Change{Identical: n}))
		}
		c := e.Change
		c.Identical = 0
		if n := c.OneWord + c.ManyWords; n > 0 {
			a.Functions = append(a.Functions, writer("gc_sweep_step", "libruby-3.3.so.3.3.8", audit.GCMajor, audit.StepSweeping, audit.RegionRubyHeap, c))
		}
		for i := range a.Functions {
			a.ExplainedPages += a.Functions[i].Pages
		}
		a.MatchedPages, a.TracedPages, a.TracedCopies = a.ExplainedPages, a.ExplainedPages, a.ExplainedPages
		e.Attribution = a
	}
	s.Tracer, s.Traced = &audit.Tracer{Variant: "tp_btf", SeesQuiet: true}, []audit.Run{run}
	return s
}

func comparison(t testing.TB, a, b audit.Side, rounds audit.Rounds) *audit.CompareReport {
	t.Helper()
	r, err := audit.Compare(a, b, audit.CompareOptions{Version: "0.1.0", Rounds: rounds})
	if err != nil {
		t.Fatal(err)
	}
	if err := audit.CheckCompare(r); err != nil {
		t.Fatalf("the fixture is wrong: %v", err)
	}
	return r
}

var (
	sideIdentical = []int64{7650, 7651, 7649, 7650, 7652, 7648, 7650, 7651}
	sideOther     = []int64{13, 14, 12, 13, 15, 13, 12, 13}
	fixedOther    = []int64{128, 129, 127, 130, 128, 131, 126, 128}
)

// betterReport is A against B: 29.9 MiB against 0.5 MiB.
func betterReport(t testing.TB) *audit.CompareReport {
	a := withTrace(compareSide("a", "c0ffee00112233445566", sideIdentical, sideOther), 7650, 13)
	b := withTrace(compareSide("b", "f00d1234567890abcdef", make([]int64, 8), fixedOther), 0, 128)
	return comparison(t, a, b, audit.Rounds{Done: 8, Limit: 20, Warmup: 1, Looks: 1, Ended: true})
}

// worseReport is B against A.
func worseReport(t testing.TB) *audit.CompareReport {
	a := compareSide("b", "f00d1234567890abcdef", make([]int64, 8), fixedOther)
	b := compareSide("a", "c0ffee00112233445566", sideIdentical, sideOther)
	b.Capture.Kernel = "6.18.45"
	return comparison(t, a, b, audit.Rounds{Done: 8, Limit: 8, Looks: 1, Ended: true})
}

// sameReport is a build against itself, under two names.
func sameReport(t testing.TB) *audit.CompareReport {
	a, b := compareSide("a", "c0ffee00112233445566", sideIdentical, sideOther), compareSide("a", "c0ffee00112233445566", sideIdentical, sideOther)
	b.Subject.Name = "another"
	return comparison(t, a, b, audit.Rounds{Done: 8, Limit: 8, Looks: 1, Ended: true})
}

// openReport was interrupted after three rounds.
func openReport(t testing.TB) *audit.CompareReport {
	a := compareSide("a", "c0ffee00112233445566", sideIdentical[:3], sideOther[:3])
	b := compareSide("b", "f00d1234567890abcdef", slices.Repeat([]int64{7300}, 3), fixedOther[:3])
	for _, s := range []*audit.Side{&a, &b} {
		for i := range s.Runs {
			e := &s.Runs[i].Events[1]
			e.Metrics = []audit.Metric{{Name: "peak_rss_bytes", Unit: "bytes", Value: float64(80<<20 + i<<20), Better: audit.BetterLess},
				{Name: "pause_ns", Unit: "ns", Value: float64(52_000_000 + 1_000_000*i), Better: audit.BetterLess},
				{Name: "old_objects", Unit: "count", Value: 211_833, Better: ""}}
		}
	}
	return comparison(t, a, b, audit.Rounds{Done: 3, Limit: 20, Looks: 1})
}

// hostileCompare has names that try to act on what shows them.
func hostileCompare(t testing.TB) *audit.CompareReport {
	r := worseReport(t)
	r.A.Subject.Name = hostileName
	r.B.Subject.Env = []string{hostileName}
	r.Conclusion += " " + hostileName
	r.Unlike = append(r.Unlike, audit.Unlike{What: hostileName, A: hostileName, B: "<b>"})
	r.Scenario.Name = hostileName
	r.Warnings = append(r.Warnings, pagemap.Warning{Code: "x", Text: hostileName, Remedy: hostileName})
	return r
}

const hostileName = "a|b](javascript:x) <script>alert(1)</script> `c` %0A::error::x\n::stop-commands::t\r\x1b[31m\x9b & \"q\" ]]> @all #1 **x** \u202e"
