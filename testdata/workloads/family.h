/* family.h: the processes of a workload. The first one reads the statements, runs its own, and hands each of the others'
 * over by a pipe; it waits for the answer before it goes on, so one process moves at a time. */
#ifndef FAMILY_H
#define FAMILY_H
#include "stages.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { PROCS = 32, REGIONS = 64, WORDS = 8, NAME = 32 };

struct process {
	char name[NAME];
	pid_t pid;
	int parent;         /* index */
	int alive, reaped;
	int order[2], ack[2];
};
struct region {
	char name[NAME];
	char *at;
	size_t pages;
};
/* In shared memory, so that a region which a child maps is known to all. */
static struct state {
	struct process procs[PROCS];
	struct region regions[REGIONS];
	int nprocs, nregions;
	char *next; /* the next free address */
	volatile int threads;
} *S;
static int self; /* index of this process */
static size_t page;
static volatile unsigned char sink;

/* What the workload provides: execute runs one statement in this process, given without "PROCESS:"; grow touches pages of
 * the stack and, with them on it, goes on with then. */
static void execute(char **w, int n);
static void grow(size_t pages, void (*then)(void));

static char **statements; /* of the whole run */
static int statement, last;
static void serve(void);
static void run(void);

static void answer(void) {
	if (write(S->procs[self].ack[1], "a", 1) != 1)
		_exit(3);
}

static void await(int p) {
	struct pollfd f = {.fd = S->procs[p].ack[0], .events = POLLIN};
	char c;
	errno = ETIMEDOUT;
	if (poll(&f, 1, 30000) != 1 || read(f.fd, &c, 1) != 1)
		fail("no answer from", S->procs[p].name);
}

static void fork_child(const char *name) {
	if (S->nprocs == PROCS || strlen(name) >= NAME)
		fail("too many processes", name);
	int i = S->nprocs++;
	struct process *p = &S->procs[i];
	strcpy(p->name, name);
	p->parent = self;
	p->alive = 1;
	pid_t pid = fork();
	if (pid < 0)
		fail("fork", name);
	if (!pid) {
		self = i;
		for (int j = 0; j < PROCS; j++) /* the first process alone keeps these: its end is everybody's end */
			close(S->procs[j].order[1]);
		serve();
	}
	p->pid = pid;
	await(i);
}

static void reap(int child) {
	if (waitpid(S->procs[child].pid, 0, 0) != S->procs[child].pid)
		fail("waitpid", S->procs[child].name);
	S->procs[child].reaped = 1;
}

static int split(const char *text, char *copy, char **words) {
	int n = 0;
	strcpy(copy, text);
	for (char *t = strtok(copy, " "); t; t = strtok(0, " ")) {
		if (n == WORDS)
			fail("statement", text);
		words[n++] = t;
	}
	return n;
}

/* What a child is told: the index of a statement, or one of these. */
enum { END = -1, EXEC = -2, REAP = -100 /* and less: the child to reap is REAP - n */ };

static void serve(void) {
	struct process *me = &S->procs[self];
	int i;
	answer();
	while (read(me->order[0], &i, sizeof i) == (ssize_t)sizeof i) {
		char copy[512], *w[WORDS];
		if (i == END) {
			answer();
			_exit(0);
		}
		if (i == EXEC) {
			char in[16], out[16];
			snprintf(in, sizeof in, "%d", me->order[0]);
			snprintf(out, sizeof out, "%d", me->ack[1]);
			execl("/proc/self/exe", "pages", "--other", in, out, (char *)0);
			_exit(3);
		}
		if (i <= REAP) {
			reap(REAP - i);
		} else {
			int n = split(statements[i], copy, w), from = strchr(w[0], ':') != 0;
			if (n - from == 2 && !strcmp(w[from], "grow")) {
				grow(strtoul(w[from + 1], 0, 0), serve); /* serve answers */
				_exit(0);
			}
			execute(w + from, n - from);
		}
		answer();
	}
	_exit(0);
}

