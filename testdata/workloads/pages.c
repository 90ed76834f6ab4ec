/* pages: a family of processes that does exactly what its arguments say, so that the number of pages of each kind is
 * known beforehand.
 *
 *   pages STATEMENT...      STATEMENT: "[PROCESS:] COMMAND [ARGUMENT...]", PROCESS is m (the first) if left out
 *
 * Regions have a name, live at fixed addresses that nothing else uses, and are counted in base pages; A B is the range of
 * pages from A to before B.
 *
 *   anon R N            private anonymous memory, no page touched          shm R N       the same, MAP_SHARED
 *   file R N            private mapping of a file of N pages               brk R N       N pages of the brk heap
 *   thp R N             N huge pages' room, aligned, MADV_HUGEPAGE         hugetlb R N   N hugetlb pages
 *   part R S A B        names a part of R                                  map R N       anon at R's place again (R unmapped)
 *   write R A B V       one word of each page                              read R A B    touches each page
 *   fill R A B V        every byte of each page                            words R A B K adds 1 to K words of each page;
 *                                                                                        K = 0 stores what is there already
 *   drop R A B          MADV_DONTNEED                                      unmap R A B
 *   move R S            mremap to a new place, called S                    protect R A B none|r|rw
 *   guard R A B         MADV_GUARD_INSTALL                                 swapout R A B until each page is in swap
 *   advise R A B WHAT   dontfork, wipeonfork, mergeable, nohuge, huge, collapse, populate_write
 *   threads R N P       N threads, each with P touched pages on its stack, called R0, R1, ...
 *   grow P              P touched pages on the main stack, called stack
 *   fork W              a child called W                                   exec          becomes another program
 *   input R A B         read(2) into one word of each page       direct R A B  read(2) with O_DIRECT into the pages
 *   trap R A B          writes that are refused, with SIGSEGV handled    spread R A B T   writes by T threads, each its part
 *   exit                ends, and is reaped                                die           ends, and stays a zombie
 *   stage NAME
 */
#include "family.h"
#include <pthread.h>
#include <setjmp.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#define HUGE (2UL << 20)
#define FIRST ((char *)0x100000000000UL)

static struct region *find(const char *name) {
	for (int i = 0; i < S->nregions; i++)
		if (!strcmp(S->regions[i].name, name))
			return &S->regions[i];
	errno = ENOENT;
	fail("no region", name);
}

static void add(const char *name, void *at, size_t pages) {
	if (S->nregions == REGIONS || strlen(name) >= NAME)
		fail("too many regions", name);
	struct region *r = &S->regions[S->nregions++];
	strcpy(r->name, name);
	r->at = at;
	r->pages = pages;
	say("REGION %s %lx-%lx pages=%zu\n", name, (unsigned long)at, (unsigned long)at + pages * page, pages);
}

/* Each region starts a multiple of 2 MiB apart from the end of the one before, with 2 MiB at least between them. */
static char *place(size_t pages) {
	char *at = S->next;
	S->next += (pages * page + HUGE - 1) / HUGE * HUGE + HUGE;
	return at;
}

static void *map_at(char *at, size_t pages, int flags, int fd, const char *name) {
	void *p = mmap(at, pages * page, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, fd, 0);
	if (p != at)
		fail("mmap", name);
	return p;
}

static int template_file(size_t pages) {
	char path[256];
	const char *dir = getenv("TMPDIR");
	snprintf(path, sizeof path, "%s/pages.XXXXXX", dir ? dir : "/tmp");
	int fd = mkstemp(path);
	if (fd < 0 || unlink(path))
		fail("file", path);
	for (size_t i = 0; i < pages; i++) {
		uint64_t w[2] = {0x656c6966, i};
		if (pwrite(fd, w, sizeof w, (off_t)(i * page)) != (ssize_t)sizeof w)
			fail("write", path);
	}
	if (ftruncate(fd, (off_t)(pages * page)))
		fail("truncate", path);
	return fd;
}

