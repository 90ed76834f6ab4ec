/* stages.h: how the test workloads talk to whoever measures them.
 *
 *   REGION name start-end pages=N          an address range, hexadecimal, end excluded
 *   STAGE name pids=P,c1,... names=m,w,... a point to measure at: every process holds still
 *   ERROR text                             the workload itself went wrong; exit status 2
 *   SKIP text                              this machine cannot show it; exit status 77
 *
 * With HOLD=1 in the environment a STAGE waits for a line on standard input, and goes on at its end. */
#ifndef STAGES_H
#define STAGES_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All output is one write(2) of a buffer on the stack: the workload's processes share the descriptor, and stdio would
 * write to memory that is then inherited. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
	char line[1024];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	if (n < 0 || n >= (int)sizeof line || write(1, line, (size_t)n) != n)
		_exit(3);
}

__attribute__((noreturn, unused)) static void fail(const char *what, const char *which) {
	say("ERROR %s %s: %s\n", what, which, strerror(errno));
	_exit(2);
}

__attribute__((noreturn, unused)) static void skip(const char *what) {
	say("SKIP %s: %s\n", what, strerror(errno));
	_exit(77);
}

__attribute__((unused)) static void hold(void) {
	const char *h = getenv("HOLD");
	char c;
	if (h && !strcmp(h, "1"))
		while (read(0, &c, 1) == 1 && c != '\n')
			;
}
#endif
