/* hold.c: a process whose code changes as it is told. Commands, one a line:
 *   load FILE SYMBOL   dlopen, prints AT and the symbol's address
 *   close              dlclose of the last one
 *   code               one page of anonymous executable memory, prints AT and its address
 *   fork               a child that stays as long as this process, prints PID
 *   stack              prints STACK and the return addresses of three calls, then AT and the function's own address
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static void *last;

__attribute__((noinline)) static void inner(void) {
	printf("STACK %lx %lx", (long)&inner, (long)__builtin_return_address(0));
	__asm__ volatile("");
}
__attribute__((noinline)) static void middle(void) {
	inner();
	printf(" %lx", (long)__builtin_return_address(0));
}
__attribute__((noinline)) static void outer(void) {
	middle();
	printf(" %lx\n", (long)__builtin_return_address(0));
}

int main(void) {
	char line[4096], file[2048], symbol[1024];
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("READY %lx\n", (long)&main);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "load %2047s %1023s", file, symbol) == 2) {
			void *at = (last = dlopen(file, RTLD_NOW)) ? dlsym(last, symbol) : NULL;
			if (at)
				printf("AT %lx\n", (long)at);
			else
				printf("ERROR %s\n", dlerror());
		} else if (!strcmp(line, "close\n")) {
			printf("CLOSED %d\n", dlclose(last));
		} else if (!strcmp(line, "code\n")) {
			void *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			printf("AT %lx\n", (long)at);
		} else if (!strcmp(line, "fork\n")) {
			pid_t child = fork();
			if (child == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				for (;;)
					pause();
			}
			printf("PID %d\n", (int)child);
		} else if (!strcmp(line, "stack\n")) {
			outer();
		}
	}
	return 0;
}
