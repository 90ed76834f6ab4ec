package storm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cowaudit/audit"
	"cowaudit/internal/oracle"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const proc = pagemap.FS("")

func length(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("COWAUDIT_SOAK")
	if s == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("COWAUDIT_SOAK: %v", err)
	}
	return d
}

// soak is one run: the storm, and what was seen of it.
type soak struct {
	t     *testing.T
	root  pagemap.PID
	ticks uint64 // start time of the root, which stays
	last  *pagemap.Snapshot
	seen  struct{ processes, gone, changed, unstable, copied, moved, diffs, commands, rollups int64 }
}

func TestStorm(t *testing.T) {
	testkit.Require(t, "pagemap", "kpageflags", "kpagecount")
	limit := length(t)
	p := testkit.Start(t, testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "storm.c")), fmt.Sprint(os.Getpid()))
	p.WaitLine("READY")
	st, err := proc.Stat(pagemap.PID(p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{t: t, root: st.PID, ticks: st.Start}
	bin := testkit.Binary(t)

	const warm = 8
	var first, now state
	var peak int64
	rounds := 0
	for end := time.Now().Add(limit); rounds < 2*warm || time.Now().Before(end); rounds++ {
		s.live(rounds)
		s.kept(rounds)
		if rounds%8 == 0 {
			peak = max(peak, s.command(bin))
		}
		s.undisturbed()
		if t.Failed() {
			t.Fatalf("round %d", rounds)
		}
		if rounds == warm {
			first = stateNow()
		}
	}
	s.last = nil
	now = stateNow()
	if now.descriptors > first.descriptors {
		t.Errorf("descriptors: %d after %d rounds, %d after %d", first.descriptors, warm, now.descriptors, rounds)
	}
	if now.goroutines > first.goroutines {
		t.Errorf("goroutines: %d after %d rounds, %d after %d", first.goroutines, warm, now.goroutines, rounds)
	}
	const slack = 8 << 20
	if now.heap > first.heap+slack {
		t.Errorf("heap: %d KiB after %d rounds, %d KiB after %d", first.heap>>10, warm, now.heap>>10, rounds)
	}
	if peak > 256<<20 {
		t.Errorf("cowaudit audit took %d MiB", peak>>20)
	}
	p.CloseStdin()
	line := p.WaitLine("DONE")
	if code := p.Wait(); code != 0 {
		t.Errorf("the storm ended with exit code %d: %s", code, p.Stderr())
	}
	s.wasStorm(line)
	t.Logf("%d rounds: %+v; heap %d to %d KiB, command at most %d MiB; %s", rounds, s.seen, first.heap>>10, now.heap>>10, peak>>20, line)
}

func (s *soak) capture(o pagemap.Options) (*pagemap.Capture, bool) {
	s.t.Helper()
	procs, warnings, err := proc.Family([]pagemap.PID{s.root}, pagemap.FamilyOptions{})
	if err != nil {
		s.t.Errorf("family: %v", err)
		return nil, false
	}
	c, err := pagemap.NewCapture(context.Background(), proc, procs, o)
	if err != nil {
		s.t.Errorf("capture: %v", err)
		return nil, false
	}
	f := c.Family()
	f.Warnings = append(warnings, f.Warnings...)
	return c, true
}

// live audits the running processes, with contents, with and without what varies in how they are read.
func (s *soak) live(round int) {
	s.t.Helper()
	c, ok := s.capture(pagemap.Options{Contents: true, Rollup: round%2 == 0, NoScan: round%4 == 1, Threads: round % 3})
	if !ok {
		return
	}
	r, err := audit.Share(c, audit.Options{})
	if err := errors.Join(err, c.Close()); err != nil {
		s.t.Errorf("audit: %v", err)
		return
	}
	s.check(r)
}

func (s *soak) check(r *audit.Report) {
	s.t.Helper()
	if err := audit.Check(r); err != nil {
		s.t.Errorf("audit's own check: %v", err)
	}
	for _, b := range oracle.Breaches(r) {
		s.t.Errorf("conservation: %s", b)
	}
	states := []pagemap.State{pagemap.StateAudited, pagemap.StateGone, pagemap.StateZombie, pagemap.StateExeced, pagemap.StateSharedMM, pagemap.StateChanged}
	warned := map[pagemap.PID]bool{}
	for _, w := range r.Warnings {
		if w.Code == "" || w.Text == "" || w.Remedy == "" {
			s.t.Errorf("a warning without code, text or remedy: %+v", w)
		}
		warned[w.PID] = true
	}
	for _, p := range r.Family {
		s.seen.processes++
		if !slices.Contains(states, p.State) {
			s.t.Errorf("process %d is %q", p.PID, p.State)
		}
		switch p.State {
		case pagemap.StateGone:
			s.seen.gone++
			if !warned[p.PID] {
				s.t.Errorf("process %d is gone and no warning says so", p.PID)
			}
		case pagemap.StateChanged:
			s.seen.changed++
		}
		if p.Rollup != nil {
			s.seen.rollups++
		}
		s.seen.unstable += p.Pages.Unstable
		s.seen.copied += p.Pages.Copied
		s.seen.moved += p.Pages.Moved
	}
	if root := r.Family[0]; root.PID != s.root || root.StartTicks != s.ticks || root.State != pagemap.StateAudited {
		s.t.Errorf("the root is %d (%s)", root.PID, root.State)
	}
}

// kept takes a snapshot, passes it through its file, judges it, and compares it with the one before.
func (s *soak) kept(round int) {
	s.t.Helper()
	c, ok := s.capture(pagemap.Options{Contents: round%2 == 0})
	if !ok {
		return
	}
	snap, err := pagemap.Record(c)
	if err := errors.Join(err, c.Close()); err != nil {
		s.t.Errorf("record: %v", err)
		return
	}
	var file bytes.Buffer
	if err := pagemap.WriteSnapshot(&file, snap); err != nil {
		s.t.Errorf("write a snapshot: %v", err)
		return
	}
	back, err := pagemap.ReadSnapshot(&file)
	if err != nil {
		s.t.Errorf("read a snapshot: %v", err)
		return
	}
	a, err1 := audit.Share(snap, audit.Options{})
	b, err2 := audit.Share(back, audit.Options{})
	if err := errors.Join(err1, err2); err != nil {
		s.t.Errorf("audit of a snapshot: %v", err)
		return
	}
	s.check(a)
	if a.Totals.Pages != b.Totals.Pages {
		s.t.Errorf("the snapshot read back gives other totals: %+v, %+v", a.Totals.Pages, b.Totals.Pages)
	}
	if s.last != nil {
		switch d, err := audit.Diff(s.last, back, audit.Options{}); {
		case errors.Is(err, audit.ErrUnrelated): // all workers ended between the two
		case err != nil:
			s.t.Errorf("diff: %v", err)
		default:
			s.seen.diffs++
			if err := audit.CheckDiff(d); err != nil {
				s.t.Errorf("audit's own check of a diff: %v", err)
			}
			for _, b := range oracle.DiffBreaches(d) {
				s.t.Errorf("conservation, diff: %s", b)
			}
		}
	}
	s.last = back
}

// command runs the binary and gives its peak memory.
func (s *soak) command(bin string) int64 {
	s.t.Helper()
	cmd := exec.Command(bin, "audit", "--format", "json", fmt.Sprint(s.root))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		s.t.Errorf("cowaudit audit: %v\n%s", err, &stderr)
		return 0
	}
	var r audit.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		s.t.Errorf("cowaudit audit: %v", err)
		return 0
	}
	s.seen.commands++
	s.check(&r)
	return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}

