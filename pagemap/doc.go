// Package pagemap holds facts about the pages of processes and how they are read. It draws no conclusions: what the facts
// mean is package audit's business.
//
// # What is read
//
//	/proc/PID/maps           mappings, before and after the pages
//	/proc/PID/pagemap        one 64-bit [Entry] for each page: frame or swap slot, and a few bits
//	PAGEMAP_SCAN             ioctl on it (6.7): where is anything at all
//	/proc/kpageflags         flags of a frame, where an entry alone does not tell
//	/proc/kpagecount         mappings of a frame, where bit 56 is not to be trusted
//	/proc/PID/mem            contents of two versions of a page, compared in memory and forgotten
//	/proc/PID/smaps          what fork does with a mapping, where a result depends on it
//	/proc/PID/smaps_rollup   the kernel's own totals, as a check
//	/proc/PID/stat           parent, start time, PF_FORKNOEXEC
//
// # A family at one moment
//
// There is no way to read two processes' page tables at one instant. A [Capture] therefore reads a window of 1,024 pages
// of the reference, of each process judged against it, and of the reference again. Where both readings of the reference
// agree, each process' entry was true at an instant at which the reference's was, too. Pages that moved in between
// (written, migrated, swapped) are read again, closely, until they agree; what still moves after eight times is marked
// unstable. Windows of all processes are read in turn, address by address, which also keeps each mmap_lock held for some
// tens of microseconds at a time only.
//
// # Identity
//
// A descriptor of pagemap is bound to the address space that it was opened on (fs/proc/task_mmu.c, pagemap_open): after
// exec or exit it reads nothing. A process is named by PID and start time; PF_FORKNOEXEC (include/linux/sched.h) in
// /proc/PID/stat says whether it exec'd since it was forked, and kcmp(KCMP_VM) whether it has an address space of its own.
//
// # Privileges
//
// Frame numbers: CAP_SYS_ADMIN in the initial user namespace, of the opener (since 4.2); without it they read 0, which is
// never taken for a frame. Another user's pagemap: PTRACE_MODE_READ. Contents: PTRACE_MODE_ATTACH. kpageflags and
// kpagecount: uid 0 or CAP_DAC_OVERRIDE.
//
// Nothing here stops, traces, signals or writes to a process.
package pagemap
