/* hidden.c: a function that is not in .dynsym, after one that is. */
__attribute__((noinline)) int exported_before(int x) { return x * 3 + 1; }
__attribute__((noinline)) static void hidden_writer(volatile char *p, int n) {
	for (int i = 0; i < n; i++)
		p[i * 4096] = 9; /* the line */
}
__attribute__((noinline)) void exported_after(volatile char *p, int n) { hidden_writer(p, n); p[0] += exported_before(n); }
