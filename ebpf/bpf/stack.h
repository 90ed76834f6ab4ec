/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* User stacks, by frame pointers. The kernel's own walk (bpf_get_stackid) costs
 * three times as much: it sets up for any kind of code, and where frame pointers
 * are missing it runs into an exception. This one looks at a frame pointer before
 * it follows it. */
#ifndef COWAUDIT_STACK_H
#define COWAUDIT_STACK_H

#define STACK_LIMIT (64ULL << 20)	/* frames further apart than this are none */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct user_stack);
} user_frames SEC(".maps");

struct frame {
	__u64 next;	/* the caller's frame pointer */
	__u64 ret;	/* the return address */
};

/* take_user_stack gives the key of the thread's stack in stacks; 0: none could be
 * kept. The instruction itself is the first entry. */
static __always_inline __u64 take_user_stack(struct pt_regs *regs)
{
	__u32 zero = 0;
	struct user_stack *s = bpf_map_lookup_elem(&user_frames, &zero);
	__u64 hash, bp = regs->bp, low = regs->sp;
	struct frame f;
	int i;

	if (!s)
		return 0;
	s->ip[0] = regs->ip;
	hash = regs->ip * 0x9e3779b97f4a7c15ULL;
	for (i = 1; i < USER_FRAMES; i++) {
		if (bp < low || bp - low > STACK_LIMIT || (bp & 7))
			break;
		if (bpf_probe_read_user(&f, sizeof(f), (void *)bp))
			break;
		if (!f.ret)
			break;
		s->ip[i] = f.ret;
		hash = (hash ^ f.ret) * 0xff51afd7ed558ccdULL;
		hash ^= hash >> 32;
		low = bp + sizeof(f);
		bp = f.next;
	}
	if (i < USER_FRAMES)
		s->ip[i] = 0;
	hash |= 1;
	if (bpf_map_lookup_elem(&stacks, &hash))
		return hash;
	/* What lies beyond the end is an older stack's: nobody looks there. */
	if (bpf_map_update_elem(&stacks, &hash, s, BPF_ANY)) {
		count_loss(LOSS_STACKS);
		return 0;
	}
	return hash;
}

#endif
