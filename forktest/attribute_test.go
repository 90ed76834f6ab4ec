package forktest

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/ebpf"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// found is what an attribution says of a region, in pages.
type found struct {
	explained int64
	byMaster  int64 // of explained
	inKernel  int64 // of explained
	why       map[string]int64
	not       map[string]int64
}

// Each way in which a page is copied, or only looks as if it were, in prime numbers: what the page tables show is explained
// by the trace exactly, or for the right reason it is not.
func TestAttributeWorkloads(t *testing.T) {
	testkit.Require(t, "pagemap", "gcc", "trace", "thp")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	kernel := openCounter()
	defer func() {
		if err := kernel.close(); err != nil {
			t.Error(err)
		}
	}()
	shared := []string{"anon a 400", "write a 0 400 1", "fork w"}
	for _, tt := range []struct {
		name   string
		before []string // the first capture
		during []string // what is traced
		want   found
	}{
		{"the worker writes", shared, []string{"w: write a 0 101 2"}, found{explained: 101}},
		{"the master writes", shared, []string{"write a 0 103 2"}, found{explained: 103, byMaster: 103}},
		{"a system call writes", shared, []string{"w: input a 0 131"}, found{explained: 131, inKernel: 131}},
		{"eight threads write", []string{"anon a 808", "write a 0 808 1", "fork w"}, []string{"w: spread a 0 808 8"}, found{explained: 808}},
		{"both sides write", shared, []string{"w: write a 0 163 2", "write a 0 199 3"}, found{explained: 199, byMaster: 36}},
		{"populated", shared, []string{"w: advise a 0 107 populate_write"}, found{why: map[string]int64{audit.UnexplainedWithoutAddr: 107}}},
		{"O_DIRECT", shared, []string{"w: direct a 0 109"}, found{why: map[string]int64{audit.UnexplainedWithoutAddr: 109}}},
		{"given up and filled anew", shared, []string{"w: drop a 0 113", "w: write a 0 113 2"}, found{why: map[string]int64{audit.UnexplainedRefilled: 113}}},
		{"collapsed", []string{"anon a 512", "write a 0 512 1", "fork w"}, []string{"w: advise a 0 512 huge", "w: advise a 0 512 collapse"}, found{why: map[string]int64{audit.UnexplainedCollapsed: 512}}},
		{"copied and given up", shared, []string{"w: write a 0 127 2", "w: drop a 0 127"}, found{not: map[string]int64{audit.NotCopiedGivenUp: 127}}},
		{"the worker forks and writes", shared, []string{"w: fork g", "w: write a 0 139 2"}, found{explained: 139}},
		{"the worker writes what only its child shares", []string{"anon a 400", "write a 0 400 1", "fork w", "w: write a 0 149 2", "w: fork g"}, []string{"w: write a 0 149 3"},
			found{not: map[string]int64{audit.NotCopiedNotShared: 149}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := testkit.Stages(t, append(append(append([]string{bin}, append(tt.before, "stage go")...), tt.during...), "stage done")...)
			at := st.To("go")
			w, m := pagemap.PID(at.Named["w"]), pagemap.PID(at.Named["m"])
			tracer, err := ebpf.Start(ebpf.Options{Faults: true})
			if err != nil {
				t.Fatal(err)
			}
			defer tracer.Close()
			if err := tracer.Add(m, w); err != nil {
				t.Fatal(err)
			}
			from, counted := tracer.Now(), kernel.copies(w)
			capture := func() *pagemap.Snapshot {
				s, err := Pages{}.Capture(context.Background(), m, []pagemap.PID{w})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			before := capture()
			st.To("done")
			after := capture()
			counted = counted.until(kernel.copies(w))
			to := tracer.Now()
			trace, err := tracer.Stop()
			if err != nil {
				t.Fatal(err)
			}
			rng := at.Regions["a"]
			_, pages, err := audit.DiffPages(before, after, audit.Options{Range: &audit.Range{Start: pagemap.Addr(rng.Start), End: pagemap.Addr(rng.End)}})
			if err != nil {
				t.Fatal(err)
			}
			a, err := audit.Attribute(pages, trace, audit.AttributeOptions{From: from, To: to, PID: w})
			if err != nil {
				t.Fatal(err)
			}
			got := found{explained: a.ExplainedPages, why: map[string]int64{}, not: map[string]int64{}}
			for _, f := range a.Functions {
				if f.ByReference {
					got.byMaster += f.Pages
				}
				if f.KernelMode {
					got.inKernel += f.Pages
				}
			}
			for _, r := range a.Unexplained {
				got.why[r.Code] = r.Pages
			}
			for _, r := range a.TracedNotCopied {
				switch {
				case r.Code == audit.NotCopiedOutsideRange: // stacks, and what the stages write
				case r.Code == audit.NotCopiedOtherSide && r.Pages <= 31:
					// The last sharer copies a page that still waits in a batch for its LRU list (mm/swap.c) instead of reusing it.
				default:
					got.not[r.Code] = r.Pages
				}
			}
			for _, m := range []*map[string]int64{&tt.want.why, &tt.want.not} {
				if *m == nil {
					*m = map[string]int64{}
				}
			}
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(found{})); d != "" {
				t.Errorf("(-want +got):\n%s\n%s", d, a.Counts.Sentence())
			}
			if counted.why != "" {
				t.Logf("the kernel's count: %s", counted.why)
			} else {
				a.Counts.Kernel(counted.n)
				for _, r := range a.Counts.Residue {
					// Threads end, and the kernel does not count what a thread copies while it ends.
					if r.Code == "unaccounted" && (r.Pages > 0 || r.Pages < -8 || tt.name != "eight threads write") {
						t.Errorf("%s; residue %+v", a.Counts.Sentence(), a.Counts.Residue)
					}
				}
			}
			r, err := audit.NewTraceReport(trace, audit.TraceOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Processes) < 2 || r.Processes[0].PID != m && r.Processes[1].PID != m {
				t.Errorf("processes %s", strconv.Itoa(len(r.Processes)))
			}
		})
	}
}
