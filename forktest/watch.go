package forktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// watched is a process whose end is noticed (pidfd, 5.3).
type watched struct {
	role  string // in a sentence: "ruby3.3", "worker 2"
	pid   pagemap.PID
	pidfd int
	dead  bool
	told  bool // its end has been given to a caller of answer
}

// watcher waits for whatever comes first: an answer, the end of a process, the end of the time. All of it happens in one
// goroutine and one poll(2), and in one order: what a process said or wrote before it ended is taken first.
type watcher struct {
	link   *link
	output *output
	procs  []*watched
	cancel *os.File // an eventfd that the context writes to
	wake   int      // its descriptor
}

// Outcomes of a wait that are no answer.
var (
	errTimeout = errors.New("no answer in time")
	errClosed  = errors.New("control channel closed")
)

// endedError: a watched process has ended.
type endedError struct{ proc *watched }

func (e *endedError) Error() string { return e.proc.role + " has ended" }

func newWatcher(l *link, o *output) (*watcher, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	return &watcher{link: l, output: o, cancel: os.NewFile(uintptr(fd), "eventfd"), wake: fd}, nil
}

// watch adds a process. One that has gone already counts as ended.
func (w *watcher) watch(role string, pid pagemap.PID) (*watched, error) {
	p := &watched{role: role, pid: pid, pidfd: -1}
	fd, err := unix.PidfdOpen(int(pid), 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		p.dead = true
		return p, &endedError{p}
	case errors.Is(err, unix.ENOSYS):
		return nil, fmt.Errorf("watch process %d: pidfd_open: %w (needs Linux 5.3)", pid, pagemap.ErrNotSupported)
	case err != nil:
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	p.pidfd = fd
	w.procs = append(w.procs, p)
	return p, nil
}

func (w *watcher) close() {
	for _, p := range w.procs {
		if p.pidfd >= 0 {
			unix.Close(p.pidfd)
			p.pidfd = -1
		}
	}
	w.cancel.Close()
	w.link.close()
	w.output.close()
}

// answer waits for the next answer. Else the error is errTimeout, errClosed, an endedError, or the context's. The end of a
// process is given once.
func (w *watcher) answer(ctx context.Context, limit time.Duration) (answer, error) {
	stop := context.AfterFunc(ctx, func() { w.cancel.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0}) })
	defer stop()
	deadline := time.Now().Add(limit)
	for {
		if a, ok := w.link.next(); ok {
			return a, nil
		}
		if err := ctx.Err(); err != nil {
			return answer{}, err
		}
		for _, p := range w.procs {
			if p.dead && !p.told {
				p.told = true
				return answer{}, &endedError{p}
			}
		}
		if w.link.closed {
			return answer{}, errClosed
		}
		left := time.Until(deadline)
		if left <= 0 {
			return answer{}, errTimeout
		}
		if err := w.poll(left); err != nil {
			return answer{}, err
		}
	}
}

// ends waits until a process has ended, and reports whether it has.
func (w *watcher) ends(p *watched, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); !p.dead; {
		left := time.Until(deadline)
		if left <= 0 || w.poll(left) != nil {
			return false
		}
	}
	return true
}

// poll waits until something happens and takes in all that has happened: the ends of processes first, then what they had
// said and written, so that the last words of a process that has ended are there.
func (w *watcher) poll(limit time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(w.wake), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
	if !w.link.closed {
		fds[1].Fd = int32(w.link.fd)
		if len(w.link.out) > 0 {
			fds[1].Events |= unix.POLLOUT
		}
	}
	if !w.output.done {
		fds[2].Fd = int32(w.output.fd)
	}
	for _, p := range w.procs {
		fd := int32(-1)
		if !p.dead {
			fd = int32(p.pidfd)
		}
		fds = append(fds, unix.PollFd{Fd: fd, Events: unix.POLLIN})
	}
	ms := (limit + time.Millisecond - 1) / time.Millisecond
	if _, err := unix.Poll(fds, int(min(ms, 1<<30))); err != nil {
		if errors.Is(err, unix.EINTR) {
			return nil
		}
		return fmt.Errorf("wait for the subject: %w", err)
	}
	if fds[0].Revents != 0 {
		unix.Read(w.wake, make([]byte, 8))
	}
	for i, p := range w.procs {
		if fds[3+i].Revents != 0 {
			p.dead = true
		}
	}
	if !w.link.closed {
		w.link.flush()
		if err := w.link.receive(); err != nil {
			return err
		}
	}
	return w.output.drain()
}
