/* names.c: names as compilers of other languages make them, aliases, and code without a size. */
__attribute__((noinline)) int cxx(int x) __asm__("_ZN4demo5Store3putERKSsi");
int cxx(int x) { return x + 1; }
__attribute__((noinline)) int rust(int x) __asm__("_ZN5alloc3vec12Vec$LT$T$GT$4push17h0123456789abcdefE");
int rust(int x) { return x + 2; }
__attribute__((noinline)) int rust0(int x) __asm__("_RNvCs1234_7mycrate3foo");
int rust0(int x) { return x + 3; }

__attribute__((noinline)) int plain(int x) { return x * 7; }
int _plain_alias(int x) __attribute__((alias("plain")));
int weak_alias(int x) __attribute__((weak, alias("plain")));
static int local_alias(int x) __attribute__((alias("plain"), used));

/* A label without a size, then one that ends it, then the section's end. */
__asm__(".section .text.bare,\"ax\",@progbits\n"
	".balign 16\n"
	".globl bare\nbare:\n.rept 32\nnop\n.endr\n"
	"second_label:\n.rept 32\nnop\n.endr\n"
	".globl sized\n.type sized,@function\nsized:\n.rept 16\nnop\n.endr\n.size sized,16\n"
	".rept 16\nnop\n.endr\n"
	".text\n");
