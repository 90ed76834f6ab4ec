/* version.c: with -DNEW another function lies where work_v1 was. */
#ifdef NEW
__attribute__((noinline)) int innocent_v2(volatile char *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i * 64]; return s; }
#endif
__attribute__((noinline)) void work_v1(volatile char *p, int n) { for (int i = 0; i < n; i++) p[i * 4096] = 9; }
__attribute__((noinline)) void entry(volatile char *p, int n) { work_v1(p, n); p[0]++; }
