package oracle

import (
	"slices"
	"testing"

	"cowaudit/audit"
	"cowaudit/internal/host"
)

// Some kernels, of virtual machines above all, have no zero page: a read of what was never written takes a page there. What
// the programs of these tests do to the zero page has other true answers on such a kernel.

// zeroPage reports whether there is one here.
func zeroPage(t *testing.T) bool {
	t.Helper()
	zero, err := host.ZeroPage()
	if err != nil {
		t.Fatal(err)
	}
	return zero
}

// zeroTruths are what reproducers say of the zero page: of these, and only of these, the opposite is true without one.
var zeroTruths = map[string][]string{
	"11-zero-pages.c": {"R frame is the zero page (KPF_ZERO_PAGE)", "R smaps Rss kB", "T entries backed by the huge zero page"},
	"27-dropped.c":    {"of those on the zero page"},
}

// finishCase lets a reproducer run to its end, and holds what it says of itself against this kernel.
func finishCase(t *testing.T, s *staged, file string) {
	t.Helper()
	if truths := zeroTruths[file]; truths != nil && !zeroPage(t) {
		s.FinishFailing(truths...)
		return
	}
	s.finish()
}

// stagesHere gives the counts of a reproducer on this kernel.
func (c *caseWant) stagesHere(t *testing.T) []stageWant {
	t.Helper()
	return here(t, c.stages, casesWithoutZeroPage[c.file], func(w stageWant) string { return w.stage })
}

// stagesHere gives the counts of a workload on this kernel.
func (w *work) stagesHere(t *testing.T) []workStage {
	t.Helper()
	return here(t, w.stages, workloadsWithoutZeroPage[w.name], func(w workStage) string { return w.name })
}

// here puts other stages in the place of those with their names, where there is no zero page.
func here[S any](t *testing.T, stages, others []S, name func(S) string) []S {
	t.Helper()
	if len(others) == 0 || zeroPage(t) {
		return stages
	}
	out := slices.Clone(stages)
	for _, o := range others {
		i := slices.IndexFunc(out, func(s S) bool { return name(s) == name(o) })
		if i < 0 {
			t.Fatalf("no stage %s", name(o))
		}
		out[i] = o
	}
	return out
}

var casesWithoutZeroPage = map[string][]stageWant{
	"11-zero-pages.c": {
		{stage: "after-fork", tables: true, pages: []ledgerRow{
			{pid: 0, region: "R", pages: audit.Pages{Shared: 100}},
			{pid: 1, region: "R", pages: audit.Pages{Shared: 100}},
			{pid: 1, region: "T(huge zero page)", pages: audit.Pages{Shared: 512}},
		}},
		{stage: "child-wrote-30-of-R-1-of-T", tables: true, pages: []ledgerRow{
			{pid: 1, region: "R", pages: audit.Pages{Shared: 70, Copied: 30, CopiedByWorker: 30, Private: 30}},
			{pid: 1, region: "T(huge zero page)", pages: audit.Pages{Shared: 511, Copied: 1, CopiedByWorker: 1, Private: 1}},
			{pid: 0, region: "T(huge zero page)", pages: audit.Pages{Shared: 511, Unshared: 1, Private: 1}},
		}, diffs: []diffRow{
			{from: "after-fork", pid: 1, region: "R", copied: audit.Copied{StillShared: 70, CopiedPages: 30, CopiedByWorker: 30}},
			{from: "after-fork", pid: 1, region: "T(huge zero page)", copied: audit.Copied{StillShared: 511, CopiedPages: 1, CopiedByWorker: 1}},
		}},
	},
	"27-dropped.c": {
		{stage: "child-wrote-0..79-read-80..99", tables: true, pages: []ledgerRow{
			// From one capture it cannot be told that these 100 are fresh: the basis says so.
			{pid: 1, region: "R", pages: audit.Pages{Shared: 212, Copied: 100, CopiedByWorker: 100, Dropped: 200, Private: 100}},
		}, diffs: []diffRow{
			{from: "child-dropped-0..299", pid: 1, region: "R", copied: audit.Copied{StillShared: 212, NewPages: 100}},
		}},
	},
}

var workloadsWithoutZeroPage = map[string][]workStage{
	"who wrote": {
		{name: "later", tables: true, pages: []workRow{
			{who: "w", region: "B", pages: audit.Pages{New: 34, ReferenceOnly: 37, Private: 34}},
			// 4 and 13 more that were given up and only read: filled anew too.
			{who: "w", region: "A", pages: audit.Pages{Shared: 53, Copied: 144, CopiedByWorker: 100, CopiedByReference: 31, CopiedByUndetermined: 13, Kept: 11, Private: 155}},
		}, diffs: []workDiff{
			// 13 that were shared were given up and filled anew between the two: that looks like a copy.
			{"wrote", "w", "A", audit.Copied{StillShared: 53, CopiedPages: 60, CopiedByWorker: 60, NewPages: 17}, false},
			{"wrote", "w", "B", audit.Copied{FreedPages: 19}, false},
			{"forked", "w", "B", audit.Copied{NewPages: 34}, false},
		}},
	},
	"zero pages": {
		{name: "forked", pages: []workRow{
			{who: "m", region: "Z", pages: audit.Pages{Shared: 101}}, {who: "w", region: "Z", pages: audit.Pages{Shared: 101}}, {who: "w", region: "T", pages: audit.Pages{Shared: 512}},
		}},
		{name: "wrote", pages: []workRow{
			{who: "w", region: "Z", pages: audit.Pages{Shared: 70, Copied: 31, CopiedByWorker: 31, Private: 31}},
			{who: "m", region: "T", pages: audit.Pages{Shared: 511, Unshared: 1, Private: 1}},
			{who: "w", region: "T", pages: audit.Pages{Shared: 511, Copied: 1, CopiedByWorker: 1, Private: 1}},
		}, diffs: []workDiff{
			{"forked", "w", "Z", audit.Copied{StillShared: 70, CopiedPages: 31, CopiedByWorker: 31}, false},
			{"forked", "w", "T", audit.Copied{StillShared: 511, CopiedPages: 1, CopiedByWorker: 1}, false},
		}},
	},
}
