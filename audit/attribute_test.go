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

// traceOfFaults gives a trace of the family that made gives: a space for each process (1 is the master's), one region in each.
func traceOfFaults(workers int, faults []ebpf.Fault) *ebpf.Trace {
	t := traceOf()
	t.Spaces, t.Regions = nil, nil
	for who := range workers + 1 {
		s := ebpf.Space{ID: ebpf.SpaceID(who + 1), Parent: 1, Cause: ebpf.CauseFork, Process: pagemap.Identity{PID: pagemap.PID(10 + who), Start: uint64(who)},
			Mappings: []pagemap.Mapping{{Start: start, End: start + pagemap.WindowPages*page, Perms: "rw-p", Path: "[heap]"}}}
		if who == 0 {
			s.Parent, s.Cause = 0, ebpf.CauseStart
		}
		t.Spaces = append(t.Spaces, s)
		t.Regions = append(t.Regions, ebpf.Region{ID: ebpf.RegionID(who + 1), Space: s.ID, Mapping: s.Mappings[0], Named: true})
	}
	t.Faults = append([]ebpf.Fault{}, faults...)
	for i := range faults {
		f := &faults[i]
		t.Totals[f.Kind].Faults++
		t.Totals[f.Kind].Pages += f.Pages()
		t.Counts = append(t.Counts, ebpf.Count{Space: f.Space, Region: f.Region, Frame: f.Frame, GC: f.GC, Kind: f.Kind, Detail: f.Detail, Faults: 1, Pages: f.Pages()})
	}
	return t
}

// script writes faults.
type script struct{ faults []ebpf.Fault }

// add gives a fault of process 10+who at each of the pages from lo to hi.
func (s *script) add(who, lo, hi int, at time.Duration, kind ebpf.Kind, frame ebpf.FrameID) {
	for k := lo; k <= hi; k++ {
		f := ebpf.Fault{Time: at, Addr: start + pagemap.Addr(k)*page + 8, Space: ebpf.SpaceID(who + 1), Region: ebpf.RegionID(who + 1), Frame: frame, Kind: kind}
		if frame == 1 {
			f.GC = ebpf.GC{Phase: ebpf.PhaseMajor, Step: ebpf.StepMarking, Seq: 9}
		}
		s.faults = append(s.faults, f)
	}
}

// quiet gives n copies without a fault.
func (s *script) quiet(who, n int, at time.Duration) {
	for range n {
		s.faults = append(s.faults, ebpf.Fault{Time: at, Space: ebpf.SpaceID(who + 1), Kind: ebpf.KindCopied, Detail: ebpf.DetailNoFault | ebpf.DetailKernel, Frame: 3})
	}
}

// sharedBy is a family in which everybody shares 1,000 pages.
func sharedBy(workers int) *pagemap.Snapshot {
	return made(workers, func(_, k int) (pagemap.Entry, pagemap.KFlags) {
		if k >= 1000 {
			return 0, unread
		}
		return present | pagemap.Entry(1000+k), unread
	})
}

// example is two captures of a master and two workers and what was traced between them (from 10 to 20), with a prime number
// of pages for everything that Attribute tells apart.
func example(t *testing.T) (*CopiedPages, *ebpf.Trace, *DiffReport) {
	t.Helper()
	in := func(k, lo, hi int) bool { return k >= lo && k <= hi }
	after := made(2, func(who, k int) (pagemap.Entry, pagemap.KFlags) {
		shared := present | pagemap.Entry(1000+k)
		own := present | excl | pagemap.Entry(50000+2000*who+k)
		switch {
		case k >= 1000, who == 1 && in(k, 130, 142):
			return 0, unread
		case who == 0 && in(k, 101, 107):
			return own, ae
		case who == 1 && in(k, 108, 112):
			return own, pagemap.KFlagTHP | pagemap.KFlagCompoundTail
		case who == 1 && (in(k, 0, 100) || in(k, 113, 118) || in(k, 143, 145) || in(k, 150, 168)):
			return own, ae
		}
		return shared, unread
	})
	words := make([]int16, pagemap.WindowPages)
	for k := range 4 {
		words[20+k] = 1
	}
	after.Windows[0].Rows[1].Words = words
	var s script
	s.add(1, 143, 145, 5, ebpf.KindCopied, 2)
	s.add(1, 0, 100, 11, ebpf.KindCopied, 2)
	s.add(1, 17, 100, 12, ebpf.KindCopied, 1)
	s.add(0, 101, 107, 12, ebpf.KindCopied, 3)
	s.add(1, 113, 115, 13, ebpf.KindNew, 3)
	s.quiet(1, 3, 13)
	s.add(1, 119, 129, 14, ebpf.KindCopied, 3)
	s.add(1, 130, 142, 14, ebpf.KindCopied, 3)
	s.add(1, 150, 168, 15, ebpf.KindReused, 3)
	s.add(2, 200, 222, 25, ebpf.KindCopied, 3) // after the window
	s.add(1, 900, 904, 15, ebpf.KindZero, 3)
	r, pages, err := DiffPages(sharedBy(2), after, Options{})
	if err != nil {
		t.Fatal(err)
	}
	tr := traceOfFaults(2, s.faults)
	return pages, tr, r
}

