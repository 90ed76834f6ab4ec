// Package child is what runs in the demo server's workers, in the forked child of a Go program.
//
// The child is the forking thread alone. It runs on the goroutine's stack, which it must not outgrow, and it must never
// enter the runtime, whose other threads are not there. So all that it calls is nosplit (the linker checks the depth of such a
// chain), allocates nothing, writes no pointers and makes raw system calls only, as package syscall does between fork and
// exec. Signals are blocked before the fork and stay so in the child: a handler would enter the runtime, and so would the
// signal by which the scheduler preempts. The race detector and pointer checks would too, and are switched off here. So
// would the atomic counters of a coverage report, which cannot be switched off: they are in a package's own tests only, so
// this package has none and is tested by its parent.
package child

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Worker is all that a forked worker needs: filled before the fork, its own copy afterwards.
type Worker struct {
	Orders  uintptr // descriptor to read orders from
	Answers uintptr // descriptor to write answers to
	Parent  int     // PID of the master
	Memory  Memory
	Name    [16]byte // comm, with its NUL
	order   Order
	answer  Answer
	end     uintptr
}

// Fork makes a worker. The caller must have locked its goroutine to the thread and must keep it so until the worker has
// ended, since the worker is killed when the thread that forked it ends (PR_SET_PDEATHSIG).
func Fork(w *Worker) (int, error) {
	var all, old [1]uint64 // the kernel's sigset_t, 64 signals (include/uapi/asm-generic/signal.h)
	all[0] = ^uint64(0)
	if err := sigmask(&all, &old); err != nil {
		return 0, fmt.Errorf("block signals before fork: %w", err)
	}
	pid := clone(w)
	if err := sigmask(&old, nil); err != nil {
		return 0, fmt.Errorf("unblock signals after fork: %w", err)
	}
	runtime.KeepAlive(w)
	if pid < 0 {
		return 0, fmt.Errorf("fork a worker: %w", syscall.Errno(-pid))
	}
	return pid, nil
}

func sigmask(set, old *[1]uint64) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(*set), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// clone is fork(2) by way of clone(2), which every architecture has. It returns in the parent only; the child serves
// orders until the master closes the pipe or dies, and ends.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func clone(w *Worker) int {
	flags, stack := uintptr(unix.SIGCHLD), uintptr(0)
	if runtime.GOARCH == "s390x" { // CONFIG_CLONE_BACKWARDS2: the stack comes first
		flags, stack = stack, flags
	}
	if pid := sys(unix.SYS_CLONE, flags, stack, 0); pid != 0 {
		return pid
	}
	w.end = settle(w)
	for w.end == goOn {
		w.end = serve(w)
	}
	for {
		sys(unix.SYS_EXIT_GROUP, w.end, 0, 0)
	}
}

// Exit statuses of a worker.
const (
	endOfOrders uintptr = iota
	endOrphan
	endDescriptors
	endRead
	endWrite
	goOn // not one: there is more to do
)

// settle makes the child a worker.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func settle(w *Worker) uintptr {
	sys(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
	if sys(unix.SYS_GETPPID, 0, 0, 0) != w.Parent {
		return endOrphan // the master died before the line above
	}
	sys(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&w.Name)), 0)
	// Standard input and output become the pipes, and every other descriptor but standard error is closed, so that no
	// worker holds another's pipe open.
	if sys(unix.SYS_DUP3, w.Orders, 0, 0) < 0 {
		return endDescriptors
	}
	if sys(unix.SYS_DUP3, w.Answers, 1, 0) < 0 {
		return endDescriptors
	}
	if sys(unix.SYS_CLOSE_RANGE, 3, 1<<32-1, 0) < 0 { // 5.9
		for fd := uintptr(3); fd < 1024; fd++ {
			sys(unix.SYS_CLOSE, fd, 0, 0)
		}
	}
	return goOn
}

// serve takes one order.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func serve(w *Worker) uintptr {
	switch sys(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&w.order)), unsafe.Sizeof(w.order)) {
	case int(unsafe.Sizeof(w.order)): // a pipe hands over in one piece what is smaller than PIPE_BUF
	case -int(unix.EINTR):
		return goOn
	case 0:
		return endOfOrders
	default:
		return endRead
	}
	w.Memory.Do(&w.order, &w.answer)
	if sys(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&w.answer)), unsafe.Sizeof(w.answer)) != int(unsafe.Sizeof(w.answer)) {
		return endWrite
	}
	return goOn
}

// sys makes a system call of at most three arguments and gives its result, or the error number, negative. A function of
// its own keeps its callers' frames small enough for a build without optimisation.
//
//go:noinline
//go:nosplit
//go:norace
//go:uintptrescapes
func sys(nr, a, b, c uintptr) int {
	r, _, errno := syscall.RawSyscall6(nr, a, b, c, 0, 0, 0)
	if errno != 0 {
		return -int(errno)
	}
	return int(r)
}
