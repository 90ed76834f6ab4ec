/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs and their user share. bpf2go makes the Go types from here;
 * nothing of this is written down a second time. */
#ifndef COWAUDIT_FAULTS_H
#define COWAUDIT_FAULTS_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;

/* What became of a page fault. */
enum kind {
	KIND_UNKNOWN,	/* could not be told; counted, never folded into another */
	KIND_COPIED,	/* a page shared with another process was copied */
	KIND_REUSED,	/* nobody shared it any more: made writable in place */
	KIND_ZERO,	/* first write on the kernel's zero page */
	KIND_FILE,	/* a page of a private file mapping became the process' own */
	KIND_NEW,	/* first touch: an anonymous page filled with zeros */
	KIND_READ,	/* a read fault: no page became private */
	KIND_SHARED,	/* a write to shared memory */
	KIND_SWAPPED,	/* a write fault that brought a page in from swap */
	KIND_HUGETLB,	/* a huge page of hugetlbfs: copy and reuse look alike here */
	KIND_OTHER,	/* a write fault that took no page: migration, NUMA hint, a race */
	KIND_COUNT,
};

/* More about it; any number of these. */
enum detail {
	DETAIL_KERNEL = 1,	/* the fault was taken in kernel mode: a system call wrote */
	DETAIL_NO_FAULT = 2,	/* no fault: the kernel wrote through pinned pages (O_DIRECT, ...) */
	DETAIL_FROM_SWAP = 4,	/* the page came back from swap first */
	DETAIL_HUGE = 8,	/* a folio larger than one page */
	DETAIL_NO_MAPPING = 16,	/* the mapping of the address could not be looked up */
};

enum phase {
	PHASE_UNKNOWN,	/* there is no way to tell for this process */
	PHASE_NONE,	/* no garbage collection */
	PHASE_MINOR,
	PHASE_MAJOR,
	PHASE_GC,	/* a garbage collection; which kind is not told */
};

enum step {
	STEP_UNKNOWN,
	STEP_NONE,
	STEP_MARKING,
	STEP_SWEEPING,
	STEP_COMPACTING,
};

enum record_type {
	RECORD_UNKNOWN,
	RECORD_FAULT,
	RECORD_SPACE,	/* an address space came up */
	RECORD_REGION,	/* a mapping was seen for the first time */
	RECORD_EXIT,	/* a thread ended */
	RECORD_GC,	/* a probe on the collector was hit */
};

enum cause {
	CAUSE_UNKNOWN,
	CAUSE_START,	/* traced from the start, or added by hand */
	CAUSE_FORK,
	CAUSE_EXEC,
};

/* Why something is missing from the result. */
enum loss {
	LOSS_RECORDS,	/* the ring buffer was full */
	LOSS_COUNTS,	/* the table of counts was full */
	LOSS_THREADS,	/* the table of threads was full: a thread is not followed */
	LOSS_SPACES,	/* the table of address spaces was full */
	LOSS_STACKS,	/* no room for a stack, or none could be read */
	LOSS_REGIONS,	/* the mapping of an address could not be looked up */
	LOSS_PHASES,	/* the collector's state could not be read at the fault */
	LOSS_COUNT,
};

/* Flags of a region: those of vm_area_struct, and one of our own. */
#define REGION_FILE (1ULL << 63)
#define VM_SHARED 0x8ULL
#define VM_HUGETLB 0x400000ULL

struct gc_state {
	__u8 phase;
	__u8 step;
	__u16 unused;
	__u32 seq;	/* number of the collection, as the runtime counts, or as we do */
};

struct fault_entry {
	__u8 kind;
	__u8 detail;
	__u8 order;	/* the page is 1 << order base pages */
	__u8 error;	/* the exception's error code, low byte */
	__u32 region;	/* 0: none */
	__u64 addr;	/* 0: not known (DETAIL_NO_FAULT) */
	__u64 ip;
	__u64 time;	/* ns, CLOCK_MONOTONIC, to the last tick or mark; 0: between its neighbours */
	struct gc_state gc;
	__u64 stack;	/* key in stacks; 0: none */
};

/* Faults of one thread, in a row: one record of the ring buffer for several. */
#define BATCH 8

struct fault_record {
	__u8 type;	/* RECORD_FAULT */
	__u8 n;		/* entries in use; the record ends behind them */
	__u16 unused;
	__u32 tid;
	__u32 space;
	__u32 unused2;
	struct fault_entry faults[BATCH];
};

struct space_record {
	__u8 type;	/* RECORD_SPACE */
	__u8 cause;
	__u16 unused;
	__u32 tid;
	__u32 space;
	__u32 parent;
	__u64 time;
	char comm[16];	/* of the process that forked, or of what exec started */
};

struct region_record {
	__u8 type;	/* RECORD_REGION */
	__u8 unused[3];
	__u32 space;
	__u32 region;
	__u32 unused2;
	__u64 start;
	__u64 end;
	__u64 flags;
	__u64 pgoff;
};

