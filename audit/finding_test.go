package audit

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/pagemap"
)

// 256 pages of 4 KiB are 1 MiB.
const mibPages = 256

// familyOf gives a report on a master and workers whose whole memory is one region; p is each worker's.
func familyOf(workers int, kind RegionKind, p Pages, c *Change) *Report {
	p.Held = p.words()
	r := &Report{Capture: Capture{Basis: BasisSingle, PageSize: 4096, FramesVisible: true, Contents: c != nil}}
	r.Family = append(r.Family, Process{PID: 100, State: pagemap.StateAudited})
	for i := range workers {
		r.Family = append(r.Family, Process{
			PID: pagemap.PID(101 + i), ReferencePID: 100, State: pagemap.StateAudited, Pages: p, Change: c,
			Regions:  []Region{{Kind: kind, Mappings: 1, Pages: p, Change: c}},
			Mappings: []Mapping{{Start: 0x1000, End: 0x1000000000, Region: kind, Pages: p, Change: c}},
		})
	}
	return r
}

func codes(f []Finding) (out []string) {
	for i := range f {
		out = append(out, f[i].Code)
	}
	return out
}

func TestFindingsForAudit(t *testing.T) {
	hidden := familyOf(2, RegionBrkHeap, Pages{Unknown: 40 * mibPages, Private: 3 * mibPages}, nil)
	hidden.Capture.FramesVisible = false
	alone := familyOf(0, RegionBrkHeap, Pages{}, nil)
	dead := familyOf(1, RegionBrkHeap, Pages{}, nil)
	for i := range dead.Family {
		dead.Family[i].State = pagemap.StateZombie
	}
	huge := familyOf(1, RegionOther, Pages{Shared: 90 * mibPages, Copied: 4 * mibPages, HugeTLB: 94 * mibPages}, &Change{Identical: 4*mibPages - 2, OneWord: 2})
	uneven := func(n int, most int64) *Report {
		r := familyOf(n, RegionBrkHeap, Pages{Shared: 90 * mibPages, Copied: mibPages}, nil)
		last := familyOf(1, RegionBrkHeap, Pages{Shared: 90 * mibPages, Copied: most}, nil).Family[1]
		last.PID = 200
		r.Family[n] = last
		return r
	}
	tests := []struct {
		name string
		r    *Report
		want []string
		text string // of the first
	}{
		{"quiet", familyOf(3, RegionBrkHeap, Pages{Shared: 100 * mibPages, Copied: mibPages}, nil), []string{"nothing_stands_out"},
			"The 3 workers still share 300.0 MiB of the 303.0 MiB inherited; 3.0 MiB copied: nothing stands out."},
		{"one worker", familyOf(1, RegionBrkHeap, Pages{Shared: 100 * mibPages, Copied: 3}, nil), []string{"nothing_stands_out"},
			"The worker still shares 100.0 MiB of the 100.0 MiB inherited; less than 0.1 MiB copied: nothing stands out."},
		{"identical", familyOf(1, RegionBrkHeap, Pages{Shared: 190 * mibPages, Copied: 8061}, &Change{Identical: 8006, OneWord: 55}), []string{"identical_writes"},
			"99% of the copied pages did not change (31.3 MiB of 31.5 MiB): something rewrites what is already there."},
		{"identical in three", familyOf(3, RegionBrkHeap, Pages{Shared: 190 * mibPages, Copied: 8061}, &Change{Identical: 8061}), []string{"identical_writes"},
			"100% of the copied pages did not change (94.5 MiB of 94.5 MiB, over 3 workers): something rewrites what is already there."},
		{"nearly all identical", familyOf(1, RegionBrkHeap, Pages{Shared: 90 * mibPages, Copied: 7663}, &Change{Identical: 7650, Rewritten: 13}), []string{"identical_writes"},
			"99.8% of the copied pages did not change (29.9 MiB of 29.9 MiB): something rewrites what is already there."},
		{"half identical", familyOf(1, RegionBrkHeap, Pages{Shared: 90 * mibPages, Copied: 2 * mibPages}, &Change{Identical: mibPages, OneWord: mibPages}), []string{"identical_writes"}, ""},
		{"less than half identical", familyOf(1, RegionBrkHeap, Pages{Shared: 90 * mibPages, Copied: 2*mibPages + 1}, &Change{Identical: mibPages, OneWord: mibPages + 1}), []string{"nothing_stands_out"}, ""},
		{"identical, but little", familyOf(1, RegionBrkHeap, Pages{Shared: 90 * mibPages, Copied: mibPages - 1}, &Change{Identical: mibPages - 1}), []string{"nothing_stands_out"}, ""},
		{"identical, but few compared", familyOf(1, RegionBrkHeap, Pages{Shared: 90 * mibPages, Copied: 4*mibPages + 1}, &Change{Identical: 2 * mibPages, NotCompared: 2*mibPages + 1}), []string{"nothing_stands_out"}, ""},
		{"copied as one huge page", huge, []string{"nothing_stands_out"}, ""},
		{"the master writes", familyOf(1, RegionBrkHeap, Pages{Shared: 90 * mibPages, Copied: 4 * mibPages, CopiedByReference: 3 * mibPages, CopiedByWorker: mibPages}, nil), []string{"reference_copies"},
			"75% of the copied pages were written by the master, not by the worker (3.0 MiB of 4.0 MiB)."},
		{"who wrote is mostly undetermined", familyOf(1, RegionBrkHeap, Pages{Shared: 90 * mibPages, Copied: 8 * mibPages, CopiedByReference: 3 * mibPages, CopiedByUndetermined: 5 * mibPages}, nil), []string{"nothing_stands_out"}, ""},
		{"little shared", familyOf(1, RegionBrkHeap, Pages{Shared: 4 * mibPages, Copied: 3 * mibPages, Kept: 2 * mibPages}, nil), []string{"little_shared"},
			"The worker still shares 44% of the anonymous memory inherited (4.0 MiB of 9.0 MiB)."},
		{"little inherited", familyOf(1, RegionBrkHeap, Pages{Shared: 2 * mibPages, Copied: 5 * mibPages}, nil), []string{"nothing_stands_out"}, ""},
		{"mostly new", familyOf(2, RegionBrkHeap, Pages{Shared: 4 * mibPages, New: 4 * mibPages, File: 99 * mibPages}, nil), []string{"mostly_new"},
			"50% of the anonymous memory of the 2 workers was allocated after the fork (8.0 MiB of 16.0 MiB)."},
		{"identical, but little in each of many", familyOf(64, RegionBrkHeap, Pages{Shared: 90 * mibPages, Copied: 63}, &Change{Identical: 63}), []string{"nothing_stands_out"}, ""},
		{"much copied", familyOf(1, RegionBrkHeap, Pages{Shared: 9 * mibPages, Copied: 3 * mibPages}, nil), []string{"much_copied"},
			"25% of the anonymous memory that the worker inherited is copied (3.0 MiB of 12.0 MiB)."},
		{"not so much copied", familyOf(1, RegionBrkHeap, Pages{Shared: 9*mibPages + 1, Copied: 3 * mibPages}, nil), []string{"nothing_stands_out"}, ""},
		{"one worker", uneven(3, 4*mibPages), []string{"one_worker"},
			"Worker 200 copied 4.0 MiB of the 94.0 MiB inherited; the median worker copied 1.0 MiB."},
		{"one worker, not so much", uneven(3, 4*mibPages-1), []string{"nothing_stands_out"}, ""},
		{"one of two workers", uneven(2, 40*mibPages), []string{"nothing_stands_out"}, ""},
		{"moved", familyOf(1, RegionBrkHeap, Pages{Shared: 9 * mibPages, Moved: mibPages}, nil), []string{"moved_pages"},
			"1.0 MiB of the shared pages lie at another address than in the master (moved by mremap)."},
		{"frames hidden", hidden, []string{"frames_hidden"},
			"Frame numbers are hidden: what is shared and what was copied cannot be told. 6.0 MiB of 3 processes are mapped nowhere else."},
		{"no worker", alone, []string{"no_workers"}, "No process here was forked from another one of the family: there is nothing to compare."},
		{"all dead", dead, []string{"nothing_audited"}, "None of the 2 processes could be audited."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := FindingsForAudit(tt.r)
			if d := cmp.Diff(tt.want, codes(got)); d != "" {
				t.Errorf("codes (-want +got):\n%s\n%v", d, got)
			}
			if tt.text != "" && got[0].Text != tt.text {
				t.Errorf("text\n got %s\nwant %s", got[0].Text, tt.text)
			}
		})
	}
}

