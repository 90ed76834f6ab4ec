//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fault tracer. A page fault is announced by exceptions:page_fault_user or
 * page_fault_kernel, before the kernel deals with it; nothing announces its end.
 * What became of it is told by what the same thread does before its next fault:
 * kmem:mm_page_alloc (mm/page_alloc.c) and kmem:rss_stat (mm/memory.c).
 *
 *   write to a present page   a page not zeroed        a copy (wp_page_copy)
 *                             ... and file pages - 1   the file's page became private
 *                             a zeroed page            first write on the zero page
 *                             nothing                  reused in place (wp_page_reuse)
 *   write, nothing present    a zeroed page            new (do_anonymous_page)
 *                             a page not zeroed        private file page (do_cow_fault)
 *                             ... and swap entries     from swap (do_swap_page)
 *
 * An allocation counts only while the kernel handles that fault: see in_fault. In
 * a system call the kernel stack decides (handle_mm_fault, do_wp_page). */
#include "faults.h"
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "maps.h"
#include "space.h"
#include "phase.h"
#include "output.h"
#include "stack.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Types that no map has, for bpf2go to find. */
#define EXPORT(type, name) const type *export_##name __attribute__((unused))
EXPORT(enum kind, kind);
EXPORT(enum detail, detail);
EXPORT(enum phase, phase);
EXPORT(enum step, step);
EXPORT(enum record_type, record_type);
EXPORT(enum cause, cause);
EXPORT(enum loss, loss);
EXPORT(enum gc_event, gc_event);
EXPORT(struct entry, entry);
EXPORT(struct fault_record, fault_record);
EXPORT(struct fault_entry, fault_entry);
EXPORT(struct space_record, space_record);
EXPORT(struct region_record, region_record);
EXPORT(struct exit_record, exit_record);
EXPORT(struct gc_record, gc_record);

/* Bits of the exception's error code: arch/x86/include/asm/trap_pf.h. */
#define ERROR_PROT 0x1
#define ERROR_WRITE 0x2
#define ERROR_PKEY 0x20

/* include/linux/gfp_types.h; these two have kept their values since 5.1. */
#define GFP_MOVABLE 0x8
#define GFP_ZERO 0x100

#define KERNEL_ADDR(a) ((long)(a) < 0)

/* The thread's user registers: the exception's own while it handles a fault from
 * user mode, with orig_ax -1, else those of the system call, with its number
 * (bpf_task_pt_regs: 5.15). */
static __always_inline struct pt_regs *user_regs(void)
{
	return (struct pt_regs *)bpf_task_pt_regs((void *)bpf_get_current_task_btf());
}

/* kind_by_mapping is the kind of a write fault where the mapping decides alone;
 * KIND_UNKNOWN: it does not. */
static __always_inline __u8 kind_by_mapping(struct fault *f)
{
	if (f->flags & VM_SHARED)
		return KIND_SHARED;
	if (f->flags & VM_HUGETLB)
		return KIND_HUGETLB;
	if (f->region && !(f->flags & VM_WRITE))
		return KIND_OTHER;	/* refused: SIGSEGV */
	return KIND_UNKNOWN;
}

/* settle decides about a fault of which no more will be seen. */
static __always_inline void settle(struct thread *t)
{
	struct fault *f = &t->fault;
	__u8 kind, unplaced;

	if (!f->open)
		return;
	f->open = 0;
	find_region_late(t, f);
	unplaced = f->detail & DETAIL_NO_MAPPING;
	kind = kind_by_mapping(f);
	if (kind != KIND_UNKNOWN) {
		;
	} else if ((f->detail & DETAIL_KERNEL) && !handle_mm_fault_start) {
		;	/* whose allocation it was cannot be told without the kernel's symbols */
	} else if (f->error & ERROR_PROT) {
		if (!(f->seen & SEEN_PLAIN))
			kind = unplaced ? KIND_UNKNOWN : KIND_REUSED;
		else if (f->order)
			kind = KIND_ZERO;
		else if (f->seen & SEEN_FILE)
			kind = KIND_FILE;
		else if (!(f->flags & REGION_FILE) && !unplaced)
			kind = KIND_COPIED;
		else
			kind = counters_per_thread() ? KIND_UNKNOWN : KIND_COPIED;
	} else if (f->seen & SEEN_SWAP) {
		kind = KIND_SWAPPED;
	} else if (f->seen & SEEN_PLAIN) {
		if (f->flags & REGION_FILE)
			kind = KIND_FILE;
		else
			kind = unplaced ? KIND_UNKNOWN : KIND_NEW;
	} else {
		kind = KIND_OTHER;
	}
	if (f->order)
		f->detail |= DETAIL_HUGE;
	output_fault(t, f, kind);
}

