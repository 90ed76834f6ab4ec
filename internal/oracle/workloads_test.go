package oracle

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// Workloads whose number of pages of each word is a different prime, so that no count is right by accident.

// workRow is a ledgerRow of a process by name.
type workRow struct {
	who, region string
	pages       audit.Pages
	fold        func(p *audit.Pages)
}

// swappedUnlessUnknown: in swap, in which slot's place a resident page of the reference stands cannot be seen; it may be said so.
func swappedUnlessUnknown(p *audit.Pages) { p.Swapped, p.Unknown = p.Swapped+p.Unknown, 0 }

// sharedUnlessUnknown is the same of a process that does have the slot.
func sharedUnlessUnknown(p *audit.Pages) { p.Shared, p.Unknown = p.Shared+p.Unknown, 0 }

// copiedUnlessUnknown is the same the other way round.
func copiedUnlessUnknown(p *audit.Pages) {
	p.Copied, p.CopiedByUndetermined, p.Unknown = p.Copied+p.Unknown, p.CopiedByUndetermined+p.Unknown, 0
}

// workerUnlessUndetermined: who made a huge page is on none of its base pages.
func workerUnlessUndetermined(p *audit.Pages) {
	p.CopiedByWorker, p.CopiedByUndetermined = p.CopiedByWorker+p.CopiedByUndetermined, 0
}

type workDiff struct {
	from, who, region string
	copied            audit.Copied
	late              bool // see diffRow
}

type workStage struct {
	name   string
	pages  []workRow
	moved  []workRow
	diffs  []workDiff
	tables bool
}

type work struct {
	name       string
	prepare    func(t *testing.T)
	statements []string
	stages     []workStage
	at         map[string]func(t *testing.T) // what the test does to the machine at a stage, before it measures
	kinds      map[string]audit.RegionKind   // of regions in the first process
}

func TestWorkloads(t *testing.T) {
	requireFrames(t)
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			if w.prepare == nil && w.at == nil {
				t.Parallel()
			}
			runWork(t, w)
		})
	}
}

func runWork(t *testing.T, w work) {
	t.Helper()
	if w.prepare != nil {
		w.prepare(t)
	}
	s := pages(t, w.statements...)
	taken := map[string]*pagemap.Snapshot{}
	var st stage
	for _, want := range w.stages {
		var ok bool
		st, ok = s.next()
		if !ok {
			s.finish()
			t.Fatalf("no stage %s: %q", want.name, s.Notes())
		}
		if st.name != want.name {
			t.Fatalf("stage %s, want %s", st.name, want.name)
		}
		if f := w.at[st.name]; f != nil {
			f(t)
		}
		taken[st.name] = snapshot(t, pagemap.Options{}, st.pids...)
		checkStage(t, st, taken, want.indexed(t, st))
	}
	last := taken[w.stages[len(w.stages)-1].name]
	whole := share(t, last, nil)
	for name, kind := range w.kinds {
		m := one(t, name, whole.Family[0].Mappings, func(m audit.Mapping) bool {
			return m.Start <= st.regions[name].Start && m.End >= st.regions[name].End
		})
		if m.Region != kind {
			t.Errorf("%s lies in %s, want %s", name, m.Region, kind)
		}
	}
	s.finish()
}

// indexed names the processes by their place in the stage line.
func (w workStage) indexed(t *testing.T, st stage) stageWant {
	t.Helper()
	place := func(who string) int {
		for i, pid := range st.pids {
			if pid == st.names[who] {
				return i
			}
		}
		t.Fatalf("%s: no process %s", st.name, who)
		return 0
	}
	out := stageWant{stage: w.name, tables: w.tables}
	for _, r := range w.pages {
		out.pages = append(out.pages, ledgerRow{place(r.who), r.region, r.pages, r.fold})
	}
	for _, r := range w.moved {
		out.moved = append(out.moved, movedRow{place(r.who), r.region, r.pages, r.fold})
	}
	for _, d := range w.diffs {
		out.diffs = append(out.diffs, diffRow{from: d.from, pid: place(d.who), region: d.region, copied: d.copied, late: d.late})
	}
	return out
}

