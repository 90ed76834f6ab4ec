package oracle

import (
	"slices"
	"strings"
	"testing"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// Reproducers that start real servers.

// sharedMemory sums the mappings that are shared memory.
func sharedMemory(p *audit.Process) (n int, pages audit.Pages) {
	for _, m := range p.Mappings {
		if m.Region == audit.RegionSharedMem {
			n++
			addPages(&pages, m.Pages)
		}
	}
	return n, pages
}

// onlyFile fails unless all that a ledger holds are pages of the file or of shared memory.
func onlyFile(t *testing.T, what string, p audit.Pages) {
	t.Helper()
	if rest := (audit.Pages{File: p.File, Held: p.File, InSwap: p.InSwap}); p != rest {
		t.Errorf("%s: more than pages of shared memory: %+v", what, p)
	}
}

func TestCase06SharedMaps(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	s := caseC(t, "06-shared-maps.c")
	names := []string{"anon-shared", "memfd", "sysv", "tmpfs-unlinked"}
	paths := map[string]string{"anon-shared": "/dev/zero (deleted)", "memfd": "/memfd:case cache (deleted)",
		"sysv": "/SYSV00000000 (deleted)", "tmpfs-unlinked": "/dev/shm/case06.tmp (deleted)"}
	forked := s.to("after-fork")
	before := snapshot(t, pagemap.Options{}, forked.pids...)
	for _, n := range names {
		rng := forked.regions[n]
		r := share(t, before, &rng)
		samePages(t, n+", parent", process(t, r, forked.pids[0]).Pages, sums(audit.Pages{File: 64}))
		samePages(t, n+", child, nothing touched", process(t, r, forked.pids[1]).Pages, audit.Pages{})
	}
	touched := s.to("child-read-24-wrote-16")
	after := snapshot(t, pagemap.Options{}, touched.pids...)
	whole := share(t, after, nil)
	for _, n := range names {
		rng := touched.regions[n]
		r := share(t, after, &rng)
		child := process(t, r, touched.pids[1]).Pages
		if child.File < 40 || child.File > 64 {
			t.Errorf("%s: child has %d pages, want 40 to 64", n, child.File)
		}
		onlyFile(t, n, child)
		sameCopied(t, n, processDiff(t, diff(t, before, after, &rng), touched.pids[1]).Copied, audit.Copied{})
		m := one(t, n, process(t, whole, touched.pids[1]).Mappings, func(m audit.Mapping) bool { return m.Start == rng.Start })
		if m.Region != audit.RegionSharedMem || m.Path != paths[n] {
			t.Errorf("%s: mapping %q is %s", n, m.Path, m.Region)
		}
		if got := r.Totals.Frames.DistinctFile; got != 64 {
			t.Errorf("%s: %d distinct pages in the family, want 64", n, got)
		}
	}
	s.finish()
}

func TestCase42Postgres(t *testing.T) {
	testkit.Require(t, "pagemap", "kpageflags", "postgres")
	t.Parallel()
	s := casePython(t, "42-postgres-backend.py")
	two := s.to("two-backends")
	before := snapshot(t, pagemap.Options{}, two.pids...)
	scanned := s.to("backend-b-scanned-30-MB")
	after := snapshot(t, pagemap.Options{}, scanned.pids...)
	postmaster, b := scanned.pids[0], scanned.pids[2]
	r := share(t, after, nil)
	for _, pid := range scanned.pids[1:] {
		p := process(t, r, pid)
		if p.ReferencePID != postmaster {
			t.Errorf("backend %d is judged against %d", pid, p.ReferencePID)
		}
		// Since the fork, by either side.
		if p.Pages.Copied < 1 || p.Pages.Copied > 75+noise {
			t.Errorf("backend %d: copied %d since the fork, want 1 to 75", pid, p.Pages.Copied)
		}
		_, shm := sharedMemory(p)
		onlyFile(t, "shared memory of a backend", shm)
	}
	// Buffers that one backend alone has mapped are shared memory all the same.
	mib := int64(1<<20) / int64(pageSize)
	if _, shm := sharedMemory(process(t, r, b)); shm.File < 32*mib {
		t.Errorf("backend b has %d pages of shared memory, want 32 MiB at least", shm.File)
	}
	// Counted once for the group: less than what the three have mapped, and not less than the one that has most.
	var sum, most int64
	for _, pid := range scanned.pids {
		_, shm := sharedMemory(process(t, r, pid))
		sum, most = sum+shm.File, max(most, shm.File)
	}
	var files int64
	for _, p := range r.Family {
		files += p.Pages.File
	}
	if once := r.Totals.Frames.DistinctFile - (files - sum); once > sum || r.Totals.Frames.DistinctFile < most {
		t.Errorf("distinct file pages %d: the processes have %d, shared memory is %d of them", r.Totals.Frames.DistinctFile, files, sum)
	}
	d := processDiff(t, diff(t, before, after, nil), b)
	t.Logf("backend b: copied %d, new %d", d.CopiedPages, d.NewPages)
	if d.CopiedByWorker > 1+noise || d.CopiedByReference > noise {
		t.Errorf("backend b copied %d and the postmaster %d while it scanned, want 1 and 0", d.CopiedByWorker, d.CopiedByReference)
	}
	if w := (window{34, 34}); !w.has(d.NewPages) {
		t.Errorf("backend b: %d new pages, want 34", d.NewPages)
	}
	s.finish()
}

func TestCase43PHP(t *testing.T) {
	testkit.Require(t, "pagemap", "kpageflags", "php-fpm")
	t.Parallel()
	s := casePython(t, "43-php-fpm-opcache.py")
	var snaps []*pagemap.Snapshot
	var last stage
	for _, name := range []string{"workers-idle", "one-request-compiled-4000-functions", "both-workers-served"} {
		last = s.to(name)
		snaps = append(snaps, snapshot(t, pagemap.Options{}, last.pids...))
	}
	s.finish()
	served := share(t, snaps[2], nil)
	for _, pid := range last.pids {
		n, shm := sharedMemory(process(t, served, pid))
		if n == 0 || shm.File == 0 {
			t.Errorf("process %d: no OPcache in %d shared mappings", pid, n)
		}
		onlyFile(t, "OPcache", shm)
	}
	type event struct{ worker, fresh, freed int64 }
	var compiler, other []event
	first := diff(t, snaps[0], snaps[1], nil)
	second := diff(t, snaps[1], snaps[2], nil)
	for _, pid := range last.pids[1:] {
		var list []event
		for _, d := range []*audit.DiffReport{first, second} {
			p := processDiff(t, d, pid)
			list = append(list, event{p.CopiedByWorker, p.NewPages, p.FreedPages})
			if p.CopiedByReference > noise {
				t.Errorf("worker %d: the master is said to have copied %d pages", pid, p.CopiedByReference)
			}
		}
		if list[0].fresh > 1000 {
			compiler = list
		} else {
			other = list
		}
	}
	if compiler == nil || other == nil {
		t.Fatalf("not one worker that compiled and one that did not: %+v %+v", compiler, other)
	}
	t.Logf("compiling worker %+v, the other %+v", compiler, other)
	for _, c := range []struct {
		what string
		got  int64
		want window
	}{
		{"compiling worker copied", compiler[0].worker, window{36, 36}},
		{"compiling worker new", compiler[0].fresh, window{2048, 2048}},
		{"compiling worker gave back", compiler[1].freed, window{1523, 1523}},
		{"the other copied", other[1].worker, window{30, 30}},
		{"the other new", other[1].fresh, window{98, 98}},
	} {
		if !c.want.has(c.got) {
			t.Errorf("%s %d, want %d", c.what, c.got, c.want.lo)
		}
	}
}

func TestCase44Gunicorn(t *testing.T) {
	testkit.Require(t, "pagemap", "kpageflags", "gunicorn")
	for mode, w := range map[string][2]window{
		"plain":  {{1948, 1966}, {3136, 3136}},
		"freeze": {{61, 61}, {3137, 3137}},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			follow(t, casePython(t, "44-gunicorn-preload.py", mode), []step{
				{to: "idle-request", pid: 1, worker: window{1, 4}},
				{to: "worker-collected", pid: 1, worker: w[0], reference: &window{}},
				{to: "worker-read-the-table", pid: 1, worker: w[1], reference: &window{}},
			})
		})
	}
}

