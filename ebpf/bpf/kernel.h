/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The few kernel types that the tracer looks into. The loader relocates each
 * access to the running kernel's own layout (CO-RE), so only names and types
 * matter here, not offsets. Sources: include/linux/{sched,mm_types,fs}.h and
 * arch/x86/include/asm/ptrace.h. */
#ifndef COWAUDIT_KERNEL_H
#define COWAUDIT_KERNEL_H

/* Of include/uapi/linux/bpf.h and types.h: what the helpers' declarations need. */
typedef signed char __s8;
typedef short __s16;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

enum {
	BPF_RB_NO_WAKEUP = 1ULL << 0,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct;

struct task_struct {
	int pid;
	int tgid;
	struct mm_struct *mm;
	/* Set while the kernel handles a fault from user mode (mm/memory.c,
	 * handle_mm_fault), where memory cgroups are built in (CONFIG_MEMCG; since
	 * 6.11 CONFIG_MEMCG_V1). */
	unsigned int in_user_fault : 1;
};

struct file;

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

/* x86-64: orig_ax is -1 in an exception (idtentry), the number in a system call. */
struct pt_regs {
	unsigned long r15;
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r11;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long ax;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long flags;
	unsigned long sp;
	unsigned long ss;
};

/* mm_lock_seq: moves on with each change of the mappings. An int from Linux 6.4
 * (5e31275cc997), a sequence count from 6.13 (eb449bd96954); absent before. */
typedef struct seqcount {
	unsigned int sequence;
} seqcount_t;

struct mm_struct___seqcount {
	seqcount_t mm_lock_seq;
};

struct mm_struct___int {
	int mm_lock_seq;
};

/* Until 6.2 (f1a7941243c1) the counters of an address space were gathered per
 * thread, and kmem:rss_stat did not see each change. */
struct mm_rss_stat {
	int counters_are_per_thread;
};

#pragma clang attribute pop

#endif
