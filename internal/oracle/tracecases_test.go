package oracle

import (
	"path/filepath"
	"testing"

	"cowaudit/audit"
	"cowaudit/ebpf"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// burst starts the workload of writes that meet.
func burst(t *testing.T, args ...string) *staged {
	t.Helper()
	return start(t, nil, append([]string{testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "burst.c"))}, args...)...)
}

// Case 29: 65,536 copies by two children at once, and 200,091 writes by a parent and two children at once: what was
// copied is what the page tables show to be copied, page by page, and nothing is lost.
func TestTraceCase29FaultBurst(t *testing.T) {
	requireFrames(t)
	for _, c := range []struct {
		name           string
		start          func(t *testing.T) *staged
		before, after  string
		writes, copies int64 // of all; copies 0: as the page tables say
	}{
		{"as it is", func(t *testing.T) *staged { return caseC(t, "29-fault-burst.c") }, "after-fork", "both-wrote-all", 65_536, 65_536},
		{"with the parent", func(t *testing.T) *staged { return burst(t, "crowd", "66697") }, "forked", "wrote", 200_091, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := newTableReader(t)
			s := c.start(t)
			st := s.to(c.before)
			rng := st.regions["R"]
			before := map[pagemap.PID]table{}
			for _, pid := range st.pids {
				before[pid] = raw.read(t, pid, &rng)
			}
			tracer := trace(t, ebpf.Options{Faults: true}, st.pids...)
			s.to(c.after)
			tr := tracer.end()
			var writes, copies int64
			for _, pid := range st.pids {
				faults := faultsOf(tr, pid, &rng, during{})
				pages, changed := copiedPages(faults), raw.changedPages(before[pid], raw.read(t, pid, &rng))
				if agreement(pages, changed) != 100 {
					t.Errorf("process %d: %s", pid, differ(pages, changed))
				}
				writes += int64(len(faults))
				copies += int64(len(only(faults, ebpf.KindCopied)))
				t.Logf("process %d: %s", pid, kindsIn(faults))
			}
			if writes != c.writes || c.copies != 0 && copies != c.copies || copies < c.writes/2 {
				t.Errorf("%d writes, %d of them copied; want %d, %d", writes, copies, c.writes, c.copies)
			}
			s.finish()
		})
	}
}

// Threads that write to one page at once: each page of the child is copied, at least once; what a slower thread copied in
// vain counts as what it was, and the page tables show one copy a page.
func TestTraceRace(t *testing.T) {
	requireFrames(t)
	const n = 4001
	raw := newTableReader(t)
	s := burst(t, "race", "4001", "2")
	st := s.to("forked")
	rng, w := st.regions["R"], st.names["w"]
	before := raw.read(t, w, &rng)
	tracer := trace(t, ebpf.Options{Faults: true}, st.pids...)
	s.to("wrote")
	tr := tracer.end()
	faults := faultsOf(tr, w, &rng, during{})
	pages, changed := copiedPages(faults), raw.changedPages(before, raw.read(t, w, &rng))
	copies := only(faults, ebpf.KindCopied)
	t.Logf("%s on %d pages", kindsIn(faults), len(pages))
	if len(changed) != n || agreement(pages, changed) != 100 {
		t.Errorf("%s; want %d", differ(pages, changed), n)
	}
	// A thread that came while another one exchanged the page found none, and its zeroed page was thrown away: how often
	// depends on the time that this machine takes to exchange one. On no page it is all that there was: see above.
	if len(faults) > 2*n || len(copies) < n || len(only(faults, ebpf.KindUnknown)) > 0 {
		t.Errorf("%s, of 2 threads on %d pages", kindsIn(faults), n)
	}
	s.finish()
}