// Case 28: a sharer that ends copies nothing. The workers are then held against each other.
func TestCase28ParentExits(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	s := caseC(t, "28-parent-exits.c")
	alive := s.to("middle-alive")
	rng := alive.regions["R"]
	r := share(t, snapshot(t, pagemap.Options{}, alive.pids...), &rng)
	for _, pid := range alive.pids[1:] {
		p := process(t, r, pid)
		if p.ReferencePID != alive.pids[0] || p.ReferenceBasis != pagemap.ReferenceParent {
			t.Errorf("worker %d is judged against %d (%s)", pid, p.ReferencePID, p.ReferenceBasis)
		}
		samePages(t, "worker", p.Pages, sums(audit.Pages{Shared: 1024}))
	}
	orphans := s.to("middle-exited")
	a, b := orphans.pids[0], orphans.pids[1]
	r = share(t, snapshot(t, pagemap.Options{}, a, b), &rng)
	judged := 0
	for _, pid := range orphans.pids {
		p := process(t, r, pid)
		samePages(t, "orphan", p.Pages, sums(audit.Pages{Shared: 1024}))
		if p.ReferencePID != 0 {
			judged++
			if p.ReferenceBasis != pagemap.ReferenceInferred || !slices.Contains(orphans.pids, p.ReferencePID) || p.ReferencePID == pid {
				t.Errorf("orphan %d is judged against %d (%s)", pid, p.ReferencePID, p.ReferenceBasis)
			}
		}
	}
	if judged != 1 {
		t.Errorf("%d of two orphans are judged against the other, want one", judged)
	}
	if text := warningText(r.Warnings); !strings.Contains(text, "gone") {
		t.Errorf("no warning says that the fork parent is gone: %q", text)
	}
	alone := s.to("worker-b-exited-too")
	r = share(t, snapshot(t, pagemap.Options{}, alone.pids...), &rng)
	samePages(t, "the last one", process(t, r, a).Pages, sums(audit.Pages{Unshared: 1024, Private: 1024}))
	s.finish()
}

