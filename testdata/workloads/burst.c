/* burst: writes that meet. The processes or threads start at one moment, by a barrier.
 *
 *   burst crowd N    a parent and two children write one word of each of the N pages of R, all three at once
 *   burst race N T   T threads of a child write to the same page of R at once, one page after the other
 *
 * Stages: "forked" before it, "wrote" after it; m is the parent, a and b (crowd) or w (race) the children. */
#include "stages.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct shared {
	volatile long arrived[2]; /* at the barriers of the processes */
} *S;
static char *R;
static size_t page, n;
static volatile long turn; /* of the threads: how many have come to a barrier */

static void barrier(volatile long *arrived, long of) {
	for (__atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST); __atomic_load_n(arrived, __ATOMIC_SEQ_CST) < of;)
		sched_yield();
}

static void write_all(uint64_t v) {
	for (size_t i = 0; i < n; i++)
		*(volatile uint64_t *)(R + i * page) = v + i;
}

static void crowd(uint64_t v) {
	barrier(&S->arrived[0], 3);
	write_all(v);
	barrier(&S->arrived[1], 3);
}

static long threads;
static void *racer(void *arg) {
	for (size_t i = 0; i < n; i++) {
		barrier(&turn, (long)(i + 1) * threads);
		((volatile uint64_t *)(R + i * page))[(uintptr_t)arg] = i;
	}
	return 0;
}

static void race(void) {
	pthread_t t[threads];
	for (long i = 0; i < threads; i++)
		if (pthread_create(&t[i], 0, racer, (void *)i))
			_exit(3);
	for (long i = 0; i < threads; i++)
		pthread_join(t[i], 0);
}

/* A child that waits for a byte, does its part, and answers with one. */
static pid_t child(int go, int done, uint64_t v) {
	pid_t p = fork();
	if (p < 0)
		fail("fork", "");
	if (p)
		return p;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	char c;
	if (read(go, &c, 1) != 1)
		_exit(0);
	if (threads)
		race();
	else
		crowd(v);
	if (write(done, "d", 1) != 1)
		_exit(3);
	while (read(go, &c, 1) == 1)
		;
	_exit(0);
}

int main(int argc, char **argv) {
	if (argc < 3 || (strcmp(argv[1], "crowd") && (strcmp(argv[1], "race") || argc != 4)))
		return 2;
	page = (size_t)sysconf(_SC_PAGESIZE);
	n = strtoul(argv[2], 0, 10);
	threads = argc > 3 ? atol(argv[3]) : 0;
	S = mmap(0, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	R = mmap(0, n * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (S == MAP_FAILED || R == MAP_FAILED || madvise(R, n * page, MADV_NOHUGEPAGE))
		fail("mmap", argv[2]);
	write_all(1);
	int go[2], done[2];
	if (pipe(go) || pipe(done))
		fail("pipe", "");
	int children = threads ? 1 : 2;
	pid_t p[2] = {0, 0};
	for (int i = 0; i < children; i++)
		p[i] = child(go[0], done[1], 1000000 * (uint64_t)(i + 1));
	char pids[64], c;
	snprintf(pids, sizeof pids, children == 2 ? "%d,%d,%d names=m,a,b" : "%d,%d names=m,w", (int)getpid(), (int)p[0], (int)p[1]);
	say("REGION R %lx-%lx pages=%zu\nSTAGE forked pids=%s\n", (unsigned long)R, (unsigned long)R + n * page, n, pids);
	hold();
	for (int i = 0; i < children; i++)
		if (write(go[1], "g", 1) != 1)
			fail("go", "");
	if (!threads)
		crowd(7000000);
	for (int i = 0; i < children; i++)
		if (read(done[0], &c, 1) != 1)
			fail("done", "");
	say("STAGE wrote pids=%s\n", pids);
	hold();
	return 0; /* by which the children end */
}