/* in_fault reports that the kernel is handling a fault of the thread from user
 * mode, and that no system call has begun since. */
static __always_inline int in_fault(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();

	if (bpf_core_field_exists(task->in_user_fault))
		return BPF_CORE_READ_BITFIELD(task, in_user_fault);
	return (long)user_regs()->orig_ax == -1;
}

/* of_fault reports that what the kernel does now it does for this fault. In a
 * system call it can be anything else, so there its stack is looked at. */
static __always_inline int of_fault(void *ctx, struct fault *f)
{
	__u32 where;

	if (!(f->detail & DETAIL_KERNEL))
		return in_fault();
	where = kernel_stack(ctx);
	return (where & IN_FAULT) && (where & IN_EXCEPTION);
}

static __always_inline void conclude(struct thread *t, __u8 kind)
{
	__u8 by_mapping;

	if (want_records)
		t->fault.time = now(t);

	find_region_late(t, &t->fault);
	by_mapping = kind_by_mapping(&t->fault);
	t->fault.open = 0;
	output_fault(t, &t->fault, by_mapping != KIND_UNKNOWN ? by_mapping : kind);
}

/* Where a fault's instruction is to be had. */
enum ip_from {
	IP_GIVEN,	/* the value itself */
	IP_OF_REGS,	/* from user mode: in registers that the verifier knows (tp_btf) */
	IP_OF_TASK,	/* in the thread's user registers: in kernel mode the system call's */
};

static __always_inline int on_fault(void *ctx, __u64 addr, __u64 error, __u8 detail,
				    enum ip_from from, __u64 value)
{
	__u32 tid;
	struct thread *t = current_thread(&tid);
	struct fault *f;
	__u8 kind;

	if (!t || t->busy || t->waits || KERNEL_ADDR(addr))
		return 0;
	settle(t);
	if (!(error & ERROR_WRITE)) {
		count_total(KIND_READ, 1, 1);
		return 0;
	}
	/* Reading the target's memory or stack below may fault itself, which comes
	 * back here (page_fault_kernel, refused by the kernel): not the target's. */
	t->busy = 1;
	f = &t->fault;
	f->addr = addr;
	if (from == IP_GIVEN)
		f->ip = value;
	else if (from == IP_OF_REGS)
		f->ip = ((struct pt_regs *)value)->ip;
	else
		f->ip = user_regs()->ip;
	f->error = error;
	f->detail = detail;
	f->order = 0;
	f->seen = 0;
	f->stack = 0;
	find_region(t, f);
	find_phase(t, f);
	/* A copy gets its time when it is decided. What can be one and is decided
	 * later gets it now; the rest goes without. */
	f->time = 0;
	if (want_records && ((f->flags & REGION_FILE) || f->detail))
		f->time = now(t);
	if (want_stacks)
		f->stack = take_user_stack(user_regs());
	t->busy = 0;
	kind = kind_by_mapping(f);
	if (kind == KIND_UNKNOWN && (error & ERROR_PKEY))
		kind = KIND_OTHER;
	if (kind != KIND_UNKNOWN)
		output_fault(t, f, kind);
	else
		f->open = 1;
	return 0;
}

/* A page was taken while the kernel wrote for the thread without a fault: through
 * pages that it pinned (O_DIRECT, io_uring, ptrace on itself). A copy, if
 * do_wp_page asked for the page. The address is not to be had here. */
static __always_inline void on_quiet_alloc(void *ctx, struct thread *t, __u64 ip, __u64 gfp)
{
	struct fault f = {};
	__u32 where;

	if (gfp_of_copies && gfp != gfp_of_copies)
		return;
	where = kernel_stack(ctx);
	if (!(where & IN_WP_PAGE) || (where & IN_EXCEPTION))
		return;
	f.ip = ip;
	f.time = want_records ? now(t) : 0;
	f.error = ERROR_PROT | ERROR_WRITE;
	f.detail = DETAIL_NO_FAULT;
	if (want_stacks)
		f.stack = take_user_stack(user_regs());
	find_phase(t, &f);
	output_fault(t, &f, KIND_COPIED);
}

