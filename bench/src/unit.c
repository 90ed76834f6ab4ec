// The unit of the benchmarks: reads the pagemap of all mappings of the processes named, on one thread, and does nothing with
// it. Prints the number of entries read.
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint64_t buf[8192];

int main(int argc, char **argv)
{
	uint64_t n = 0, page = sysconf(_SC_PAGESIZE);
	for (int i = 1; i < argc; i++) {
		char path[64], line[8192];
		snprintf(path, sizeof path, "/proc/%s/maps", argv[i]);
		FILE *maps = fopen(path, "r");
		snprintf(path, sizeof path, "/proc/%s/pagemap", argv[i]);
		int fd = open(path, O_RDONLY);
		if (!maps || fd < 0) {
			perror(path);
			return 1;
		}
		while (fgets(line, sizeof line, maps)) {
			uint64_t at, end;
			if (sscanf(line, "%" SCNx64 "-%" SCNx64, &at, &end) != 2 || strstr(line, "[vsyscall]"))
				continue;
			for (at /= page, end /= page; at < end;) {
				size_t want = end - at < 8192 ? end - at : 8192;
				ssize_t got = pread(fd, buf, want * 8, at * 8);
				if (got <= 0)
					break;
				n += got / 8;
				at += got / 8;
			}
		}
		fclose(maps);
		close(fd);
	}
	printf("%" PRIu64 "\n", n);
	return 0;
}
