package testkit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Timeout bounds each wait for a line or an end. It is long because test machines are busy; nothing waits for it to pass.
const Timeout = 120 * time.Second

// Process is a program that a test has started. It, and what it left in its process group, is ended when the test is over.
type Process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string
	stderr *tail
	seen   []string // lines read so far
	once   sync.Once
	state  *os.ProcessState
}

// Start runs a program with pipes at its standard input and output.
func Start(t testing.TB, argv ...string) *Process {
	t.Helper()
	return StartCmd(t, exec.Command(argv[0], argv[1:]...))
}

// StartCmd is [Start] for a command with a folder, an environment or credentials of its own. Its standard streams must not
// be set.
func StartCmd(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, cmd: cmd, lines: make(chan string, 4096), stderr: &tail{}}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.Stderr = p.stderr
	cmd.WaitDelay = 5 * time.Second // a process of another group may hold standard error open
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe() // not StdoutPipe: Wait would close it before the last lines are read
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		t.Fatalf("start %s: %v", strings.Join(cmd.Args, " "), err)
	}
	go p.read(r)
	t.Cleanup(p.End)
	return p
}

// read hands on the lines. A program that is not listened to is not stopped by a full pipe: the channel is large, and End
// drains it.
func (p *Process) read(r *os.File) {
	defer close(p.lines)
	defer r.Close()
	b := bufio.NewReader(r)
	for {
		s, err := b.ReadString('\n')
		if s != "" {
			p.lines <- strings.TrimSuffix(s, "\n")
		}
		if err != nil {
			return
		}
	}
}

// PID is the process id. It stays that of this process until End.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stderr is what the program wrote to standard error so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// Line gives the next line of standard output; ok is false at its end. It fails the test after [Timeout].
func (p *Process) Line() (line string, ok bool) {
	p.t.Helper()
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	select {
	case line, ok = <-p.lines:
		if ok {
			p.seen = append(p.seen, line)
		}
		return line, ok
	case <-timer.C:
		p.fail("no line for " + Timeout.String())
		return "", false
	}
}

// WaitLine reads up to the next line that starts with prefix and gives it.
func (p *Process) WaitLine(prefix string) string {
	p.t.Helper()
	for {
		line, ok := p.Line()
		if !ok {
			p.fail("ended before a line that starts with " + prefix)
		}
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
}

// Send writes a line to standard input.
func (p *Process) Send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.fail("write to its standard input: " + err.Error())
	}
}

// CloseStdin ends standard input.
func (p *Process) CloseStdin() {
	if err := p.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		p.fail("close its standard input: " + err.Error())
	}
}

// Signal sends a signal to the process itself, by its descriptor: never to another one with the same id.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.fail("send " + sig.String() + ": " + err.Error())
	}
}

// Wait reads to the end of standard output and gives the exit code, -1 for one that died by a signal. It fails the test
// after [Timeout]. What else is in the process group is ended.
func (p *Process) Wait() int {
	p.t.Helper()
	for {
		if _, ok := p.Line(); !ok {
			break
		}
	}
	if !p.exited(Timeout) {
		p.fail("closed its standard output and does not end")
	}
	p.reap()
	return p.state.ExitCode()
}

// End ends the process, if it has not ended: its standard input is closed and SIGTERM sent; after some seconds SIGKILL. What
// is left of its process group is killed. [Start] sees to it that it is called.
func (p *Process) End() {
	if p.state != nil {
		return
	}
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended, which is what this is about
	go func() {
		for range p.lines { // so that it is not held up by a full pipe
		}
	}()
	if !p.exited(5 * time.Second) {
		_ = p.cmd.Process.Kill()
		p.exited(Timeout)
	}
	p.reap()
}

// exited waits until the process has ended, and leaves it a zombie: its id, and that of its group, are still its own.
func (p *Process) exited(limit time.Duration) bool {
	if p.state != nil {
		return true
	}
	fd, err := unix.PidfdOpen(p.PID(), 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	for end := time.Now().Add(limit); ; {
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left/time.Millisecond)+1)
		if n > 0 {
			return true
		}
		if err != nil && err != unix.EINTR {
			return false
		}
	}
}

// reap kills what is left of the group, while the id of the group cannot be another's, and collects the process.
func (p *Process) reap() {
	p.once.Do(func() {
		for end := time.Now().Add(Timeout); ; time.Sleep(2 * time.Millisecond) {
			_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
			if !groupAlive(p.PID()) || time.Now().After(end) {
				break
			}
		}
		_ = p.stdin.Close()
		_ = p.cmd.Wait() // the exit code is in the state
		p.state = p.cmd.ProcessState
	})
}

// groupAlive reports whether a process of the group has not ended. A killed one takes a moment to end.
func groupAlive(group int) bool {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return false
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it ended
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) > 2 && f[2] == strconv.Itoa(group) && f[0] != "Z" && f[0] != "X" {
			return true
		}
	}
	return false
}

func (p *Process) fail(what string) {
	p.t.Helper()
	last := p.seen[max(0, len(p.seen)-20):]
	p.t.Fatalf("%s: %s\nits last lines: %q\nits standard error: %s", strings.Join(p.cmd.Args, " "), what, slices.Clone(last), p.Stderr())
}

// tail keeps the last of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (w *tail) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, b...)
	if over := len(w.b) - 1<<16; over > 0 {
		w.b = append(w.b[:0], w.b[over:]...)
	}
	return len(b), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}
