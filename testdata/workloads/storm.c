/* storm: dozens of processes that fork, exit, exec, vfork, start threads, map, unmap, move, protect and advise memory, and
 * write to it, all the time and at random, until standard input ends. For tests of readers that must not be disturbed by it.
 *
 *   storm SEED [PROCESSES]
 *
 * Prints READY when it is at full strength, and at its end
 *
 *   DONE forks=N execs=N exits=N vforks=N threads=N maps=N unmaps=N moves=N protects=N advises=N writes=N crashes=N
 */
#include "stages.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum { REGIONS = 24, BIGGEST = 96 /* pages */, LARGE = 1024 };
enum { FORK, EXEC, EXIT, VFORK, THREAD, MAP, UNMAP, MOVE, PROTECT, ADVISE, WRITE, CRASH, KINDS };
static const char *kinds[KINDS] = {"forks", "execs", "exits", "vforks", "threads", "maps", "unmaps", "moves", "protects", "advises", "writes", "crashes"};

static struct shared {
	long live, limit, count[KINDS];
} *S;
static int shared_fd, file_fd;
static uint64_t seed;
static size_t page;
static int first; /* this is the first process */

static struct {
	char *at;
	size_t pages;
	int writable;
} regions[REGIONS];

static uint64_t draw(uint64_t below) {
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}
static void done(int kind) { __atomic_add_fetch(&S->count[kind], 1, __ATOMIC_RELAXED); }
static void reseed(void) { seed = (seed ^ (uint64_t)getpid() * 0x9e3779b97f4a7c15ULL) | 1; }

static void crashed(int signal) {
	(void)signal;
	done(CRASH);
	_exit(1);
}

static int any(int used) {
	for (int i = (int)draw(REGIONS), n = 0; n < REGIONS; n++, i = (i + 1) % REGIONS)
		if (!regions[i].at == !used)
			return i;
	return -1;
}

static void write_some(int i) {
	if (i < 0 || regions[i].writable <= 0)
		return;
	size_t a = draw(regions[i].pages), b = a + 1 + draw(regions[i].pages - a);
	for (; a < b; a++)
		*(volatile uint64_t *)(regions[i].at + a * page + 8 * draw(64)) += draw(3);
	done(WRITE);
}

