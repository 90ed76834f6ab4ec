// A forking server for benchmarks: a master with a given amount of memory and workers forked from it.
//
//	family MIB WORKERS WRITTEN_PERMILLE MAPPINGS SPARSE_GIB HUGE
//
// The master touches MIB of private anonymous memory that lies in MAPPINGS mappings: neighbours differ in MADV_DONTDUMP, so
// that the kernel keeps them apart. It reserves SPARSE_GIB and touches one page in each 64 GiB of it. Each worker writes
// WRITTEN_PERMILLE of the pages, spread evenly, each worker others. HUGE asks for huge pages (1) or forbids them (0). All
// pages are in every worker's page table: fork copies the entries of anonymous memory.
//
// Prints "READY master worker..." when all is done, and ends when its standard input does.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static unsigned long number(const char *s)
{
	char *end;
	unsigned long n = strtoul(s, &end, 10);
	if (*s == 0 || *end != 0) {
		fprintf(stderr, "family: %s is not a number\n", s);
		exit(2);
	}
	return n;
}

static char *map(size_t len, int huge)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	if (madvise(p, len, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) && errno != EINVAL)
		die("madvise");
	return p;
}

static void work(char *base, size_t pages, size_t page, size_t permille, size_t w, int ready, pid_t master)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != master)
		_exit(1);
	size_t left = w * 37 % 1000;
	for (size_t i = 0; i < pages; i++) {
		left += permille;
		if (left >= 1000) {
			left -= 1000;
			base[i * page + 8] = (char)(w + 1);
		}
	}
	if (write(ready, "r", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr, "usage: family MIB WORKERS WRITTEN_PERMILLE MAPPINGS SPARSE_GIB HUGE\n");
		return 2;
	}
	size_t mib = number(argv[1]), workers = number(argv[2]), permille = number(argv[3]);
	size_t mappings = number(argv[4]), sparse = number(argv[5]), huge = number(argv[6]);
	size_t page = sysconf(_SC_PAGESIZE), pages = (mib << 20) / page;
	if (mappings == 0 || mappings > pages || permille > 1000) {
		fprintf(stderr, "family: %zu mappings of %zu pages, %zu permille\n", mappings, pages, permille);
		return 2;
	}
	char *base = map(pages * page, huge);
	for (size_t m = 1; m < mappings; m += 2) {
		size_t from = pages * m / mappings, to = pages * (m + 1) / mappings;
		if (madvise(base + from * page, (to - from) * page, MADV_DONTDUMP))
			die("madvise");
	}
	for (size_t i = 0; i < pages; i++)
		base[i * page] = (char)(i + 1);
	if (sparse) {
		char *far = map(sparse << 30, 0);
		for (size_t g = 0; g < sparse; g += 64)
			far[g << 30] = 1;
	}
	int ready[2];
	if (pipe(ready))
		die("pipe");
	pid_t *pids = calloc(workers + 1, sizeof *pids);
	if (!pids)
		die("calloc");
	pid_t master = getpid();
	for (size_t w = 0; w < workers; w++) {
		pids[w] = fork();
		if (pids[w] < 0)
			die("fork");
		if (pids[w] == 0) {
			close(ready[0]);
			work(base, pages, page, permille, w, ready[1], master);
		}
	}
	close(ready[1]);
	for (size_t w = 0; w < workers; w++) {
		char c;
		if (read(ready[0], &c, 1) != 1) {
			fprintf(stderr, "family: a worker ended early\n");
			return 1;
		}
	}
	printf("READY %d", master);
	for (size_t w = 0; w < workers; w++)
		printf(" %d", pids[w]);
	printf("\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	for (size_t w = 0; w < workers; w++)
		kill(pids[w], SIGKILL);
	for (size_t w = 0; w < workers; w++)
		waitpid(pids[w], NULL, 0);
	return 0;
}
