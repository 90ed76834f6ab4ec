package pagemap

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// buildTree compiles testdata/tree.c.
func buildTree(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "tree")
	out, err := exec.Command("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", bin, "testdata/tree.c").CombinedOutput()
	if err != nil {
		t.Fatalf("compile testdata/tree.c: %v\n%s", err, out)
	}
	return bin
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
	cmd := exec.Command(bin, spec)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tree := procTree{root: PID(cmd.Process.Pid), pids: map[string]PID{}}
	var ends []*os.File
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("tree: %v\n%s", err, stderr.String())
		}
		for _, f := range ends {
			awaitEnd(t, f)
		}
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return tree
		}
		if lines.Text() == "failed" {
			break
		}
		name, number, _ := strings.Cut(lines.Text(), " ")
		pid, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("tree printed %q", lines.Text())
		}
		tree.pids[name] = PID(pid)
		if fd, err := unix.PidfdOpen(pid, 0); err == nil && pid > 2 { // 1 and 2 are of a namespace of its own
			ends = append(ends, os.NewFile(uintptr(fd), name))
		}
	}
	t.Fatalf("no tree of %q: %v", spec, lines.Err())
	return tree
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
