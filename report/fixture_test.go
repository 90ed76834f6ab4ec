package report

import (
	"fmt"
	"testing"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// Results made by hand, summed from their mappings up and held against the conservation laws.

const mibPages = 256 // of 4 KiB

func testCapture(basis audit.Basis) audit.Capture {
	return audit.Capture{
		Basis: basis, Host: "web1", Kernel: "6.18.44", TimeUnixNano: 1_760_000_000_000_000_000, DurationNano: 35_249_000,
		PageSize: 4096, FramesVisible: true, FlagsVisible: true, PageMapcount: true, Contents: true, EntriesRead: 12_345_678,
	}
}

func newReport(family ...audit.Process) *audit.Report {
	return &audit.Report{
		SchemaVersion: audit.SchemaVersion, Kind: audit.KindAudit, Version: "0.1.0", Capture: testCapture(audit.BasisSingle),
		Family: family, Findings: []audit.Finding{}, Warnings: []pagemap.Warning{},
	}
}

// process gives a member; its ledger is the sum of its mappings'.
func process(pid, ref pagemap.PID, command string, maps ...audit.Mapping) audit.Process {
	p := audit.Process{PID: pid, StartTicks: uint64(pid) * 100, ParentPID: ref, ReferencePID: ref, State: pagemap.StateAudited, Comm: "ruby", Command: command, Mappings: maps, Regions: []audit.Region{}}
	if ref != 0 {
		p.ReferenceBasis = pagemap.ReferenceParent
	}
	return p
}

func mapping(start pagemap.Addr, perms, path string, kind audit.RegionKind, g audit.Pages) audit.Mapping {
	g.Held = g.Shared + g.Copied + g.New + g.Kept + g.Unshared + g.File + g.Merged + g.Zero + g.Swapped + g.Unstable + g.Unknown
	g.CopiedByUndetermined = g.Copied - g.CopiedByWorker - g.CopiedByReference - g.CopiedByBoth
	n := max(g.Held+g.Dropped+g.NotForked, 1)
	return audit.Mapping{Start: start, End: start + pagemap.Addr(n*4096), Perms: perms, Path: path, Region: kind, Pages: g}
}

// summed completes a report from its mappings and checks it.
func summed(t testing.TB, r *audit.Report) *audit.Report {
	t.Helper()
	var total audit.Change
	for i := range r.Family {
		p := &r.Family[i]
		if p.State != pagemap.StateAudited {
			continue
		}
		r.Totals.Processes++
		at := map[audit.RegionKind]int{}
		for k := range p.Mappings {
			m := &p.Mappings[k]
			n, ok := at[m.Region]
			if !ok {
				n = len(p.Regions)
				at[m.Region] = n
				p.Regions = append(p.Regions, audit.Region{Kind: m.Region})
			}
			g := &p.Regions[n]
			g.Mappings++
			g.Pages.Add(&m.Pages)
			p.Pages.Add(&m.Pages)
			if p.ReferencePID == 0 || !r.Capture.Contents {
				continue
			}
			if m.Change == nil {
				m.Change = &audit.Change{NotCompared: m.Pages.Copied}
			}
			if g.Change == nil {
				g.Change = &audit.Change{}
			}
			if p.Change == nil {
				p.Change = &audit.Change{}
			}
			g.Change.Add(m.Change)
			p.Change.Add(m.Change)
			total.Add(m.Change)
		}
		if p.RSS == 0 {
			p.RSS = pagemap.Bytes(p.Pages.Held-p.Pages.InSwap-p.Pages.Zero-p.Pages.HugeTLB) * r.Capture.PageSize
		}
		rss := int64(p.RSS / r.Capture.PageSize)
		if p.Rollup == nil {
			p.Rollup = &audit.RollupCheck{RSSPages: rss, LedgerRSSPages: rss, SwapPages: p.Pages.InSwap, LedgerSwap: p.Pages.InSwap, Agrees: true}
		}
		r.Totals.RSS += p.RSS
		r.Totals.Pages.Add(&p.Pages)
	}
	if r.Capture.Contents {
		r.Totals.Change = &total
	}
	if err := audit.Check(r); err != nil {
		t.Fatalf("the fixture is wrong: %v", err)
	}
	r.Findings = audit.FindingsForAudit(r)
	return r
}

const pumaCommand = "puma 6.4.2 (tcp://0.0.0.0:3000) [app]"

func pumaMaster(pid pagemap.PID) audit.Process {
	return process(pid, 0, pumaCommand,
		mapping(0x55d0a0000000, "rw-p", "[heap]", audit.RegionBrkHeap, audit.Pages{Shared: 30 * mibPages, Unshared: 77, Private: 77}),
		mapping(0x7f1000000000, "rw-p", "", audit.RegionRubyHeap, audit.Pages{Shared: 40 * mibPages, Unshared: 33, Private: 33}),
		mapping(0x7f2000000000, "r-xp", "/usr/lib/x86_64-linux-gnu/libruby-3.3.so.3.3.8", audit.RegionFile, audit.Pages{File: 3 * mibPages}),
		mapping(0x7f2000400000, "rw-p", "/usr/lib/x86_64-linux-gnu/libruby-3.3.so.3.3.8", audit.RegionLibraryData, audit.Pages{Shared: 13}),
		mapping(0x7ffd00000000, "rw-p", "[stack]", audit.RegionStack, audit.Pages{Shared: 5, Unshared: 2, Private: 2}),
	)
}

// pumaWorker copied n pages of the brk heap, nearly all of them identical, and some objects.
func pumaWorker(pid, master pagemap.PID, n int64) audit.Process {
	heap := mapping(0x55d0a0000000, "rw-p", "[heap]", audit.RegionBrkHeap, audit.Pages{
		Shared: 30*mibPages - n, Copied: n, CopiedByWorker: n - 7, CopiedByReference: 7, New: 0, Private: n - 7, SharedWithSiblings: 7,
	})
	heap.Change = &audit.Change{Identical: n - n/100, OneWord: n/100 - 3, FewWords: 2, Rewritten: 1}
	objects := mapping(0x7f1000000000, "rw-p", "", audit.RegionRubyHeap, audit.Pages{
		Shared: 39 * mibPages, Copied: mibPages, CopiedByWorker: mibPages, New: 300, Private: mibPages + 300, Dropped: 12,
	})
	objects.Change = &audit.Change{OneWord: 40, FewWords: 100, ManyWords: 100, Rewritten: 16}
	return process(pid, master, "puma: cluster worker 0: 4242 [app]", heap, objects,
		mapping(0x7f2000000000, "r-xp", "/usr/lib/x86_64-linux-gnu/libruby-3.3.so.3.3.8", audit.RegionFile, audit.Pages{File: 2 * mibPages}),
		mapping(0x7f2000400000, "rw-p", "/usr/lib/x86_64-linux-gnu/libruby-3.3.so.3.3.8", audit.RegionLibraryData, audit.Pages{Shared: 13}),
		mapping(0x7f3000000000, "rw-p", "[anon:Ruby:rb_thread_create]", audit.RegionThreadStack, audit.Pages{New: 6, Private: 6, Guard: 1}),
		mapping(0x7ffd00000000, "rw-p", "[stack]", audit.RegionStack, audit.Pages{Shared: 3, New: 2, Private: 2}),
	)
}

// pumaReport is a family after its first major GC on a Ruby that rewrites what is there already.
func pumaReport(t testing.TB, workers int) *audit.Report {
	r := newReport(pumaMaster(4242))
	for i := range workers {
		r.Family = append(r.Family, pumaWorker(pagemap.PID(4250+i), 4242, int64(7201+i)))
	}
	r.Totals.Frames = &audit.Frames{DistinctAnon: 18_000 + 7500*int64(workers), DistinctFile: 3 * mibPages, SavedByFork: int64(workers) * 10_300}
	return summed(t, r)
}

// quietReport is a small family just after the fork, with members that cannot be audited and every rarer word.
func quietReport(t testing.TB) *audit.Report {
	master := process(100, 0, "python3 server.py",
		mapping(0x100000000, "rw-p", "[heap]", audit.RegionBrkHeap, audit.Pages{Shared: 300, Unshared: 23, Private: 23}))
	worker := process(101, 100, "python3 server.py",
		mapping(0x100000000, "rw-p", "[heap]", audit.RegionBrkHeap, audit.Pages{
			Shared: 250, Copied: 11, CopiedByWorker: 3, CopiedByReference: 2, CopiedByBoth: 1, New: 7, Kept: 5, Merged: 3, Zero: 20, Swapped: 13,
			Unstable: 2, Unknown: 1, InSwap: 13, Dropped: 17, NotForked: 19, ReferenceOnly: 29, Guard: 16, Moved: 31, NewFromFile: 5, SharedWithSiblings: 5, Private: 9,
		}),
		mapping(0x200000000, "rw-s", "/dev/shm/pool", audit.RegionSharedMem, audit.Pages{File: 64}))
	child := process(102, 101, "python3 server.py", mapping(0x100000000, "rw-p", "[heap]", audit.RegionBrkHeap, audit.Pages{Shared: 281, HugeTLB: 0}))
	r := newReport(master, worker, child,
		audit.Process{PID: 103, ParentPID: 101, State: pagemap.StateExeced, Comm: "sh"},
		audit.Process{PID: 104, ParentPID: 101, State: pagemap.StateZombie, Comm: "python3"},
		audit.Process{PID: 105, ParentPID: 101, State: pagemap.StateSharedMM, SharesMM: 101, Comm: "python3"},
		audit.Process{PID: 106, State: pagemap.StateGone},
		audit.Process{PID: 107, ParentPID: 101, State: pagemap.StateUnreadable, Comm: "python3"},
	)
	r.Family[1].NSPIDs = []pagemap.PID{101, 7}
	r.Family[1].Rollup = &audit.RollupCheck{RSSPages: 360, LedgerRSSPages: 359, SwapPages: 13, LedgerSwap: 13}
	r.Capture.UnstablePages = 2
	r.Range = &audit.Range{Start: 0x100000000, End: 0x300000000}
	r.Warnings = []pagemap.Warning{
		{Code: "gone", PID: 106, Text: "process 106 ended before it could be read", Remedy: "run again for the family as it is now"},
		{Code: "unstable", Text: "2 pages changed each time they were read", Remedy: "run again when the processes are quieter"},
	}
	return summed(t, r)
}

// hiddenReport is the family as a user sees it from whom frame numbers are hidden.
func hiddenReport(t testing.TB) *audit.Report {
	r := newReport(
		process(100, 0, "gunicorn: master [app]", mapping(0x100000000, "rw-p", "[heap]", audit.RegionBrkHeap, audit.Pages{Unknown: 40 * mibPages, Private: 300})),
		process(101, 100, "gunicorn: worker [app]", mapping(0x100000000, "rw-p", "[heap]", audit.RegionBrkHeap, audit.Pages{Unknown: 41 * mibPages, Private: 3 * mibPages})),
	)
	r.Capture.FramesVisible, r.Capture.FlagsVisible, r.Capture.Contents = false, false, false
	r.Warnings = []pagemap.Warning{{Code: "frames_hidden", Text: "the kernel hides frame numbers from this user", Remedy: "run as root, or with CAP_SYS_ADMIN in the initial user namespace"}}
	return summed(t, r)
}

// hostileReport has names that try to act on the terminal, wide letters, and a path that is longer than any line.
func hostileReport(t testing.TB) *audit.Report {
	long := "/srv/" + fmt.Sprintf("%0100d", 7) + "/lib.so"
	master := process(100, 0, "\x1b[2J\x1b]0;owned\x07évil\u202e名前\xff --flag",
		mapping(0x100000000, "rw-p", "/tmp/new\\012line\x1b[31m\x9b", audit.RegionFile, audit.Pages{Unshared: 3}),
		mapping(0x200000000, "rw-p", long, audit.RegionLibraryData, audit.Pages{Unshared: 5}))
	r := newReport(master, audit.Process{PID: 101, State: pagemap.StateZombie, Comm: "a\nb\tc"})
	r.Capture.Host = "host\r\nforged line"
	r.Warnings = []pagemap.Warning{{Code: "x", Text: "text with \x1b[1m", Remedy: "none \u009b1m"}}
	return summed(t, r)
}

// diffReport is two workers across an event, and one that ended during it.
func diffReport(t testing.TB) *audit.DiffReport {
	heap := audit.Copied{SharedBefore: 33 * mibPages, CopiedPages: 8061, DroppedPages: 20, KeptPages: 10, ReplacedPages: 5, UnknownPages: 4,
		CopiedByWorker: 8000, CopiedByReference: 40, CopiedByBoth: 8, CopiedByUndetermined: 13, InChangedMappings: 12, NewPages: 77, NewFromFile: 5, FreedPages: 3}
	heap.StillShared = heap.SharedBefore - heap.CopiedPages - lost(&heap)
	heap.CopiedBytes = pagemap.Bytes(heap.CopiedPages * 4096)
	heap.Change.NotCompared = heap.CopiedPages
	objects := audit.Copied{SharedBefore: 40 * mibPages, CopiedPages: 256, CopiedByWorker: 256, CopiedBytes: mibPages * 4096}
	objects.StillShared = objects.SharedBefore - objects.CopiedPages
	objects.Change.NotCompared = objects.CopiedPages
	gone := audit.Copied{SharedBefore: 9000, UnknownPages: 9000}
	r := &audit.DiffReport{SchemaVersion: audit.SchemaVersion, Kind: audit.KindDiff, Version: "0.1.0", Before: testCapture(audit.BasisBaseline), After: testCapture(audit.BasisBaseline), Findings: []audit.Finding{}}
	r.After.TimeUnixNano += 35_200_000_000
	r.Before.Contents, r.After.Contents = false, false
	for _, pid := range []pagemap.PID{101, 102} {
		d := audit.ProcessDiff{PID: pid, ReferencePID: 100, State: pagemap.StateAudited, Comm: "ruby",
			Mappings: []audit.MappingDiff{
				{Start: 0x55d0a0000000, End: 0x55d0b0000000, Perms: "rw-p", Path: "[heap]", Region: audit.RegionBrkHeap, Copied: heap},
				{Start: 0x7f1000000000, End: 0x7f1010000000, Perms: "rw-p", Region: audit.RegionRubyHeap, Copied: objects},
			},
			Regions: []audit.RegionDiff{{Kind: audit.RegionBrkHeap, Copied: heap}, {Kind: audit.RegionRubyHeap, Copied: objects}},
		}
		d.Copied.Add(&heap)
		d.Copied.Add(&objects)
		r.Family = append(r.Family, d)
	}
	r.Family = append(r.Family, audit.ProcessDiff{PID: 103, ReferencePID: 100, State: pagemap.StateGone, Comm: "ruby", Copied: gone,
		Regions:  []audit.RegionDiff{{Kind: audit.RegionBrkHeap, Copied: gone}},
		Mappings: []audit.MappingDiff{{Start: 0x55d0a0000000, End: 0x55d0b0000000, Perms: "rw-p", Path: "[heap]", Region: audit.RegionBrkHeap, Gone: true, Copied: gone}}})
	for i := range r.Family {
		r.Totals.Add(&r.Family[i].Copied)
	}
	r.Warnings = []pagemap.Warning{{Code: "exited", PID: 103, Text: "process 103, or its reference, exited or exec'd during the event; last reading at 2025-10-09T08:53:20Z; what it copied after that is unknown", Remedy: "copies made at exit are seen by the tracer only; capture again before the process ends"}}
	if err := audit.CheckDiff(r); err != nil {
		t.Fatalf("the fixture is wrong: %v", err)
	}
	r.Findings = audit.FindingsForDiff(r)
	return r
}

// forktestReport is a fork test of so many runs in which the first collection copies so many pages.
func forktestReport(t testing.TB, runs int, first, identical int64) *audit.ForktestReport {
	r := &audit.ForktestReport{
		SchemaVersion: audit.SchemaVersion, Kind: audit.KindForktest, Version: "0.1.0",
		Subject: audit.Subject{Name: "chroot .rubies/3.3 ruby3.3", Version: "ruby 3.3.8 (2025-04-09 revision b200bad6cd) [x86_64-linux-gnu]", Command: "chroot .rubies/3.3 ruby3.3",
			Runtime: "ruby", Executable: "/usr/bin/ruby3.3", Allocator: "glibc"},
		Scenario: audit.Scenario{Name: "callcache-cold", Methods: 20000, CallSites: 400000, SettleRuns: 4, SettleLimit: "until quiet", Workers: 1},
		Capture:  testCapture(audit.BasisBaseline), Findings: []audit.Finding{}, Warnings: []pagemap.Warning{},
	}
	counts := map[string]int64{audit.EventNull: 9, audit.EventFirstMajorGC: first, audit.EventSecondMajorGC: 0}
	names := []string{audit.EventNull, audit.EventFirstMajorGC, audit.EventSecondMajorGC}
	for seq := 1; seq <= runs; seq++ {
		run := audit.Run{Seq: seq}
		for _, name := range names {
			n := counts[name]
			if n > 0 {
				n += int64(seq)
			}
			heap := audit.Copied{SharedBefore: 33 * mibPages, CopiedPages: n - n/20, CopiedByWorker: n - n/20}
			objects := audit.Copied{SharedBefore: 12 * mibPages, CopiedPages: n / 20, CopiedByWorker: n / 20, NewPages: 41}
			for _, c := range []*audit.Copied{&heap, &objects} {
				c.StillShared, c.CopiedBytes = c.SharedBefore-c.CopiedPages, pagemap.Bytes(c.CopiedPages*4096)
				c.Change = audit.Change{OneWord: c.CopiedPages}
			}
			if name == audit.EventFirstMajorGC {
				heap.Change = audit.Change{Identical: identical, ManyWords: heap.CopiedPages - identical}
			}
			e := audit.Event{Name: name, Worker: 1, PID: pagemap.PID(5000 + seq), DurationNano: 52_000_000, Regions: []audit.RegionDiff{{Kind: audit.RegionBrkHeap, Copied: heap}, {Kind: audit.RegionRubyHeap, Copied: objects}}}
			e.Copied.Add(&heap)
			e.Copied.Add(&objects)
			run.Events = append(run.Events, e)
		}
		r.Runs = append(r.Runs, run)
	}
	for k, name := range names {
		s := audit.EventSummary{Name: name, N: runs, Regions: []audit.RegionDiff{{Kind: audit.RegionBrkHeap}, {Kind: audit.RegionRubyHeap}}}
		for i := range r.Runs {
			e := &r.Runs[i].Events[k]
			s.Change.Add(&e.Change)
			for g := range s.Regions {
				s.Regions[g].Add(&e.Regions[g].Copied)
			}
		}
		lo, mid, hi := &r.Runs[0].Events[k], &r.Runs[(runs-1)/2].Events[k], &r.Runs[runs-1].Events[k]
		confidence := 0.0
		if runs >= 6 {
			confidence = 0.969
		}
		interval := func(f func(*audit.Event) int64) audit.Interval {
			return audit.Interval{Median: pagemap.Bytes(f(mid) * 4096), Low: pagemap.Bytes(f(lo) * 4096), High: pagemap.Bytes(f(hi) * 4096), Confidence: confidence}
		}
		s.SharedBefore = interval(func(e *audit.Event) int64 { return e.SharedBefore })
		s.CopiedBytes = interval(func(e *audit.Event) int64 { return e.CopiedPages })
		s.NewBytes = interval(func(e *audit.Event) int64 { return e.NewPages })
		r.Summary.Events = append(r.Summary.Events, s)
	}
	if err := audit.CheckForktest(r); err != nil {
		t.Fatalf("the fixture is wrong: %v", err)
	}
	r.Findings = audit.FindingsForForktest(r)
	return r
}

func familiesReport(n int) *audit.FamiliesReport {
	r := &audit.FamiliesReport{SchemaVersion: audit.SchemaVersion, Kind: audit.KindFamilies, Version: "0.1.0", Families: []audit.FamilyRow{}, Warnings: []pagemap.Warning{}}
	for i := range n {
		r.Families = append(r.Families, audit.FamilyRow{PID: pagemap.PID(4242 - i), Comm: "ruby", Command: pumaCommand + " with a long command line that goes on and on and on", Workers: 26 - i, RSS: pagemap.Bytes(45<<30) >> i})
	}
	if n > 1 {
		r.Families[1].Command = ""
	}
	return r
}