static __always_inline int on_alloc(void *ctx, __u32 order, __u64 gfp)
{
	struct thread *t;
	struct fault *f;
	__u32 tid;

	if (!(gfp & GFP_MOVABLE))
		return 0;
	t = current_thread(&tid);
	if (!t || t->busy || t->waits)
		return 0;
	f = &t->fault;
	if (!f->open && (order || (gfp & GFP_ZERO)))
		return 0;
	if (f->open && !of_fault(ctx, f)) {
		if ((f->detail & DETAIL_KERNEL) && !handle_mm_fault_start)
			return 0;	/* it could be */
		settle(t);	/* the thread has gone on */
	}
	if (!f->open) {
		if (!order && !(gfp & GFP_ZERO) && (long)user_regs()->orig_ax != -1)
			on_quiet_alloc(ctx, t, user_regs()->ip, gfp);
		return 0;
	}
	if (gfp & GFP_ZERO) {
		if (!f->seen) {
			f->order = order;
			conclude(t, f->error & ERROR_PROT ? KIND_ZERO : KIND_NEW);
		}
		return 0;
	}
	if (f->seen & SEEN_SWAP) {
		f->detail |= DETAIL_FROM_SWAP;
		conclude(t, KIND_COPIED);
		return 0;
	}
	if (f->seen & SEEN_PLAIN)
		return 0;	/* of the page cache, for the file page to copy from */
	f->seen |= SEEN_PLAIN;
	f->order = order;
	if (!order && (f->error & ERROR_PROT) && f->region && !(f->flags & REGION_FILE)) {
		if (!gfp_of_copies)
			gfp_of_copies = gfp;
		conclude(t, KIND_COPIED);
	}
	return 0;
}

/* Members of an address space's counters: include/linux/mm_types_task.h. */
#define MM_FILEPAGES 0
#define MM_ANONPAGES 1
#define MM_SWAPENTS 2
#define MM_SHMEMPAGES 3

static __always_inline int on_rss(void *ctx, int member)
{
	__u32 tid;
	struct thread *t = current_thread(&tid);

	if (!t || !t->fault.open || !of_fault(ctx, &t->fault))
		return 0;
	if (member == MM_ANONPAGES)
		t->fault.seen |= SEEN_ANON;
	else if (member == MM_SWAPENTS)
		t->fault.seen |= SEEN_SWAP;
	else if (member == MM_FILEPAGES || member == MM_SHMEMPAGES)
		t->fault.seen |= SEEN_FILE;
	return 0;
}

static __always_inline int on_newtask(__u32 pid, __u64 clone_flags)
{
	__u32 tid;
	struct thread *t = current_thread(&tid);

	if (t && (follow_forks || (clone_flags & CLONE_THREAD)))
		add_thread(t, pid, clone_flags);
	return 0;
}

static __always_inline int on_exec(__u32 old_pid)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct thread *t;

	if (old_pid != tid) {
		/* Not the first thread did the exec: it takes the first one's id, whose
		 * own end has come before (de_thread). */
		t = traced(tid);
		if (t) {
			settle(t);
			put_all(t);
			release_slot(t, tid);
		}
		t = move_thread(old_pid, tid);
	} else {
		t = traced(tid);
	}
	if (t) {
		settle(t);
		put_all(t);
		t->waits = 0;
		new_space(t, tid, t->space, CAUSE_EXEC);
	}
	return 0;
}

static __always_inline int on_exit(void)
{
	__u32 tid;
	struct thread *t = current_thread(&tid);

	if (t) {
		settle(t);
		put_all(t);
		output_exit(t, tid);
	}
	return 0;
}

/* Some faults come after sched_process_exit: the thread's id is cleared in user
 * memory (mm_release). So the thread is let go when its task is. */
static __always_inline int on_free(__u32 tid)
{
	struct thread *t = traced(tid);

	if (t) {
		settle(t);
		put_all(t);
		remove_thread(t, tid);
	}
	return 0;
}

/* tp_btf (Linux 5.5) and raw tracepoints (4.17) pass the same arguments. */
#define BTF(name, body) SEC("tp_btf/" #name) int btf_##name(__u64 *ctx) { return body; }
#define RAW(name, body) SEC("raw_tp/" #name) int raw_##name(__u64 *ctx) { return body; }
#define BOTH(name, body) BTF(name, body) RAW(name, body)

static __always_inline __u32 pid_of(__u64 task)
{
	int pid = 0;

	bpf_core_read(&pid, sizeof(pid), &((struct task_struct *)task)->pid);
	return pid;
}

