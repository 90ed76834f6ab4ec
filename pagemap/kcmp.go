package pagemap

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const kcmpVM = 1 // KCMP_VM, include/uapi/linux/kcmp.h

// compareMM orders two processes by their address spaces: 0 means one and the same. The order holds until the next boot
// and means nothing else. kcmp(2) needs PTRACE_MODE_READ on both and CONFIG_KCMP; its PIDs are the caller's. Two
// processes without an address space compare as equal.
func compareMM(a, b PID) (int, error) {
	r, _, no := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	switch {
	case no == unix.ENOSYS:
		return 0, fmt.Errorf("kcmp %d and %d: %w: %w", a, b, ErrNotSupported, no)
	case no == unix.ESRCH:
		return 0, fmt.Errorf("kcmp %d and %d: %w: %w", a, b, ErrGone, no)
	case no != 0:
		return 0, fmt.Errorf("kcmp %d and %d: %w", a, b, no)
	case r == 1:
		return -1, nil
	case r == 2:
		return 1, nil
	case r == 0:
		return 0, nil
	}
	return 0, fmt.Errorf("kcmp %d and %d: no order (%d)", a, b, r)
}

// ownPIDs reports whether the PIDs of this /proc are those of the caller's own pid namespace, as system calls take them.
func (f FS) ownPIDs() bool {
	self, err := os.Readlink(f.Path("self"))
	return err == nil && self == strconv.Itoa(os.Getpid())
}

// spaces finds processes that run in one address space.
type spaces struct {
	fs    FS
	order []PID // one process for each address space, in compareMM's order
	err   error // why one or more could not be compared
}

// owner gives the process seen first in the address space of pid, or 0 when pid is the first or may not be compared; err
// then says why.
func (s *spaces) owner(pid PID) PID {
	// Compared with itself first: a refusal then is about this process, and the others are still compared.
	if _, err := compareMM(pid, pid); err != nil {
		if s.err == nil && !gone(err) {
			s.err = err
		}
		return 0
	}
	lo, hi := 0, len(s.order)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		c, err := compareMM(pid, s.order[mid])
		if err != nil {
			if gone(err) { // one of the two: leave it out and look again
				if !s.alive(pid) {
					return 0
				}
				s.order = append(s.order[:mid], s.order[mid+1:]...)
				lo, hi = 0, len(s.order)
				continue
			}
			if s.err == nil {
				s.err = err
			}
			return 0
		}
		switch {
		case c == 0:
			// Two processes that have both lost their address space are equal too.
			if !s.alive(pid) || !s.alive(s.order[mid]) {
				return 0
			}
			return s.order[mid]
		case c < 0:
			hi = mid
		default:
			lo = mid + 1
		}
	}
	s.order = append(s.order, 0)
	copy(s.order[lo+1:], s.order[lo:])
	s.order[lo] = pid
	return 0
}

func (s *spaces) alive(pid PID) bool {
	st, err := s.fs.Stat(pid)
	return err == nil && !st.Zombie()
}