var workloads = []work{
	{
		name: "who wrote",
		statements: []string{
			"anon A 208", "write A 0 208 1", "anon B 127", "fork w", "stage forked",
			"w: write A 0 23 2",      // the worker alone
			"write A 23 54 2",        // the master alone
			"write A 54 67 2",        // the master, and
			"w: write A 54 67 3",     // the worker after it
			"w: drop A 67 84",        // given up by the worker
			"drop A 84 95",           // given up by the master
			"w: write B 0 53 4",      // first touched by the worker
			"write B 53 90 4",        // first touched by the master
			"stage wrote",            //
			"w: drop B 0 19",         // given up again
			"w: read A 67 71",        // filled anew, with the zero page
			"w: drop A 95 108",       // shared until now,
			"w: read A 95 108",       // and the zero page from now on
			"w: write A 71 84 5",     // filled anew after the capture that saw them missing
			"w: write A 108 155 109", // copied
			"stage later",
		},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{
				{who: "m", region: "A", pages: audit.Pages{Shared: 208}},
				{who: "w", region: "A", pages: audit.Pages{Shared: 208}},
				{who: "w", region: "B", pages: audit.Pages{}},
			}},
			{name: "wrote", tables: true, pages: []workRow{
				{who: "m", region: "A", pages: audit.Pages{Shared: 113, Unshared: 84, Private: 84}},
				{who: "w", region: "A", pages: audit.Pages{Shared: 113, Copied: 67, CopiedByWorker: 23, CopiedByReference: 31, CopiedByUndetermined: 13, Kept: 11, Dropped: 17, Private: 78}},
				{who: "m", region: "B", pages: audit.Pages{Unshared: 37, Private: 37}},
				{who: "w", region: "B", pages: audit.Pages{New: 53, ReferenceOnly: 37, Private: 53}},
			}, diffs: []workDiff{
				{"forked", "w", "A", audit.Copied{StillShared: 113, CopiedPages: 67, CopiedByWorker: 23, CopiedByReference: 44, DroppedPages: 17, KeptPages: 11}, true},
				{"forked", "w", "B", audit.Copied{NewPages: 53}, false},
			}},
			{name: "later", tables: true, pages: []workRow{
				{who: "w", region: "B", pages: audit.Pages{New: 34, ReferenceOnly: 37, Private: 34}},
				// Filled anew at the same address looks like copied from one capture: 13 more of them.
				{who: "w", region: "A", pages: audit.Pages{Shared: 53, Copied: 127, CopiedByWorker: 83, CopiedByReference: 31, CopiedByUndetermined: 13, Kept: 11, Zero: 17, Private: 138}},
			}, diffs: []workDiff{
				{"wrote", "w", "A", audit.Copied{StillShared: 53, CopiedPages: 47, CopiedByWorker: 47, ReplacedPages: 13, NewPages: 13}, false},
				{"wrote", "w", "B", audit.Copied{FreedPages: 19}, false},
				{"forked", "w", "B", audit.Copied{NewPages: 34}, false},
			}},
		},
	},
	{
		name: "file",
		statements: []string{
			"file F 96", "read F 0 96", "write F 0 20 1", "fork w", "stage forked",
			"w: write F 0 7 2", "w: write F 20 37 2", "stage wrote",
		},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{
				{who: "w", region: "F", pages: audit.Pages{Shared: 20, File: 76}},
			}},
			{name: "wrote", tables: true, pages: []workRow{
				{who: "m", region: "F", pages: audit.Pages{Shared: 13, Unshared: 7, File: 76, Private: 7}},
				{who: "w", region: "F", pages: audit.Pages{Shared: 13, Copied: 7, CopiedByWorker: 7, New: 17, NewFromFile: 17, File: 59, Private: 24}},
			}, diffs: []workDiff{
				{"forked", "w", "F", audit.Copied{StillShared: 13, CopiedPages: 7, CopiedByWorker: 7, NewPages: 17, NewFromFile: 17}, false},
			}},
		},
	},
	{
		name:       "shared memory",
		statements: []string{"shm S 61", "write S 0 61 1", "fork w", "stage forked", "w: write S 0 23 2", "write S 5 7 3", "stage wrote"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "m", region: "S", pages: audit.Pages{File: 61}}, {who: "w", region: "S", pages: audit.Pages{}}}},
			{name: "wrote", tables: true, pages: []workRow{{who: "m", region: "S", pages: audit.Pages{File: 61}}, {who: "w", region: "S", pages: audit.Pages{File: 23}}},
				diffs: []workDiff{{"forked", "w", "S", audit.Copied{}, false}}},
		},
		kinds: map[string]audit.RegionKind{"S": audit.RegionSharedMem},
	},
	{
		name: "zero pages",
		statements: []string{"anon Z 101", "read Z 0 60", "write Z 60 101 1", "thp T 1", "read T 3 4", "fork w", "stage forked",
			"w: write Z 0 31 1", "w: write T 7 8 1", "stage wrote"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{
				{who: "m", region: "Z", pages: audit.Pages{Zero: 60, Shared: 41}}, {who: "w", region: "Z", pages: audit.Pages{Zero: 60, Shared: 41}}, {who: "w", region: "T", pages: audit.Pages{Zero: 512}},
			}},
			{name: "wrote", tables: true, pages: []workRow{
				{who: "w", region: "Z", pages: audit.Pages{Zero: 29, Shared: 41, New: 31, Private: 31}},
				{who: "m", region: "T", pages: audit.Pages{Zero: 512}},
				{who: "w", region: "T", pages: audit.Pages{New: 512, Private: 512}},
			}, diffs: []workDiff{
				{"forked", "w", "Z", audit.Copied{StillShared: 41, NewPages: 31}, false},
				{"forked", "w", "T", audit.Copied{NewPages: 512}, false},
			}},
		},
	},
	{
		// One byte written into a PMD-mapped huge page copies one base page.
		name: "transparent huge pages",
		statements: []string{"thp T 2", "write T 0 1024 1", "fork w", "stage forked",
			"w: write T 5 6 2", "write T 600 603 2", "stage wrote"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{
				{who: "m", region: "T", pages: audit.Pages{Shared: 1024}}, {who: "w", region: "T", pages: audit.Pages{Shared: 1024}},
			}},
			{name: "wrote", tables: true, pages: []workRow{
				{who: "m", region: "T", pages: audit.Pages{Shared: 1020, Unshared: 4, Private: 4}},
				{who: "w", region: "T", pages: audit.Pages{Shared: 1020, Copied: 4, CopiedByWorker: 1, CopiedByReference: 3, Private: 4}},
			}, diffs: []workDiff{
				{"forked", "w", "T", audit.Copied{StillShared: 1020, CopiedPages: 4, CopiedByWorker: 1, CopiedByReference: 3}, false},
			}},
		},
	},
	{
		name: "siblings",
		statements: []string{"anon A 112", "write A 0 112 1", "fork a", "fork b", "fork c", "stage forked",
			"write A 0 23 2", "stage master", "a: write A 0 7 3", "stage worker"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "m", region: "A", pages: audit.Pages{Shared: 112}}, {who: "c", region: "A", pages: audit.Pages{Shared: 112}}}},
			{name: "master", tables: true, pages: []workRow{
				{who: "m", region: "A", pages: audit.Pages{Shared: 89, Unshared: 23, Private: 23}},
				{who: "a", region: "A", pages: audit.Pages{Shared: 89, Copied: 23, CopiedByReference: 23, SharedWithSiblings: 23}},
				{who: "b", region: "A", pages: audit.Pages{Shared: 89, Copied: 23, CopiedByReference: 23, SharedWithSiblings: 23}},
				{who: "c", region: "A", pages: audit.Pages{Shared: 89, Copied: 23, CopiedByReference: 23, SharedWithSiblings: 23}},
			}, diffs: []workDiff{
				{"forked", "b", "A", audit.Copied{StillShared: 89, CopiedPages: 23, CopiedByReference: 23}, false},
			}},
			{name: "worker", tables: true, pages: []workRow{
				{who: "a", region: "A", pages: audit.Pages{Shared: 89, Copied: 23, CopiedByReference: 16, CopiedByUndetermined: 7, SharedWithSiblings: 16, Private: 7}},
				{who: "b", region: "A", pages: audit.Pages{Shared: 89, Copied: 23, CopiedByReference: 23, SharedWithSiblings: 23}},
			}, diffs: []workDiff{
				{"forked", "a", "A", audit.Copied{StillShared: 89, CopiedPages: 23, CopiedByReference: 16, CopiedByBoth: 7}, false},
				{"master", "a", "A", audit.Copied{StillShared: 89}, false},
			}},
		},
	},
	{
		// The worker wrote, and forked then: the flag that it wrote is gone from its pages. Of these it cannot be told from one
		// capture who copied, and it must not be said to have been the master.
		name: "grandchildren",
		statements: []string{"anon A 132", "write A 0 132 1", "fork w", "stage forked", "w: write A 0 23 2", "w: fork g",
			"g: write A 23 54 3", "stage wrote"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "A", pages: audit.Pages{Shared: 132}}}},
			{name: "wrote", tables: true, pages: []workRow{
				{who: "m", region: "A", pages: audit.Pages{Shared: 109, Unshared: 23, Private: 23}},
				{who: "w", region: "A", pages: audit.Pages{Shared: 109, Copied: 23, CopiedByUndetermined: 23, SharedWithSiblings: 23}},
				{who: "g", region: "A", pages: audit.Pages{Shared: 101, Copied: 31, CopiedByWorker: 31, Private: 31}},
			}, diffs: []workDiff{
				{"forked", "w", "A", audit.Copied{StillShared: 109, CopiedPages: 23, CopiedByWorker: 23}, false},
			}},
		},
	},
	{
		name: "stack and thread stacks",
		statements: []string{"threads T 3 7", "grow 11", "brk H 97", "write H 0 97 1", "fork w", "stage forked",
			"w: write T0 0 3 1", "w: write stack 0 5 1", "write T2 1 3 1", "w: write H 0 19 2", "stage wrote"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "T0", pages: audit.Pages{Shared: 7}}, {who: "w", region: "stack", pages: audit.Pages{Shared: 11}}}},
			{name: "wrote", tables: true, pages: []workRow{
				{who: "w", region: "T0", pages: audit.Pages{Shared: 4, Copied: 3, CopiedByWorker: 3, Private: 3}},
				{who: "w", region: "T1", pages: audit.Pages{Shared: 7}},
				{who: "w", region: "T2", pages: audit.Pages{Shared: 5, Copied: 2, CopiedByReference: 2, Private: 2}},
				{who: "w", region: "stack", pages: audit.Pages{Shared: 6, Copied: 5, CopiedByWorker: 5, Private: 5}},
				{who: "w", region: "H", pages: audit.Pages{Shared: 78, Copied: 19, CopiedByWorker: 19, Private: 19}},
			}, diffs: []workDiff{
				{"forked", "w", "T0", audit.Copied{StillShared: 4, CopiedPages: 3, CopiedByWorker: 3}, false},
				{"forked", "w", "stack", audit.Copied{StillShared: 6, CopiedPages: 5, CopiedByWorker: 5}, false},
			}},
		},
		kinds: map[string]audit.RegionKind{"T0": audit.RegionThreadStack, "T1": audit.RegionThreadStack, "T2": audit.RegionThreadStack,
			"stack": audit.RegionStack, "H": audit.RegionBrkHeap},
	},
	{
		name: "moved by the worker",
		statements: []string{"anon A 78", "write A 0 78 1", "fork w", "stage forked", "w: move A B", "stage moved",
			"w: write B 0 11 2", "stage wrote"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "A", pages: audit.Pages{Shared: 78}}}},
			{name: "moved", moved: []workRow{
				{who: "m", region: "A", pages: audit.Pages{Shared: 78}},
				{who: "w", region: "A", pages: audit.Pages{}},
				{who: "w", region: "B", pages: audit.Pages{Shared: 78, Moved: 78}},
			}},
			{name: "wrote", moved: []workRow{
				{who: "m", region: "A", pages: audit.Pages{Shared: 67, Unshared: 11, Private: 11}},
				{who: "w", region: "A", pages: audit.Pages{}},
				{who: "w", region: "B", pages: audit.Pages{Shared: 67, Moved: 67, Copied: 11, CopiedByWorker: 11, Private: 11}},
			}},
		},
	},
	{
		name: "moved by the master",
		statements: []string{"anon A 78", "write A 0 78 1", "fork w", "stage forked", "move A B", "stage moved",
			"w: write A 0 11 2", "stage wrote"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "A", pages: audit.Pages{Shared: 78}}}},
			{name: "moved", moved: []workRow{
				{who: "m", region: "B", pages: audit.Pages{Shared: 78}},
				{who: "w", region: "A", pages: audit.Pages{Shared: 78, Moved: 78}},
				{who: "w", region: "B", pages: audit.Pages{}},
			}},
			{name: "wrote", moved: []workRow{
				{who: "m", region: "B", pages: audit.Pages{Shared: 67, Unshared: 11, Private: 11}},
				{who: "w", region: "A", pages: audit.Pages{Shared: 67, Moved: 67, Copied: 11, CopiedByWorker: 11, Private: 11}},
				{who: "w", region: "B", pages: audit.Pages{}},
			}},
		},
	},
	{
		// Neither side knows the other's mapping.
		name:       "mapped since the fork",
		statements: []string{"anon A 97", "write A 0 97 1", "fork w", "stage forked", "anon B 41", "write B 0 41 1", "w: anon C 43", "w: write C 0 43 1", "stage mapped"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "A", pages: audit.Pages{Shared: 97}}}},
			{name: "mapped", tables: true, pages: []workRow{
				{who: "m", region: "B", pages: audit.Pages{Unshared: 41, Private: 41}},
				{who: "w", region: "B", pages: audit.Pages{ReferenceOnly: 41}},
				{who: "w", region: "C", pages: audit.Pages{New: 43, Private: 43}},
			}, diffs: []workDiff{{"forked", "w", "B", audit.Copied{}, false}, {"forked", "w", "C", audit.Copied{NewPages: 43}, false}}},
		},
	},
	{
		name:       "guard",
		statements: []string{"anon G 63", "write G 0 63 1", "guard G 0 19", "fork w", "stage forked", "w: write G 19 26 2", "stage wrote"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "G", pages: audit.Pages{Guard: 19, Shared: 44}}}},
			{name: "wrote", tables: true, pages: []workRow{
				{who: "m", region: "G", pages: audit.Pages{Guard: 19, Shared: 37, Unshared: 7, Private: 7}},
				{who: "w", region: "G", pages: audit.Pages{Guard: 19, Shared: 37, Copied: 7, CopiedByWorker: 7, Private: 7}},
			}, diffs: []workDiff{{"forked", "w", "G", audit.Copied{StillShared: 37, CopiedPages: 7, CopiedByWorker: 7}, false}}},
		},
	},
	{
		name: "left out by fork",
		statements: []string{"anon D 71", "write D 0 71 1", "advise D 0 71 dontfork", "anon W 73", "write W 0 73 1",
			"advise W 0 73 wipeonfork", "anon K 67", "write K 0 67 1", "fork w", "stage forked", "w: write W 0 29 2", "stage wrote"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{
				{who: "m", region: "D", pages: audit.Pages{Unshared: 71, Private: 71}},
				{who: "w", region: "D", pages: audit.Pages{NotForked: 71}}, {who: "w", region: "W", pages: audit.Pages{NotForked: 73}}, {who: "w", region: "K", pages: audit.Pages{Shared: 67}},
			}},
			{name: "wrote", tables: true, pages: []workRow{
				{who: "w", region: "D", pages: audit.Pages{NotForked: 71}},
				{who: "w", region: "W", pages: audit.Pages{NotForked: 73, New: 29, Private: 29}},
			}, diffs: []workDiff{{"forked", "w", "W", audit.Copied{NewPages: 29}, false}, {"forked", "w", "D", audit.Copied{}, false}}},
		},
	},
	{
		name: "unmapped, and mapped again",
		statements: []string{"anon A 89", "write A 0 89 1", "part A P 10 27", "fork w", "stage forked", "w: unmap A 10 27", "stage unmapped",
			"w: map P 17", "w: write P 0 11 2", "w: write A 0 5 2", "stage mapped"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "A", pages: audit.Pages{Shared: 89}}, {who: "w", region: "P", pages: audit.Pages{Shared: 17}}}},
			{name: "unmapped", tables: true, pages: []workRow{{who: "w", region: "A", pages: audit.Pages{Shared: 72, Dropped: 17}}, {who: "w", region: "P", pages: audit.Pages{Dropped: 17}}},
				diffs: []workDiff{
					{"forked", "w", "A", audit.Copied{StillShared: 72, DroppedPages: 17}, false},
					{"forked", "w", "P", audit.Copied{DroppedPages: 17}, false},
				}},
			{name: "mapped", tables: true, pages: []workRow{
				{who: "w", region: "A", pages: audit.Pages{Shared: 67, Copied: 16, CopiedByWorker: 16, Dropped: 6, Private: 16}},
				{who: "w", region: "P", pages: audit.Pages{Copied: 11, CopiedByWorker: 11, Dropped: 6, Private: 11}},
			}, diffs: []workDiff{
				{"unmapped", "w", "P", audit.Copied{NewPages: 11}, false},
				{"unmapped", "w", "A", audit.Copied{StillShared: 67, CopiedPages: 5, CopiedByWorker: 5, NewPages: 11}, false},
			}},
		},
	},
	{
		name:       "populated for writing",
		statements: []string{"anon A 97", "write A 0 97 1", "fork w", "stage forked", "w: advise A 0 59 populate_write", "stage populated"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "A", pages: audit.Pages{Shared: 97}}}},
			{name: "populated", tables: true, pages: []workRow{
				{who: "w", region: "A", pages: audit.Pages{Shared: 38, Copied: 59, CopiedByWorker: 59, Private: 59}},
			}, diffs: []workDiff{{"forked", "w", "A", audit.Copied{StillShared: 38, CopiedPages: 59, CopiedByWorker: 59}, false}}},
		},
	},
	{
		// A collapse copies without a write, and here the copy is the huge page.
		name: "collapsed by the worker",
		statements: []string{"anon A 512", "write A 0 512 1", "fork w", "stage forked", "w: advise A 0 512 huge", "w: advise A 0 512 collapse",
			"stage collapsed"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "A", pages: audit.Pages{Shared: 512}}}},
			{name: "collapsed", tables: true, pages: []workRow{
				{who: "w", region: "A", pages: audit.Pages{Copied: 512, CopiedByWorker: 512, Private: 512}, fold: workerUnlessUndetermined},
				{who: "m", region: "A", pages: audit.Pages{Unshared: 512, Private: 512}},
			}, diffs: []workDiff{{"forked", "w", "A", audit.Copied{CopiedPages: 512, CopiedByWorker: 512}, false}}},
		},
	},
	{
		name:    "swap",
		prepare: swapOn,
		statements: []string{"anon A 83", "write A 0 83 1", "swapout A 0 83", "fork w", "stage forked",
			"w: write A 0 13 2", "w: read A 13 30", "stage wrote", "w: swapout A 0 13", "stage out"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{
				{who: "m", region: "A", pages: audit.Pages{Shared: 83, InSwap: 83}}, {who: "w", region: "A", pages: audit.Pages{Shared: 83, InSwap: 83}},
			}},
			{name: "wrote", pages: []workRow{
				{who: "m", region: "A", pages: audit.Pages{Shared: 70, Swapped: 13, InSwap: 83}},
				{who: "w", region: "A", pages: audit.Pages{Shared: 70, Copied: 13, CopiedByWorker: 13, InSwap: 53, Private: 13}},
			}, diffs: []workDiff{{"forked", "w", "A", audit.Copied{StillShared: 70, CopiedPages: 13, CopiedByWorker: 13}, false}}},
			{name: "out", pages: []workRow{
				{who: "w", region: "A", pages: audit.Pages{Shared: 70, Swapped: 13, InSwap: 66}},
			}},
		},
	},
	{
		// Pages in the swap cache belong to one slot; that another process' page is in swap too says nothing by itself.
		name:    "swap slots of two workers",
		prepare: swapOn,
		statements: []string{"anon A 83", "write A 0 83 1", "swapout A 0 83", "fork a", "fork b", "stage forked",
			"a: write A 0 13 2", "a: swapout A 0 13", "read A 0 13", "stage mixed"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "a", region: "A", pages: audit.Pages{Shared: 83, InSwap: 83}}}},
			{name: "mixed", pages: []workRow{
				{who: "m", region: "A", pages: audit.Pages{Shared: 83, InSwap: 70}},
				{who: "b", region: "A", pages: audit.Pages{Shared: 83, InSwap: 83}, fold: sharedUnlessUnknown},
				{who: "a", region: "A", pages: audit.Pages{Shared: 70, Swapped: 13, InSwap: 83}, fold: swappedUnlessUnknown},
			}},
		},
	},
	{
		name:    "swap slots of a worker and its child",
		prepare: swapOn,
		statements: []string{"anon A 83", "write A 0 83 1", "swapout A 0 83", "fork a", "stage forked",
			"a: write A 0 13 2", "a: swapout A 0 13", "a: fork g", "a: read A 0 13", "stage mixed"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "a", region: "A", pages: audit.Pages{Shared: 83, InSwap: 83}}}},
			{name: "mixed", pages: []workRow{
				{who: "a", region: "A", pages: audit.Pages{Shared: 70, Copied: 13, CopiedByUndetermined: 13, InSwap: 70, Private: 13}, fold: copiedUnlessUnknown},
				{who: "g", region: "A", pages: audit.Pages{Shared: 83, InSwap: 83}, fold: sharedUnlessUnknown},
			}},
		},
	},
	{
		name: "merged by KSM",
		statements: []string{"anon K 43", "fill K 0 43 7", "advise K 0 43 mergeable", "anon A 59", "write A 0 59 1", "fork w", "stage forked",
			"stage merge", "w: write K 0 5 2", "stage wrote"},
		at: map[string]func(t *testing.T){"merge": merge},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "K", pages: audit.Pages{Shared: 43}}}},
			{name: "merge", tables: true, pages: []workRow{
				{who: "m", region: "K", pages: audit.Pages{Merged: 43}}, {who: "w", region: "K", pages: audit.Pages{Merged: 43}}, {who: "w", region: "A", pages: audit.Pages{Shared: 59}},
			}, diffs: []workDiff{{"forked", "w", "K", audit.Copied{ReplacedPages: 43}, false}}},
			{name: "wrote", tables: true, pages: []workRow{
				{who: "m", region: "K", pages: audit.Pages{Merged: 43}},
				{who: "w", region: "K", pages: audit.Pages{Merged: 38, Copied: 5, CopiedByWorker: 5, Private: 5}},
			}},
		},
	},
	{
		name:    "hugetlb",
		prepare: func(t *testing.T) { setting(t, "/proc/sys/vm/nr_hugepages", "8") },
		statements: []string{"hugetlb H 3", "write H 0 1536 1", "fork w", "stage forked", "w: write H 5 6 2", "write H 1030 1031 2",
			"stage wrote"},
		stages: []workStage{
			{name: "forked", tables: true, pages: []workRow{{who: "w", region: "H", pages: audit.Pages{Shared: 1536, HugeTLB: 1536}}}},
			{name: "wrote", tables: true, pages: []workRow{
				{who: "m", region: "H", pages: audit.Pages{Shared: 512, Unshared: 1024, HugeTLB: 1536, Private: 1024}},
				{who: "w", region: "H", pages: audit.Pages{Shared: 512, Copied: 1024, CopiedByWorker: 512, CopiedByReference: 512, HugeTLB: 1536, Private: 1024}},
			}, diffs: []workDiff{
				{"forked", "w", "H", audit.Copied{StillShared: 512, CopiedPages: 1024, CopiedByWorker: 512, CopiedByReference: 512}, false},
			}},
		},
	},
}

