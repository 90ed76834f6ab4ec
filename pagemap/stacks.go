package pagemap

import (
	"bytes"
	"os"
	"slices"
	"strconv"
)

// StackPointers gives the stack pointers of the threads of a process that wait in the kernel, from
// /proc/PID/task/TID/syscall (2.6.27; fs/proc/base.c, proc_pid_syscall), which needs PTRACE_MODE_ATTACH. Threads that are
// running show none, and what cannot be read is left out: these are hints.
func (f FS) StackPointers(pid PID) []Addr {
	names, err := os.ReadDir(f.file(pid, "task"))
	if err != nil {
		return nil
	}
	var out []Addr
	for _, name := range names {
		if _, err := strconv.Atoi(name.Name()); err != nil {
			continue
		}
		b, err := f.read(pid, "task/"+name.Name()+"/syscall", nil)
		if err != nil {
			continue
		}
		if sp, ok := parseSyscall(b); ok {
			out = append(out, sp)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// parseSyscall gives the stack pointer: the last word but one, of "NR ARGS… SP PC" or "-1 SP PC".
func parseSyscall(b []byte) (Addr, bool) {
	w := bytes.Fields(b)
	if len(w) < 3 {
		return 0, false // "running"
	}
	digits, ok := bytes.CutPrefix(w[len(w)-2], []byte("0x"))
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(string(digits), 16, 64)
	return Addr(v), err == nil && v != 0
}
