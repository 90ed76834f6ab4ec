/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Threads, the address spaces that they run in, and the mappings of these. */
#ifndef COWAUDIT_SPACE_H
#define COWAUDIT_SPACE_H

#define VM_WRITE 0x2ULL
#define VM_FLAGS_SEEN (0xfULL | VM_HUGETLB)	/* read, write, exec, shared */

/* include/uapi/linux/sched.h */
#define CLONE_VM 0x100
#define CLONE_THREAD 0x10000

static __always_inline void output_space(struct thread *t, __u32 tid, __u32 parent, __u8 cause)
{
	struct space_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);

	if (!r) {
		count_loss(LOSS_RECORDS);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->type = RECORD_SPACE;
	r->cause = cause;
	r->tid = tid;
	r->space = t->space;
	r->parent = parent;
	r->time = bpf_ktime_get_ns();
	bpf_get_current_comm(r->comm, sizeof(r->comm));
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

static __always_inline void new_space(struct thread *t, __u32 tid, __u32 parent, __u8 cause)
{
	struct collector *c;

	t->space = __sync_fetch_and_add(&last_space, 1);
	t->tgid = tid;
	t->cached = 0;
	t->generation = 0;
	t->jiffies = 0;
	t->collector.source = 0;
	if (cause == CAUSE_FORK) {
		/* The collector's state lies where the parent's does. */
		c = bpf_map_lookup_elem(&collectors, &parent);
		if (c && bpf_map_update_elem(&collectors, &t->space, c, BPF_ANY))
			count_loss(LOSS_SPACES);
	}
	output_space(t, tid, parent, cause);
}

/* take_slot gives a thread id a state of its own, all zero; 0: there is none left. */
static __always_inline struct thread *take_slot(__u32 tid)
{
	__u16 *slot = slot_of(tid);
	struct thread *t;
	__u32 key = 0;

	/* A slot is there already if the end of the thread that had the id was missed. */
	if (slot && *slot)
		key = *slot;
	else if (!slot || bpf_map_pop_elem(&free_slots, &key)) {
		count_loss(LOSS_THREADS);
		return 0;
	}
	t = bpf_map_lookup_elem(&threads, &key);
	if (!t)
		return 0;
	__builtin_memset(t, 0, sizeof(*t));
	t->tid = tid;
	*slot = key;
	return t;
}

static __always_inline void release_slot(struct thread *t, __u32 tid)
{
	__u16 *slot = slot_of(tid);
	__u32 key;

	if (!slot || !*slot)
		return;
	key = *slot;
	*slot = 0;
	t->tid = 0;
	bpf_map_push_elem(&free_slots, &key, BPF_ANY);
}

static __always_inline void add_thread(struct thread *parent, __u32 tid, __u64 clone_flags)
{
	struct thread *t = take_slot(tid);

	if (!t)
		return;
	t->space = parent->space;
	t->tgid = clone_flags & CLONE_THREAD ? parent->tgid : tid;
	t->waits = parent->waits;
	if (!(clone_flags & CLONE_VM))
		new_space(t, tid, parent->space, CAUSE_FORK);
}

static __always_inline void remove_thread(struct thread *t, __u32 tid)
{
	__u32 space = t->space;

	if (t->tgid == tid)
		bpf_map_delete_elem(&collectors, &space);
	release_slot(t, tid);
}

/* The first thread of a process that calls exec has another one's id from then on. */
static __always_inline struct thread *move_thread(__u32 from, __u32 to)
{
	__u16 *a = slot_of(from), *b = slot_of(to);
	struct thread *t = traced(from);

	if (!a || !b || !t)
		return 0;
	*b = *a;
	*a = 0;
	t->tid = to;
	return t;
}

struct mapping {
	__u64 start;
	__u64 end;
	__u64 flags;
	__u64 pgoff;
};

static long copy_mapping(struct task_struct *task, struct vm_area_struct *vma, struct mapping *m)
{
	m->start = vma->vm_start;
	m->end = vma->vm_end;
	m->flags = vma->vm_flags & VM_FLAGS_SEEN;
	if (vma->vm_file)
		m->flags |= REGION_FILE;
	m->pgoff = vma->vm_pgoff;
	return 0;
}

/* A number that changes when the mappings of an address space do; 0: none. */
static __always_inline __u32 mappings_seq(struct mm_struct *mm)
{
	struct mm_struct___seqcount *s = (void *)mm;
	struct mm_struct___int *i = (void *)mm;
	__u32 seq = 0;

	if (bpf_core_field_exists(s->mm_lock_seq))
		seq = s->mm_lock_seq.sequence;
	else if (bpf_core_field_exists(i->mm_lock_seq))
		seq = i->mm_lock_seq;
	else
		return 0;
	return seq + 1 ? seq + 1 : 1;
}

static __always_inline int counters_per_thread(void)
{
	return bpf_core_type_exists(struct mm_rss_stat);
}

static __always_inline __u32 number_region(struct thread *t, struct mapping *m)
{
	struct region_key key = {};
	struct region_record *r;
	__u32 *known, id;

	key.space = t->space;
	key.start = m->start;
	key.end = m->end;
	key.flags = m->flags;
	key.pgoff = m->pgoff;
	known = bpf_map_lookup_elem(&regions, &key);
	if (known)
		return *known;
	id = __sync_fetch_and_add(&last_region, 1) + 1;
	r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	if (!r) {
		count_loss(LOSS_RECORDS);
		return id;	/* not kept: told again the next time */
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->type = RECORD_REGION;
	r->space = t->space;
	r->region = id;
	r->start = m->start;
	r->end = m->end;
	r->flags = m->flags;
	r->pgoff = m->pgoff;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&regions, &key, &id, BPF_ANY);
	return id;
}

/* look_up_region asks for the mapping of the fault's address: bpf_find_vma (5.17,
 * kernel/bpf/task_iter.c) tries for the lock of the mappings, and fails where
 * another thread is changing them. */
static __noinline int look_up_region(struct thread *t, struct fault *f)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	struct mapping m = {};
	__u32 seq;

	seq = mm ? mappings_seq(mm) : 0;
	t->cached = 0;
	if (bpf_find_vma(task, f->addr, copy_mapping, &m, 0)) {
		f->detail |= DETAIL_NO_MAPPING;
		return -1;
	}
	f->detail &= ~DETAIL_NO_MAPPING;
	f->region = number_region(t, &m);
	f->flags = m.flags;
	t->start = m.start;
	t->end = m.end;
	t->flags = m.flags;
	t->region = f->region;
	t->seq = seq;
	t->cached = 1;
	return 0;
}

/* find_region says which mapping the fault's address lies in. The mapping that the
 * thread asked for last is kept: looking up costs a lock and, with interrupts off
 * as they are at a fault, an interrupt to give it back. A thread changes its address
 * space only by exec, which begins a new one here too. */
static __always_inline void find_region(struct thread *t, struct fault *f)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	__u32 seq = mm ? mappings_seq(mm) : 0;

	if (t->cached && seq && seq == t->seq && f->addr >= t->start &&
	    f->addr < t->end) {
		f->region = t->region;
		f->flags = t->flags;
		return;
	}
	f->region = 0;
	f->flags = 0;
	look_up_region(t, f);
}

/* Once more, when it could not be told at the fault. */
static __always_inline void find_region_late(struct thread *t, struct fault *f)
{
	if (f->detail & DETAIL_NO_MAPPING)
		look_up_region(t, f);
}

#endif
