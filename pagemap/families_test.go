package pagemap

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTree(t *testing.T) {
	pt := startTree(t, buildTree(t), "f A(t B) z Z f C")
	tree, err := FS("").Tree()
	if err != nil {
		t.Fatal(err)
	}
	p := pt.pids
	children := []PID{p["A"], p["Z"], p["C"]}
	slices.SortFunc(children, tree.byStart) // in the order made, but where PIDs wrap within a tick
	if diff := cmp.Diff(children, tree.Children(pt.root)); diff != "" {
		t.Errorf("children (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(append(children, p["B"]), tree.Descendants(pt.root)); diff != "" {
		t.Errorf("descendants (-want +got):\n%s", diff)
	}
	if s, ok := tree.Get(p["Z"]); !ok || !s.Zombie() || s.PPID != pt.root || !s.Forked() || s.Comm != "Z" {
		t.Errorf("zombie: %+v %t", s, ok)
	}
	if s, ok := tree.Get(pt.root); !ok || s.Zombie() || s.PPID != PID(os.Getpid()) || s.Forked() {
		t.Errorf("root: %+v %t", s, ok)
	}
	if s, ok := tree.Get(endedPID(t)); ok {
		t.Errorf("gone: %+v", s)
	}
}

func TestFamilies(t *testing.T) {
	pt := startTree(t, buildTree(t), "f A(f B f C) x X(f D) v V o O z Z")
	list, err := FS("").Families()
	if err != nil {
		t.Fatal(err)
	}
	workers := map[PID]int{}
	for i, f := range list {
		workers[f.Root.PID] = f.Workers
		if i > 0 && f.RSS > list[i-1].RSS {
			t.Errorf("%d is out of order", i)
		}
		if f.Root.PID == pt.root {
			var sum Bytes
			for _, n := range []string{"root", "A", "B", "C"} {
				s, err := FS("").Stat(pt.pids[n])
				if err != nil {
					t.Fatal(err)
				}
				sum += Bytes(s.RSSPages) * Bytes(os.Getpagesize())
			}
			if f.RSS != sum || f.Command == "" || f.Root.Comm != "root" || f.Root.Mappings != nil {
				t.Errorf("root: %+v, want RSS %d", f, sum)
			}
		}
	}
	want := map[string]int{"root": 3, "X": 1, "A": 0, "V": 0, "O": 0, "D": 0}
	for name, n := range want {
		if workers[pt.pids[name]] != n {
			t.Errorf("%s: %d workers, want %d", name, workers[pt.pids[name]], n)
		}
	}
}

// A daemon that was orphaned is a child of what took it in, and a fork of nobody.
func TestFamiliesOfOrphans(t *testing.T) {
	proc := newFakeProc(t)
	for _, s := range []Stat{
		{PID: 50, PPID: 0, Comm: "reaper"},
		{PID: 60, PPID: 50, Comm: "daemon", Flags: flagForkNoExec, RSSPages: 7},
		{PID: 61, PPID: 60, Comm: "worker", Flags: flagForkNoExec, RSSPages: 5},
		{PID: 62, PPID: 61, Comm: "worker of worker", Flags: flagForkNoExec, RSSPages: 3},
		{PID: 1, PPID: 0, Comm: "init"},
		{PID: 70, PPID: 1, Comm: "not seen", Flags: flagForkNoExec},
		{PID: 71, PPID: 70, Comm: "not seen", Flags: flagForkNoExec, RSSPages: 1},
	} {
		s.State, s.NumThreads = 'S', 1
		proc.process(s)
		exe := ""
		switch {
		case s.PID == 50:
			exe = "reaper"
		case s.PID > 50 && s.PID < 70:
			exe = "daemon"
		}
		if exe == "" {
			continue
		}
		file := filepath.Join(proc.dir, exe)
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, proc.fs().file(s.PID, "exe")); err != nil {
			t.Fatal(err)
		}
	}
	list, err := proc.fs().Families()
	if err != nil {
		t.Fatal(err)
	}
	type family struct {
		Root    PID
		Workers int
		RSS     Bytes
	}
	var got []family
	for _, f := range list {
		got = append(got, family{f.Root.PID, f.Workers, f.RSS / Bytes(os.Getpagesize())})
	}
	// Where the files cannot be seen, all but the children of init count: 70 is no fork of 1.
	if diff := cmp.Diff([]family{{60, 2, 15}, {70, 1, 1}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSameProcess(t *testing.T) {
	pt := startTree(t, buildTree(t), "z Z")
	for _, n := range []string{"root", "Z"} {
		s, err := FS("").Stat(pt.pids[n])
		if err != nil {
			t.Fatal(err)
		}
		id := s.Identity()
		if !FS("").SameProcess(id) {
			t.Errorf("%s is not itself", n)
		}
		id.Start++
		if FS("").SameProcess(id) {
			t.Errorf("%s is another one", n)
		}
	}
	if FS("").SameProcess(Identity{PID: endedPID(t)}) {
		t.Error("a process that is gone is the same")
	}
}