static void write_pages(struct region *r, size_t a, size_t b, uint64_t v) {
	for (size_t i = a; i < b; i++) {
		volatile uint64_t *w = (volatile uint64_t *)(r->at + i * page);
		w[0] = v;
		w[1] = i + 1; /* no two pages of a region are alike, so KSM finds none */
	}
}

static void swap_out(struct region *r, size_t a, size_t b) {
	int fd = open("/proc/self/pagemap", O_RDONLY);
	if (fd < 0)
		fail("open", "pagemap");
	size_t in = b - a;
	for (int turn = 0; turn < 500 && in; turn++) {
		if (madvise(r->at + a * page, (b - a) * page, MADV_PAGEOUT))
			fail("pageout", r->name);
		in = 0;
		for (size_t i = a; i < b; i++) {
			uint64_t e = 0;
			if (pread(fd, &e, 8, (off_t)(((uintptr_t)r->at / page + i) * 8)) != 8)
				fail("read", "pagemap");
			in += e >> 63; /* shared memory in swap has no entry at all */
		}
		if (in)
			usleep(10000);
	}
	close(fd);
	errno = EBUSY;
	if (in)
		fail("pages stay resident", r->name);
}

/* The kernel writes here: the fault is taken inside of the system call. */
static void input(struct region *r, size_t a, size_t b) {
	int fd = open("/dev/zero", O_RDONLY);
	if (fd < 0)
		fail("open", "/dev/zero");
	for (size_t i = a; i < b; i++)
		if (read(fd, r->at + i * page, 8) != 8)
			fail("read", "/dev/zero");
	close(fd);
}

/* The kernel writes here through pages that it has pinned: no fault at all. */
static void direct(struct region *r, size_t a, size_t b) {
	char path[256];
	const char *dir = getenv("TMPDIR");
	snprintf(path, sizeof path, "%s/pages.XXXXXX", dir ? dir : "/tmp");
	int fd = mkstemp(path);
	if (fd < 0)
		fail("file", path);
	int in = open(path, O_RDONLY | O_DIRECT);
	unlink(path);
	if (in < 0)
		skip("no O_DIRECT");
	if (pwrite(fd, r->at + a * page, (b - a) * page, 0) != (ssize_t)((b - a) * page) || fsync(fd))
		fail("write", path);
	if (pread(in, r->at + a * page, (b - a) * page, 0) != (ssize_t)((b - a) * page))
		fail("direct read", path);
	close(fd);
	close(in);
}

static sigjmp_buf refused;
static void on_refused(int sig) { (void)sig, siglongjmp(refused, 1); }
static void trap(struct region *r, size_t a, size_t b) {
	struct sigaction act = {.sa_handler = on_refused}, before;
	if (sigaction(SIGSEGV, &act, &before))
		fail("sigaction", r->name);
	for (volatile size_t i = a; i < b; i++)
		if (!sigsetjmp(refused, 1)) {
			*(volatile char *)(r->at + i * page) = 1;
			errno = EINVAL;
			fail("not refused", r->name);
		}
	sigaction(SIGSEGV, &before, 0);
}

struct spread_job {
	struct region *r;
	size_t a, b;
};
static void *spread_thread(void *arg) {
	struct spread_job *j = arg;
	write_pages(j->r, j->a, j->b, 77);
	return 0;
}
static void spread(struct region *r, size_t a, size_t b, size_t threads) {
	pthread_t t[threads];
	struct spread_job jobs[threads];
	for (size_t i = 0; i < threads; i++) {
		jobs[i] = (struct spread_job){r, a + (b - a) * i / threads, a + (b - a) * (i + 1) / threads};
		if (pthread_create(&t[i], 0, spread_thread, &jobs[i]))
			fail("thread", r->name);
	}
	for (size_t i = 0; i < threads; i++)
		pthread_join(t[i], 0);
}

