package pagemap

import (
	"bytes"
	"fmt"
)

// Flags of a task (include/linux/sched.h), as field 9 of stat shows them.
const (
	flagForkNoExec = 0x40     // PF_FORKNOEXEC: forked, and has not exec'd since
	flagKthread    = 0x200000 // PF_KTHREAD
)

// Stat is what cowaudit uses of /proc/PID/stat (Documentation/filesystems/proc.rst, table 1-4; fs/proc/array.c,
// do_task_stat). Everybody may read it; the addresses are 0 for a reader without PTRACE_MODE_READ.
type Stat struct {
	PID        PID
	Comm       string // as the kernel has it: any bytes but NUL
	State      byte   // 'R', 'S', 'D', 'T', 't', 'Z', 'X', 'I', 'P'
	PPID       PID    // the parent's thread group, whichever thread forked
	Flags      uint64 // PF_* of the main thread
	NumThreads int
	Start      uint64 // clock ticks from boot to the start (field 22)
	RSSPages   int64  // resident pages, as roughly as the kernel counts them
	StartStack Addr   // (field 28)
	StartBrk   Addr   // where the brk heap begins (field 47); 0 before 3.3
}

// Identity names the process for good.
func (s *Stat) Identity() Identity { return Identity{PID: s.PID, Start: s.Start} }

// Forked reports PF_FORKNOEXEC: the process still runs the program image that it got by fork.
func (s *Stat) Forked() bool { return s.Flags&flagForkNoExec != 0 }

// KernelThread reports PF_KTHREAD.
func (s *Stat) KernelThread() bool { return s.Flags&flagKthread != 0 }

// Zombie reports that the main thread has exited. Other threads of the process may still run (see NumThreads), but
// /proc/PID shows nothing of their memory.
func (s *Stat) Zombie() bool { return s.State == 'Z' || s.State == 'X' || s.State == 'x' }

// Stat reads /proc/PID/stat.
func (f FS) Stat(pid PID) (Stat, error) {
	s, _, err := f.stat(pid, nil)
	return s, err
}

func (f FS) stat(pid PID, buf []byte) (Stat, []byte, error) {
	b, err := f.read(pid, "stat", buf[:0])
	if err != nil {
		return Stat{}, b, err
	}
	s, err := ParseStat(b)
	if err != nil {
		return Stat{}, b, fmt.Errorf("read stat of %d: %w", pid, err)
	}
	return s, b, nil
}

// SameProcess reports whether the process still exists under its PID: the start time is the same. A zombie is still the
// same process; an exec does not change it either.
func (f FS) SameProcess(id Identity) bool {
	s, err := f.Stat(id.PID)
	return err == nil && s.Start == id.Start
}

// ParseStat parses the one line of a stat file. The name may hold blanks, parentheses and newlines: it ends at the last
// closing parenthesis.
func ParseStat(b []byte) (Stat, error) {
	var s Stat
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 2 || end < open || b[open-1] != ' ' || len(b) == 0 || b[len(b)-1] != '\n' {
		return s, fmt.Errorf("%w: stat: %.80q", ErrFormat, b)
	}
	pid, ok := decimal(b[:open-1])
	if !ok || pid > maxPID {
		return s, fmt.Errorf("%w: stat: pid: %.80q", ErrFormat, b)
	}
	s.PID, s.Comm = PID(pid), string(b[open+1:end])
	rest := b[end+1 : len(b)-1]
	if len(rest) < 2 || rest[0] != ' ' {
		return s, fmt.Errorf("%w: stat of %d: no state: %.80q", ErrFormat, pid, rest)
	}
	field := 2
	for rest := rest[1:]; len(rest) > 0; {
		field++
		word := rest
		if n := bytes.IndexByte(rest, ' '); n >= 0 {
			word, rest = rest[:n], rest[n+1:]
		} else {
			rest = nil
		}
		if field == 3 {
			if len(word) != 1 {
				return s, fmt.Errorf("%w: stat of %d: state %.20q", ErrFormat, pid, word)
			}
			s.State = word[0]
			continue
		}
		if !statField(&s, field, word) {
			return s, fmt.Errorf("%w: stat of %d: field %d: %.20q", ErrFormat, pid, field, word)
		}
	}
	if field < 28 {
		return s, fmt.Errorf("%w: stat of %d: only %d fields", ErrFormat, pid, field)
	}
	return s, nil
}

// maxPID is above every pid that the kernel gives out (PID_MAX_LIMIT, 2^22).
const maxPID = 1<<31 - 1

func statField(s *Stat, field int, word []byte) bool {
	switch field {
	case 4, 9, 20, 22, 24, 28, 47:
	default:
		return true
	}
	v, ok := decimal(word)
	if !ok {
		return false
	}
	switch field {
	case 4:
		s.PPID = PID(v)
		return v <= maxPID
	case 9:
		s.Flags = v
	case 20:
		s.NumThreads = int(v)
		return v <= maxPID
	case 22:
		s.Start = v
	case 24:
		s.RSSPages = int64(v)
		return s.RSSPages >= 0
	case 28:
		s.StartStack = Addr(v)
	case 47:
		s.StartBrk = Addr(v)
	}
	return true
}
