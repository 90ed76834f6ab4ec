// Reads smaps_rollup of the processes named, on one thread: what a monitoring agent does that wants proportional sizes.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char buf[65536];
	for (int i = 1; i < argc; i++) {
		snprintf(buf, sizeof buf, "/proc/%s/smaps_rollup", argv[i]);
		int fd = open(buf, O_RDONLY);
		if (fd < 0) {
			perror(buf);
			return 1;
		}
		while (read(fd, buf, sizeof buf) > 0)
			;
		close(fd);
	}
	return 0;
}