// Two tracers at once: the kernel lets one of them look up a mapping at a time (kernel/bpf/mmap_unlock_work.h), so the
// other one does it later. Either sees each copy, at a time between the moments before and after it, in its region.
func TestTraceTwice(t *testing.T) {
	s := pages(t, "anon a 401", "write a 0 401 1", "fork w", "stage forked", "w: write a 0 331 2", "stage wrote")
	st := s.to("forked")
	var tracers [3]*traceOf
	var when [len(tracers)]during
	for i := range tracers {
		tracers[i] = trace(t, ebpf.Options{Faults: true}, st.pids...)
		when[i].from = tracers[i].Now()
	}
	s.to("wrote")
	for i, tracer := range tracers {
		when[i].to = tracer.Now()
		tr := tracer.end()
		faults := faultsOf(tr, st.names["w"], rangeOf(st, "a"), during{})
		if got := kindsIn(faults); got != "copied 331" {
			t.Errorf("tracer %d: %q, want 331 copied", i, got)
		}
		for _, f := range faults {
			r := tr.RegionByID(f.Region)
			if !when[i].has(f) || r == nil || f.Addr < r.Mapping.Start || f.Addr >= r.Mapping.End {
				t.Fatalf("tracer %d: %+v in %+v, traced from %v to %v", i, *f, r, when[i].from, when[i].to)
			}
		}
	}
	s.finish()
}

// Reproducers with exact counts for whole regions: which process wrote what, from one stage to another.
func TestTraceCases(t *testing.T) {
	requireFrames(t)
	zeroPages := "zero 30"
	if !zeroPage(t) {
		zeroPages = "copied 30" // what the parent had only read was inherited
	}
	for _, c := range []struct {
		file, from, to, region string
		want                   []string // by process of the stage
	}{
		{file: "01-parent-copies.c", from: "after-fork", to: "parent-wrote-300", region: "R", want: []string{"copied 300", ""}},
		{file: "05-dontfork-wipe.c", from: "after-fork", to: "child-wrote-40-of-W", region: "W(wipeonfork)", want: []string{"", "new 40"}},
		// The byte copies a whole page of 2 MiB: copy and reuse look alike, so neither is said.
		{file: "08-hugetlb.c", from: "after-fork", to: "child-wrote-1-byte", region: "R(3 hugetlb pages)", want: []string{"", "hugetlb 1"}},
		// What KSM merged is copied when it is written, though nobody else may share it.
		{file: "09-ksm.c", from: "after-ksm-merge", to: "child-wrote-8-merged-pages", region: "R", want: []string{"", "copied 8"}},
		{file: "11-zero-pages.c", from: "after-fork", to: "child-wrote-30-of-R-1-of-T", region: "R", want: []string{"", zeroPages}},
		{file: "12-remap-same-address.c", from: "child-remapped-50..149", to: "child-wrote-50..89-and-0..9", region: "R", want: []string{"", "copied 10, new 40"}},
		{file: "18-file-private.c", from: "after-fork", to: "child-wrote-5..14", region: "R", want: []string{"", "copied 5, file 5"}},
		{file: "27-dropped.c", from: "child-dropped-0..299", to: "child-wrote-0..79-read-80..99", region: "R", want: []string{"", "new 80"}},
	} {
		t.Run(c.file, func(t *testing.T) {
			s := caseC(t, c.file)
			st := s.to(c.from)
			tracer := trace(t, ebpf.Options{Faults: true}, st.pids...)
			s.to(c.to)
			tr := tracer.end()
			for i, want := range c.want {
				faults := faultsOf(tr, st.pids[i], rangeOf(st, c.region), during{})
				var writes []*ebpf.Fault
				for _, f := range faults {
					if f.Kind != ebpf.KindRead {
						writes = append(writes, f)
					}
				}
				if got := kindsIn(writes); got != want {
					t.Errorf("process %d of %v, %s: %q, want %q", i, st.pids, c.region, got, want)
				}
			}
			finishCase(t, s, c.file)
		})
	}
}

func rangeOf(st stage, region string) *audit.Range {
	r := st.regions[region]
	return &r
}

