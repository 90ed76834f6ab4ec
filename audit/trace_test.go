package audit

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// traceOf gives a trace of a master (100) and its worker (101): a program's heap, its data and .bss, and an unnamed
// mapping. Totals are what the counts sum to.
func traceOf(counts ...ebpf.Count) *ebpf.Trace {
	maps := []pagemap.Mapping{
		{Start: 0x1000, End: 0x3000, Perms: "rw-p", Path: "/bin/ruby", Inode: 7},
		{Start: 0x3000, End: 0x5000, Perms: "rw-p"},
		{Start: 0x10000, End: 0x90000, Perms: "rw-p", Path: "[heap]"},
	}
	t := &ebpf.Trace{
		Began: time.Unix(1700000000, 0), Duration: 3 * time.Second, PageSize: 4096, Host: "h", Kernel: "6.18", Variant: "tp_btf", Quiet: true,
		Spaces: []ebpf.Space{
			{ID: 1, Cause: ebpf.CauseStart, Process: pagemap.Identity{PID: 100, Start: 5}, Command: "master", Mappings: maps},
			{ID: 2, Parent: 1, Cause: ebpf.CauseFork, Process: pagemap.Identity{PID: 101, Start: 6}, Command: "worker", Mappings: maps,
				Began: time.Second, Ended: 2 * time.Second, Provider: ebpf.Provider{Name: "flag", Runtime: "ruby", Version: "3.3.8"}},
		},
		Regions: []ebpf.Region{
			{ID: 1, Space: 2, Mapping: maps[2], Named: true},
			{ID: 2, Space: 2, Mapping: maps[1], Named: true},
			{ID: 3, Space: 2, Mapping: pagemap.Mapping{Start: 0x7000, End: 0x8000, Perms: "rw-p"}},
			{ID: 4, Space: 1, Mapping: maps[0], Named: true},
		},
		Frames: []ebpf.Frame{
			{},
			{Name: "rb_iseq_mark_and_move", Function: "rb_iseq_mark_and_move", Module: "libruby.so", Path: "/lib/libruby.so", File: "iseq.c", Line: 350},
			{Name: "rb_iseq_mark_and_move", Function: "rb_iseq_mark_and_move", Module: "libruby.so", Path: "/lib/libruby.so", File: "iseq.c", Line: 351},
			{Name: "libc.so.6+0x11", Module: "libc.so.6", Path: "/lib/libc.so.6", Offset: 0x11},
			{Name: "main", Function: "main", Module: "ruby", Path: "/bin/ruby"},
		},
		Stacks: []ebpf.Stack{{}, {Frames: []ebpf.FrameID{1, 4}}, {Frames: []ebpf.FrameID{2, 4}}, {Frames: []ebpf.FrameID{3}, Cut: true}},
		Counts: counts,
	}
	for _, c := range counts {
		t.Totals[c.Kind].Faults += c.Faults
		t.Totals[c.Kind].Pages += c.Pages
	}
	return t
}

func major(n int64, frame ebpf.FrameID) ebpf.Count {
	return ebpf.Count{Space: 2, Region: 1, Frame: frame, Stack: ebpf.StackID(frame), GC: ebpf.GC{Phase: ebpf.PhaseMajor, Step: ebpf.StepMarking, Seq: 9}, Kind: ebpf.KindCopied, Faults: n, Pages: n}
}

// counts that differ in everything a table is about: 8006 + 13 copies in a major GC, 53 outside of it, of which 11 in kernel
// mode; a copy of a folio of 16 pages.
func someCounts() []ebpf.Count {
	none := ebpf.GC{Phase: ebpf.PhaseNone, Step: ebpf.StepNone}
	return []ebpf.Count{
		major(8006, 1), major(13, 2),
		{Space: 2, Region: 2, Frame: 3, Stack: 3, GC: none, Kind: ebpf.KindCopied, Faults: 31, Pages: 31},
		{Space: 2, Region: 2, Frame: 3, Stack: 3, GC: none, Kind: ebpf.KindCopied, Detail: ebpf.DetailKernel, Faults: 11, Pages: 11},
		{Space: 2, Region: 3, Frame: 0, GC: none, Kind: ebpf.KindCopied, Detail: ebpf.DetailHuge, Faults: 1, Pages: 16},
		{Space: 1, Region: 4, Frame: 4, Kind: ebpf.KindReused, Faults: 7, Pages: 7},
		{Space: 2, Region: 0, Frame: 4, GC: none, Kind: ebpf.KindNew, Faults: 5, Pages: 5},
		{Space: 2, Region: 1, Frame: 4, GC: none, Kind: ebpf.KindZero, Faults: 3, Pages: 3},
	}
}

