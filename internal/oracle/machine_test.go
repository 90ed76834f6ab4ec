package oracle

import (
	"testing"

	"cowaudit/audit"
)

// Workloads of what the machine does with memory: huge pages, swap, KSM.
var machineWorkloads = []work{
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