// What the writes changed, with the words of a page that differ counted by the workload.
func TestWorkloadContents(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	s := pages(t, "anon A 331", "fill A 0 331 1", "fork w", "stage forked",
		"w: words A 0 23 0", "w: words A 23 54 1", "w: words A 54 95 8", "w: words A 95 142 9", "w: words A 142 189 64",
		"w: words A 189 242 65", "w: words A 242 301 512",
		"words A 301 308 0", "words A 308 319 2", // by the master: the versions differ all the same
		"stage wrote")
	before := snapshot(t, pagemap.Options{}, s.to("forked").pids...)
	st := s.to("wrote")
	rng := st.regions["A"]
	after := snapshot(t, pagemap.Options{Contents: true}, st.pids...)
	want := audit.Change{Identical: 23 + 7, OneWord: 31, FewWords: 41 + 11, ManyWords: 47 + 47, Rewritten: 53 + 59}
	p := process(t, share(t, after, &rng), st.names["w"])
	samePages(t, "audit", p.Pages, sums(audit.Pages{Shared: 12, Copied: 319, CopiedByWorker: 301, CopiedByReference: 18, Private: 319}))
	if d := cmp.Diff(&want, p.Change); d != "" {
		t.Errorf("audit: what changed (-want +got):\n%s", d)
	}
	d := processDiff(t, diff(t, before, after, &rng), st.names["w"])
	sameCopied(t, "diff", d.Copied, copied(audit.Copied{StillShared: 12, CopiedPages: 319, CopiedByWorker: 301, CopiedByReference: 18, Change: want}))
	s.finish()
}

