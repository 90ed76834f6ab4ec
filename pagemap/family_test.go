package pagemap

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"cowaudit/internal/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// row is a process of a family by names.
type row struct {
	Name      string
	State     State
	Reference string
	Basis     ReferenceBasis
	SharesMM  string
	Exec      bool
}

// rows puts names in the place of PIDs: comm is the name in these trees.
func rows(list []Process) []row {
	name := map[PID]string{}
	for _, p := range list {
		name[p.PID] = p.Comm
	}
	var out []row
	for _, p := range list {
		out = append(out, row{p.Comm, p.State, name[p.Reference], p.Basis, name[p.SharesMM], p.Exec})
	}
	return out
}

// anyOrder leaves the order to checkOrder: the PIDs of the processes that a test starts may wrap.
var anyOrder = cmpopts.SortSlices(func(a, b row) bool { return a.Name < b.Name })

// checkOrder checks that parents come before children, and that within a generation start time and then PID decide.
func checkOrder(t *testing.T, list []Process, first PID) {
	t.Helper()
	generation := map[PID]int{}
	for i, p := range list {
		if g, ok := generation[p.PPID]; ok {
			generation[p.PID] = g + 1
		} else {
			generation[p.PID] = 0
		}
		if i == 0 {
			continue
		}
		q := list[i-1]
		if q.PID == first {
			continue
		}
		if p.State != StateGone && (generation[q.PID] > generation[p.PID] || generation[q.PID] == generation[p.PID] && (q.Start > p.Start || q.Start == p.Start && q.PID > p.PID)) {
			t.Errorf("%d (%s) is not behind %d (%s)", p.PID, p.Comm, q.PID, q.Comm)
		}
	}
}

func TestFamily(t *testing.T) {
	bin := buildTree(t)
	root := row{Name: "root", State: StateAudited, Exec: true}
	fork := func(name, parent string) row {
		return row{Name: name, State: StateAudited, Reference: parent, Basis: ReferenceParent}
	}
	tests := []struct {
		name, spec string
		given      []string // by name; none: root
		reference  string
		alone      bool
		want       []row
	}{{
		name: "alone",
		spec: "",
		want: []row{root},
	}, {
		name: "generations in order, children of children",
		spec: "f A(f B(f C)) f D(f E)",
		want: []row{root, fork("A", "root"), fork("D", "root"), fork("B", "A"), fork("E", "D"), fork("C", "B")},
	}, {
		name: "forked by a thread",
		spec: "t A(t B)",
		want: []row{root, fork("A", "root"), fork("B", "A")},
	}, {
		name: "exec'd child",
		spec: "f A x X",
		want: []row{root, fork("A", "root"), {Name: "X", State: StateExeced, Exec: true}},
	}, {
		name: "exec'd child with a family of its own, and one without",
		spec: "x X(f A(f B) x Y) f C",
		want: []row{root, {Name: "X", State: StateAudited, Exec: true}, fork("C", "root"), fork("A", "X"), {Name: "Y", State: StateExeced, Exec: true}, fork("B", "A")},
	}, {
		name: "zombie",
		spec: "z Z f A",
		want: []row{root, {Name: "Z", State: StateZombie}, fork("A", "root")},
	}, {
		name: "shared address space and a fork from there",
		spec: "f A v V(f B)",
		want: []row{root, fork("A", "root"), {Name: "V", State: StateSharedMM, SharesMM: "root"}, fork("B", "root")},
	}, {
		name:  "without descendants",
		spec:  "f A(f B)",
		given: []string{"A"},
		alone: true,
		want:  []row{{Name: "A", State: StateAudited}},
	}, {
		name:  "several, one the other's parent, and one twice",
		spec:  "f A(f B f C) f D",
		given: []string{"C", "A", "C"},
		want:  []row{{Name: "A", State: StateAudited}, fork("B", "A"), fork("C", "A")},
	}, {
		name:  "several, alone",
		spec:  "f A(f B f C) f D",
		given: []string{"C", "A"},
		alone: true,
		want:  []row{{Name: "A", State: StateAudited}, fork("C", "A")},
	}, {
		name:  "orphans have no reference yet",
		spec:  "o A o B",
		given: []string{"B", "A"},
		want:  []row{{Name: "A", State: StateAudited}, {Name: "B", State: StateAudited}},
	}, {
		name:      "given reference, which comes first although it is the youngest",
		spec:      "f A(f B) f C f M",
		given:     []string{"A", "C"},
		reference: "M",
		want: []row{
			{Name: "M", State: StateAudited},
			{Name: "A", State: StateAudited, Reference: "M", Basis: ReferenceGiven},
			{Name: "C", State: StateAudited, Reference: "M", Basis: ReferenceGiven},
			{Name: "B", State: StateAudited, Reference: "M", Basis: ReferenceGiven},
		},
	}, {
		name:      "given reference that exec'd, of processes that it did not fork",
		spec:      "x M f A",
		given:     []string{"A"},
		reference: "M",
		want: []row{
			{Name: "M", State: StateAudited, Exec: true},
			{Name: "A", State: StateAudited, Reference: "M", Basis: ReferenceGiven},
		},
	}, {
		name:      "given reference from outside, for what a root that exec'd has forked",
		spec:      "x P(f W) f M",
		given:     []string{"P"},
		reference: "M",
		want: []row{
			{Name: "M", State: StateAudited},
			{Name: "P", State: StateAudited, Exec: true},
			{Name: "W", State: StateAudited, Reference: "M", Basis: ReferenceGiven},
		},
	}, {
		name:      "given reference beside the others, in the part of a member that exec'd",
		spec:      "x P(f W f M) f A",
		reference: "M",
		want: []row{
			root,
			{Name: "P", State: StateAudited, Exec: true},
			{Name: "M", State: StateAudited},
			{Name: "W", State: StateAudited, Reference: "M", Basis: ReferenceGiven},
			{Name: "A", State: StateAudited, Reference: "M", Basis: ReferenceGiven},
		},
	}, {
		name:      "given reference inside the family, and an exec that cuts a part off",
		spec:      "f M f A x X(f Y)",
		reference: "M",
		want: []row{
			root,
			{Name: "M", State: StateAudited},
			{Name: "A", State: StateAudited, Reference: "M", Basis: ReferenceGiven},
			{Name: "X", State: StateAudited, Exec: true},
			fork("Y", "X"),
		},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := startTree(t, bin, tt.spec)
			given := []PID{tree.root}
			if tt.given != nil {
				given = nil
				for _, n := range tt.given {
					given = append(given, tree.pids[n])
				}
			}
			o := FamilyOptions{Reference: tree.pids[tt.reference], Alone: tt.alone}
			list, warnings, err := FS("").Family(given, o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, rows(list), anyOrder); diff != "" {
				t.Errorf("family (-want +got):\n%s", diff)
			}
			checkOrder(t, list, o.Reference)
			if tt.given != nil && o.Reference != 0 && list[0].PID != o.Reference {
				t.Errorf("the reference does not come first: %s", list[0].Comm)
			}
			if len(warnings) != 0 {
				t.Errorf("warnings: %+v", warnings)
			}
			for _, p := range list {
				if pid := tree.pids[p.Comm]; p.PID != pid || p.Start == 0 {
					t.Errorf("%s: pid %d start %d, want pid %d", p.Comm, p.PID, p.Start, pid)
				}
				if p.NSPID != nil {
					t.Errorf("%s: in the pid namespace of /proc and has NSPID %v", p.Comm, p.NSPID)
				}
				if p.State != StateZombie && p.Command == "" {
					t.Errorf("%s: no command line", p.Comm)
				}
			}
		})
	}
}

