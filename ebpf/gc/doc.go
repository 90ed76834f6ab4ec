// Package gc finds out how the phase of a process' garbage collector can be learnt: it reads maps, ELF files and a few words
// of memory of the process, and attaches, stops and writes nothing. What [Find] gives is a [Plan] for a tracer.
//
// # Ways
//
// A [Flag] is the collector's own state word: a tracer reads it at each event. It copies no page in the target, and tells
// everything at once, also for a collection that had begun before the tracer came. It is the state of the whole process: a
// thread that runs beside the collection (a Ruby thread in a system call without the VM's lock) is seen as inside of it.
//
// A [Probe] is a place for a uprobe: a function (symbols) or a USDT note. The breakpoint that the kernel writes copies a page
// of the target, a semaphore another one (kernel/events/uprobes.c), and what began before is not seen.
//
// # Ruby
//
// rb_during_gc and rb_gc_count are exported by every libruby since 1.9, stripped or not. Both are followed instruction by
// instruction in the memory of the process ([Find] never guesses: an instruction that is not understood is an error), which
// gives the address of the collector's state word and of its counter. During at that bit is all that the function says; the
// other bits of the word are known per release, from the release's own gc.c, and used only where the bit that was found
// agrees with the release's (ruby.go).
//
// # CPython
//
// gc__start has the generation, where USDT notes are built in (Debian has them). Elsewhere: the "collecting" word of the main
// interpreter, which says no more than that a collection runs. It is taken from PyGC_Collect's own code (3.8 to 3.12) or from
// the offsets that CPython itself publishes for debuggers (3.13), and held against the structure that it lies in.
//
// # Privileges
//
// The maps: PTRACE_MODE_READ. Memory (/proc/PID/mem): PTRACE_MODE_ATTACH. Mapped files are opened through /proc/PID/map_files
// (CAP_SYS_ADMIN, or since 5.9 CAP_CHECKPOINT_RESTORE, in the initial user namespace), else under /proc/PID/root by the path
// that maps shows if device and inode are those of the mapping: never another file that lies there now.
//
// Only x86-64 targets are understood.
package gc
