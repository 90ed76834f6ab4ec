package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// heldStartName is the hidden command by which trace starts this program again, to wait and to become the command then.
const heldStartName = "held-start"

func heldStartCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:   heldStartName,
		Usage:  "say so on descriptor 4, wait for a byte on 3, become a program",
		Hidden: true,
		Action: func(c *cli.Context) error { return heldStart(c.Args().Slice()) },
	}
}

// heldStart says on descriptor 4 that it is up, waits until the other end of descriptor 3 says go, and becomes the program
// args[0] with the arguments args[1:]. Where the other end is closed instead, nothing is started. What it does between is
// traced, so it does little.
func heldStart(args []string) error {
	if len(args) < 2 {
		return errors.New("held-start: no program")
	}
	// An exec keeps signals that are ignored, and resets those that are caught: as if the program had been started directly.
	signal.Reset()
	for _, fd := range []int{3, 4} {
		unix.CloseOnExec(fd)
	}
	var b [1]byte
	if _, err := unix.Write(4, b[:]); err != nil {
		return fmt.Errorf("held-start: %w", err)
	}
	for {
		n, err := unix.Read(3, b[:])
		if n == 1 {
			break
		}
		if err != unix.EINTR {
			return errors.New("held-start: not let go")
		}
	}
	return fmt.Errorf("start %s: %w", args[0], syscall.Exec(args[0], args[1:], os.Environ()))
}

// heldCommand is a command that was started by trace. A nil one is none: processes that are traced are never signalled.
type heldCommand struct {
	cmd   *exec.Cmd
	name  string
	let   *os.File
	ended chan struct{} // closed when the command has ended
	done  atomic.Bool
	cut   bool // the trace ended it
}

// hold starts a command that waits.
func (t *tracing) hold(command []string) (*heldCommand, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, withRemedy(fmt.Errorf("start %s: %w", command[0], lookError(err)), "give a program in PATH, or its path")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	defer r.Close() // the command has its own by then
	up, ready, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", command[0], err), w.Close())
	}
	defer up.Close()
	args := append([]string{heldStartName, "--", path}, command...)
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "cowaudit"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t.a.stdin, t.a.stdout, t.a.stderr
	if t.out.Format() != "text" && t.out.file == nil {
		cmd.Stdout = t.a.stderr
	}
	cmd.ExtraFiles = []*os.File{r, ready}
	err = cmd.Start()
	ready.Close() // so that its end shows
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", command[0], err), w.Close())
	}
	h := &heldCommand{cmd: cmd, name: command[0], let: w, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its status is in ProcessState
		h.done.Store(true)
		close(h.ended)
	}()
	if _, err := up.Read(make([]byte, 1)); err != nil {
		h.abandon()
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	return h, nil
}

// lookError leaves out the word "exec".
func lookError(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

func (h *heldCommand) pid() pagemap.PID { return pagemap.PID(h.cmd.Process.Pid) }

func (h *heldCommand) runs() bool { return h != nil && !h.done.Load() }

// release lets the command go.
func (h *heldCommand) release() error {
	_, err := h.let.Write([]byte{1})
	if err := errors.Join(err, h.let.Close()); err != nil {
		return fmt.Errorf("start %s: %w", h.name, err)
	}
	h.let = nil
	return nil
}

// abandon makes sure that a command which was never let go ends.
func (h *heldCommand) abandon() {
	if h.let != nil {
		h.let.Close() // it reads the end of the pipe, and starts nothing
		h.let = nil
		<-h.ended
	}
}

// signal passes a signal on, unless the terminal has sent it to the command as well.
func (h *heldCommand) signal(s os.Signal) {
	if s == os.Interrupt && foreground() {
		return
	}
	// It may have ended just now.
	_ = h.cmd.Process.Signal(s)
}

// foreground reports that this process is in the foreground of a terminal, whose Ctrl-C goes to the command too.
func foreground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// endGrace is how long a command that is asked to end with SIGTERM has before it is killed.
const endGrace = 10 * time.Second

// end ends the command, since its time is over.
func (h *heldCommand) end() {
	if !h.runs() {
		return
	}
	h.cut = true
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	grace := time.NewTimer(endGrace)
	defer grace.Stop()
	select {
	case <-h.ended:
	case <-grace.C:
		_ = h.cmd.Process.Kill()
		<-h.ended
	}
}

// outcome says on standard error how the command ended, where that is not with status 0. A command that could not be started
// is an error: nothing was measured.
func (h *heldCommand) outcome(stderr io.Writer) error {
	if !h.done.Load() {
		fmt.Fprintf(stderr, "cowaudit: %s still runs, as PID %d\n", oneLine(h.name), h.pid())
		return nil
	}
	state := h.cmd.ProcessState
	switch ws, ok := state.Sys().(syscall.WaitStatus); {
	case h.cut:
		fmt.Fprintf(stderr, "cowaudit: %s was ended with the trace\n", oneLine(h.name))
	case ok && ws.Signaled():
		fmt.Fprintf(stderr, "cowaudit: %s was ended by signal %d (%s)\n", oneLine(h.name), int(ws.Signal()), ws.Signal())
	case state.ExitCode() != 0:
		fmt.Fprintf(stderr, "cowaudit: %s ended with status %d\n", oneLine(h.name), state.ExitCode())
	}
	return nil
}

// traceSignals are the signals that end a trace. They are received here beside the run's own handling, so that the second one
// does not end the program at once.
type traceSignals struct{ c chan os.Signal }

func newTraceSignals() *traceSignals {
	s := &traceSignals{make(chan os.Signal, 4)}
	signal.Notify(s.c, os.Interrupt, syscall.SIGTERM)
	return s
}

func (s *traceSignals) stop() { signal.Stop(s.c) }