func TestFamilyInPIDNamespace(t *testing.T) {
	testkit.Require(t, "root", "pidns")
	tree := startTree(t, buildTree(t), "n N(f I(f J))")
	list, warnings, err := FS("").Family([]PID{tree.root}, FamilyOptions{})
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	if tree.pids["I"] != 1 || tree.pids["J"] != 2 {
		t.Fatalf("pids inside: %v", tree.pids)
	}
	got := map[string][]PID{}
	for _, p := range list {
		if p.NSPID != nil {
			if p.NSPID[0] != p.PID {
				t.Errorf("%s: %v does not begin with %d", p.Comm, p.NSPID, p.PID)
			}
			got[p.Comm] = p.NSPID[1:]
		}
	}
	if diff := cmp.Diff(map[string][]PID{"I": {1}, "J": {2}}, got); diff != "" {
		t.Errorf("NSPID (-want +got):\n%s", diff)
	}
}

func TestFamilyOfWhatIsNot(t *testing.T) {
	bin := buildTree(t)
	tree := startTree(t, bin, "z Z t T")
	gone := endedPID(t)
	thread := aThread(t, tree.root)

	if _, _, err := FS("").Family([]PID{gone}, FamilyOptions{}); !errors.Is(err, ErrGone) || !contains(err, fmt.Sprint(gone)) {
		t.Errorf("gone process: %v", err)
	}
	if _, _, err := FS("").Family([]PID{gone, gone}, FamilyOptions{}); !errors.Is(err, ErrGone) {
		t.Errorf("gone processes: %v", err)
	}
	if _, _, err := FS("").Family([]PID{thread}, FamilyOptions{}); err == nil || !contains(err, fmt.Sprintf("thread of process %d", tree.root)) {
		t.Errorf("thread: %v", err)
	}
	for _, pid := range []PID{0, -1} {
		if _, _, err := FS("").Family([]PID{pid}, FamilyOptions{}); err == nil {
			t.Errorf("pid %d: no error", pid)
		}
	}
	if _, _, err := FS("").Family(nil, FamilyOptions{}); err == nil {
		t.Error("no pid: no error")
	}
	if _, _, err := FS("").Family([]PID{tree.root}, FamilyOptions{Reference: gone}); !errors.Is(err, ErrGone) || !contains(err, fmt.Sprintf("reference process %d", gone)) {
		t.Errorf("gone reference: %v", err)
	}
	if _, _, err := FS("").Family([]PID{tree.root}, FamilyOptions{Reference: tree.pids["Z"]}); !errors.Is(err, ErrNoMM) || !contains(err, "a zombie") {
		t.Errorf("zombie reference: %v", err)
	}

	list, warnings, err := FS("").Family([]PID{gone, tree.root}, FamilyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []row{
		{Name: "root", State: StateAudited, Exec: true},
		{Name: "Z", State: StateZombie},
		{Name: "T", State: StateAudited, Reference: "root", Basis: ReferenceParent},
		{State: StateGone},
	}
	if diff := cmp.Diff(want, rows(list), anyOrder); diff != "" {
		t.Errorf("family (-want +got):\n%s", diff)
	}
	checkOrder(t, list, 0)
	if last := list[len(list)-1]; last.State != StateGone {
		t.Errorf("last is %+v", last)
	}
	if len(warnings) != 1 || warnings[0].Code != "process_gone" || warnings[0].PID != gone || warnings[0].Remedy == "" {
		t.Errorf("warnings: %+v", warnings)
	}
}

func TestFamilyKernelThread(t *testing.T) {
	pid := aKernelThread(t)
	list, _, err := FS("").Family([]PID{pid}, FamilyOptions{Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].State != StateKernelThread {
		t.Errorf("%+v", list)
	}
}

// Start times are in ticks of 10 ms: equal ones are usual. A PID that was used again can be its own grandparent by the
// account of one pass.
func TestFamilyOrderAndCircles(t *testing.T) {
	proc := newFakeProc(t)
	for _, s := range []Stat{
		{PID: 300, PPID: 1, Start: 5, Comm: "root"},
		{PID: 200, PPID: 300, Start: 5, Comm: "child"}, // the PIDs have wrapped
		{PID: 101, PPID: 200, Start: 9, Comm: "late", Flags: flagForkNoExec},
		{PID: 102, PPID: 200, Start: 7, Comm: "early", Flags: flagForkNoExec},
		{PID: 100, PPID: 200, Start: 9, Comm: "late too", Flags: flagForkNoExec},
		{PID: 400, PPID: 401, Start: 1, Comm: "egg", Flags: flagForkNoExec},
		{PID: 401, PPID: 400, Start: 1, Comm: "hen", Flags: flagForkNoExec},
	} {
		s.State, s.NumThreads = 'S', 1
		proc.process(s)
	}
	list, warnings, err := proc.fs().Family([]PID{300}, FamilyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []PID
	for _, p := range list {
		got = append(got, p.PID)
	}
	if diff := cmp.Diff([]PID{300, 200, 102, 100, 101}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if len(warnings) != 1 || warnings[0].Code != "kcmp_refused" {
		t.Errorf("a /proc whose PIDs are not ours: %+v", warnings)
	}
	list, _, err = proc.fs().Family([]PID{400}, FamilyOptions{})
	if err != nil || len(list) != 2 {
		t.Errorf("circle: %v, %+v", err, list)
	}
}

func TestFamilyMainThreadExited(t *testing.T) {
	proc := newFakeProc(t)
	proc.process(Stat{PID: 10, PPID: 1, State: 'Z', NumThreads: 3, Comm: "headless"})
	list, warnings, err := proc.fs().Family([]PID{10}, FamilyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].State != StateZombie {
		t.Errorf("%+v", list)
	}
	if len(warnings) != 1 || warnings[0].Code != "main_thread_exited" {
		t.Errorf("warnings: %+v", warnings)
	}
}

// endedPID gives the PID of a process that has ended and been waited for.
func endedPID(t *testing.T) PID {
	t.Helper()
	p, err := os.StartProcess("/proc/self/exe", []string{"ended", "-test.run=^$"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	return PID(p.Pid)
}

// aThread gives the id of a thread of a process that is not its main thread.
func aThread(t *testing.T, pid PID) PID {
	t.Helper()
	names, err := os.ReadDir(FS("").Path(strconv.Itoa(int(pid)), "task"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if tid, err := strconv.Atoi(n.Name()); err == nil && PID(tid) != pid {
			return PID(tid)
		}
	}
	t.Fatalf("process %d has one thread", pid)
	return 0
}

// aKernelThread gives the PID of a kernel thread; a container shows none.
func aKernelThread(t *testing.T) PID {
	t.Helper()
	tree, err := FS("").Tree()
	if err != nil {
		t.Fatal(err)
	}
	for pid, s := range tree.stats {
		if s.KernelThread() {
			return pid
		}
	}
	testkit.Missing(t, "a kernel thread (a container shows none)")
	return 0
}

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
