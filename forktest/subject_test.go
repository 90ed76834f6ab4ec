package forktest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

func TestAllocator(t *testing.T) {
	const exe = "/usr/bin/ruby3.3"
	own := func(files map[string]string) func(*pagemap.Mapping) (string, bool) {
		return func(m *pagemap.Mapping) (string, bool) {
			name, ok := files[m.Path]
			return name, ok
		}
	}
	tests := []struct {
		name   string
		paths  []string
		static map[string]string // files that define malloc, and whose it is
		want   string
	}{
		{"glibc", []string{exe, "[heap]", "", "/usr/lib/x86_64-linux-gnu/libc.so.6"}, nil, "glibc"},
		{"glibc before 2.34", []string{exe, "/lib/x86_64-linux-gnu/libc-2.31.so"}, nil, "glibc"},
		{"musl", []string{exe, "/lib/ld-musl-x86_64.so.1"}, nil, "musl"},
		{"jemalloc before the C library", []string{exe, "/usr/lib/libjemalloc.so.2", "/usr/lib/libc.so.6"}, nil, "jemalloc"},
		{"jemalloc after it", []string{exe, "/usr/lib/libc.so.6", "/opt/lib/libjemalloc.so.2 (deleted)"}, nil, "jemalloc"},
		{"tcmalloc", []string{exe, "/usr/lib/libc.so.6", "/usr/lib/libtcmalloc_minimal.so.4"}, nil, "tcmalloc"},
		{"mimalloc", []string{exe, "/usr/lib/libc.so.6", "/usr/lib/libmimalloc.so.2.0"}, nil, "mimalloc"},
		{"linked into the program", []string{exe, "/usr/lib/libc.so.6"}, map[string]string{exe: "jemalloc"}, "jemalloc"},
		{"linked into libruby", []string{exe, "/usr/lib/libruby-3.3.so.3.3", "/usr/lib/libc.so.6"}, map[string]string{"/usr/lib/libruby-3.3.so.3.3": "mimalloc"}, "mimalloc"},
		{"linked in, of unknown make", []string{exe, "/usr/lib/libc.so.6"}, map[string]string{exe: ""}, ""},
		{"the C library's own malloc is not a replacement", []string{exe, "/usr/lib/libc.so.6"}, map[string]string{"/usr/lib/libc.so.6": ""}, "glibc"},
		{"a library of the application does not count", []string{exe, "/srv/mallocs.so", "/usr/lib/libc.so.6"}, map[string]string{"/srv/mallocs.so": "jemalloc"}, "glibc"},
		{"static", []string{exe}, nil, ""},
		{"a name that only contains it", []string{exe, "/srv/mylibjemalloc.so", "/usr/lib/libc.so.6"}, nil, "glibc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var maps []pagemap.Mapping
			for _, p := range tt.paths {
				maps = append(maps, pagemap.Mapping{Path: p})
			}
			if got := allocator(maps, exe, own(tt.static)); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// A program that brings its own malloc, and one that does not.
func TestDefinesMalloc(t *testing.T) {
	testkit.Require(t, "gcc")
	dir := t.TempDir()
	build := func(name, source string) string {
		src := filepath.Join(dir, name+".c")
		if err := os.WriteFile(src, []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, name)
		if b, err := exec.Command("gcc", "-rdynamic", "-o", out, src).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, b)
		}
		return out
	}
	const malloc = "#include <stddef.h>\nvoid *malloc(size_t n) { return 0; }\n"
	for name, tt := range map[string]struct {
		source, want string
		ok           bool
	}{
		"plain":    {"#include <stdlib.h>\nint main() { return malloc(9) == 0; }\n", "", false},
		"own":      {malloc + "int main() { return 0; }\n", "", true},
		"jemalloc": {malloc + "int mallctl(void) { return 0; }\nint main() { return 0; }\n", "jemalloc", true},
	} {
		if got, ok := definesMalloc(build(name, tt.source)); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
	for _, file := range []string{filepath.Join(dir, "own.c"), dir, filepath.Join(dir, "none")} {
		if got, ok := definesMalloc(file); got != "" || ok {
			t.Errorf("%s: %q, %v", file, got, ok)
		}
	}
}

func TestLook(t *testing.T) {
	exe, _ := look("", pagemap.PID(os.Getpid()))
	if want, err := os.Executable(); err != nil || exe != want {
		t.Errorf("executable %q, want %q, %v", exe, want, err)
	}
	p := testkit.Start(t, "cat")
	p.Send("ready")
	p.WaitLine("ready") // exec'd and running
	exe, malloc := look("", pagemap.PID(p.PID()))
	if !strings.HasSuffix(exe, "/cat") || (malloc != "glibc" && malloc != "musl") {
		t.Errorf("cat: %q, %q", exe, malloc)
	}
}