// undisturbed looks for processes of the storm that are stopped or traced.
func (s *soak) undisturbed() {
	s.t.Helper()
	tree, err := proc.Tree()
	if err != nil {
		s.t.Error(err)
		return
	}
	for _, pid := range tree.Descendants(s.root) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it ended
		}
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimSpace(value)
			if name == "State" && (value[0] == 'T' || value[0] == 't') || name == "TracerPid" && value != "0" {
				s.t.Errorf("process %d: %s", pid, strings.TrimSpace(line))
			}
		}
	}
}

// wasStorm fails when too little happened for the test to mean anything, or a process of the storm died of what was done
// to it from outside.
func (s *soak) wasStorm(done string) {
	s.t.Helper()
	for _, w := range strings.Fields(done)[1:] {
		var n int64
		name, value, _ := strings.Cut(w, "=")
		if _, err := fmt.Sscan(value, &n); err != nil {
			s.t.Fatalf("%q: %v", done, err)
		}
		switch {
		case name == "crashes" && n != 0:
			s.t.Errorf("%d processes of the storm crashed", n)
		case name != "crashes" && n < 20:
			s.t.Errorf("only %d %s", n, name)
		}
	}
	if s.seen.copied == 0 || s.seen.diffs == 0 || s.seen.commands == 0 || s.seen.rollups == 0 || s.seen.gone+s.seen.changed == 0 {
		s.t.Errorf("the storm did not reach all that it is for: %+v", s.seen)
	}
}

// state is what must not grow.
type state struct {
	descriptors, goroutines int
	heap                    int64
}

func stateNow() state {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers let go
	runtime.ReadMemStats(&m)
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	return state{len(list), runtime.NumGoroutine(), int64(m.HeapAlloc)}
}
