/* offset.c: three functions; the one in the middle is looked up. As a program it prints where that is. */
#include <stdio.h>
__attribute__((noinline)) void decoy(volatile char *p) { for (int i = 0; i < 64; i++) p[i * 4096 + 1] += 2; }
__attribute__((noinline)) void dirty_pages(volatile char *p) { for (int i = 0; i < 64; i++) p[i * 4096] = 9; }
__attribute__((noinline)) void decoy2(volatile char *p) { for (int i = 0; i < 64; i++) p[i * 4096 + 2] += 3; }
#ifdef PROGRAM
int main(void) {
	printf("AT %lx\n", (long)&dirty_pages);
	fflush(stdout);
	return getchar() == 'x';
}
#endif
