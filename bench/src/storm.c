// A busy machine in a fixed amount of work: processes that do nothing but start others and fault.
//
//	storm WORKERS ROUNDS PAGES
//
// Each of WORKERS processes does this ROUNDS times: it forks a child that copies PAGES shared pages, touches as many new ones
// and then becomes this program again by exec, which touches as many and ends. Prints "WALL_NS CPU_NS FAULTS", of all
// processes together.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static size_t page;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static char *map(size_t pages)
{
	char *p = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	madvise(p, pages * page, MADV_NOHUGEPAGE); // refused where there are none
	return p;
}

static void touch(char *p, size_t pages, char c)
{
	for (size_t i = 0; i < pages; i++)
		*(volatile char *)(p + i * page) = c;
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void finish(pid_t pid)
{
	int status;
	if (waitpid(pid, &status, 0) != pid || status != 0) {
		fprintf(stderr, "storm: a process failed\n");
		exit(1);
	}
}

static void work(char *self, size_t rounds, size_t pages)
{
	char *p = map(pages), count[32];
	touch(p, pages, 1);
	snprintf(count, sizeof count, "%zu", pages);
	for (size_t i = 0; i < rounds; i++) {
		pid_t pid = fork();
		if (pid < 0)
			die("fork");
		if (pid == 0) {
			touch(p, pages, 2);
			touch(map(pages), pages, 1);
			execl(self, self, count, (char *)NULL);
			die("exec");
		}
		finish(pid);
	}
}

static long long ns(struct timeval t)
{
	return t.tv_sec * 1000000000LL + t.tv_usec * 1000LL;
}

int main(int argc, char **argv)
{
	page = sysconf(_SC_PAGESIZE);
	if (argc == 2) {
		size_t pages = strtoul(argv[1], NULL, 10);
		touch(map(pages), pages, 1);
		return 0;
	}
	if (argc != 4) {
		fprintf(stderr, "usage: storm WORKERS ROUNDS PAGES\n");
		return 2;
	}
	size_t workers = strtoul(argv[1], NULL, 10), rounds = strtoul(argv[2], NULL, 10), pages = strtoul(argv[3], NULL, 10);
	if (!workers || !rounds || !pages) {
		fprintf(stderr, "storm: nothing to do\n");
		return 2;
	}
	pid_t me = getpid(), *pids = calloc(workers, sizeof *pids);
	if (!pids)
		die("calloc");
	long long start = now();
	for (size_t w = 0; w < workers; w++) {
		pids[w] = fork();
		if (pids[w] < 0)
			die("fork");
		if (pids[w] == 0) {
			if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != me)
				_exit(1);
			work("/proc/self/exe", rounds, pages);
			_exit(0);
		}
	}
	for (size_t w = 0; w < workers; w++)
		finish(pids[w]);
	struct rusage ru;
	long long wall = now() - start;
	if (getrusage(RUSAGE_CHILDREN, &ru))
		die("getrusage");
	printf("%lld %lld %ld\n", wall, ns(ru.ru_utime) + ns(ru.ru_stime), ru.ru_minflt);
	return 0;
}
