/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Settings, maps, and the counters of what was seen and what was lost. */
#ifndef COWAUDIT_MAPS_H
#define COWAUDIT_MAPS_H

/* Settings, fixed before the programs are loaded. */
const volatile __u8 want_stacks = 0;	/* user stacks */
const volatile __u8 want_records = 1;	/* each fault in the ring buffer; else counts only */
const volatile __u8 follow_forks = 1;
/* Address ranges of kernel functions, of /proc/kallsyms; 0: not known. */
const volatile __u64 handle_mm_fault_start = 0, handle_mm_fault_end = 0;
const volatile __u64 do_wp_page_start = 0, do_wp_page_end = 0;
const volatile __u64 exc_page_fault_start = 0, exc_page_fault_end = 0;

/* State. Spaces below FIRST_SPACE are numbered by the user. */
#define FIRST_SPACE 65536
__u32 last_space = FIRST_SPACE;
__u32 last_region = 0;
/* Moves on with each change of collectors; 0: there are none. */
__u32 collectors_generation = 0;
/* Moves on when the user notes a time: no fault after that may have one before it. */
__u32 mark = 0;
/* Which of the counts is in use, by its last bit. */
__u32 counts_turn = 0;
/* The flags with which do_wp_page asks for pages, learnt from the first copy. */
__u64 gfp_of_copies = 0;

/* The traced threads. A look-up in a hash costs as much as a program that does
 * nothing; these two are loads. */
#define MAX_THREADS 8192

struct slots {
	__u16 slot[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4194304 / 4);	/* the user makes it fit kernel.pid_max */
	__type(key, __u32);	/* thread id / 4, in the first PID namespace */
	__type(value, struct slots);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);	/* slot; 0 is nobody's */
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, MAX_THREADS);
	__type(value, __u32);	/* slots that are free; the user fills it */
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);	/* space */
	__type(value, struct collector);
} collectors SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);	/* attach cookie */
	__type(value, struct probe);
} probes SEC(".maps");

/* Those that were looked up least go when it is full, which are those of spaces
 * that have ended: nobody else takes them out. One that is needed again is told
 * again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct region_key);
	__type(value, __u32);
} regions SEC(".maps");

/* Counts, twice: the user reads and empties the one that is not in use. */
struct counts {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct count_key);
	__type(value, struct count);
};

struct counts counts_even SEC(".maps"), counts_odd SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);	/* hash of the stack, never 0 */
	__type(value, struct user_stack);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, KIND_COUNT);
	__type(key, __u32);	/* enum kind */
	__type(value, struct count);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSS_COUNT);
	__type(key, __u32);	/* enum loss */
	__type(value, __u64);
} losses SEC(".maps");

static __always_inline void count_losses(__u32 loss, __u64 how_many)
{
	__u64 *n = bpf_map_lookup_elem(&losses, &loss);

	if (n)
		*n += how_many;
}

static __always_inline void count_loss(__u32 loss)
{
	count_losses(loss, 1);
}

static __always_inline void count_total(__u32 kind, __u64 faults, __u64 pages)
{
	struct count *n = bpf_map_lookup_elem(&totals, &kind);

	if (n) {
		n->faults += faults;
		n->pages += pages;
	}
}

static __always_inline __u16 *slot_of(__u32 tid)
{
	__u32 key = tid / 4;
	struct slots *s = bpf_map_lookup_elem(&slots, &key);

	return s ? &s->slot[tid % 4] : 0;
}

/* traced gives a thread's state; 0: it is not traced. */
static __always_inline struct thread *traced(__u32 tid)
{
	__u16 *slot = slot_of(tid);
	__u32 key;

	if (!slot || !*slot)
		return 0;
	key = *slot;
	return bpf_map_lookup_elem(&threads, &key);
}

static __always_inline struct thread *current_thread(__u32 *tid)
{
	*tid = bpf_get_current_pid_tgid();
	return traced(*tid);
}

#endif
