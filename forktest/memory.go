package forktest

import (
	"fmt"
	"os"
	"strconv"

	"cowaudit/pagemap"
)

// memory is what a process has resident.
type memory struct {
	rss  pagemap.Bytes // Rss of /proc/PID/smaps_rollup (4.14): summed over the page tables, exact while the process holds still
	peak pagemap.Bytes // VmHWM of /proc/PID/status, since resetPeak; from the kernel's counters, which may lag by some pages a CPU
}

// readMemory reads both, while the process waits for its next order.
func readMemory(fs pagemap.FS, pid pagemap.PID) (memory, error) {
	r, err := fs.Rollup(pid)
	if err != nil {
		return memory{}, fmt.Errorf("read what process %d has resident: %w", pid, err)
	}
	s, err := fs.Status(pid)
	if err != nil {
		return memory{}, fmt.Errorf("read what process %d has resident: %w", pid, err)
	}
	return memory{rss: r.RSS, peak: max(s.VmHWM, r.RSS)}, nil
}

// resetPeak sets VmHWM to what is resident now: 5 to /proc/PID/clear_refs (4.0, Documentation/filesystems/proc.rst). No page
// table changes by it. The file belongs to the process' user; root may write to all.
func resetPeak(fs pagemap.FS, pid pagemap.PID) error {
	path := fs.Path(strconv.Itoa(int(pid)), "clear_refs")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("reset the peak of process %d: %w", pid, err)
	}
	if _, err := f.WriteString("5\n"); err != nil {
		f.Close()
		return fmt.Errorf("reset the peak of process %d: %w", pid, err)
	}
	return f.Close()
}
