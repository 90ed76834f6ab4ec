/* host LIBRARY: loads a library, and calls its function start at the first line of standard input. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	char line[64];
	void *library = dlopen(argv[1], RTLD_LAZY);
	void (*start)(void);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	start = (void (*)(void))dlsym(library, "start");
	printf("loaded\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	start();
	while (fgets(line, sizeof(line), stdin))
		;
	return 0;
}
