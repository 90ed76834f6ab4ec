/* shapes.c: one of each thing that an unnamed mapping can be, for the tests of Shapes. Prints "WHAT ADDRESS" in hex for
 * each, then "fork PID" of a child that has inherited all of it, then "ready", and reads standard input until it ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page;
static pthread_barrier_t barrier;

static void stay(void) {
	char c;
	for (;;) {
		ssize_t n = read(0, &c, 1);
		if (n == 0 || (n < 0 && errno != EINTR))
			_exit(0);
	}
}

static void *must(void *p, const char *what) {
	if (p == MAP_FAILED || !p) {
		perror(what);
		_exit(1);
	}
	return p;
}

static void say(const char *what, const void *at) { printf("%s %lx\n", what, (unsigned long)at); }

/* A thread with an arena of more than one heap where big is set: 100 kB blocks, of which malloc writes the headers. */
static void *thread(void *arg) {
	int big = *(int *)arg;
	char *small = must(malloc(1000), "malloc"), *last = small;
	for (int i = 0; big && i < 800; i++)
		last = must(malloc(100000), "malloc");
	pthread_barrier_wait(&barrier);
	say(big ? "arena-big" : "arena", small);
	if (big)
		say("arena-last", last);
	say("stack", &small);
	pthread_barrier_wait(&barrier);
	stay();
	return 0;
}

/* An anonymous mapping of n pages with a page that cannot be read on both sides, so that nothing merges with it. */
static char *apart(size_t n) {
	char *p = must(mmap(0, (n + 2) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), "mmap");
	if (mprotect(p + page, n * page, PROT_READ | PROT_WRITE))
		must(0, "mprotect");
	return p + page;
}

int main(void) {
	page = sysconf(_SC_PAGESIZE);
	setvbuf(stdout, 0, _IOLBF, 0);
	/* Chunks side by side in one mapping, which the loader's own memory may be part of. */
	say("large", must(malloc(3 << 20), "malloc"));
	say("large", must(malloc(1 << 20), "malloc"));
	say("large", must(malloc(200000), "malloc"));

	char *p = apart(160);
	p[160 * page - 1] = 1;
	say("fiber", p);
	p = apart(160);
	p[0] = 1;
	say("data", p); /* used from its low end */
	p = apart(160);
	for (size_t i = 0; i < 160; i++)
		p[i * page] = 1;
	say("data", p); /* all used */
	p = apart(160);
	say("data", p); /* not used */
	p = apart(160);
	((uint64_t *)p)[1] = (160 * page) | 3; /* a chunk header but for the flags */
	say("data", p);
	p = apart(160);
	((uint64_t *)p)[1] = (2 * page) | 2; /* a small chunk that leads nowhere */
	say("data", p);
	p = apart(160);
	((uint64_t *)p)[1] = (161 * page) | 2; /* a chunk that is too long */
	say("data", p);

	/* As a Go program has it: 64 MiB, aligned to that, the first 4 MiB committed. */
	size_t arena = 64 << 20;
	p = must(mmap(0, 3 * arena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), "mmap");
	char *aligned = (char *)(((uintptr_t)p + arena) & ~(arena - 1));
	if (mprotect(aligned, 4 << 20, PROT_READ | PROT_WRITE))
		must(0, "mprotect");
	memset(aligned, 'x', page);
	say("data", aligned);

	pthread_barrier_init(&barrier, 0, 3);
	pthread_t t;
	static int no, yes = 1;
	if (pthread_create(&t, 0, thread, &no) || pthread_create(&t, 0, thread, &yes))
		must(0, "thread");
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);

	pid_t child = fork();
	if (child < 0)
		must(0, "fork");
	if (!child)
		stay();
	printf("fork %x\nready\n", (int)child);
	stay();
}
