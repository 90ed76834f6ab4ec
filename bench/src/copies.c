// A process whose children copy pages as fast as they can, for the cost of a fault tracer.
//
//	copies PAGES COLLECTING
//
// The parent touches PAGES of private anonymous memory without huge pages. Then one letter at a time on standard input:
//
//	f  forks a child, which waits:        "CHILD pid"
//	g  the child writes one word to each page, and times that: "NS nanoseconds cpu_nanoseconds", the first by CLOCK_MONOTONIC,
//	   the second its thread's CPU time, in which others that run on the same processor do not count
//	e  the child ends:                    "ENDED"
//
// and ends when its standard input does. As much memory as the child takes is held in use until it starts, and is held again
// after its end: a host that takes free pages back (free page reporting, mm/page_reporting.c) would make a first use of a
// page cost more, for some seconds.
//
// COLLECTING 1: it looks like Ruby 3.3 in the marking of a major collection. The functions and words by which a collector's
// state is found are there as in libruby, and the word is read at each fault.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct objspace {
	char before[16];
	unsigned flags; // mode in bits 0 and 1 (1: marking), during_gc in 5, during_minor_gc in 10
	char between[100];
	size_t minor, major, more[5], count; // profile.{minor,major}_gc_count, profile.count
};

struct vm {
	char before[0x518];
	struct objspace *objspace;
};

static struct objspace space = {.flags = 1 << 5 | 1, .minor = 2, .major = 3, .count = 5};
static struct vm vm = {.objspace = &space};
struct vm *ruby_current_vm_ptr = &vm;
const char ruby_version[] = "3.3.8";

int rb_during_gc(void)
{
	return ruby_current_vm_ptr->objspace->flags >> 5 & 1;
}

size_t rb_gc_count(void)
{
	return ruby_current_vm_ptr->objspace->count;
}

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
		fprintf(stderr, "copies: %s is not a number\n", s);
		exit(2);
	}
	return n;
}

static void advise(char *p, size_t len, int advice)
{
	if (madvise(p, len, advice))
		die("madvise");
}

static char *map(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	if (madvise(p, len, MADV_NOHUGEPAGE) && errno != EINVAL)
		die("madvise");
	return p;
}

static size_t page, pages;
static char *base;

static long long now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void child(int in, int out, pid_t parent)
{
	char c = 'r';
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(1);
	long long took[2], start = now(CLOCK_MONOTONIC); // the clock's page is there
	if (write(out, &c, 1) != 1 || read(in, &c, 1) != 1)
		_exit(1);
	long long cpu = now(CLOCK_THREAD_CPUTIME_ID);
	start = now(CLOCK_MONOTONIC);
	for (size_t i = 0; i < pages; i++)
		*(volatile unsigned long *)(base + i * page + 8) = i;
	took[0] = now(CLOCK_MONOTONIC) - start;
	took[1] = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
	if (write(out, took, sizeof took) != sizeof took || read(in, &c, 1) != 1)
		_exit(1);
	_exit(0);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: copies PAGES COLLECTING\n");
		return 2;
	}
	page = sysconf(_SC_PAGESIZE);
	pages = number(argv[1]);
	if (!number(argv[2]))
		space.flags = 0;
	size_t extra = pages / 16 + 64; // page tables, the tracer's own
	base = map(pages * page);
	char *held = map((pages + extra) * page);
	advise(held, (pages + extra) * page, MADV_DONTFORK);
	for (size_t i = 0; i < pages; i++)
		base[i * page] = (char)(i + 1);
	int to[2] = {-1, -1}, from[2] = {-1, -1}, c, status;
	char b = 'g';
	pid_t pid = 0, me = getpid();
	advise(held, (pages + extra) * page, MADV_POPULATE_WRITE);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("READY %d\n", me);
	while ((c = getchar()) != EOF) {
		switch (c) {
		case 'f':
			if (pid || pipe(to) || pipe(from))
				die("pipe");
			pid = fork();
			if (pid < 0)
				die("fork");
			if (pid == 0) {
				close(to[1]);
				close(from[0]);
				child(to[0], from[1], me);
			}
			close(to[0]);
			close(from[1]);
			if (read(from[0], &b, 1) != 1)
				die("start of the child");
			printf("CHILD %d\n", pid);
			break;
		case 'g': {
			long long took[2];
			advise(held, (pages + extra) * page, MADV_DONTNEED);
			if (write(to[1], &b, 1) != 1 || read(from[0], took, sizeof took) != sizeof took)
				die("time of the child");
			printf("NS %lld %lld\n", took[0], took[1]);
			break;
		}
		case 'e':
			if (!pid || write(to[1], &b, 1) != 1 || waitpid(pid, &status, 0) != pid || status != 0) {
				fprintf(stderr, "copies: end of the child\n");
				return 1;
			}
			pid = 0;
			close(to[1]);
			close(from[0]);
			advise(held, (pages + extra) * page, MADV_POPULATE_WRITE);
			printf("ENDED\n");
			break;
		default:
			fprintf(stderr, "copies: %c?\n", c);
			return 2;
		}
	}
	return 0;
}
