// A forking server for benchmarks: a master with a given amount of memory and workers forked from it.
//
//	family MIB WORKERS WRITTEN_PERMILLE MAPPINGS SPARSE_GIB HUGE
//
// The master touches MIB of private anonymous memory, spread over MAPPINGS mappings (neighbours differ in protection, so that
// the kernel keeps them apart), and reserves SPARSE_GIB without touching more than one page in each 64 GiB of it. Each
// worker writes WRITTEN_PERMILLE of the pages, spread evenly. HUGE asks for huge pages (1) or forbids them (0).
// Prints "READY master worker…" when all is done and ends when its standard input does.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static long page;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static char *reserve(size_t len, int prot)
{
	char *p = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr, "usage: family MIB WORKERS WRITTEN_PERMILLE MAPPINGS SPARSE_GIB HUGE\n");
		return 2;
	}
	size_t mib = strtoul(argv[1], 0, 10), workers = strtoul(argv[2], 0, 10), permille = strtoul(argv[3], 0, 10);
	size_t mappings = strtoul(argv[4], 0, 10), sparse = strtoul(argv[5], 0, 10);
	int huge = atoi(argv[6]);
	page = sysconf(_SC_PAGESIZE);
	size_t pages = (mib << 20) / page, each = pages / mappings;
	if (each == 0)
		each = 1;
	// One page of each mapping is left read-only at its end, as a mapping of its own.
	char *base = reserve((each + 1) * mappings * page, PROT_READ | PROT_WRITE);
	madvise(base, (each + 1) * mappings * page, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	for (size_t m = 0; m < mappings; m++) {
		char *at = base + m * (each + 1) * page;
		for (size_t i = 0; i < each; i++)
			at[i * page] = (char)(i + 1);
		if (mappings > 1 && mprotect(at + each * page, page, PROT_NONE))
			die("mprotect");
	}
	if (sparse) {
		char *far = reserve(sparse << 30, PROT_READ | PROT_WRITE);
		madvise(far, sparse << 30, MADV_NOHUGEPAGE);
		for (size_t g = 0; g < sparse; g += 64)
			far[g << 30] = 1;
	}
	int ready[2];
	if (pipe(ready))
		die("pipe");
	pid_t *pids = calloc(workers + 1, sizeof *pids);
	for (size_t w = 0; w < workers; w++) {
		pids[w] = fork();
		if (pids[w] < 0)
			die("fork");
		if (pids[w] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			size_t left = 0;
			for (size_t m = 0; m < mappings; m++) {
				char *at = base + m * (each + 1) * page;
				for (size_t i = 0; i < each; i++) {
					left += permille;
					if (left >= 1000) {
						left -= 1000;
						at[i * page + 8] = (char)w + 1;
					}
				}
			}
			if (write(ready[1], "r", 1) != 1)
				_exit(1);
			pause();
			_exit(0);
		}
	}
	for (size_t w = 0; w < workers; w++) {
		char c;
		if (read(ready[0], &c, 1) != 1)
			die("read");
	}
	printf("READY %d", getpid());
	for (size_t w = 0; w < workers; w++)
		printf(" %d", pids[w]);
	printf("\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	for (size_t w = 0; w < workers; w++)
		kill(pids[w], SIGKILL);
	return 0;
}
