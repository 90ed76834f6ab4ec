package oracle

import (
	"fmt"
	"slices"
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
	for _, w := range slices.Concat(plainWorkloads, machineWorkloads) {
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
	for _, want := range w.stagesHere(t) {
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
