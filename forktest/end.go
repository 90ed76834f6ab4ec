package forktest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// endLimit is how long a process has to go away after SIGKILL. Only one that sleeps in the kernel takes longer.
const endLimit = 10 * time.Second

// end kills what is left of the run and waits until it is gone: the process started, its descendants, its session, and
// those of this process' other descendants that carry the token, which left both.
func (p *process) end() error {
	defer p.letGo()
	deadline := time.Now().Add(endLimit)
	var all []pagemap.Stat
	for {
		live, err := p.live()
		if err != nil {
			return err
		}
		if len(live) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of the subject are still there after %s of SIGKILL: %d (%s) is one", len(live), endLimit, live[0].PID, printable(live[0].Comm))
		}
		for i := range live {
			if err := kill(&live[i]); err != nil {
				return err
			}
		}
		for i := range live {
			if err := awaitEnd(&live[i], deadline); err != nil {
				return err
			}
		}
		all = append(all, live...)
	}
	if err := p.reapOrphans(all); err != nil {
		return err
	}
	// Unreaped until now, the process kept its PID, and so its session's, from being used again.
	if _, err := p.os.Wait(); err != nil {
		return fmt.Errorf("wait for process %d: %w", p.pid, err)
	}
	return nil
}

// live lists the processes of the run that have not ended.
func (p *process) live() ([]pagemap.Stat, error) {
	return p.descendants(func(st *pagemap.Stat, own bool) bool {
		return !st.Zombie() && (own || p.inSession(st.PID) || p.marked(st.PID))
	})
}

// reapOrphans reaps what has come to this process as the reaper of orphans: the processes that were killed, and those of
// the session that had ended before.
func (p *process) reapOrphans(killed []pagemap.Stat) error {
	self := pagemap.PID(os.Getpid())
	left, err := p.descendants(func(st *pagemap.Stat, _ bool) bool {
		return st.Zombie() && st.PPID == self && st.PID != p.pid && (p.inSession(st.PID) ||
			slices.ContainsFunc(killed, func(k pagemap.Stat) bool { return k.Identity() == st.Identity() }))
	})
	for i := range left {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(int(left[i].PID), &ws, unix.WNOHANG, nil); err != nil && !errors.Is(err, unix.ECHILD) {
			return fmt.Errorf("reap process %d: %w", left[i].PID, err)
		}
	}
	return err
}

// descendants gives those of this process' descendants for which want is true; own marks the started process and what
// descends from it.
func (p *process) descendants(want func(st *pagemap.Stat, own bool) bool) ([]pagemap.Stat, error) {
	tree, err := pagemap.FS("").Tree()
	if err != nil {
		return nil, fmt.Errorf("look for what is left of the subject: %w", err)
	}
	own := append(tree.Descendants(p.pid), p.pid)
	var out []pagemap.Stat
	for _, pid := range tree.Descendants(pagemap.PID(os.Getpid())) {
		if st, ok := tree.Get(pid); ok && want(&st, slices.Contains(own, pid)) {
			out = append(out, st)
		}
	}
	return out, nil
}

func (p *process) inSession(pid pagemap.PID) bool {
	sid, err := unix.Getsid(int(pid))
	return err == nil && sid == int(p.pid)
}

// marked reports whether a process carries the token. A zombie has no environment any more.
func (p *process) marked(pid pagemap.PID) bool {
	env, err := os.ReadFile(pagemap.FS("").Path(strconv.Itoa(int(pid)), "environ"))
	return err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(kv []byte) bool { return string(kv) == p.token })
}

// kill sends SIGKILL to the process that the stat is of, and never to another one that got its PID.
func kill(st *pagemap.Stat) error {
	return withPidfd(st, func(fd int) error {
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end process %d (%s): %w", st.PID, printable(st.Comm), err)
		}
		return nil
	})
}

func awaitEnd(st *pagemap.Stat, deadline time.Time) error {
	return withPidfd(st, func(fd int) error {
		for {
			left := max(time.Until(deadline), 0)
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return fmt.Errorf("wait for the end of process %d: %w", st.PID, err)
			case n == 0:
				return fmt.Errorf("process %d (%s) is still there %s after SIGKILL", st.PID, printable(st.Comm), endLimit)
			default:
				return nil
			}
		}
	})
}

// withPidfd calls f with a descriptor of the process, if that is still there.
func withPidfd(st *pagemap.Stat, f func(fd int) error) error {
	fd, err := unix.PidfdOpen(int(st.PID), 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", st.PID, err)
	}
	defer unix.Close(fd)
	if !pagemap.FS("").SameProcess(st.Identity()) {
		return nil
	}
	return f(fd)
}

// exitStatus gives how a process ended that nobody has reaped yet (exit_code, field 52 of /proc/PID/stat, 3.5; shown with
// PTRACE_MODE_READ, else 0). ok is false where that cannot be told.
func exitStatus(pid pagemap.PID) (ws unix.WaitStatus, ok bool) {
	b, err := os.ReadFile(pagemap.FS("").Path(strconv.Itoa(int(pid)), "stat"))
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // from field 3, the state, on
	if len(fields) < 50 || string(fields[0]) != "Z" {
		return 0, false
	}
	code, err := strconv.Atoi(string(fields[49]))
	if err != nil {
		return 0, false
	}
	return unix.WaitStatus(code), true
}

// exitWords says how a process ended.
func exitWords(ws unix.WaitStatus) string {
	switch {
	case ws.Signaled():
		return fmt.Sprintf("was killed by signal %d (%s)", ws.Signal(), unix.SignalName(ws.Signal()))
	case ws.ExitStatus() > 128 && unix.SignalName(unix.Signal(ws.ExitStatus()-128)) != "":
		// A shell says it like this of the command that it waited for.
		return fmt.Sprintf("ended with status %d (%s)", ws.ExitStatus(), unix.SignalName(unix.Signal(ws.ExitStatus()-128)))
	}
	return fmt.Sprintf("ended with status %d", ws.ExitStatus())
}
