/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Results on their way to the user: records in the ring buffer, or counts. The
 * ring buffer's reader is never woken: that would double the cost of a copy. It
 * comes by itself. */
#ifndef COWAUDIT_OUTPUT_H
#define COWAUDIT_OUTPUT_H

#define IN_FAULT 1
#define IN_WP_PAGE 2
#define IN_EXCEPTION 4
#define STACK_DEPTH 32

struct kernel_frames {
	__u64 ip[STACK_DEPTH];
	/* What was found. In memory, where the verifier does not follow each value:
	 * in a register it would look at every combination of every frame. */
	__u32 where;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kernel_frames);
} frames SEC(".maps");

/* kernel_stack says what the kernel is about: IN_... of the functions on its
 * stack. 0 where the addresses of the functions are not known. */
static __always_inline __u32 kernel_stack(void *ctx)
{
	__u32 zero = 0;
	struct kernel_frames *k = bpf_map_lookup_elem(&frames, &zero);
	long n;
	int i;

	if (!k || !handle_mm_fault_start)
		return 0;
	k->where = 0;
	n = bpf_get_stack(ctx, k->ip, sizeof(k->ip), 0);
	if (n < 0)
		return 0;
	for (i = 0; i < STACK_DEPTH; i++) {
		__u64 ip = k->ip[i];

		if ((long)(i * sizeof(__u64)) >= n)
			break;
		if (ip >= handle_mm_fault_start && ip < handle_mm_fault_end)
			k->where |= IN_FAULT;
		else if (ip >= do_wp_page_start && ip < do_wp_page_end)
			k->where |= IN_WP_PAGE;
		else if (ip >= exc_page_fault_start && ip < exc_page_fault_end)
			k->where |= IN_EXCEPTION;
	}
	return k->where;
}

/* put_batch writes a thread's faults to the ring buffer. */
static __noinline int put_batch(struct thread *t)
{
	struct fault_record *r = &t->batch;
	__u64 n = r->n;
	int i;

	if (!n)
		return 0;
	if (n > BATCH)
		n = BATCH;
	for (i = 0; i < BATCH; i++) {
		if (i >= n)
			break;
		count_total(r->faults[i].kind, 1, 1ULL << (r->faults[i].order & 31));
	}
	r->type = RECORD_FAULT;
	r->tid = t->tid;
	r->space = t->space;
	if (bpf_ringbuf_output(&records, r, sizeof(*r) - (BATCH - n) * sizeof(r->faults[0]), BPF_RB_NO_WAKEUP))
		count_losses(LOSS_RECORDS, n);
	r->n = 0;
	return 0;
}

/* output_record gathers faults in the thread: a place in the ring buffer for each
 * would cost as much as all the rest. */
static __always_inline void output_record(struct thread *t, struct fault *f, __u8 kind)
{
	struct fault_entry *e = &t->batch.faults[t->batch.n & (BATCH - 1)];

	e->kind = kind;
	e->detail = f->detail;
	e->order = f->order;
	e->error = f->error;
	e->region = f->region;
	e->addr = f->addr;
	e->ip = f->ip;
	e->time = f->time;
	e->gc = f->gc;
	e->stack = f->stack;
	t->batch.n++;
	if (t->batch.n >= BATCH)
		put_batch(t);
}

/* now is the time to the last tick, or to the user's last mark: reading the clock
 * waits for all loads under way, and on a page fault there are some (150 ns). */
static __always_inline __u64 now(struct thread *t)
{
	__u64 tick = bpf_jiffies64();

	if (tick != t->jiffies || t->mark != mark) {
		t->mark = mark;
		t->jiffies = tick;
		t->time = bpf_ktime_get_ns();
	}
	return t->time;
}

/* add_count adds to one of the tables of counts. */
static __always_inline int add_count(void *table, struct count_key *key, struct count *more)
{
	struct count *n = bpf_map_lookup_elem(table, key);

	if (!n)
		return bpf_map_update_elem(table, key, more, BPF_ANY);
	n->faults += more->faults;
	n->pages += more->pages;
	return 0;
}

/* put_count adds what a thread has gathered to the counts. */
static __noinline int put_count(struct thread *t)
{
	struct count_key key = t->key;
	struct count more = t->count;
	int full;

	if (!more.faults)
		return 0;
	count_total(key.kind, more.faults, more.pages);
	if (counts_turn & 1)
		full = add_count(&counts_odd, &key, &more);
	else
		full = add_count(&counts_even, &key, &more);
	if (full)
		count_losses(LOSS_COUNTS, more.faults);
	t->count.faults = 0;
	t->count.pages = 0;
	return 0;
}

/* GATHER faults are counted in the thread before they go where others see them. */
#define GATHER 64

/* output_count gathers faults of the same place and kind in the thread: they come
 * in a row, and looking up the counts each time costs as much as all the rest. */
static __always_inline void output_count(struct thread *t, struct fault *f, __u8 kind)
{
	struct count_key *k = &t->key;

	if (k->ip != f->ip || k->region != f->region || k->space != t->space || k->kind != kind ||
	    k->detail != f->detail || k->phase != f->gc.phase || k->step != f->gc.step ||
	    k->seq != f->gc.seq || k->stack != f->stack || t->count.faults >= GATHER) {
		put_count(t);
		k->space = t->space;
		k->region = f->region;
		k->ip = f->ip;
		k->kind = kind;
		k->detail = f->detail;
		k->phase = f->gc.phase;
		k->step = f->gc.step;
		k->seq = f->gc.seq;
		k->stack = f->stack;
	}
	t->count.faults++;
	t->count.pages += 1ULL << (f->order & 31);
}

static __always_inline void output_fault(struct thread *t, struct fault *f, __u8 kind)
{
	if (f->detail & DETAIL_NO_MAPPING)
		count_loss(LOSS_REGIONS);
	if (want_records)
		output_record(t, f, kind);
	else
		output_count(t, f, kind);
}

/* put_all lets go of everything that the thread has gathered. */
static __always_inline void put_all(struct thread *t)
{
	put_batch(t);
	put_count(t);
}

static __always_inline void output_exit(struct thread *t, __u32 tid)
{
	struct exit_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);

	if (!r) {
		count_loss(LOSS_RECORDS);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->type = RECORD_EXIT;
	r->tid = tid;
	r->tgid = t->tgid;
	r->space = t->space;
	r->time = bpf_ktime_get_ns();
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

#endif