/* The other program: holds its own memory only, and ends when told or when the first process has ended. */
static int other(char **v) {
	int i;
	if (write(atoi(v[3]), "a", 1) != 1)
		return 3;
	while (read(atoi(v[2]), &i, sizeof i) == (ssize_t)sizeof i)
		if (i == END)
			return write(atoi(v[3]), "a", 1) != 1;
	return 0;
}

static void order(int p, int what) {
	if (write(S->procs[p].order[1], &what, sizeof what) != (ssize_t)sizeof what)
		fail("order to", S->procs[p].name);
	await(p);
}

static void end(int p, int leave) {
	order(p, END);
	char path[64], text[256];
	for (;;) { /* until it is a zombie */
		snprintf(path, sizeof path, "/proc/%d/stat", (int)S->procs[p].pid);
		int fd = open(path, O_RDONLY);
		ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
		close(fd);
		if (n <= 0)
			break;
		text[n] = 0;
		char *state = strrchr(text, ')');
		if (state && state[1] && state[2] == 'Z')
			break;
		usleep(1000);
	}
	S->procs[p].alive = 0;
	if (leave)
		return;
	int parent = S->procs[p].parent;
	if (parent == 0 || !S->procs[parent].alive)
		reap(p);
	else
		order(parent, REAP - p);
}

static void stage(const char *name) {
	char pids[512] = "", names[768] = "";
	size_t a = 0, b = 0;
	for (int i = 0; i < S->nprocs; i++) {
		if (S->procs[i].reaped)
			continue;
		a += (size_t)snprintf(pids + a, sizeof pids - a, "%s%d", i ? "," : "", (int)S->procs[i].pid);
		b += (size_t)snprintf(names + b, sizeof names - b, "%s%s", i ? "," : "", S->procs[i].name);
	}
	say("STAGE %s pids=%s names=%s\n", name, pids, names);
	hold();
}

/* The first process runs its own statements itself and hands on the others. */
static void run(void) {
	for (; statement < last; statement++) {
		char copy[512], *w[WORDS];
		int n = split(statements[statement], copy, w);
		int from = 0, p = 0;
		char *colon = strchr(w[0], ':');
		if (colon) {
			*colon = 0;
			from = 1;
			for (p = 0; p < S->nprocs && strcmp(S->procs[p].name, w[0]); p++)
				;
			errno = ESRCH;
			if (p == S->nprocs || !S->procs[p].alive)
				fail("no process", w[0]);
		}
		if (n - from < 1)
			fail("empty statement", statements[statement]);
		if (!strcmp(w[from], "stage")) {
			stage(n - from == 2 ? w[from + 1] : "?");
		} else if (!strcmp(w[from], "exit") || !strcmp(w[from], "die")) {
			if (p == 0)
				return;
			end(p, w[from][0] == 'd');
		} else if (p == 0 && !strcmp(w[from], "grow") && n - from == 2) {
			statement++;
			grow(strtoul(w[from + 1], 0, 0), run);
			return;
		} else if (p == 0) {
			execute(w + from, n - from);
		} else {
			order(p, strcmp(w[from], "exec") ? statement : EXEC);
		}
	}
}

static void family(char **text, int count, char *first_address) {
	page = (size_t)sysconf(_SC_PAGESIZE);
	S = mmap(0, sizeof *S, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (S == MAP_FAILED)
		fail("mmap", "state");
	S->next = first_address;
	S->nprocs = 1;
	strcpy(S->procs[0].name, "m");
	S->procs[0].pid = getpid();
	S->procs[0].alive = 1;
	for (int i = 0; i < PROCS; i++)
		if (pipe(S->procs[i].order) || pipe(S->procs[i].ack))
			fail("pipe", "");
	signal(SIGPIPE, SIG_IGN);
	/* One processor for all: pages wait in lists of the processor that touched them, and madvise(MADV_PAGEOUT) drains only
	 * those of its own (mm/swap.c, lru_add_drain). */
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof one, &one))
		fail("sched_setaffinity", "");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	statements = text;
	last = count;
	run();
	for (int i = S->nprocs - 1; i > 0; i--)
		if (S->procs[i].alive)
			end(i, 1);
	while (wait(0) > 0)
		;
}
#endif
