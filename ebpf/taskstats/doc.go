// Package taskstats reads the kernel's own count of copy-on-write copies: the third count, beside the page tables and the
// fault trace, and independent of both.
//
// # What is counted
//
// wpcopy_count of struct taskstats (include/uapi/linux/taskstats.h, version 13, Linux 5.19, commit 662ce1dc9caf) rises by
// one at the end of each wp_page_copy (mm/memory.c) and hugetlb_wp (mm/hugetlb.c) that the task ran, whether its own
// instruction or a system call of its wrote. So it counts
//
//   - each copy of a shared anonymous page, and each unsharing without a write (a read-only pin);
//   - the first write on a page that maps the zero page, and the first write on a page of a private file mapping that was
//     mapped by a read before: copies for the kernel, no copies of shared memory;
//   - one for a whole hugetlb page, also where the page was only taken over in place;
//   - one for a try that ended without a copy: the entry changed meanwhile, or there was no memory.
//
// It does not count the reuse of a page in place, nor first touches, nor copies that no fault of the task makes (fork of
// pinned pages, khugepaged). The fault is counted for the task that runs, not for the owner of the memory: a debugger's
// write into another process counts for the debugger. A copy whose duration the clock shows as 0 would not be counted
// (kernel/delayacct.c, delayacct_end).
//
// # When it can be trusted
//
// Counting needs kernel.task_delayacct=1 (sysctl since 5.14, then 0 by default; boot option "delayacct"). A task has counters
// only if that was so when its fork began (delayacct_tsk_init, called in copy_process, kernel/fork.c); one without reads as 0
// for ever, and nothing that the kernel shows says so. [Counts.WPCopyKnown] is true only where every thread is known to have
// counters:
//
//   - one of the thread's own delay counts is not 0: only a thread with counters has that. Nearly every forked process copies
//     a page of its stack at once;
//   - or cowaudit itself has switched accounting on (a record in /run says when), and the thread began well after that;
//   - or the first thread has counters by its own counts, and accounting was not seen to be off since that thread began.
//     Where somebody else has switched it on, this takes for granted that it was not off in between.
//
// # Privileges and namespaces
//
// TASKSTATS is a generic netlink family; asking needs CAP_NET_ADMIN in the initial user namespace (GENL_ADMIN_PERM), and works
// in every network namespace. The PIDs of [Client.Process] are those of the caller's pid namespace
// (kernel/taskstats.c, fill_stats_for_pid: find_get_task_by_vpid). Exit records are sent to the initial network namespace
// only, carry PIDs of the initial pid namespace, and asking for them is refused elsewhere (add_del_listener). Switching
// accounting needs CAP_SYS_ADMIN (sysctl_delayacct).
package taskstats
