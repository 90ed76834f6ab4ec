package oracle

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// stage is a moment at which the program under test holds still.
type stage struct {
	name    string
	pids    []pagemap.PID          // the fork parent first, unless the program says otherwise
	names   map[string]pagemap.PID // by name, where the program gives names
	regions map[string]audit.Range // those printed up to now
	notes   []string               // all other lines up to now
}

// staged is a running program that speaks the stage protocol.
type staged struct {
	t       *testing.T
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	lines   chan string
	regions map[string]audit.Range
	notes   []string
	held    bool // at a stage
	ended   bool
	stderr  *strings.Builder
}

// stageTimeout bounds the way from one stage to the next. It is long because test machines are busy.
const stageTimeout = 120 * time.Second

// start runs a program with HOLD=1. What is left of it at the end of the test is ended.
func start(t *testing.T, dir string, env []string, argv ...string) *staged {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOLD=1")
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s := &staged{t: t, cmd: cmd, lines: make(chan string, 1024), regions: map[string]audit.Range{}, stderr: &strings.Builder{}}
	cmd.Stderr = s.stderr
	cmd.WaitDelay = 10 * time.Second
	var err error
	if s.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	// Not StdoutPipe: Wait would close it before the last lines are read.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", argv[0], err)
	}
	w.Close()
	go func() {
		defer r.Close()
		defer close(s.lines)
		for sc := bufio.NewScanner(r); sc.Scan(); {
			s.lines <- sc.Text()
		}
	}()
	t.Cleanup(s.end)
	return s
}

var (
	stageLine  = regexp.MustCompile(`^STAGE (\S+) pids=([\d,]+)(.*)$`)
	regionLine = regexp.MustCompile(`^REGION (.+) ([0-9a-f]+)-([0-9a-f]+) pages=(\d+)$`)
	inlineAttr = regexp.MustCompile(`(region|names)=(\S+)`)
)

// next reads up to the next stage. ok is false when the program has no further one.
func (s *staged) next() (st stage, ok bool) {
	s.t.Helper()
	s.release()
	timeout := time.After(stageTimeout)
	for {
		select {
		case <-timeout:
			s.t.Fatalf("%s: no stage within %v; last lines: %q", s.cmd.Args, stageTimeout, s.notes)
		case line, more := <-s.lines:
			if !more {
				return stage{}, false
			}
			if st, ok := s.line(line); ok {
				s.held = true
				settle(st.pids)
				return st, true
			}
		}
	}
}

// to reads up to the stage with a name.
func (s *staged) to(name string) stage {
	s.t.Helper()
	for {
		st, ok := s.next()
		if !ok {
			s.t.Fatalf("%s ended before stage %s: %q, stderr %q", s.cmd.Args, name, s.notes, s.stderr)
		}
		if st.name == name {
			return st
		}
	}
}

func (s *staged) line(line string) (stage, bool) {
	s.t.Helper()
	if m := regionLine.FindStringSubmatch(line); m != nil {
		s.regions[m[1]] = audit.Range{Start: hexAddr(s.t, m[2]), End: hexAddr(s.t, m[3])}
		return stage{}, false
	}
	m := stageLine.FindStringSubmatch(line)
	if m == nil {
		s.notes = append(s.notes, line)
		return stage{}, false
	}
	st := stage{name: m[1], names: map[string]pagemap.PID{}}
	for _, w := range strings.Split(m[2], ",") {
		n, err := strconv.Atoi(w)
		if err != nil {
			s.t.Fatalf("stage line %q: %v", line, err)
		}
		st.pids = append(st.pids, pagemap.PID(n))
	}
	for _, a := range inlineAttr.FindAllStringSubmatch(m[3], -1) {
		switch a[1] {
		case "region":
			lo, hi, _ := strings.Cut(a[2], "-")
			s.regions["region"] = audit.Range{Start: hexAddr(s.t, lo), End: hexAddr(s.t, hi)}
		case "names":
			for i, n := range strings.Split(a[2], ",") {
				st.names[n] = st.pids[i]
			}
		}
	}
	st.regions, st.notes = maps.Clone(s.regions), s.notes
	return st, true
}

func hexAddr(t *testing.T, s string) pagemap.Addr {
	t.Helper()
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatalf("address %q: %v", s, err)
	}
	return pagemap.Addr(v)
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

func (s *staged) release() {
	if s.held {
		s.held = false
		// A program that has ended meanwhile says so by the end of its output.
		_, _ = s.stdin.Write([]byte("\n"))
	}
}

// finish lets the program run to its end and fails unless it found its own truth to hold. Exit status 77 says that this
// machine cannot show it.
func (s *staged) finish() {
	s.t.Helper()
	for {
		if _, ok := s.next(); !ok {
			break
		}
	}
	err := s.wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 77 {
		s.t.Skipf("%s: %s", s.cmd.Args, strings.Join(s.notes, "; "))
	}
	if err != nil {
		s.t.Errorf("%s: %v\n%s\n%s", s.cmd.Args, err, strings.Join(s.notes, "\n"), s.stderr)
	}
}

func (s *staged) wait() error {
	if s.ended {
		return nil
	}
	s.ended = true
	s.stdin.Close()
	return s.cmd.Wait()
}

// end closes the program's input, upon which it goes through its remaining stages and cleans up after itself, and kills
// what is left of its process group.
func (s *staged) end() {
	if s.ended {
		return
	}
	s.ended = true
	s.stdin.Close()
	done := make(chan struct{})
	go func() {
		for range s.lines {
		}
		_ = s.cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
}

// compiled gives the path of a C program, compiled once per test run.
func compiled(t *testing.T, source string) string {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	bin := filepath.Join(buildDir(t), strings.TrimSuffix(filepath.Base(source), ".c"))
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	out, err := exec.Command("gcc", "-O1", "-pthread", "-I", filepath.Dir(source), "-o", bin, source).CombinedOutput()
	if err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	return bin
}

// buildDir is entered with builds locked.
func buildDir(t *testing.T) string {
	t.Helper()
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "cowaudit-oracle-")
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		builds.dir = dir
	}
	return builds.dir
}

var builds struct {
	sync.Mutex
	dir string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if builds.dir != "" {
		os.RemoveAll(builds.dir)
	}
	os.Exit(code)
}

// pages starts the workload of testdata/workloads with statements.
func pages(t *testing.T, statements ...string) *staged {
	t.Helper()
	return start(t, t.TempDir(), nil, append([]string{compiled(t, workload("pages.c"))}, statements...)...)
}

func workload(name string) string {
	return filepath.Join("..", "..", "testdata", "workloads", name)
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