BTF(page_fault_user, on_fault(ctx, ctx[0], ctx[2], 0, IP_OF_REGS, ctx[1]))
RAW(page_fault_user, on_fault(ctx, ctx[0], ctx[2], 0, IP_OF_TASK, 0))
BOTH(page_fault_kernel, on_fault(ctx, ctx[0], ctx[2], DETAIL_KERNEL, IP_OF_TASK, 0))
BOTH(mm_page_alloc, on_alloc(ctx, ctx[1], ctx[2]))
BOTH(rss_stat, on_rss(ctx, ctx[1]))
BOTH(task_newtask, on_newtask(pid_of(ctx[0]), ctx[1]))
BOTH(sched_process_exec, on_exec(ctx[1]))
BOTH(sched_process_exit, on_exit())
BOTH(sched_process_free, on_free(pid_of(ctx[0])))

/* Tracepoints (4.7): the fields as their format files lay them out. */
struct tp_page_fault {
	__u64 common;
	__u64 address;
	__u64 ip;
	__u64 error_code;
};

struct tp_mm_page_alloc {
	__u64 common;
	__u64 pfn;
	__u32 order;
	__u32 pad;
	__u64 gfp_flags;
};

struct tp_rss_stat {
	__u64 common;
	__u32 mm_id;
	__u32 curr;
	int member;
};

struct tp_newtask {
	__u64 common;
	__u32 pid;
	char comm[16];
	__u32 pad;
	__u64 clone_flags;
};

struct tp_exec {
	__u64 common;
	__u32 filename;
	__u32 pid;
	__u32 old_pid;
};

SEC("tracepoint/exceptions/page_fault_user")
int tp_page_fault_user(struct tp_page_fault *ctx)
{
	return on_fault(ctx, ctx->address, ctx->error_code, 0, IP_GIVEN, ctx->ip);
}

SEC("tracepoint/exceptions/page_fault_kernel")
int tp_page_fault_kernel(struct tp_page_fault *ctx)
{
	return on_fault(ctx, ctx->address, ctx->error_code, DETAIL_KERNEL, IP_OF_TASK, 0);
}

SEC("tracepoint/kmem/mm_page_alloc")
int tp_mm_page_alloc(struct tp_mm_page_alloc *ctx)
{
	return on_alloc(ctx, ctx->order, ctx->gfp_flags);
}

SEC("tracepoint/kmem/rss_stat")
int tp_rss_stat(struct tp_rss_stat *ctx)
{
	return on_rss(ctx, ctx->member);
}

SEC("tracepoint/task/task_newtask")
int tp_task_newtask(struct tp_newtask *ctx)
{
	return on_newtask(ctx->pid, ctx->clone_flags);
}

SEC("tracepoint/sched/sched_process_exec")
int tp_sched_process_exec(struct tp_exec *ctx)
{
	return on_exec(ctx->old_pid);
}

SEC("tracepoint/sched/sched_process_exit")
int tp_sched_process_exit(void *ctx)
{
	return on_exit();
}

/* Its pid has moved: a fixed comm of 16 bytes came before it until 6.15. */
const volatile __u8 free_has_fixed_comm = 0;

struct tp_free {
	__u64 common;
	__u32 comm;
	__u32 pid;
	__u64 rest;
	__u32 pid_after_comm;
};

SEC("tracepoint/sched/sched_process_free")
int tp_sched_process_free(struct tp_free *ctx)
{
	/* Two loads, or the compiler makes it one at an offset that the verifier does not know. */
	if (free_has_fixed_comm)
		return on_free(*(volatile __u32 *)&ctx->pid_after_comm);
	return on_free(*(volatile __u32 *)&ctx->pid);
}

SEC("uprobe")
int gc_probe(struct pt_regs *ctx)
{
	return on_gc_event(ctx, bpf_get_attach_cookie(ctx));
}

static long settle_thread(void *map, __u32 *slot, struct thread *t, void *unused)
{
	if (!t->tid)
		return 0;
	settle(t);
	put_all(t);
	return 0;
}

/* Run by the user when all the others have been detached: decides the faults that
 * were the last of their threads. bpf_for_each_map_elem: 5.13. */
SEC("syscall")
int settle_all(void *ctx)
{
	bpf_for_each_map_elem(&threads, settle_thread, 0, 0);
	return 0;
}

/* Run by the user to trace a thread from now on. It is done here, since four
 * threads share a word of slots. */
SEC("syscall")
int enter_thread(struct entry *e)
{
	struct thread *t;

	if (traced(e->tid)) {
		e->done = 2;
		return 0;
	}
	t = take_slot(e->tid);
	if (!t)
		return 0;
	t->space = e->space;
	t->tgid = e->tgid;
	t->waits = e->at_exec;
	e->done = 1;
	return 0;
}