struct thread_job {
	const char *name;
	size_t pages;
};
static void *thread(void *arg) {
	struct thread_job *j = arg;
	char room[(j->pages + 1) * page];
	char *at = (char *)(((uintptr_t)room + page - 1) / page * page);
	for (size_t i = 0; i < j->pages; i++)
		*(volatile uint64_t *)(at + i * page) = i + 1;
	add(j->name, at, j->pages);
	S->threads++;
	for (;;)
		pause();
	return 0;
}

__attribute__((noinline)) static void grow(size_t pages, void (*then)(void)) {
	char room[(pages + 1) * page];
	char *at = (char *)(((uintptr_t)room + page - 1) / page * page);
	for (size_t i = 0; i < pages; i++)
		*(volatile uint64_t *)(at + i * page) = i + 1;
	add("stack", at, pages);
	then();
	sink = *(volatile unsigned char *)at; /* keeps the frame */
}

static int advice(const char *what) {
	static const struct {
		const char *name;
		int advice;
	} all[] = {{"dontfork", MADV_DONTFORK},   {"wipeonfork", MADV_WIPEONFORK}, {"mergeable", MADV_MERGEABLE},
		   {"nohuge", MADV_NOHUGEPAGE}, {"huge", MADV_HUGEPAGE}, {"collapse", MADV_COLLAPSE},     {"populate_write", MADV_POPULATE_WRITE}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(all[i].name, what))
			return all[i].advice;
	errno = EINVAL;
	fail("advice", what);
}

