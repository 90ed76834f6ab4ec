package oracle

import (
	"cowaudit/audit"
)

// Workloads of plain memory.
var plainWorkloads = []work{
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
}
