/* A library with what cowaudit needs of a libruby, in the shapes that compilers and releases give it.
 *
 *	VERSION		what ruby_version says
 *	CHECK		rb_during_gc asks whether the VM is there
 *	CALL		by way of exported and of local functions, as since 3.4
 *	TABLE		by way of a table of functions, as with a collector of its own module
 *	MINOR		the bit of during_minor_gc: 9 or 10
 *	SHIFT		one more bit before during_gc: not what any release has
 *	ODD		rb_during_gc does something else
 *	NOTES		USDT notes
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default"), noinline))
#define LOCAL static __attribute__((noinline))

struct objspace {
	size_t limit, increase;
#ifdef CALL
	int config;
#endif
	struct {
		unsigned int mode : 2;
		unsigned int immediate_sweep : 1;
		unsigned int dont_gc : 1;
		unsigned int dont_incremental : 1;
#ifdef SHIFT
		unsigned int another : 1;
#endif
		unsigned int during_gc : 1;
		unsigned int during_compacting : 1;
#if MINOR == 10
		unsigned int during_reference_updating : 1;
#endif
		unsigned int gc_stressful : 1;
		unsigned int has_hook : 1;
		unsigned int during_minor_gc : 1;
	} flags;
	long more[100];
	size_t minor_gc_count, major_gc_count, compact_count, read_barrier_faults;
	double gc_sweep_start_time;
	size_t total_allocated_objects_at_gc_start, heap_used_at_gc_start, count;
};

struct vm {
	long more[130];
	struct objspace *objspace;
};

static struct vm *vm;

EXPORT const char ruby_version[] = VERSION;

EXPORT void *rb_gc_get_objspace(void)
{
	return vm->objspace;
}

LOCAL bool during_gc_p(void *p)
{
	return ((struct objspace *)p)->flags.during_gc;
}

LOCAL size_t gc_count(void *p)
{
	return ((struct objspace *)p)->count;
}

#ifdef TABLE
struct functions {
	void *others[7];
	bool (*during_gc_p)(void *);
	size_t (*gc_count)(void *);
};
struct functions functions;	/* set by start: the compiler must not know */
#endif

EXPORT int rb_during_gc(void)
{
#if defined(ODD)
	return vm->objspace->flags.mode * 3 + 1;
#elif defined(TABLE)
	return functions.during_gc_p(rb_gc_get_objspace());
#elif defined(CALL)
	if (!vm)
		return 0;
	return during_gc_p(rb_gc_get_objspace());
#else
#ifdef CHECK
	if (!vm)
		return 0;
#endif
	return vm->objspace->flags.during_gc;
#endif
}

EXPORT size_t rb_gc_count(void)
{
#if defined(TABLE)
	return functions.gc_count(rb_gc_get_objspace());
#elif defined(CALL)
	return gc_count(rb_gc_get_objspace());
#else
	return vm->objspace->count;
#endif
}

#ifdef NOTES
/* The form of a note: sys/sdt.h of SystemTap and its description there. */
#define STRING(x) #x
#define NOTE(name, operand)							\
	asm volatile("990: nop\n"						\
		".pushsection .note.stapsdt, \"\", \"note\"\n"			\
		".balign 4\n"							\
		".4byte 992f-991f, 994f-993f, 3\n"				\
		"991: .asciz \"stapsdt\"\n"					\
		"992: .balign 4\n"						\
		"993: .8byte 990b, note_base, semaphore_" STRING(name) "\n"	\
		".asciz \"ruby\", \"" STRING(name) "\", \"" operand "\"\n"	\
		"994: .balign 4\n"						\
		".popsection\n"							\
		".pushsection .probes, \"aw\", \"progbits\"\n"			\
		"semaphore_" STRING(name) ": .2byte 0\n"			\
		".popsection\n")
asm(".pushsection .stapsdt.base, \"a\", \"progbits\"\n"
	"note_base: .byte 0\n"
	".popsection\n");

EXPORT void collect(int generation)
{
	NOTE(gc__mark__begin, "");
	NOTE(gc__mark__end, "");
	NOTE(gc__sweep__begin, "");
	NOTE(gc__sweep__end, "");
	NOTE(another, "-4@%edi 8@$5");
}
#endif

/* start makes the VM, in the middle of a collection: marking, minor. */
EXPORT void start(void)
{
	struct vm *made = calloc(1, sizeof(*made));
	struct objspace *o = made->objspace = calloc(1, sizeof(*o));

	o->flags.during_gc = 1;
	o->flags.mode = 1;
	o->flags.during_minor_gc = 1;
	o->minor_gc_count = 7;
	o->major_gc_count = 5;
	o->count = 12;
#ifdef TABLE
	functions.during_gc_p = during_gc_p;
	functions.gc_count = gc_count;
#endif
	vm = made;
	/* None of the functions is called: with lazy binding, nothing is bound yet. */
	printf("flags %p count %p major %p\n", (char *)&o->increase + sizeof(o->increase)
#ifdef CALL
		+ sizeof(int)
#endif
		, (void *)&o->count, (void *)&o->major_gc_count);
	fflush(stdout);
}
