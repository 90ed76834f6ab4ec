// Runs a command and says what it took: wall time, CPU time of the command and its children, and peak resident memory.
// A program of its own and not the benchmark's driver, since a process counts the peak of what it was before exec as its
// own (fs/exec.c, exec_mmap), and the driver is larger than some of what it measures.
//
//	timed COMMAND [ARGUMENT...] 3>FILE
//
// Writes "WALL_NS CPU_NS PEAK_KIB" to descriptor 3 and ends with the command's status.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long ns(struct timeval t)
{
	return t.tv_sec * 1000000000LL + t.tv_usec * 1000LL;
}

int main(int argc, char **argv)
{
	struct rusage ru;
	int status;
	if (argc < 2 || fcntl(3, F_SETFD, FD_CLOEXEC))
		return 126;
	long long start = now();
	pid_t pid = fork();
	if (pid == 0) {
		execvp(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &ru) != pid) {
		perror("timed");
		return 126;
	}
	dprintf(3, "%lld %lld %ld\n", now() - start, ns(ru.ru_utime) + ns(ru.ru_stime), ru.ru_maxrss);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}