/* execute runs one statement in this process; the words are those after "PROCESS:". */
static void execute(char **w, int n) {
	const char *c = w[0];
#define IS(name, count) (!strcmp(c, name) && n == (count) + 1)
#define NUM(i) strtoul(w[i], 0, 0)
	if (IS("anon", 2)) {
		void *at = map_at(place(NUM(2)), NUM(2), MAP_PRIVATE | MAP_ANONYMOUS, -1, w[1]);
		if (madvise(at, NUM(2) * page, MADV_NOHUGEPAGE))
			fail("madvise", w[1]);
		add(w[1], at, NUM(2));
	} else if (IS("map", 2)) {
		struct region *r = find(w[1]);
		map_at(r->at, NUM(2), MAP_PRIVATE | MAP_ANONYMOUS, -1, w[1]);
		if (madvise(r->at, NUM(2) * page, MADV_NOHUGEPAGE))
			fail("madvise", w[1]);
	} else if (IS("shm", 2)) {
		add(w[1], map_at(place(NUM(2)), NUM(2), MAP_SHARED | MAP_ANONYMOUS, -1, w[1]), NUM(2));
	} else if (IS("file", 2)) {
		int fd = template_file(NUM(2));
		add(w[1], map_at(place(NUM(2)), NUM(2), MAP_PRIVATE, fd, w[1]), NUM(2));
		close(fd);
	} else if (IS("brk", 2)) {
		char *at = sbrk(0);
		if (sbrk((intptr_t)((page - (uintptr_t)at % page) % page)) == (void *)-1 || (at = sbrk((intptr_t)(NUM(2) * page))) == (void *)-1)
			fail("sbrk", w[1]);
		add(w[1], at, NUM(2));
	} else if (IS("thp", 2)) {
		size_t pages = NUM(2) * HUGE / page;
		void *at = map_at(place(pages), pages, MAP_PRIVATE | MAP_ANONYMOUS, -1, w[1]);
		if (madvise(at, pages * page, MADV_HUGEPAGE))
			skip("no transparent huge pages");
		add(w[1], at, pages);
	} else if (IS("hugetlb", 2)) {
		size_t pages = NUM(2) * HUGE / page;
		char *at = place(pages);
		if (mmap(at, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED_NOREPLACE, -1, 0) != at)
			skip("no hugetlb pages");
		add(w[1], at, pages);
	} else if (IS("part", 4)) {
		struct region *r = find(w[1]);
		add(w[2], r->at + NUM(3) * page, NUM(4) - NUM(3));
	} else if (IS("write", 4)) {
		write_pages(find(w[1]), NUM(2), NUM(3), NUM(4));
	} else if (IS("fill", 4)) {
		struct region *r = find(w[1]);
		memset(r->at + NUM(2) * page, (int)NUM(4), (NUM(3) - NUM(2)) * page);
	} else if (IS("words", 4)) {
		struct region *r = find(w[1]);
		for (size_t i = NUM(2); i < NUM(3); i++) {
			volatile uint64_t *word = (volatile uint64_t *)(r->at + i * page);
			if (NUM(4) == 0)
				word[0] = word[0];
			for (size_t k = 0; k < NUM(4); k++)
				word[k]++;
		}
	} else if (IS("read", 3)) {
		struct region *r = find(w[1]);
		for (size_t i = NUM(2); i < NUM(3); i++)
			sink = *(volatile unsigned char *)(r->at + i * page);
	} else if (IS("input", 3)) {
		input(find(w[1]), NUM(2), NUM(3));
	} else if (IS("direct", 3)) {
		direct(find(w[1]), NUM(2), NUM(3));
	} else if (IS("trap", 3)) {
		trap(find(w[1]), NUM(2), NUM(3));
	} else if (IS("spread", 4)) {
		spread(find(w[1]), NUM(2), NUM(3), NUM(4));
	} else if (IS("drop", 3)) {
		struct region *r = find(w[1]);
		if (madvise(r->at + NUM(2) * page, (NUM(3) - NUM(2)) * page, MADV_DONTNEED))
			fail("drop", w[1]);
	} else if (IS("unmap", 3)) {
		struct region *r = find(w[1]);
		if (munmap(r->at + NUM(2) * page, (NUM(3) - NUM(2)) * page))
			fail("unmap", w[1]);
	} else if (IS("move", 2)) {
		struct region *r = find(w[1]);
		char *to = place(r->pages);
		if (mremap(r->at, r->pages * page, r->pages * page, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
			fail("move", w[1]);
		add(w[2], to, r->pages);
	} else if (IS("protect", 4)) {
		struct region *r = find(w[1]);
		int prot = !strcmp(w[4], "none") ? PROT_NONE : !strcmp(w[4], "r") ? PROT_READ : PROT_READ | PROT_WRITE;
		if (mprotect(r->at + NUM(2) * page, (NUM(3) - NUM(2)) * page, prot))
			fail("protect", w[1]);
	} else if (IS("guard", 3)) {
		struct region *r = find(w[1]);
		if (madvise(r->at + NUM(2) * page, (NUM(3) - NUM(2)) * page, MADV_GUARD_INSTALL))
			skip("no guard regions");
	} else if (IS("swapout", 3)) {
		swap_out(find(w[1]), NUM(2), NUM(3));
	} else if (IS("advise", 4)) {
		struct region *r = find(w[1]);
		if (madvise(r->at + NUM(2) * page, (NUM(3) - NUM(2)) * page, advice(w[4])))
			skip(w[4]);
	} else if (IS("threads", 3)) {
		for (size_t i = 0; i < NUM(2); i++) {
			struct thread_job *j = malloc(sizeof *j);
			char *name = malloc(NAME);
			snprintf(name, NAME, "%s%zu", w[1], i);
			*j = (struct thread_job){name, NUM(3)};
			pthread_t t;
			int before = S->threads;
			if (pthread_create(&t, 0, thread, j))
				fail("thread", w[1]);
			while (S->threads == before)
				usleep(100);
		}
	} else if (IS("fork", 1)) {
		fork_child(w[1]);
	} else {
		errno = EINVAL;
		fail("statement", c);
	}
}

int main(int argc, char **argv) {
	if (argc == 4 && !strcmp(argv[1], "--other"))
		return other(argv);
	family(argv + 1, argc - 1, FIRST);
	return 0;
}
