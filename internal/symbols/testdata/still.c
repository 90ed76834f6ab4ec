/* still.c: a program for a root of its own: linked statically. */
#include <stdio.h>
__attribute__((noinline)) static void in_the_root(void) { __asm__ volatile("nop; nop; nop"); }
int main(void) {
	in_the_root();
	printf("AT %lx\n", (long)&in_the_root);
	fflush(stdout);
	return getchar() == 'x';
}