static void map_some(void) {
	int i = any(0);
	if (i < 0)
		return;
	size_t n = draw(40) ? 1 + draw(BIGGEST) : LARGE;
	char *p;
	switch (draw(6)) {
	case 0:
		p = mmap(0, n * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		break;
	case 1:
		n = 1 + draw(BIGGEST);
		p = mmap(0, n * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file_fd, 0);
		break;
	default:
		p = mmap(0, n * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	if (p == MAP_FAILED)
		return;
	regions[i].at = p;
	regions[i].pages = n;
	regions[i].writable = 1;
	done(MAP);
	write_some(i);
}

static void unmap_some(void) {
	int i = any(1);
	if (i < 0)
		return;
	munmap(regions[i].at, regions[i].pages * page);
	regions[i].at = 0;
	done(UNMAP);
}

static void move_some(void) {
	int i = any(1);
	if (i < 0 || regions[i].writable <= 0)
		return;
	size_t n = 1 + draw(BIGGEST);
	char *to = mmap(0, n * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (to == MAP_FAILED)
		return;
	size_t old = regions[i].pages;
	char *p = mremap(regions[i].at, old * page, n * page, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	if (p == MAP_FAILED) { /* several mappings by now; its end may be gone already */
		munmap(to, n * page);
		munmap(regions[i].at, old * page);
		regions[i].at = 0;
		return;
	}
	/* What lies beyond the end of a shared object cannot be written. */
	regions[i].at = p;
	regions[i].pages = n < old ? n : old;
	if (n > old)
		munmap(p + old * page, (n - old) * page);
	done(MOVE);
}

static void protect_some(void) {
	int i = any(1);
	if (i < 0 || regions[i].writable < 0)
		return;
	static const int prot[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
	int k = (int)draw(3);
	size_t a = draw(2) ? draw(regions[i].pages) : 0;
	if (mprotect(regions[i].at + a * page, (regions[i].pages - a) * page, prot[k]))
		return;
	regions[i].writable = k == 2 && a == 0;
	done(PROTECT);
}

static void advise_some(void) {
	static const int advice[] = {MADV_DONTNEED,  MADV_FREE,   MADV_COLD,	 MADV_PAGEOUT,	      MADV_HUGEPAGE,	  MADV_NOHUGEPAGE,
				     MADV_MERGEABLE, MADV_DOFORK, MADV_DONTFORK, MADV_POPULATE_WRITE, MADV_GUARD_INSTALL, MADV_KEEPONFORK};
	int i = any(1);
	if (i < 0 || regions[i].writable <= 0)
		return;
	int a = advice[draw(sizeof advice / sizeof *advice)];
	if (madvise(regions[i].at, regions[i].pages * page, a))
		return;
	if (a == MADV_DONTFORK || a == MADV_GUARD_INSTALL)
		regions[i].writable = -1; /* leave it alone: it may not be there in a child */
	done(ADVISE);
}

static void *thread(void *arg) {
	volatile char room[8 * 4096];
	for (size_t i = 0; i < sizeof room; i += 4096)
		room[i] = (char)(uintptr_t)arg;
	usleep((useconds_t)(uintptr_t)arg);
	return 0;
}

static void thread_some(void) {
	pthread_t t;
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&a, 256 << 10);
	if (!pthread_create(&t, &a, thread, (void *)(uintptr_t)(1 + draw(5000))))
		done(THREAD);
	pthread_attr_destroy(&a);
}

static void live(void);

static void forget_unforked(void) {
	for (int i = 0; i < REGIONS; i++)
		if (regions[i].writable < 0)
			regions[i].at = 0;
}

static void fork_some(void) {
	if (__atomic_add_fetch(&S->live, 1, __ATOMIC_RELAXED) > S->limit) {
		__atomic_sub_fetch(&S->live, 1, __ATOMIC_RELAXED);
		return;
	}
	pid_t parent = getpid();
	switch (fork()) {
	case -1:
		__atomic_sub_fetch(&S->live, 1, __ATOMIC_RELAXED);
		return;
	case 0:
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		first = 0;
		reseed();
		forget_unforked();
		live();
	}
	done(FORK);
}

static int spawned(void *arg) {
	usleep((useconds_t)(uintptr_t)arg);
	_exit(0);
}

static void vfork_some(void) {
	static char stack[65536] __attribute__((aligned(16)));
	pid_t p = clone(spawned, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)(uintptr_t)draw(2000));
	if (p > 0) {
		waitpid(p, 0, 0);
		done(VFORK);
	}
}

static void exec_some(void) {
	char a[16], b[16], c[32];
	snprintf(a, sizeof a, "%d", shared_fd);
	snprintf(b, sizeof b, "%d", file_fd);
	snprintf(c, sizeof c, "%llu", (unsigned long long)seed);
	done(EXEC);
	execl("/proc/self/exe", "storm", "--child", a, b, c, (char *)0);
	_exit(0);
}

static void reap(void) {
	while (draw(8) && waitpid(-1, 0, WNOHANG) > 0)
		__atomic_sub_fetch(&S->live, 1, __ATOMIC_RELAXED);
}

static void brk_some(void) {
	char *now = sbrk(0);
	static size_t grown;
	if (grown < 64 && draw(2)) {
		size_t n = 1 + draw(16);
		if (sbrk((intptr_t)(n * page)) != (void *)-1) {
			memset(now, 1, n * page);
			grown += n;
		}
	}
}

static void step(void) {
	uint64_t k = draw(100);
	if (k < 30)
		write_some(any(1));
	else if (k < 45)
		map_some();
	else if (k < 56)
		unmap_some();
	else if (k < 62)
		move_some();
	else if (k < 69)
		protect_some();
	else if (k < 80)
		advise_some();
	else if (k < 83)
		thread_some();
	else if (k < 84)
		brk_some();
	else if (k < 93)
		fork_some();
	else if (k < 94)
		vfork_some();
	else if (!first && k < 95) {
		done(EXIT);
		_exit(0);
	} else if (!first && k < 96 && draw(2))
		exec_some();
	reap();
}

static void live(void) {
	for (;;) {
		step();
		usleep((useconds_t)draw(3000));
	}
}

static void common(void) {
	page = (size_t)sysconf(_SC_PAGESIZE);
	static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
	for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
		signal(fatal[i], crashed);
	S = mmap(0, page, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
	if (S == MAP_FAILED)
		fail("mmap", "counters");
	reseed();
}

int main(int argc, char **argv) {
	if (argc == 5 && !strcmp(argv[1], "--child")) {
		shared_fd = atoi(argv[2]);
		file_fd = atoi(argv[3]);
		seed = strtoull(argv[4], 0, 10);
		common();
		live();
	}
	page = (size_t)sysconf(_SC_PAGESIZE);
	seed = argc > 1 ? strtoull(argv[1], 0, 10) : 1;
	first = 1;
	shared_fd = memfd_create("storm counters", 0);
	file_fd = memfd_create("storm file", 0);
	if (shared_fd < 0 || file_fd < 0 || ftruncate(shared_fd, (off_t)page) || ftruncate(file_fd, (off_t)(BIGGEST * page)))
		fail("memfd", "");
	common();
	S->live = 1;
	S->limit = argc > 2 ? atol(argv[2]) : 40;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (int i = 0; i < REGIONS / 2; i++)
		map_some();
	struct pollfd in = {.fd = 0, .events = POLLIN};
	for (int ready = 0; poll(&in, 1, (int)draw(3)) == 0;) {
		step();
		if (!ready && S->live >= S->limit * 3 / 4) {
			ready = 1;
			say("READY\n");
		}
	}
	char line[512];
	int n = snprintf(line, sizeof line, "DONE");
	for (int i = 0; i < KINDS; i++)
		n += snprintf(line + n, sizeof line - (size_t)n, " %s=%ld", kinds[i], S->count[i]);
	say("%s\n", line);
	return 0; /* by which all others end */
}