// A page size of 64 KiB makes 1 MiB of 16 pages: too few for a claim.
func TestFindingsNeedPages(t *testing.T) {
	r := familyOf(1, RegionBrkHeap, Pages{Shared: 1000, Copied: 63}, &Change{Identical: 63})
	r.Capture.PageSize = 65536
	if got := codes(FindingsForAudit(r)); !cmp.Equal(got, []string{"nothing_stands_out"}) {
		t.Errorf("63 pages of 64 KiB: %v", got)
	}
	r = familyOf(1, RegionBrkHeap, Pages{Shared: 1000, Copied: 64}, &Change{Identical: 64})
	r.Capture.PageSize = 65536
	if got := codes(FindingsForAudit(r)); !cmp.Equal(got, []string{"identical_writes"}) {
		t.Errorf("64 pages of 64 KiB: %v", got)
	}
}

func TestFindingOfOneRegion(t *testing.T) {
	r := familyOf(1, RegionRubyHeap, Pages{Shared: mibPages, Copied: 3 * mibPages}, nil)
	w := &r.Family[1]
	rest := Pages{Shared: 96 * mibPages, Held: 96 * mibPages}
	w.Regions = append(w.Regions, Region{Kind: RegionBrkHeap, Mappings: 1, Pages: rest})
	w.Mappings = append(w.Mappings, Mapping{Region: RegionBrkHeap, Pages: rest})
	w.Pages.add(&rest)
	half := *r
	half.Family = slices.Clone(r.Family)
	half.Family[1].Regions = slices.Clone(w.Regions)
	half.Family[1].Regions[1].Pages = Pages{Shared: 2 * mibPages, Held: 2 * mibPages}
	half.Family[1].Pages = Pages{Shared: 3 * mibPages, Copied: 3 * mibPages, Held: 6 * mibPages}
	if got := codes(FindingsForAudit(&half)); slices.Contains(got, "mostly_copied_region") {
		t.Errorf("half of all memory is copied: %v", got)
	}
	got := FindingsForAudit(r)
	want := []Finding{{Code: "mostly_copied_region",
		Text: "75% of what was shared in the Ruby object heap is copied (3.0 MiB of 4.0 MiB); of all shared memory it is 3%."}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func diffOf(c Copied) *DiffReport {
	c.CopiedBytes = pagemap.Bytes(c.CopiedPages * 4096)
	capture := Capture{PageSize: 4096, FramesVisible: true}
	return &DiffReport{Before: capture, After: capture, Totals: c, Family: []ProcessDiff{
		{PID: 100},
		{PID: 101, ReferencePID: 100, Copied: c, Regions: []RegionDiff{{Kind: RegionBrkHeap, Copied: c}}},
	}}
}

func TestFindingsForDiff(t *testing.T) {
	hidden := diffOf(Copied{})
	hidden.Before.FramesVisible = false
	tests := []struct {
		name string
		r    *DiffReport
		want []string
		text string
	}{
		{"quiet", diffOf(Copied{SharedBefore: 40 * mibPages, CopiedPages: mibPages / 2}), []string{"nothing_stands_out"},
			"0.5 MiB copied of 40.0 MiB shared before: nothing stands out."},
		{"none", diffOf(Copied{SharedBefore: 40 * mibPages}), []string{"nothing_stands_out"}, "0.0 MiB copied of 40.0 MiB shared before: nothing stands out."},
		{"much", diffOf(Copied{SharedBefore: 40 * mibPages, CopiedPages: 10 * mibPages, Change: Change{NotCompared: 10 * mibPages}}), []string{"much_copied"},
			"25% of the pages that the worker shared before were copied (10.0 MiB of 40.0 MiB)."},
		{"identical", diffOf(Copied{SharedBefore: 45 * mibPages, CopiedPages: 8061, Change: Change{Identical: 8006, OneWord: 55}}), []string{"identical_writes", "much_copied"}, ""},
		{"unknown", diffOf(Copied{SharedBefore: 40 * mibPages, UnknownPages: 2 * mibPages}), []string{"unknown_pages"},
			"What became of 5% of the pages shared before cannot be told (2.0 MiB of 40.0 MiB)."},
		{"little, but all of it unknown", diffOf(Copied{SharedBefore: 11, UnknownPages: 11}), []string{"unknown_pages"}, ""},
		{"nothing shared", diffOf(Copied{}), []string{"nothing_shared"}, ""},
		{"hidden", hidden, []string{"frames_hidden"}, ""},
		{"no workers", &DiffReport{Before: Capture{FramesVisible: true}, After: Capture{FramesVisible: true}}, []string{"no_workers"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := FindingsForDiff(tt.r)
			if d := cmp.Diff(tt.want, codes(got)); d != "" {
				t.Errorf("codes (-want +got):\n%s\n%v", d, got)
			}
			if tt.text != "" && got[0].Text != tt.text {
				t.Errorf("text\n got %s\nwant %s", got[0].Text, tt.text)
			}
		})
	}
}

// forktestOf gives a fork test of one run with a null event and two collections that copy so many pages.
func forktestOf(null, first, second int64, change Change) *ForktestReport {
	r := &ForktestReport{Capture: Capture{PageSize: 4096, FramesVisible: true}, Runs: []Run{{Seq: 1}}}
	for i, copied := range []int64{null, first, second} {
		c := Copied{SharedBefore: 40 * mibPages, CopiedPages: copied, CopiedBytes: pagemap.Bytes(copied * 4096), StillShared: 40*mibPages - copied}
		if i == 1 {
			c.Change = change
		}
		name := []string{EventNull, EventFirstMajorGC, EventSecondMajorGC}[i]
		regions := []RegionDiff{{Kind: RegionBrkHeap, Copied: c}}
		r.Runs[0].Events = append(r.Runs[0].Events, Event{Name: name, Copied: c, Regions: regions})
		r.Summary.Events = append(r.Summary.Events, EventSummary{
			Name: name, N: 1, Change: c.Change, Regions: regions,
			SharedBefore: Interval{Median: 40 << 20, Low: 40 << 20, High: 40 << 20},
			CopiedBytes:  Interval{Median: c.CopiedBytes, Low: c.CopiedBytes, High: c.CopiedBytes},
		})
	}
	return r
}

func TestFindingsForForktest(t *testing.T) {
	nullOnly := forktestOf(0, 0, 0, Change{})
	nullOnly.Summary.Events = nullOnly.Summary.Events[:1]
	tests := []struct {
		name string
		r    *ForktestReport
		want []string
		text string
	}{
		{"regression", forktestOf(10, 8061, 3, Change{Identical: 8006, OneWord: 55}), []string{"identical_writes", "much_copied", "second_gc_quiet"},
			"99% of the pages that the first major GC copied did not change (31.3 MiB of 31.5 MiB): something rewrites what is already there."},
		{"fixed", forktestOf(0, 230, 0, Change{Identical: 85, ManyWords: 145}), []string{"nothing_stands_out"},
			"The first major GC copies 0.9 MiB of 40.0 MiB shared: nothing stands out."},
		{"again and again", forktestOf(0, 8*mibPages, 4*mibPages, Change{}), []string{"copied", "second_gc_copies"}, "The first major GC copies 8.0 MiB of 40.0 MiB shared."},
		{"neither", forktestOf(0, 8*mibPages, 3*mibPages, Change{}), []string{"nothing_stands_out"}, ""},
		{"noise", forktestOf(50, 2*mibPages, 0, Change{}), []string{"copied", "noise_high"}, ""},
		{"noise below the floor", forktestOf(49, 2*mibPages, 0, Change{}), []string{"nothing_stands_out"}, ""},
		{"noise that does not matter", forktestOf(60, 9*mibPages, 0, Change{}), []string{"nothing_stands_out"}, ""},
		{"nothing measured", nullOnly, []string{"no_event"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := FindingsForForktest(tt.r)
			if d := cmp.Diff(tt.want, codes(got)); d != "" {
				t.Errorf("codes (-want +got):\n%s\n%v", d, got)
			}
			if tt.text != "" && got[0].Text != tt.text {
				t.Errorf("text\n got %s\nwant %s", got[0].Text, tt.text)
			}
		})
	}
}

func TestEventLabel(t *testing.T) {
	for name, want := range map[string]string{"first_major_gc": "first major GC", "null": "null", "gc": "GC", "": ""} {
		if got := EventLabel(name); got != want {
			t.Errorf("EventLabel(%q) = %q, want %q", name, got, want)
		}
	}
}

// The amounts of a fork test are means over its workers: many runs of little are little.
func TestFindingsForForktestOfManyRuns(t *testing.T) {
	many := func(first int64, c Change) *ForktestReport {
		r := forktestOf(0, first, 0, c)
		one := r.Runs[0]
		for range 9 {
			r.Runs = append(r.Runs, one)
		}
		for i := range r.Summary.Events {
			r.Summary.Events[i].N = 10
		}
		return r
	}
	if got := codes(FindingsForForktest(many(200, Change{Identical: 200}))); !cmp.Equal(got, []string{"nothing_stands_out"}) {
		t.Errorf("200 pages a run: %v", got)
	}
	got := FindingsForForktest(many(8061, Change{Identical: 8006, OneWord: 55}))
	want := "99% of the pages that the first major GC copied did not change (31.3 MiB of 31.5 MiB, mean of 10 workers): something rewrites what is already there."
	if got[0].Text != want {
		t.Errorf("\n got %s\nwant %s", got[0].Text, want)
	}
}
