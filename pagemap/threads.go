package pagemap

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// Threads lists the threads of a process, from /proc/PID/task, in ascending order; threads come and go while it is read.
// The error wraps ErrGone when the process has ended.
func (f FS) Threads(pid PID) ([]PID, error) {
	names, err := os.ReadDir(f.file(pid, "task"))
	if err != nil {
		if gone(err) {
			return nil, fmt.Errorf("list the threads of %d: %w", pid, ErrGone)
		}
		return nil, fmt.Errorf("list the threads of %d: %w", pid, err)
	}
	var tids []PID
	for _, n := range names {
		tid, err := strconv.Atoi(n.Name())
		if err != nil {
			return nil, fmt.Errorf("list the threads of %d: %w: %q", pid, ErrFormat, n.Name())
		}
		tids = append(tids, PID(tid))
	}
	slices.SortFunc(tids, cmp.Compare[PID])
	return tids, nil
}

// SharesMM reports whether two processes run in one address space (CLONE_VM), by kcmp(KCMP_VM) (Linux 3.5,
// CONFIG_KCMP). The PIDs are the caller's own, and it needs ptrace read access to both.
func (f FS) SharesMM(a, b PID) (bool, error) {
	if !f.ownPIDs() {
		return false, fmt.Errorf("kcmp %d and %d: %w: they are of another PID namespace", a, b, ErrNotSupported)
	}
	c, err := compareMM(a, b)
	return err == nil && c == 0, err
}