func TestNewTraceReport(t *testing.T) {
	tr := traceOf(someCounts()...)
	tr.Totals[ebpf.KindReused].Faults += 19
	tr.Lost.Records = 23
	tr.Totals[ebpf.KindRead].Faults += 1009 // no table has them
	at := func(d time.Duration) ebpf.Fault {
		return ebpf.Fault{Time: d, Space: 2, GC: ebpf.GC{Phase: ebpf.PhaseMajor, Step: ebpf.StepMarking, Seq: 9}, Kind: ebpf.KindCopied}
	}
	tr.Faults = []ebpf.Fault{at(5), at(70), at(17)}
	r, err := NewTraceReport(tr, TraceOptions{Version: "v"})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Faults; got.Copied != 8062 || got.CopiedPages != 8077 || got.Reused != 26 || got.Zero != 3 || got.New != 5 || got.Read != 1009 || got.Lost != 19 || got.KernelMode != 11 {
		t.Errorf("faults %+v", got)
	}
	wantRegions := []RegionRow{
		{RegionBrkHeap, "", FaultCounts{Copied: 8019, Zero: 3, CopiedPages: 8019, CopiedBytes: 8019 * 4096}},
		{RegionLibraryData, "", FaultCounts{Copied: 42, CopiedPages: 42, CopiedBytes: 42 * 4096, KernelMode: 11}},
		{RegionUnknown, "", FaultCounts{Copied: 1, New: 5, NewPages: 5, CopiedPages: 16, CopiedBytes: 16 * 4096}},
		{RegionLibraryData, "/bin/ruby", FaultCounts{Reused: 7}},
	}
	if d := cmp.Diff(wantRegions, r.ByRegion); d != "" {
		t.Errorf("by_region (-want +got):\n%s", d)
	}
	wantFunction := FunctionRow{Name: "rb_iseq_mark_and_move", Module: "libruby.so", Path: "/lib/libruby.so", File: "iseq.c", Line: 350,
		FaultCounts: FaultCounts{Copied: 8019, CopiedPages: 8019, CopiedBytes: 8019 * 4096}, CopiedByPhase: PhaseCounts{Major: 8019}}
	if d := cmp.Diff(wantFunction, r.ByFunction[0]); d != "" {
		t.Errorf("by_function (-want +got):\n%s", d)
	}
	wantStack := StackRow{Frames: []string{"rb_iseq_mark_and_move", "main"}, FaultCounts: FaultCounts{Copied: 8019, CopiedPages: 8019, CopiedBytes: 8019 * 4096}}
	if d := cmp.Diff(wantStack, r.ByStack[0]); d != "" {
		t.Errorf("by_stack (-want +got):\n%s", d)
	}
	first, last := int64(5), int64(70)
	if d := cmp.Diff([]Collection{{PID: 101, Seq: 9, Kind: GCMajor, Faults: 8019, Copies: 8019, CopiedPages: 8019, FirstNano: &first, LastNano: &last}}, r.GC); d != "" {
		t.Errorf("gc (-want +got):\n%s", d)
	}
	w := r.Processes[1]
	w.FaultCounts = FaultCounts{}
	if d := cmp.Diff(Traced{PID: 101, StartTicks: 6, ParentPID: 100, Command: "worker", Cause: "fork", BeganNano: 1e9, EndedNano: 2e9,
		Collector: Collector{Name: "flag", Runtime: "ruby", Version: "3.3.8"}}, w); d != "" {
		t.Errorf("process (-want +got):\n%s", d)
	}
	if got, want := r.Findings[0].Text, "8,019 of 8,077 copied pages: rb_iseq_mark_and_move, during a major GC, brk heap."; got != want {
		t.Errorf("finding\n got %s\nwant %s", got, want)
	}
	if len(r.Warnings) != 1 || r.Warnings[0].Code != "lost_records" {
		t.Errorf("warnings %+v", r.Warnings)
	}
	if s := r.Samples[0]; s.CopiedPages != 8006 || s.Phase != GCMajor || s.Step != StepMarking || s.PID != 101 || r.Frames[r.Stacks[s.Stack].Frames[1]].Name != "main" {
		t.Errorf("first sample %+v", s)
	}
}