// fromStart starts a program that is traced from its first instruction on.
func fromStart(t *testing.T, argv ...string) (*staged, *traceOf) {
	t.Helper()
	s := start(t, nil, append([]string{"sh", "-c", `read go; exec "$@"`, "sh"}, argv...)...)
	tracer := trace(t, ebpf.Options{Faults: true}, pagemap.PID(s.PID()))
	s.Send("go")
	return s, tracer
}

// Case 04: a child that calls exec is another address space, whose writes are no copies of the parent's pages.
func TestTraceCase04Exec(t *testing.T) {
	requireFrames(t)
	// From its start: the program runs itself once more at first, and then forks both children.
	s, tracer := fromStart(t, testkit.CC(t, filepath.Join(testkit.Cases(t), "04-exec-child.c")))
	st := s.to("forked-and-execd")
	tr := tracer.end()
	rng := rangeOf(st, "R")
	for i, want := range []string{"new 256", "", "new 256"} {
		if got := kinds(tr, st.pids[i], *rng); got != want {
			t.Errorf("process %d of %v: %q, want %q", i, st.pids, got, want)
		}
	}
	ids := spacesOf(tr, st.pids[2])
	if len(ids) != 2 {
		t.Fatalf("%d address spaces of the child that called exec, want 2", len(ids))
	}
	if a, b := tr.SpaceByID(ids[0]), tr.SpaceByID(ids[1]); a.Cause != ebpf.CauseFork || b.Cause != ebpf.CauseExec || b.Parent != a.ID {
		t.Errorf("its address spaces: %s of %d, then %s of %d", cause(a), a.Parent, cause(b), b.Parent)
	}
	s.finish()
}

func cause(s *ebpf.Space) string {
	return map[ebpf.Cause]string{ebpf.CauseStart: "start", ebpf.CauseFork: "fork", ebpf.CauseExec: "exec"}[s.Cause]
}

// Case 10: pages that come back from swap for a write. A page of the swap cache that another process still refers to is
// copied, one that nobody else has is not: either way it is told that it came from swap.
func TestTraceCase10Swap(t *testing.T) {
	requireFrames(t)
	testkit.Require(t, "swap")
	s := caseC(t, "10-swap.c")
	st := s.to("all-swapped")
	rng := rangeOf(st, "R")
	tracer := trace(t, ebpf.Options{Faults: true}, st.pids...)
	s.to("child-read-64-wrote-36")
	tr := tracer.end()
	if got := kinds(tr, st.pids[0], *rng); got != "" {
		t.Errorf("the parent: %q", got)
	}
	var writes, told int
	for _, f := range faultsOf(tr, st.pids[1], rng, during{}) {
		if page := (f.Addr - rng.Start) / pagemap.Addr(pageSize); page >= 64 && page < 100 && f.Kind != ebpf.KindRead {
			writes++
			if f.Kind == ebpf.KindSwapped || f.Kind == ebpf.KindCopied && f.Detail&ebpf.DetailFromSwap != 0 {
				told++
			}
		}
	}
	if writes != 36 || told != 36 {
		t.Errorf("%d writes, %d of them said to have come from swap, want 36: %s", writes, told, kindsIn(faultsOf(tr, st.pids[1], rng, during{})))
	}
	s.finish()
}

// Case 19: a child that shares the parent's address space is that one space, and what it writes the space copies.
func TestTraceCase19SharedMM(t *testing.T) {
	requireFrames(t)
	for _, c := range []struct {
		name  string
		order []int
	}{{"all", []int{0, 1, 2}}, {"the child first", []int{2, 0, 1}}} {
		t.Run(c.name, func(t *testing.T) {
			s := caseC(t, "19-shared-mm.c")
			st := s.to("after-clone_vm-and-fork")
			tracer := trace(t, ebpf.Options{Faults: true})
			for _, i := range c.order {
				tracer.add(st.pids[i])
			}
			s.to("vm-child-wrote-50")
			tr := tracer.end()
			if len(tr.Spaces) != 2 {
				t.Errorf("%d address spaces of 3 processes, want 2", len(tr.Spaces))
			}
			rng, vm := rangeOf(st, "R"), st.pids[2]
			var copied, byChild int
			for i := range tr.Faults {
				if f := &tr.Faults[i]; f.Kind == ebpf.KindCopied && f.Addr >= rng.Start && f.Addr < rng.End {
					copied++
					if f.Thread == vm {
						byChild++
					}
				}
			}
			if copied != 50 || byChild != 50 {
				t.Errorf("%d copies, %d of them by the child, want 50", copied, byChild)
			}
			s.finish()
		})
	}
}