func warningText(list []pagemap.Warning) string {
	var b strings.Builder
	for _, w := range list {
		b.WriteString(w.Text + "\n")
	}
	return b.String()
}

// Case 46: copies made while a worker shuts down cannot be counted afterwards. It is said that the worker ended, and none of
// its pages is said to be shared still, or not copied.
func TestCase46CopiesAtExit(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	s := casePython(t, "46-copies-at-exit.py", "finalize")
	st := s.to("after-fork")
	before := snapshot(t, pagemap.Options{}, st.pids...)
	c := open(t, pagemap.Options{}, pagemap.FamilyOptions{Alone: true}, st.pids...)
	s.finish()
	d := diff(t, before, record(t, c), nil)
	p := processDiff(t, d, st.pids[1])
	if p.State != pagemap.StateGone {
		t.Errorf("the worker that ended is %s", p.State)
	}
	if p.StillShared != 0 || p.CopiedPages != 0 {
		t.Errorf("of a process that ended: still shared %d, copied %d", p.StillShared, p.CopiedPages)
	}
	text := ""
	for _, w := range d.Warnings {
		if w.PID == st.pids[1] {
			text += w.Text
		}
	}
	if !strings.Contains(text, "ended") && !strings.Contains(text, "exited") {
		t.Errorf("no warning says that the worker ended: %q", text)
	}
	if !strings.Contains(text, "unknown") && !strings.Contains(text, "not known") && !strings.Contains(text, "not counted") {
		t.Errorf("no warning says that its copies are unknown: %q", text)
	}
}
