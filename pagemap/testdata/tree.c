/* tree.c: a tree of processes as its argument says, for the tests of how families are found.
 *
 *     tree "f A(f B z C) x D(f E)"
 *
 * Each node is a letter, a name and in parentheses its own children:
 *   f  forked               x  forked, then exec'd this program
 *   v  clone(CLONE_VM)      t  forked by a second thread
 *   z  forked, has exited   o  forked by a process that has exited since
 *   n  forked, makes a pid namespace for its children
 *   m  forked, with 400 mappings of its own
 * Every process takes its name as comm, prints "NAME PID" and reads standard input until it ends, then exits. The first
 * one, named root, prints "ready" when all of it stands. What cannot be done prints "failed". */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct node {
	char op, name[16], children[512];
	int ready[2];
	pid_t pid;
};

static void run(const char *spec);

static void fail(const char *what) {
	dprintf(2, "tree: %s: %s\n", what, strerror(errno));
	dprintf(1, "failed\n");
	_exit(1);
}

static void stay(void) {
	char c;
	for (;;) {
		ssize_t n = read(0, &c, 1);
		if (n == 0 || (n < 0 && errno != EINTR))
			_exit(0);
	}
}

static void announce(const char *name, int fd) {
	prctl(PR_SET_NAME, name);
	dprintf(1, "%s %d\n", name, (int)syscall(SYS_getpid));
	if (write(fd, "r", 1) != 1)
		fail("announce");
}

static int child(void *arg) {
	struct node *n = arg;
	if (n->op == 'x') {
		char fd[16];
		snprintf(fd, sizeof fd, "%d", n->ready[1]);
		execl("/proc/self/exe", "tree", n->children, n->name, fd, (char *)0);
		fail("exec");
	}
	if (n->op == 'n' && unshare(CLONE_NEWPID))
		fail("unshare");
	for (int i = 0; n->op == 'm' && i < 400; i++)
		if (mmap(0, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			fail("mmap");
	run(n->children);
	announce(n->name, n->ready[1]);
	if (n->op == 'z')
		_exit(0);
	stay();
	return 0;
}

static void *forker(void *arg) {
	struct node *n = arg;
	if (!(n->pid = fork()))
		child(n);
	close(n->ready[1]);
	stay();
	return 0;
}

static void start(struct node *n) {
	pthread_t thread;
	switch (n->op) {
	case 't':
		if ((errno = pthread_create(&thread, 0, forker, n)))
			fail("thread");
		break;
	case 'v': {
		char *stack = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (stack == MAP_FAILED || (n->pid = clone(child, stack + (1 << 20), CLONE_VM | SIGCHLD, n)) < 0)
			fail("clone");
		break;
	}
	case 'o': {
		pid_t middle = fork();
		if (!middle) {
			if (!fork())
				child(n);
			_exit(0);
		}
		if (waitpid(middle, 0, 0) != middle)
			fail("wait");
		break;
	}
	default:
		if ((n->pid = fork()) < 0)
			fail("fork");
		if (!n->pid)
			child(n);
	}
	if (n->op != 't')
		close(n->ready[1]); /* a child that fails ends the reading */
	char c;
	if (read(n->ready[0], &c, 1) != 1)
		fail("a child did not start");
	siginfo_t info;
	if (n->op == 'z' && waitid(P_PID, n->pid, &info, WEXITED | WNOWAIT))
		fail("waitid");
}

static void run(const char *s) {
	while (*s) {
		if (*s == ' ') {
			s++;
			continue;
		}
		struct node *n = calloc(1, sizeof *n); /* kept: children made with CLONE_VM use it */
		int used = 0;
		if (!n || sscanf(s, "%c %15[^( )]%n", &n->op, n->name, &used) != 2)
			fail("bad tree");
		s += used;
		if (*s == '(') {
			int depth = 0;
			const char *end = s;
			do {
				depth += (*end == '(') - (*end == ')');
				end++;
			} while (depth && *end);
			if ((size_t)(end - s) >= sizeof n->children)
				fail("tree too large");
			memcpy(n->children, s + 1, end - s - 2);
			s = end;
		}
		if (pipe(n->ready))
			fail("pipe");
		start(n);
	}
}

int main(int argc, char **argv) {
	if (argc == 4) { /* exec'd */
		run(argv[1]);
		announce(argv[2], atoi(argv[3]));
		stay();
	}
	prctl(PR_SET_NAME, "root");
	run(argc > 1 ? argv[1] : "");
	dprintf(1, "root %d\nready\n", (int)getpid());
	stay();
}