func TestNewTraceReportOnlyGC(t *testing.T) {
	r, err := NewTraceReport(traceOf(someCounts()...), TraceOptions{OnlyGC: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.InTables.Copied != 8019 || r.InTables.Total() != 8019 || r.LeftOut.Copied != 43 || r.LeftOut.Reused != 7 || r.Faults.Copied != 8062 {
		t.Errorf("in tables %+v, left out %+v", r.InTables, r.LeftOut)
	}
	if len(r.ByFunction) != 1 || len(r.ByRegion) != 1 {
		t.Errorf("%d functions, %d regions", len(r.ByFunction), len(r.ByRegion))
	}
}

func TestNewTraceReportEmpty(t *testing.T) {
	r, err := NewTraceReport(traceOf(), TraceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Findings[0].Code != "no_copies" || r.Findings[0].Text != "No page was copied." {
		t.Errorf("findings %+v", r.Findings)
	}
}

// What is in the counts and not in the totals, or in neither without being lost, is a breach.
func TestNewTraceReportBreach(t *testing.T) {
	for name, change := range map[string]func(*ebpf.Trace){
		"more in the tables":    func(tr *ebpf.Trace) { tr.Totals[ebpf.KindCopied].Faults-- },
		"missing, and not lost": func(tr *ebpf.Trace) { tr.Totals[ebpf.KindZero].Faults++ },
		"fewer pages":           func(tr *ebpf.Trace) { tr.Totals[ebpf.KindCopied].Pages-- },
	} {
		t.Run(name, func(t *testing.T) {
			tr := traceOf(someCounts()...)
			change(tr)
			if _, err := NewTraceReport(tr, TraceOptions{}); !errors.Is(err, ErrConservation) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// randomTrace gives counts over all kinds, places and phases, some of them nowhere (numbers that no table has).
func randomTrace(r *rand.Rand) *ebpf.Trace {
	var counts []ebpf.Count
	for range r.IntN(60) {
		n := int64(r.IntN(1000))
		order := r.IntN(3)
		counts = append(counts, ebpf.Count{
			Space: ebpf.SpaceID(r.IntN(4)), Region: ebpf.RegionID(r.IntN(6)), Frame: ebpf.FrameID(r.IntN(6)), Stack: ebpf.StackID(r.IntN(5)),
			GC:   ebpf.GC{Phase: ebpf.Phase(r.IntN(int(ebpf.NPhases))), Step: ebpf.Step(r.IntN(int(ebpf.NSteps))), Seq: uint32(r.IntN(3))},
			Kind: ebpf.Kind(r.IntN(int(ebpf.NKinds))), Detail: ebpf.Detail(r.IntN(32)), Faults: n, Pages: n << order,
		})
	}
	return traceOf(counts...)
}

func TestTraceLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for range 300 {
		tr := randomTrace(r)
		for _, only := range []bool{false, true} {
			rep, err := NewTraceReport(tr, TraceOptions{OnlyGC: only})
			if err != nil {
				t.Fatal(err)
			}
			again, err := NewTraceReport(tr, TraceOptions{OnlyGC: only})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(rep, again); d != "" {
				t.Fatalf("a second report differs:\n%s", d)
			}
		}
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -8006: "-8,006"} {
		if got := number(n); got != want {
			t.Errorf("number(%d) = %q, want %q", n, got, want)
		}
	}
}