// Judged against the master by request, a grandchild has copied what its parent and itself wrote.
func TestWorkloadGivenReference(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	s := pages(t, "anon A 157", "write A 0 157 1", "fork w", "w: write A 0 23 2", "w: fork g", "g: write A 23 54 3", "stage wrote")
	st := s.to("wrote")
	rng := st.regions["A"]
	m, w, g := st.names["m"], st.names["w"], st.names["g"]
	c := open(t, pagemap.Options{}, pagemap.FamilyOptions{Alone: true, Reference: m}, w, g)
	r := share(t, c, &rng)
	for pid, want := range map[pagemap.PID]audit.Pages{
		w: {Shared: 134, Copied: 23, CopiedByUndetermined: 23, SharedWithSiblings: 23},
		g: {Shared: 103, Copied: 54, CopiedByWorker: 31, CopiedByUndetermined: 23, SharedWithSiblings: 23, Private: 31},
	} {
		p := process(t, r, pid)
		if p.ReferencePID != m || p.ReferenceBasis != pagemap.ReferenceGiven {
			t.Errorf("%d is judged against %d (%s)", pid, p.ReferencePID, p.ReferenceBasis)
		}
		got := p.Pages
		// The frames that both have and the master has not: seen from the master, siblings share an original, which is how it
		// looks if the master wrote. Nothing on the pages says otherwise.
		if got.CopiedByReference == 23 && pid == g {
			got.CopiedByReference, got.CopiedByUndetermined = 0, got.CopiedByUndetermined+23
		}
		samePages(t, fmt.Sprintf("%d against the master", pid), got, sums(want))
	}
	s.finish()
}

// A range may cut a mapping in two.
func TestWorkloadRange(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	s := pages(t, "anon A 2203", "write A 0 2203 1", "part A P 1019 1056", "fork w", "w: write A 1000 1030 2", "stage wrote")
	st := s.to("wrote")
	for name, want := range map[string]audit.Pages{
		"A": {Shared: 2173, Copied: 30, CopiedByWorker: 30, Private: 30},
		"P": {Shared: 26, Copied: 11, CopiedByWorker: 11, Private: 11},
	} {
		rng := st.regions[name]
		for how, o := range map[string]pagemap.Options{"all": {}, "range": {Start: rng.Start, End: rng.End}, "no scan": {NoScan: true}, "one thread": {Threads: 1}} {
			r := share(t, snapshot(t, o, st.pids...), &rng)
			samePages(t, name+", "+how, process(t, r, st.names["w"]).Pages, sums(want))
		}
	}
	s.finish()
}
