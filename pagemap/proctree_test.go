package pagemap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"cowaudit/internal/testkit"

	"golang.org/x/sys/unix"
)

// buildTree compiles testdata/tree.c.
func buildTree(t *testing.T) string {
	t.Helper()
	return testkit.CC(t, "testdata/tree.c")
}

// procTree is a running tree of processes.
type procTree struct {
	root PID
	pids map[string]PID // by name, as each sees itself
}

// startTree runs the tree program, waits until the tree stands, and at the end of the test ends it and waits until every
// process has gone.
func startTree(t *testing.T, bin, spec string) procTree {
	t.Helper()
	p := testkit.Start(t, bin, spec)
	tree := procTree{root: PID(p.PID()), pids: map[string]PID{}}
	var ends []*os.File
	t.Cleanup(func() {
		p.CloseStdin()
		if code := p.Wait(); code != 0 {
			t.Errorf("tree: exit %d\n%s", code, p.Stderr())
		}
		for _, f := range ends {
			awaitEnd(t, f)
		}
	})
	for {
		line, ok := p.Line()
		if line == "ready" {
			return tree
		}
		if !ok || line == "failed" {
			t.Fatalf("no tree of %q", spec)
		}
		name, number, _ := strings.Cut(line, " ")
		pid, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("tree printed %q", line)
		}
		tree.pids[name] = PID(pid)
		if pid <= 2 {
			continue // of a pid namespace of its own
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			ends = append(ends, os.NewFile(uintptr(fd), name))
		} else if !errors.Is(err, unix.ESRCH) {
			t.Fatalf("pidfd of %s: %v", name, err)
		}
	}
}

// awaitEnd waits until the process of a pidfd has ended.
func awaitEnd(t *testing.T, pidfd *os.File) {
	t.Helper()
	defer pidfd.Close()
	poll := []unix.PollFd{{Fd: int32(pidfd.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 10_000); n != 1 {
		t.Errorf("process %s does not end: %v", pidfd.Name(), err)
	}
}

// fakeProc writes a /proc with the stat and status of processes, for what the real one shows only by luck.
type fakeProc struct {
	t   *testing.T
	dir string
}

func newFakeProc(t *testing.T) fakeProc { return fakeProc{t, t.TempDir()} }

func (f fakeProc) fs() FS { return FS(f.dir) }

func (f fakeProc) write(pid PID, name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, strconv.Itoa(int(pid)), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// process adds a sleeping process.
func (f fakeProc) process(s Stat) {
	f.t.Helper()
	f.write(s.PID, "stat", statLine(s))
	f.write(s.PID, "status", fmt.Sprintf("Name:\t%s\nTgid:\t%d\nNSpid:\t%d\n", s.Comm, s.PID, s.PID))
	f.write(s.PID, "cmdline", s.Comm+"\x00")
}

// statLine prints a stat as the kernel does, with 0 for what Stat does not have.
func statLine(s Stat) string {
	fields := make([]string, 52)
	for i := range fields {
		fields[i] = "0"
	}
	set := func(field int, v any) { fields[field-1] = fmt.Sprint(v) }
	set(1, s.PID)
	set(2, "("+s.Comm+")")
	set(3, string(rune(s.State)))
	set(4, s.PPID)
	set(8, -1)
	set(9, s.Flags)
	set(20, s.NumThreads)
	set(22, s.Start)
	set(24, s.RSSPages)
	set(28, uint64(s.StartStack))
	set(47, uint64(s.StartBrk))
	return strings.Join(fields, " ") + "\n"
}

// oneByte hands over one byte at a time, as a reader may.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return o.r.Read(p[:1])
}
