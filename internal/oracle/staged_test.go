package oracle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// stage is a moment at which the program under test holds still.
type stage struct {
	name    string
	pids    []pagemap.PID          // the fork parent first, unless the program says otherwise
	names   map[string]pagemap.PID // by name, where the program gives names
	regions map[string]audit.Range // those printed up to now
}

// staged is a running program that speaks the stage protocol.
type staged struct {
	*testkit.Staged
	t *testing.T
}

// start runs a program with HOLD=1 in a folder of its own. What is left of it at the end of the test is ended.
func start(t *testing.T, env []string, argv ...string) *staged {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), env...)
	return &staged{testkit.StagesCmd(t, cmd), t}
}

// next goes on to the next stage. ok is false when the program has no further one.
func (s *staged) next() (st stage, ok bool) {
	s.t.Helper()
	n, ok := s.Next()
	if !ok {
		return stage{}, false
	}
	return at(n), true
}

// to goes on to the stage with a name.
func (s *staged) to(name string) stage {
	s.t.Helper()
	return at(s.To(name))
}

func (s *staged) finish() {
	s.t.Helper()
	s.Finish()
}

// at gives a stage in the product's types, once its processes are at rest.
func at(n testkit.Stage) stage {
	st := stage{name: n.Name, names: map[string]pagemap.PID{}, regions: map[string]audit.Range{}}
	for _, pid := range n.PIDs {
		st.pids = append(st.pids, pagemap.PID(pid))
	}
	for name, pid := range n.Named {
		st.names[name] = pagemap.PID(pid)
	}
	for name, r := range n.Regions {
		st.regions[name] = audit.Range{Start: pagemap.Addr(r.Start), End: pagemap.Addr(r.End)}
	}
	settle(st.pids)
	return st
}

// settle waits until the processes are at rest: a worker may still be on its way to the next order (the rest of a fork, what a
// server does after its answer) when the stage is printed. At rest is: every thread asleep, and no context switch and no
// page fault for some readings. What does not come to rest within a second is measured as it is.
func settle(pids []pagemap.PID) {
	last := activity(pids)
	for quiet, end := 0, time.Now().Add(time.Second); quiet < 4 && time.Now().Before(end); {
		time.Sleep(4 * time.Millisecond)
		now := activity(pids)
		if quiet++; now != last || strings.Contains(now, "running") {
			quiet = 0
		}
		last = now
	}
}

// activity describes what the threads of processes have done so far: state, page faults and context switches.
func activity(pids []pagemap.PID) string {
	var b strings.Builder
	for _, pid := range pids {
		threads, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(int(pid)), "task", "*"))
		for _, dir := range threads {
			stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
			status, _ := os.ReadFile(filepath.Join(dir, "status"))
			f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
			if len(f) < 10 {
				continue
			}
			if f[0] == "R" || f[0] == "D" {
				b.WriteString("running ")
			}
			b.WriteString(f[7] + " " + f[9] + " ")
			if _, switches, ok := strings.Cut(string(status), "voluntary_ctxt_switches:"); ok {
				b.WriteString(switches)
			}
		}
	}
	return b.String()
}

// pages starts the workload of testdata/workloads with statements.
func pages(t *testing.T, statements ...string) *staged {
	t.Helper()
	return start(t, nil, append([]string{testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"))}, statements...)...)
}

// caseC starts a reproducer in C.
func caseC(t *testing.T, file string) *staged {
	t.Helper()
	argv := []string{testkit.CC(t, filepath.Join(testkit.Cases(t), file))}
	if file == "10-swap.c" {
		// MADV_PAGEOUT drains the batches of pages of its own processor only (mm/swap.c, lru_add_drain); a page that waits in
		// another one's is not swapped. On one processor all of them are.
		argv = append([]string{testkit.Program(t, "taskset"), "-c", "0"}, argv...)
	}
	return start(t, nil, argv...)
}

// casePython starts a reproducer in Python.
func casePython(t *testing.T, file string, args ...string) *staged {
	t.Helper()
	return start(t, nil, append([]string{testkit.Program(t, "python3"), filepath.Join(testkit.Cases(t), file)}, args...)...)
}

// one gives the only match, or fails.
func one[T any](t *testing.T, what string, list []T, match func(T) bool) T {
	t.Helper()
	var found []T
	for _, v := range list {
		if match(v) {
			found = append(found, v)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d matches for %s, want 1", len(found), what)
	}
	return found[0]
}
