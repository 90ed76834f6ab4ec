package oracle

import (
	"fmt"
	"testing"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// Reproducers whose counts hold for whole regions: at each stage, the full ledger of each process over each region.

// ledgerRow is what audit must say of one process over one region.
type ledgerRow struct {
	pid    int // index among the stage's pids
	region string
	pages  audit.Pages // without Held, which follows
	// fold moves what may as well be said with less certainty to where it is expected; nil: nothing may.
	fold func(p *audit.Pages)
}

// movedRow is the same where the answer lies at other addresses too: it is taken from an audit without a range.
type movedRow ledgerRow

// diffRow is what diff must say of one process over one region, from an earlier stage to this one.
type diffRow struct {
	from   string
	pid    int
	region string
	copied audit.Copied // without what follows: SharedBefore, CopiedBytes; Change if nothing is compared
	// late: the side that is left alone with the old frames wrote too. Mostly it goes on using them; while a frame still sits
	// in a per-CPU list of the kernel, it is copied once more (mm/memory.c, wp_can_reuse_anon_folio), which is "both".
	late bool
}

type stageWant struct {
	stage  string
	pages  []ledgerRow
	moved  []movedRow
	diffs  []diffRow
	states map[int]pagemap.State
	spaces map[int]int // whose address space a process runs in
	tables bool        // the page tables read here must agree, for each row
}

type caseWant struct {
	file   string
	alone  bool // disturbs, or is disturbed by, other programs: KSM, swap, huge pages
	stages []stageWant
}

func TestCasesOfAccounting(t *testing.T) {
	requireFrames(t)
	for _, c := range accountingCases {
		t.Run(c.file, func(t *testing.T) {
			if !c.alone {
				t.Parallel()
			}
			runCase(t, c.file, c.stagesHere(t))
		})
	}
}

func runCase(t *testing.T, file string, stages []stageWant) {
	t.Helper()
	s := caseC(t, file)
	taken := map[string]*pagemap.Snapshot{}
	for _, want := range stages {
		var st stage
		for {
			var ok bool
			if st, ok = s.next(); !ok {
				s.finish()
				t.Fatalf("no stage %s", want.stage)
			}
			taken[st.name] = snapshot(t, pagemap.Options{}, st.pids...)
			if st.name == want.stage {
				break
			}
		}
		checkStage(t, st, taken, want)
	}
	finishCase(t, s, file)
}

func checkStage(t *testing.T, st stage, taken map[string]*pagemap.Snapshot, want stageWant) {
	t.Helper()
	snap := taken[st.name]
	whole := share(t, snap, nil)
	raw := newTableReader(t)
	for i, state := range want.states {
		if got := process(t, whole, st.pids[i]).State; got != state {
			t.Errorf("%s: process %d is %s, want %s", st.name, i, got, state)
		}
	}
	for i, j := range want.spaces {
		if got := process(t, whole, st.pids[i]).SharesMM; got != st.pids[j] {
			t.Errorf("%s: process %d runs in the address space of %d, want %d", st.name, i, got, st.pids[j])
		}
	}
	for _, row := range want.pages {
		rng, ok := st.regions[row.region]
		if !ok {
			t.Fatalf("%s: no region %q", st.name, row.region)
		}
		what := fmt.Sprintf("%s: process %d, %s", st.name, row.pid, row.region)
		pid := st.pids[row.pid]
		p := process(t, share(t, snap, &rng), pid)
		if row.fold == nil {
			row.fold = func(*audit.Pages) {}
		}
		unfolded := p.Pages
		row.fold(&p.Pages)
		samePages(t, what, p.Pages, sums(row.pages))
		live := share(t, open(t, pagemap.Options{Start: rng.Start, End: rng.End}, pagemap.FamilyOptions{Alone: true}, st.pids...), &rng)
		alone := process(t, live, pid).Pages
		row.fold(&alone)
		samePages(t, what+", captured alone", alone, sums(row.pages))
		if want.tables && row.pid > 0 {
			checkTables(t, raw, what, p.ReferencePID, pid, &rng, unfolded)
		}
	}
	for _, row := range want.moved {
		what := fmt.Sprintf("%s: process %d, %s", st.name, row.pid, row.region)
		samePages(t, what, within(t, process(t, whole, st.pids[row.pid]), st.regions[row.region]), sums(row.pages))
	}
	for _, row := range want.diffs {
		rng := st.regions[row.region]
		d := diff(t, taken[row.from], snap, &rng)
		what := fmt.Sprintf("%s to %s: process %d, %s", row.from, st.name, row.pid, row.region)
		got := processDiff(t, d, st.pids[row.pid]).Copied
		if row.late {
			got.CopiedByReference, got.CopiedByBoth = got.CopiedByReference+got.CopiedByBoth, 0
		}
		sameCopied(t, what, got, copied(row.copied))
	}
}

var accountingCases = []caseWant{
	{file: "01-parent-copies.c", stages: []stageWant{
		{stage: "after-fork", tables: true, pages: []ledgerRow{
			{pid: 0, region: "R", pages: audit.Pages{Shared: 1024}},
			{pid: 1, region: "R", pages: audit.Pages{Shared: 1024}},
		}},
		{stage: "parent-wrote-300", tables: true, pages: []ledgerRow{
			{pid: 0, region: "R", pages: audit.Pages{Shared: 724, Unshared: 300, Private: 300}},
			{pid: 1, region: "R", pages: audit.Pages{Shared: 724, Copied: 300, CopiedByReference: 300, Private: 300}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "R", copied: audit.Copied{StillShared: 724, CopiedPages: 300, CopiedByReference: 300}},
		}},
	}},
	{file: "04-exec-child.c", stages: []stageWant{
		{stage: "forked-and-execd", states: map[int]pagemap.State{0: pagemap.StateAudited, 1: pagemap.StateAudited, 2: pagemap.StateExeced},
			pages: []ledgerRow{
				{pid: 0, region: "R", pages: audit.Pages{Shared: 256}},
				{pid: 1, region: "R", pages: audit.Pages{Shared: 256}},
				{pid: 2, region: "R", pages: audit.Pages{}},
			}},
	}},
	{file: "05-dontfork-wipe.c", stages: []stageWant{
		{stage: "after-fork", tables: true, pages: []ledgerRow{
			{pid: 0, region: "D(dontfork)", pages: audit.Pages{Unshared: 128, Private: 128}},
			{pid: 1, region: "D(dontfork)", pages: audit.Pages{NotForked: 128}},
			{pid: 1, region: "W(wipeonfork)", pages: audit.Pages{NotForked: 128}},
			{pid: 1, region: "K(plain)", pages: audit.Pages{Shared: 128}},
		}},
		{stage: "child-wrote-40-of-W", tables: true, pages: []ledgerRow{
			{pid: 1, region: "D(dontfork)", pages: audit.Pages{NotForked: 128}},
			{pid: 1, region: "W(wipeonfork)", pages: audit.Pages{NotForked: 128, New: 40, Private: 40}},
			{pid: 0, region: "W(wipeonfork)", pages: audit.Pages{Unshared: 128, Private: 128}},
			{pid: 1, region: "K(plain)", pages: audit.Pages{Shared: 128}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "D(dontfork)", copied: audit.Copied{}},
			{from: "after-fork", pid: 1, region: "W(wipeonfork)", copied: audit.Copied{NewPages: 40}},
			{from: "after-fork", pid: 1, region: "K(plain)", copied: audit.Copied{StillShared: 128}},
		}},
	}},
	{file: "08-hugetlb.c", alone: true, stages: []stageWant{
		{stage: "after-fork", tables: true, pages: []ledgerRow{
			{pid: 1, region: "R(3 hugetlb pages)", pages: audit.Pages{Shared: 1536, HugeTLB: 1536}},
		}},
		{stage: "child-wrote-1-byte", tables: true, pages: []ledgerRow{
			{pid: 0, region: "R(3 hugetlb pages)", pages: audit.Pages{Shared: 1024, Unshared: 512, HugeTLB: 1536, Private: 512}},
			{pid: 1, region: "R(3 hugetlb pages)", pages: audit.Pages{Shared: 1024, Copied: 512, CopiedByWorker: 512, HugeTLB: 1536, Private: 512}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "R(3 hugetlb pages)", copied: audit.Copied{StillShared: 1024, CopiedPages: 512, CopiedByWorker: 512}},
		}},
	}},
	{file: "09-ksm.c", alone: true, stages: []stageWant{
		{stage: "both-wrote-32-equal-pages", tables: true, pages: []ledgerRow{
			{pid: 1, region: "R", pages: audit.Pages{Shared: 32, Copied: 32, CopiedByUndetermined: 32, Private: 32}},
		}, diffs: []diffRow{
			// The parent wrote first and copied; the child was then alone with the old frames and copied nothing.
			{from: "after-fork", pid: 1, region: "R", copied: audit.Copied{StillShared: 32, CopiedPages: 32, CopiedByReference: 32}, late: true},
		}},
		{stage: "after-ksm-merge", tables: true, pages: []ledgerRow{
			{pid: 0, region: "R", pages: audit.Pages{Shared: 32, Merged: 32}},
			{pid: 1, region: "R", pages: audit.Pages{Shared: 32, Merged: 32}},
		}},
		{stage: "child-wrote-8-merged-pages", tables: true, pages: []ledgerRow{
			{pid: 1, region: "R", pages: audit.Pages{Shared: 32, Merged: 24, Copied: 8, CopiedByWorker: 8, Private: 8}},
		}},
		{stage: "after-unmerge", tables: true, pages: []ledgerRow{
			{pid: 1, region: "R", pages: audit.Pages{Shared: 32, Copied: 32, CopiedByUndetermined: 32, Private: 32}},
		}},
	}},
	{file: "10-swap.c", alone: true, stages: []stageWant{
		{stage: "all-swapped", tables: true, pages: []ledgerRow{
			{pid: 0, region: "R", pages: audit.Pages{Shared: 256, InSwap: 256}},
			{pid: 1, region: "R", pages: audit.Pages{Shared: 256, InSwap: 256}},
		}},
		{stage: "child-read-64-wrote-36", pages: []ledgerRow{
			// The 64 that were only read are in the swap cache: reading brings the parent the same frames.
			{pid: 1, region: "R", pages: audit.Pages{Shared: 220, Copied: 36, CopiedByWorker: 36, InSwap: 156, Private: 36}},
		}, diffs: []diffRow{
			{from: "all-swapped", pid: 1, region: "R", copied: audit.Copied{StillShared: 220, CopiedPages: 36, CopiedByWorker: 36}},
		}},
	}},
	{file: "11-zero-pages.c", stages: []stageWant{
		{stage: "after-fork", tables: true, pages: []ledgerRow{
			{pid: 0, region: "R", pages: audit.Pages{Zero: 100}},
			{pid: 1, region: "R", pages: audit.Pages{Zero: 100}},
			{pid: 1, region: "T(huge zero page)", pages: audit.Pages{Zero: 512}},
		}},
		{stage: "child-wrote-30-of-R-1-of-T", tables: true, pages: []ledgerRow{
			{pid: 1, region: "R", pages: audit.Pages{Zero: 70, New: 30, Private: 30}},
			{pid: 1, region: "T(huge zero page)", pages: audit.Pages{New: 512, Private: 512}},
			{pid: 0, region: "T(huge zero page)", pages: audit.Pages{Zero: 512}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "R", copied: audit.Copied{NewPages: 30}},
			{from: "after-fork", pid: 1, region: "T(huge zero page)", copied: audit.Copied{NewPages: 512}},
		}},
	}},
	{file: "12-remap-same-address.c", stages: []stageWant{
		{stage: "child-remapped-50..149", tables: true, pages: []ledgerRow{
			{pid: 1, region: "R", pages: audit.Pages{Shared: 100, Dropped: 100}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "R", copied: audit.Copied{StillShared: 100, DroppedPages: 100}},
		}},
		{stage: "child-wrote-50..89-and-0..9", tables: true, pages: []ledgerRow{
			// From one capture it cannot be told that 40 of these are fresh: the basis says so.
			{pid: 1, region: "R", pages: audit.Pages{Shared: 90, Copied: 50, CopiedByWorker: 50, Dropped: 60, Private: 50}},
		}, diffs: []diffRow{
			{from: "child-remapped-50..149", pid: 1, region: "R", copied: audit.Copied{StillShared: 90, CopiedPages: 10, CopiedByWorker: 10, NewPages: 40}},
			{from: "after-fork", pid: 1, region: "R", copied: audit.Copied{StillShared: 90, CopiedPages: 50, CopiedByWorker: 50, DroppedPages: 60, InChangedMappings: 50}},
		}},
	}},
	{file: "13-mremap-moved.c", stages: []stageWant{
		{stage: "child-moved-R", moved: []movedRow{
			{pid: 1, region: "R(moved, child)", pages: audit.Pages{Shared: 256, Moved: 256}},
			{pid: 1, region: "R(parent)", pages: audit.Pages{}},
		}},
		{stage: "child-wrote-20-of-moved", moved: []movedRow{
			{pid: 1, region: "R(moved, child)", pages: audit.Pages{Shared: 236, Moved: 236, Copied: 20, CopiedByWorker: 20, Private: 20}},
			{pid: 1, region: "R(parent)", pages: audit.Pages{}},
		}, diffs: []diffRow{
			{from: "child-moved-R", pid: 1, region: "R(moved, child)", copied: audit.Copied{StillShared: 236, CopiedPages: 20, CopiedByWorker: 20}},
		}},
	}},
	{file: "14-brk-heap.c", stages: []stageWant{
		{stage: "child-grew-60-wrote-15,parent-shrank-30-regrew-20-wrote-10", pages: []ledgerRow{
			{pid: 1, region: "H(inherited heap)", pages: audit.Pages{Shared: 55, Copied: 25, CopiedByWorker: 15, CopiedByReference: 10, Kept: 20, Private: 45}},
			{pid: 1, region: "G(child growth)", pages: audit.Pages{New: 60, Private: 60}},
			{pid: 0, region: "H(inherited heap)", pages: audit.Pages{Shared: 55, Unshared: 25, Private: 25}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "H(inherited heap)", copied: audit.Copied{StillShared: 55, CopiedPages: 25, CopiedByWorker: 15, CopiedByReference: 10, KeptPages: 20}},
			{from: "after-fork", pid: 1, region: "G(child growth)", copied: audit.Copied{NewPages: 60}},
		}},
	}},
	{file: "15-vma-split.c", stages: []stageWant{
		{stage: "child-split-and-wrote-20", tables: true, pages: []ledgerRow{
			{pid: 1, region: "R", pages: audit.Pages{Shared: 280, Copied: 20, CopiedByWorker: 20, Private: 20}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "R", copied: audit.Copied{StillShared: 280, CopiedPages: 20, CopiedByWorker: 20, InChangedMappings: 20}},
		}},
	}},
	{file: "18-file-private.c", stages: []stageWant{
		{stage: "after-fork", pages: []ledgerRow{
			{pid: 0, region: "R", pages: audit.Pages{Shared: 10, File: 30}},
			{pid: 1, region: "R", pages: audit.Pages{Shared: 10, File: 30}},
		}},
		{stage: "child-wrote-5..14", tables: true, pages: []ledgerRow{
			{pid: 0, region: "R", pages: audit.Pages{Shared: 5, Unshared: 5, File: 30, Private: 5}},
			{pid: 1, region: "R", pages: audit.Pages{Shared: 5, Copied: 5, CopiedByWorker: 5, New: 5, NewFromFile: 5, File: 25, Private: 10}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "R", copied: audit.Copied{StillShared: 5, CopiedPages: 5, CopiedByWorker: 5, NewPages: 5, NewFromFile: 5}},
		}},
	}},
	{file: "19-shared-mm.c", stages: []stageWant{
		{stage: "after-clone_vm-and-fork",
			states: map[int]pagemap.State{0: pagemap.StateAudited, 1: pagemap.StateAudited, 2: pagemap.StateSharedMM},
			pages: []ledgerRow{
				{pid: 1, region: "R", pages: audit.Pages{Shared: 128}},
				{pid: 2, region: "R", pages: audit.Pages{}},
			}},
		{stage: "vm-child-wrote-50", states: map[int]pagemap.State{2: pagemap.StateSharedMM}, spaces: map[int]int{2: 0}, pages: []ledgerRow{
			{pid: 1, region: "R", pages: audit.Pages{Shared: 78, Copied: 50, CopiedByReference: 50, Private: 50}},
		}, diffs: []diffRow{
			{from: "after-clone_vm-and-fork", pid: 1, region: "R", copied: audit.Copied{StillShared: 78, CopiedPages: 50, CopiedByReference: 50}},
		}},
	}},
	{file: "26-guard-pages.c", stages: []stageWant{
		{stage: "after-fork,child-wrote-10", tables: true, pages: []ledgerRow{
			{pid: 0, region: "R(0..15 guard)", pages: audit.Pages{Guard: 16, Shared: 38, Unshared: 10, Private: 10}},
			{pid: 1, region: "R(0..15 guard)", pages: audit.Pages{Guard: 16, Shared: 38, Copied: 10, CopiedByWorker: 10, Private: 10}},
		}},
	}},
	{file: "27-dropped.c", stages: []stageWant{
		{stage: "child-dropped-0..299", tables: true, pages: []ledgerRow{
			{pid: 1, region: "R", pages: audit.Pages{Shared: 212, Dropped: 300}},
			{pid: 0, region: "R", pages: audit.Pages{Shared: 212, Unshared: 300, Private: 300}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "R", copied: audit.Copied{StillShared: 212, DroppedPages: 300}},
		}},
		{stage: "child-wrote-0..79-read-80..99", tables: true, pages: []ledgerRow{
			// From one capture it cannot be told that these 80 are fresh: the basis says so.
			{pid: 1, region: "R", pages: audit.Pages{Shared: 212, Copied: 80, CopiedByWorker: 80, Zero: 20, Dropped: 200, Private: 80}},
		}, diffs: []diffRow{
			{from: "child-dropped-0..299", pid: 1, region: "R", copied: audit.Copied{StillShared: 212, NewPages: 80}},
		}},
	}},
	{file: "29-fault-burst.c", stages: []stageWant{
		{stage: "both-wrote-all", tables: true, pages: []ledgerRow{
			{pid: 1, region: "R", pages: audit.Pages{Copied: 32768, CopiedByWorker: 32768, Private: 32768}},
			{pid: 2, region: "R", pages: audit.Pages{Copied: 32768, CopiedByWorker: 32768, Private: 32768}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "R", copied: audit.Copied{CopiedPages: 32768, CopiedByWorker: 32768}},
			{from: "after-fork", pid: 2, region: "R", copied: audit.Copied{CopiedPages: 32768, CopiedByWorker: 32768}},
		}},
	}},
}
