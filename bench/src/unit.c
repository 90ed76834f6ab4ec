// The unit of the benchmarks: reads the pagemap of all mappings of the processes named, one process after the other, on one
// thread, and does nothing with it. Prints the number of entries read.
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 8192 }; // entries: 64 KiB

static uint64_t buf[BATCH];

static uint64_t read_all(FILE *maps, int pagemap, uint64_t page)
{
	char line[8192];
	uint64_t n = 0;
	while (fgets(line, sizeof line, maps)) {
		uint64_t at, end;
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &at, &end) != 2 || strstr(line, "[vsyscall]"))
			continue;
		for (at /= page, end /= page; at < end;) {
			uint64_t want = end - at < BATCH ? end - at : BATCH;
			ssize_t got = pread(pagemap, buf, want * 8, at * 8);
			if (got <= 0)
				break;
			n += got / 8;
			at += got / 8;
		}
	}
	return n;
}

int main(int argc, char **argv)
{
	uint64_t n = 0;
	for (int i = 1; i < argc; i++) {
		char path[64];
		snprintf(path, sizeof path, "/proc/%s/maps", argv[i]);
		FILE *maps = fopen(path, "r");
		if (!maps) {
			perror(path);
			return 1;
		}
		snprintf(path, sizeof path, "/proc/%s/pagemap", argv[i]);
		int fd = open(path, O_RDONLY);
		if (fd < 0) {
			perror(path);
			return 1;
		}
		n += read_all(maps, fd, sysconf(_SC_PAGESIZE));
		fclose(maps);
		close(fd);
	}
	printf("%" PRIu64 "\n", n);
	return 0;
}
