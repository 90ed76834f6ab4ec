package pagemap

import "errors"

// Errors that callers tell apart with errors.Is.
var (
	// ErrNotSupported: this kernel, or this configuration of it, does not have what was asked for.
	ErrNotSupported = errors.New("not supported by this kernel")
	// ErrNoPFN: frame numbers are hidden (present pages read frame 0). Reading them needs CAP_SYS_ADMIN in the initial
	// user namespace, since 4.2.
	ErrNoPFN = errors.New("frame numbers are hidden: needs CAP_SYS_ADMIN in the initial user namespace")
	// ErrGone: the process ended, or exec'd, while it was read.
	ErrGone = errors.New("process is gone")
	// ErrNoMM: the process has no address space: a kernel thread or a zombie.
	ErrNoMM = errors.New("process has no address space")
	// ErrFormat: bytes that are not what their format says.
	ErrFormat = errors.New("bad format")
)