// A child that shares the address space until it calls exec, as vfork and posix_spawn make it, leaves the parent's as it is.
func TestTraceSpawn(t *testing.T) {
	s := start(t, nil, testkit.Program(t, "python3"), "-c", `
import os, sys
def stage(name):
    print(f"STAGE {name} pids={os.getpid()}", flush=True); sys.stdin.buffer.raw.read(1)
stage("before")
for _ in range(3): os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
stage("after")`)
	st := s.to("before")
	tracer := trace(t, ebpf.Options{Faults: true}, st.pids...)
	s.to("after")
	tr := tracer.end()
	own := spacesOf(tr, st.pids[0])
	if len(own) != 1 || tr.SpaceByID(own[0]).Ended != 0 {
		t.Fatalf("spaces of the process: %+v", tr.Spaces)
	}
	spawned := 0
	for i := range tr.Spaces {
		if sp := &tr.Spaces[i]; sp.Cause == ebpf.CauseExec && sp.Parent == own[0] && sp.Ended != 0 {
			spawned++
		}
	}
	if spawned != 3 || len(tr.Spaces) != 4 {
		t.Errorf("%d spaces of programs that it started, want 3, of %d spaces", spawned, len(tr.Spaces))
	}
	s.finish()
}

// Case 28: the fork parent exits, and nothing is copied; what ended is said to have ended.
func TestTraceCase28ParentExits(t *testing.T) {
	requireFrames(t)
	s := caseC(t, "28-parent-exits.c")
	st := s.to("middle-alive")
	tracer := trace(t, ebpf.Options{Faults: true}, st.pids...)
	s.to("worker-b-exited-too")
	tr := tracer.end()
	for i, pid := range st.pids {
		if got := kinds(tr, pid, *rangeOf(st, "R")); got != "" {
			t.Errorf("process %d of %v: %q, want nothing", i, st.pids, got)
		}
		sp := tr.SpaceByID(spacesOf(tr, pid)[0])
		if ended := sp.Ended != 0; ended != (i != 1) {
			t.Errorf("process %d of %v: ended: %v", i, st.pids, ended)
		}
	}
	s.finish()
}

// Case 30: the processes of a container, by the ids that they have on the host. They have written when the case can be
// looked at, so the tracer follows the whole of it, and the container's processes as they are forked.
func TestTraceCase30PIDNamespace(t *testing.T) {
	requireFrames(t)
	testkit.Require(t, "pidns", "mountns")
	s, tracer := fromStart(t, testkit.Program(t, "python3"), filepath.Join(testkit.Cases(t), "30-pid-namespace.py"))
	st := s.to("worker-wrote-30")
	tr := tracer.end()
	rng := rangeOf(st, "region")
	master, worker := st.pids[0], st.pids[1]
	if got := kinds(tr, worker, *rng); got != "copied 30" {
		t.Errorf("the worker: %q, want 30 copied", got)
	}
	if got := kinds(tr, master, *rng); got != "new 100" {
		t.Errorf("the master: %q, want 100 new", got)
	}
	m, w := tr.SpaceByID(spacesOf(tr, master)[0]), tr.SpaceByID(spacesOf(tr, worker)[0])
	if w.Parent != m.ID || w.Process.Start == 0 || w.Cause != ebpf.CauseFork {
		t.Errorf("the worker's space: %+v, the master's is %d", *w, m.ID)
	}
	s.finish()
}
