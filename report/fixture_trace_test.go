package report

import (
	"testing"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// writer is a row of an attribution.
func writer(name, module string, phase audit.GCPhase, step audit.GCStep, region audit.RegionKind, change audit.Change) audit.AttributionRow {
	n := change.Identical + change.OneWord + change.FewWords + change.ManyWords + change.Rewritten + change.NotCompared
	return audit.AttributionRow{Name: name, Module: module, Path: "/usr/lib/x86_64-linux-gnu/" + module, Phase: phase, Step: step, Region: region,
		Pages: n, Bytes: pagemap.Bytes(n * 4096), Change: change}
}

// tracedForktest is a fork test with every word that the tracer adds.
func tracedForktest(t testing.TB, runs int) *audit.ForktestReport {
	r := forktestReport(t, runs, 8061, 7600)
	ruby := "libruby-3.3.so.3.3.8"
	r.Tracer = &audit.Tracer{Variant: "tp_btf", SeesQuiet: true, Stacks: true,
		Collector: audit.Collector{Name: "flag", Runtime: "ruby", Version: "3.3.8", Module: ruby}, Lost: audit.LostParts{Stacks: 3}}
	for i := range r.Runs {
		for k := range r.Runs[i].Events {
			e := &r.Runs[i].Events[k]
			e.Attribution = attribution(e, ruby)
		}
	}
	for k := range r.Summary.Events {
		s := &r.Summary.Events[k]
		var list []*audit.Attribution
		for i := range r.Runs {
			list = append(list, r.Runs[i].Events[k].Attribution)
		}
		s.Attribution = audit.SumAttributions(list)
	}
	if err := audit.CheckForktest(r); err != nil {
		t.Fatalf("the fixture is wrong: %v", err)
	}
	r.Findings = audit.FindingsForForktest(r)
	return r
}

func attribution(e *audit.Event, ruby string) *audit.Attribution {
	none := audit.Attribution{Functions: []audit.AttributionRow{}, Unexplained: []audit.Reason{}, ByNumber: []audit.AttributionRow{}, TracedNotCopied: []audit.Reason{}}
	a := &none
	c := e.Change
	take := func(n int64) audit.Change { // so many of the pages on which one word changed
		c.OneWord -= n
		return audit.Change{OneWord: n}
	}
	var outside int64
	switch {
	case e.CopiedPages > 1000:
		quiet := take(5)
		take(19) // of those that the trace does not explain
		byMaster := writer("pymalloc_alloc", "libpython3.11.so.1.0", audit.GCUnknown, audit.StepUnknown, audit.RegionBrkHeap, take(13))
		byMaster.ByReference = true
		read := writer("libc.so.6+0x1153d4", "libc.so.6", audit.GCNone, audit.StepNone, audit.RegionThreadStack, take(31))
		read.KernelMode = true
		sweep := writer("rb_iseq_mark_and_move", ruby, audit.GCMajor, audit.StepSweeping, audit.RegionBrkHeap, take(17))
		long := writer("std::__detail::_Hashtable_alloc<std::allocator<_Hash_node>>::_M_allocate_node<int const&>", "libstdc++.so.6", audit.GCMinor, audit.StepMarking, audit.RegionBrkHeap, take(11))
		main := writer("rb_iseq_mark_and_move", ruby, audit.GCMajor, audit.StepMarking, audit.RegionBrkHeap, c)
		main.File, main.Line = "/build/ruby/iseq.c", 350
		a.Functions = []audit.AttributionRow{main, read, sweep, byMaster, long}
		audit.SortAttribution(a.Functions)
		a.Unexplained = []audit.Reason{
			{Code: audit.UnexplainedRefilled, Pages: 19, Text: "given up and filled anew: no copy"},
			{Code: audit.UnexplainedWithoutAddr, Pages: 5, Text: "copied without a fault (mlock, MADV_POPULATE_WRITE, O_DIRECT, …): matched by number"},
		}
		a.ByNumber = []audit.AttributionRow{writer("mlock", "libc.so.6", audit.GCNone, audit.StepNone, audit.RegionUnknown, quiet)}
		a.QuietCopies = 5
		outside = 3
		a.TracedNotCopied = []audit.Reason{{Code: audit.NotCopiedGivenUp, Pages: outside, Text: "given up since, by one side"}}
		a.RepeatedCopies = 2
		a.Profile = forkProfile(e, ruby)
	case e.CopiedPages > 0:
		a.Functions = []audit.AttributionRow{writer("rb_ary_push", ruby, audit.GCNone, audit.StepNone, audit.RegionBrkHeap, c)}
	}
	for i := range a.Functions {
		a.ExplainedPages += a.Functions[i].Pages
	}
	a.MatchedPages = a.ExplainedPages
	a.TracedPages = a.MatchedPages + outside
	a.TracedCopies = a.TracedPages + a.RepeatedCopies + a.QuietCopies
	a.Counts = &audit.Counts{PageTables: e.CopiedPages, Traced: e.CopiedPages, Residue: []audit.Residue{}}
	if e.CopiedPages > 1000 {
		a.Counts.Traced += -13 - 19 + 3 + 2
		a.Counts.Residue = []audit.Residue{
			{Of: audit.ResidueTraced, Code: "by_reference", Pages: -13, Text: "copied by the reference, in its own address space"},
			{Of: audit.ResidueTraced, Code: audit.UnexplainedRefilled, Pages: -19, Text: "given up and filled anew: no copy"},
			{Of: audit.ResidueTraced, Code: audit.NotCopiedGivenUp, Pages: 3, Text: "given up since, by one side"},
			{Of: audit.ResidueTraced, Code: "repeated", Pages: 2, Text: "copied again: threads raced, or the page had been shared again"},
		}
		a.Counts.Differs.Zero = 7
	}
	a.Counts.Kernel(a.Counts.Traced + a.Counts.Differs.Zero)
	if e.CopiedPages > 0 {
		p := 100 * float64(a.ExplainedPages) / float64(e.CopiedPages)
		a.Counts.AgreementPercent = &p
	}
	return a
}

// forkProfile has the identical pages of an event beside the others.
func forkProfile(e *audit.Event, ruby string) *audit.Profile {
	same, other := e.Change.Identical, int64(0)
	n := e.CopiedPages - 19 - 5 - same
	sample := func(region audit.RegionKind, phase audit.GCPhase, stack int, pages int64, identical *int64) audit.Sample {
		return audit.Sample{PID: e.PID, Region: region, Phase: phase, Step: audit.StepMarking, Stack: stack, Copies: pages, CopiedPages: pages, Identical: identical}
	}
	return &audit.Profile{
		Samples: []audit.Sample{
			sample(audit.RegionBrkHeap, audit.GCMajor, 0, same, &same),
			sample(audit.RegionRubyHeap, audit.GCMajor, 1, n, &other),
		},
		Stacks: []audit.ProfileStack{{Frames: []int{0, 1}}, {Frames: []int{2}, Cut: true}},
		Frames: []audit.ProfileFrame{
			{Name: "rb_iseq_mark_and_move", Function: "rb_iseq_mark_and_move", Module: ruby, Path: "/usr/lib/" + ruby, BuildID: "c0ffee", Offset: 0x1234, Addr: 0x7f0000001234, File: "/build/ruby/iseq.c", Line: 350},
			{Name: "gc_start", Function: "gc_start", Module: ruby, Path: "/usr/lib/" + ruby, BuildID: "c0ffee", Offset: 0x8888, Addr: 0x7f0000008888},
			{Name: "libc.so.6+0x1153d4", Module: "libc.so.6", Path: "/usr/lib/libc.so.6", Offset: 0x1153d4, Addr: 0x7f00011153d4},
		},
	}
}