func TestAttribute(t *testing.T) {
	pages, tr, r := example(t)
	if r.Totals.CopiedPages != 101+7+7+5+3+3+3+19 {
		t.Fatalf("%d copied pages: the example is not what it is said to be", r.Totals.CopiedPages)
	}
	a, err := Attribute(pages, tr, AttributeOptions{From: 10, To: 20, PID: 11})
	if err != nil {
		t.Fatal(err)
	}
	wantRows := []AttributionRow{
		{Name: "rb_iseq_mark_and_move", Module: "libruby.so", Path: "/lib/libruby.so", File: "iseq.c", Line: 350, Phase: GCMajor, Step: StepMarking,
			Region: RegionBrkHeap, Pages: 84, Bytes: 84 * page, Change: Change{Identical: 80, OneWord: 4}},
		{Name: "rb_iseq_mark_and_move", Module: "libruby.so", Path: "/lib/libruby.so", File: "iseq.c", Line: 351, Phase: GCUnknown, Step: StepUnknown,
			Region: RegionBrkHeap, Pages: 17, Bytes: 17 * page, Change: Change{Identical: 17}},
		{Name: "libc.so.6+0x11", Module: "libc.so.6", Path: "/lib/libc.so.6", Phase: GCUnknown, Step: StepUnknown,
			Region: RegionBrkHeap, ByReference: true, Pages: 7, Bytes: 7 * page, Change: Change{Identical: 7}},
	}
	if d := cmp.Diff(wantRows, a.Functions); d != "" {
		t.Errorf("functions (-want +got):\n%s", d)
	}
	short := func(list []Reason) map[string]int64 {
		m := map[string]int64{}
		for _, r := range list {
			m[r.Code] = r.Pages
		}
		return m
	}
	// The last of pages 113 to 118 have three copies without a fault.
	if d := cmp.Diff(map[string]int64{UnexplainedCollapsed: 5, UnexplainedRefilled: 3, UnexplainedWithoutAddr: 3, UnexplainedOutside: 3, UnexplainedOtherwise: 19}, short(a.Unexplained)); d != "" {
		t.Errorf("unexplained (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]int64{NotCopiedStillShared: 11, NotCopiedGivenUp: 13}, short(a.TracedNotCopied)); d != "" {
		t.Errorf("traced and not copied (-want +got):\n%s", d)
	}
	if a.ExplainedPages != 108 || a.TracedCopies != 101+84+7+3+11+13 || a.RepeatedCopies != 84 || a.QuietCopies != 3 || a.TracedPages != 132 {
		t.Errorf("explained %d, traced %d (%d pages, %d again, %d quiet)", a.ExplainedPages, a.TracedCopies, a.TracedPages, a.RepeatedCopies, a.QuietCopies)
	}
	if len(a.ByNumber) != 1 || a.ByNumber[0].Pages != 3 || !a.ByNumber[0].KernelMode {
		t.Errorf("by number %+v", a.ByNumber)
	}
	c := a.Counts
	if c.PageTables != 141 || c.Traced != 101+84+3+11+13 || c.KernelWPCopy != nil || c.KernelWhy == "" {
		t.Errorf("counts %+v", c)
	}
	c.Kernel(c.Traced + 5 + 2)
	if err := checkAttribution(a, a.ExplainedPages+sumReasons(a.Unexplained)); err != nil {
		t.Error(err)
	}
	if n := len(c.Residue); c.Residue[n-1] != (Residue{ResidueKernel, "unaccounted", 2, c.Residue[n-1].Text}) || c.Residue[n-2].Code != "zero_page" || c.Residue[n-2].Pages != 5 {
		t.Errorf("residue %+v", c.Residue)
	}
	var identical, all int64
	for _, s := range a.Profile.Samples {
		all += s.CopiedPages
		identical += *s.Identical
	}
	if all != 108 || identical != 104 {
		t.Errorf("%d pages in samples, %d identical", all, identical)
	}
}

// Without a process to look at, all are: one copy by the master explains a page of each worker.
func TestAttributeAll(t *testing.T) {
	pages, tr, _ := example(t)
	a, err := Attribute(pages, tr, AttributeOptions{From: 10, To: 20})
	if err != nil {
		t.Fatal(err)
	}
	if a.ExplainedPages+sumReasons(a.Unexplained) != 148 || a.ExplainedPages != 115 || a.SameCopyPages != 7 || a.MatchedPages != 108 || a.Counts != nil {
		t.Errorf("%d explained, %d matched, %d by the same copy", a.ExplainedPages, a.MatchedPages, a.SameCopyPages)
	}
}

func TestAttributeCountsOnly(t *testing.T) {
	pages, tr, _ := example(t)
	tr.Faults = nil
	if _, err := Attribute(pages, tr, AttributeOptions{From: 10, To: 20}); !errors.Is(err, ErrCountsOnly) {
		t.Errorf("error %v", err)
	}
}

// What is not traced, traced too late, or lost.
func TestAttributeWhy(t *testing.T) {
	reason := func(t *testing.T, change func(*ebpf.Trace)) (string, int64) {
		t.Helper()
		pages, tr, _ := example(t)
		tr.Faults, tr.Counts = []ebpf.Fault{}, nil
		tr.Totals = [ebpf.NKinds]ebpf.Tally{}
		change(tr)
		a, err := Attribute(pages, tr, AttributeOptions{From: 10, To: 20, PID: 11})
		if err != nil {
			t.Fatal(err)
		}
		return a.Unexplained[0].Code, a.Unexplained[0].Pages
	}
	for _, tt := range []struct {
		name, code string
		pages      int64
		change     func(*ebpf.Trace)
	}{
		{"nothing traced", UnexplainedNotTraced, 141, func(tr *ebpf.Trace) { tr.Spaces = nil }},
		{"another process of this PID", UnexplainedNotTraced, 134, func(tr *ebpf.Trace) { tr.Spaces[1].Process.Start = 77 }},
		{"added after the first capture", UnexplainedNotTraced, 134, func(tr *ebpf.Trace) { tr.Spaces[1].Began = 15 }},
		{"lost", UnexplainedLost, 127, func(tr *ebpf.Trace) { tr.Totals[ebpf.KindCopied] = ebpf.Tally{Faults: 127, Pages: 127} }},
		{"no idea", UnexplainedUnknown, 136, func(*ebpf.Trace) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, n := reason(t, func(tr *ebpf.Trace) {
				tt.change(tr)
			})
			if code != tt.code || n != tt.pages {
				t.Errorf("%d pages %s, want %d %s", n, code, tt.pages, tt.code)
			}
		})
	}
}

