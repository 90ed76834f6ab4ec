/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the process' garbage collector was doing at a fault. */
#ifndef COWAUDIT_PHASE_H
#define COWAUDIT_PHASE_H

static __always_inline int read_word(__u64 addr, __u8 size, __u64 *word)
{
	*word = 0;
	switch (size) {
	case 1:
		return bpf_probe_read_user(word, 1, (void *)addr);
	case 2:
		return bpf_probe_read_user(word, 2, (void *)addr);
	case 4:
		return bpf_probe_read_user(word, 4, (void *)addr);
	case 8:
		return bpf_probe_read_user(word, 8, (void *)addr);
	}
	return -1;
}

static __always_inline int holds(const struct bits *b, __u64 word)
{
	return b->mask && (word & b->mask) == b->want;
}

static __always_inline void phase_by_word(struct collector *c, struct gc_state *gc)
{
	__u64 word, count;

	if (read_word(c->addr, c->size, &word)) {
		count_loss(LOSS_PHASES);
		return;
	}
	if (!holds(&c->during, word)) {
		gc->phase = PHASE_NONE;
		gc->step = STEP_NONE;
		return;
	} else {
		gc->phase = !c->minor.mask || holds(&c->unsettled, word) ? PHASE_GC :
			    holds(&c->minor, word) ? PHASE_MINOR : PHASE_MAJOR;
		gc->step = holds(&c->compacting, word) ? STEP_COMPACTING :
			   holds(&c->marking, word) ? STEP_MARKING :
			   holds(&c->sweeping, word) ? STEP_SWEEPING : STEP_UNKNOWN;
	}
	/* Each reading of user memory costs some 100 ns: the number only in a collection. */
	if (c->count && !read_word(c->count, c->count_size, &count))
		gc->seq = count;
}

static __always_inline void output_gc(struct thread *t, __u32 tid, __u8 event)
{
	struct gc_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);

	if (!r) {
		count_loss(LOSS_RECORDS);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->type = RECORD_GC;
	r->event = event;
	r->tid = tid;
	r->space = t->space;
	r->gc = t->gc;
	r->time = bpf_ktime_get_ns();
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

static __always_inline void find_phase(struct thread *t, struct fault *f)
{
	struct collector *c, none = {};

	if (t->generation != collectors_generation) {
		c = bpf_map_lookup_elem(&collectors, &t->space);
		t->collector = c ? *c : none;
		t->generation = collectors_generation;
	}
	c = &t->collector;
	__builtin_memset(&f->gc, 0, sizeof(f->gc));
	if (c->source == COLLECTOR_WORD) {
		phase_by_word(c, &f->gc);
	} else if (c->source == COLLECTOR_PROBES) {
		f->gc = t->gc;
		if (!f->gc.phase) {
			f->gc.phase = PHASE_NONE;
			f->gc.step = STEP_NONE;
		}
	}
}

/* argument reads what a probe's note says holds its argument. */
static __always_inline int argument(struct pt_regs *ctx, const struct probe *p, __u64 *value)
{
	__u64 word = 0;

	if (p->slot >= sizeof(struct pt_regs) / sizeof(__u64) ||
	    bpf_probe_read_kernel(&word, sizeof(word), (void *)ctx + p->slot * sizeof(__u64)))
		return -1;
	if (p->arg == ARG_MEMORY && read_word(word + p->offset, p->size, &word))
		return -1;
	word >>= p->shift & 63;
	if (p->size == 4)
		word = p->sign ? (__u64)(__s64)(__s32)word : (__u32)word;
	else if (p->size == 2)
		word = (__u16)word;
	else if (p->size == 1)
		word = (__u8)word;
	*value = word;
	return 0;
}

static __always_inline __u8 phase_by_argument(struct pt_regs *ctx, const struct probe *p)
{
	__u64 value;
	int major;

	if (p->arg == ARG_NONE)
		return p->phase;
	if (argument(ctx, p, &value))
		return PHASE_GC;
	if (p->rule == RULE_AT_LEAST)
		major = p->sign ? (__s64)value >= (__s64)p->operand : value >= p->operand;
	else if (p->rule == RULE_HAS_BITS)
		major = !!(value & p->operand);
	else
		return PHASE_GC;
	return major ? PHASE_MAJOR : PHASE_MINOR;
}

/* on_gc_event keeps the state of the thread that runs the collector: faults of
 * other threads meanwhile are not the collector's. */
static __always_inline int on_gc_event(struct pt_regs *ctx, __u64 cookie)
{
	__u32 tid;
	struct thread *t = current_thread(&tid);
	__u32 index = cookie;
	struct probe *p = bpf_map_lookup_elem(&probes, &index);
	struct gc_state *gc;
	__u8 inside;

	if (!t || !p)
		return 0;
	gc = &t->gc;
	inside = gc->phase > PHASE_NONE;
	switch (p->event) {
	case GC_BEGIN:
		gc->phase = phase_by_argument(ctx, p);
		gc->step = STEP_UNKNOWN;
		gc->seq++;
		t->gc_whole = 1;	/* the end of a step is not the end of it all */
		break;
	case MARK_BEGIN:
		if (!inside) {
			gc->phase = phase_by_argument(ctx, p);
			gc->seq++;
		}
		gc->step = STEP_MARKING;
		break;
	case SWEEP_BEGIN:
		if (!inside)
			gc->phase = PHASE_GC;
		gc->step = STEP_SWEEPING;
		break;
	case MARK_END:
	case SWEEP_END:
		/* Where the beginning and the end of the whole are not told, a step's end is one. */
		gc->step = STEP_UNKNOWN;
		if (!t->gc_whole)
			gc->phase = PHASE_NONE;
		break;
	case GC_END:
		gc->phase = PHASE_NONE;
		gc->step = STEP_NONE;
		break;
	}
	output_gc(t, tid, p->event);
	return 0;
}

#endif