struct exit_record {
	__u8 type;	/* RECORD_EXIT */
	__u8 unused[3];
	__u32 tid;
	__u32 tgid;
	__u32 space;
	__u64 time;
};

struct gc_record {
	__u8 type;	/* RECORD_GC */
	__u8 event;
	__u8 unused[2];
	__u32 tid;
	__u32 space;
	struct gc_state gc;
	__u64 time;
};

/* A fault that has begun, and what was seen of it. */
struct fault {
	__u8 open;
	__u8 seen;	/* SEEN_... */
	__u8 detail;
	__u8 order;
	__u32 error;
	__u32 region;
	__u32 unused;
	__u64 addr;
	__u64 ip;
	__u64 flags;	/* of the region */
	struct gc_state gc;
	__u64 stack;
	__u64 time;
};

#define SEEN_PLAIN 1	/* a page was allocated, not zeroed: for a copy */
#define SEEN_ZEROED 2	/* a page was allocated, zeroed */
#define SEEN_ANON 4	/* the number of anonymous pages changed */
#define SEEN_FILE 8	/* the number of file or shared pages changed */
#define SEEN_SWAP 16	/* the number of swap entries changed */

/* A bit field in the collector's state word. */
struct bits {
	__u64 mask;
	__u64 want;
};

/* How the phase of an address space's collector is known. */
struct collector {
	__u64 addr;	/* of the state word; 0: probes tell */
	__u64 count;	/* of the counter of collections; 0: none */
	struct bits during;
	struct bits minor;	/* mask 0: not known */
	struct bits unsettled;	/* where it holds, minor means nothing yet */
	struct bits marking;
	struct bits sweeping;
	struct bits compacting;
	__u8 size;		/* bytes of the word: 1, 2, 4, 8 */
	__u8 count_size;
	__u8 source;		/* 1: word, 2: probes */
	__u8 unused[5];
};

#define COLLECTOR_WORD 1
#define COLLECTOR_PROBES 2

struct count_key {
	__u32 space;
	__u32 region;
	__u64 ip;
	__u8 kind;
	__u8 detail;
	__u8 phase;
	__u8 step;
	__u32 seq;
	__u64 stack;
};

struct count {
	__u64 faults;
	__u64 pages;
};

struct thread {
	__u32 tid;	/* 0: the slot is free */
	__u32 space;
	struct fault fault;
	/* the mapping that was looked up last; good while seq holds */
	__u64 start;
	__u64 end;
	__u64 flags;
	__u32 region;
	__u32 seq;
	__u32 cached;
	__u8 busy;	/* in our own program: faults are not the target's */
	__u8 waits;	/* traced from the next exec on */
	__u16 unused;
	/* faults of one kind and place, not in counts yet */
	struct count_key key;
	struct count count;
	/* how the collector's state is known; good while the generation holds */
	__u32 generation;
	__u32 mark;	/* the user's mark, ... */
	__u64 jiffies;	/* ... and the tick, when ... */
	__u64 time;	/* ... the clock was read last */
	struct collector collector;
	struct gc_state gc;	/* by probes */
	__u32 gc_whole;	/* begin and end of collections are told, not only of their steps */
	__u32 tgid;
	/* faults that are not in the ring buffer yet */
	struct fault_record batch;
};

struct region_key {
	__u64 start;
	__u64 end;
	__u64 flags;
	__u64 pgoff;
	__u32 space;
	__u32 unused;
};

/* Return addresses, innermost first, the instruction before them; 0 ends it. */
#define USER_FRAMES 64
struct user_stack {
	__u64 ip[USER_FRAMES];
};


/* What a probe on the collector means: the attach cookie. */
enum gc_event {
	GC_UNKNOWN,
	GC_BEGIN,
	GC_END,
	MARK_BEGIN,
	MARK_END,
	SWEEP_BEGIN,
	SWEEP_END,
};

/* The argument of enter_thread. */
struct entry {
	__u32 tid;
	__u32 tgid;
	__u32 space;
	__u32 at_exec;	/* only from the next exec on */
	__u32 done;	/* out: 1: entered, 2: was there already, 0: no room */
	__u32 unused[3];
};

/* What a probe on the collector says. Its attach cookie is the index in probes. */
struct probe {
	__u64 operand;
	__s64 offset;	/* of ARG_MEMORY */
	__u8 event;	/* enum gc_event */
	__u8 arg;	/* ARG_... */
	__u8 slot;	/* register: a word of struct pt_regs */
	__u8 size;	/* bytes of the argument */
	__u8 shift;	/* bits to the right */
	__u8 rule;	/* RULE_... */
	__u8 phase;	/* without an argument: enum phase */
	__u8 sign;
};

#define ARG_NONE 0
#define ARG_REGISTER 1
#define ARG_MEMORY 2

/* A major collection, if the argument ... */
#define RULE_AT_LEAST 1	/* >= operand */
#define RULE_HAS_BITS 2	/* & operand */

#endif