// A copy of a folio of 16 pages stands for each of them.
func TestAttributeFolio(t *testing.T) {
	after := made(1, func(who, k int) (pagemap.Entry, pagemap.KFlags) {
		if who == 1 && k >= 16 && k < 32 {
			return present | excl | pagemap.Entry(9000+k), pagemap.KFlagTHP | pagemap.KFlagCompoundTail
		}
		return present | pagemap.Entry(1000+k), unread
	})
	before := made(1, func(_, k int) (pagemap.Entry, pagemap.KFlags) { return present | pagemap.Entry(1000+k), unread })
	_, pages, err := DiffPages(before, after, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var s script
	s.add(1, 21, 21, 12, ebpf.KindCopied, 1)
	s.faults[0].Order = 4
	a, err := Attribute(pages, traceOfFaults(1, s.faults), AttributeOptions{From: 10, To: 20, PID: 11})
	if err != nil {
		t.Fatal(err)
	}
	a.Counts.Kernel(1)
	if a.ExplainedPages != 16 || a.TracedPages != 16 || checkAttribution(a, a.ExplainedPages+sumReasons(a.Unexplained)) != nil || a.Counts.Residue[len(a.Counts.Residue)-1].Code != "large_folios" {
		t.Errorf("%d explained, %+v", a.ExplainedPages, a.Counts)
	}
}

// Whatever pages were copied and whatever was traced, the laws hold, and the result is always the same.
func TestAttributeLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	for range 150 {
		workers := 1 + r.IntN(3)
		after := made(workers, func(who, k int) (pagemap.Entry, pagemap.KFlags) {
			switch r.IntN(12) {
			case 0:
				return present | excl | pagemap.Entry(50000+2000*who+k), ae
			case 1:
				return 0, unread
			case 2:
				return swap | pagemap.Entry(32*(k+1)), unread
			case 3:
				return present | pagemap.Entry(70000+k), pagemap.KFlagKSM
			}
			return present | pagemap.Entry(1000+k), unread
		})
		_, pages, err := DiffPages(sharedBy(workers), after, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var s script
		for range r.IntN(400) {
			k := r.IntN(pagemap.WindowPages)
			s.add(r.IntN(workers+2), k, min(k+r.IntN(4), pagemap.WindowPages-1), time.Duration(r.IntN(30)), ebpf.Kind(r.IntN(int(ebpf.NKinds))), ebpf.FrameID(r.IntN(6)))
			s.faults[len(s.faults)-1].Order = uint8(r.IntN(3))
			s.quiet(r.IntN(workers+2), r.IntN(2), time.Duration(r.IntN(30)))
		}
		tr := traceOfFaults(workers, s.faults)
		tr.Totals[ebpf.KindCopied].Pages += int64(r.IntN(20))
		for pid := range pagemap.PID(workers + 1) {
			o := AttributeOptions{From: 10, To: 20}
			if pid > 0 {
				o.PID = 10 + pid
			}
			a, err := Attribute(pages, tr, o)
			if err != nil {
				t.Fatal(err)
			}
			if a.Counts != nil {
				a.Counts.Kernel(int64(r.IntN(500)))
				if err := checkAttribution(a, a.ExplainedPages+sumReasons(a.Unexplained)); err != nil {
					t.Fatal(err)
				}
				a.Counts = nil
			}
			again, err := Attribute(pages, tr, o)
			if err != nil {
				t.Fatal(err)
			}
			again.Counts = nil
			if d := cmp.Diff(a, again); d != "" {
				t.Fatalf("again:\n%s", d)
			}
		}
	}
}
