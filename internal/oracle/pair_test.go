package oracle

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
)

// marker is the function that the two libraries of the pair differ in.
const marker = "rb_iseq_mark_and_move"

// Both libraries can be told apart by what is in them: symbols with sizes, debug information, and code that differs in
// the one source file that was changed.
func TestRubyPairLibraries(t *testing.T) {
	p := testkit.RubyPair(t)
	a, b := sizes(t, p.A), sizes(t, p.B)
	if a[marker] == 0 || b[marker] <= a[marker] {
		t.Errorf("%s takes %d bytes in A, %d in B, where it has one condition more", marker, a[marker], b[marker])
	}
	var differ []string
	for name, size := range a {
		if b[name] != size {
			differ = append(differ, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	// The compiler lays out the rest of the same file anew.
	if n := len(differ); len(a) < 5000 || n > 5 || !slices.Contains(differ, marker) || slices.ContainsFunc(differ, func(s string) bool { return !strings.Contains(s, "iseq") }) {
		t.Errorf("of %d functions these differ: %v", len(a), differ)
	}
	stock, err := filepath.Glob(filepath.Join(p.Tree, "usr/lib/*/libruby-3.3.so.3.3"))
	if err != nil || len(stock) != 1 {
		t.Fatalf("Debian's own library: %v, %v", stock, err)
	}
	if d := exports(t, stock[0]); len(d) < 1000 || !slices.Equal(d, exports(t, p.A)) || !slices.Equal(d, exports(t, p.B)) {
		t.Errorf("Debian's own library exports %d symbols, A %d, B %d, or others", len(d), len(exports(t, p.A)), len(exports(t, p.B)))
	}
}

// sizes gives the functions of a library with the bytes that they take; of those with one name, all together.
func sizes(t *testing.T, file string) map[string]uint64 {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Section(".debug_info") == nil {
		t.Errorf("%s has no debug information", file)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	out := map[string]uint64{}
	for i := range symbols {
		if s := &symbols[i]; elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF {
			out[s.Name] += s.Size
		}
	}
	return out
}

func exports(t *testing.T, file string) []string {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var out []string
	for i := range symbols {
		if symbols[i].Section != elf.SHN_UNDEF {
			out = append(out, symbols[i].Name)
		}
	}
	slices.Sort(out)
	return out
}

// The library that a Ruby of the pair maps is the one that LD_LIBRARY_PATH names, in each way in which it may be named.
func TestRubyPairRuns(t *testing.T) {
	p := testkit.RubyPair(t)
	rubies := filepath.Dir(p.Tree)
	wrapper := filepath.Join(p.Tree, "bin", "ruby")
	for _, c := range []struct {
		name string
		env  string
		argv []string
		want string // the library's file; "" for Debian's own
	}{
		{"A", p.EnvA, p.Argv, p.A},
		{"B", p.EnvB, p.Argv, p.B},
		{"A by the program", p.EnvA, []string{wrapper}, p.A},
		{"B by the program", p.EnvB, []string{wrapper}, p.B},
		{"as called outside", "LD_LIBRARY_PATH=" + filepath.Join(rubies, "libruby-a"), []string{wrapper}, p.A},
		{"relative, with others", "LD_LIBRARY_PATH=/nowhere:libruby-b:libruby-a", []string{wrapper}, p.B},
		{"the program inside", p.EnvB, []string{"chroot", p.Tree, "ruby"}, p.B},
		{"none", "LD_LIBRARY_PATH=", []string{wrapper}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(c.argv[0], append(c.argv[1:], "-e", "puts ARGV; $stdout.flush; $stdin.gets", "a word", "another")...)
			cmd.Dir, cmd.Env = rubies, append(os.Environ(), c.env)
			r := testkit.StartCmd(t, cmd)
			r.WaitLine("another")
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", r.PID()))
			if err != nil {
				t.Fatal(err)
			}
			var libs []string
			for line := range strings.Lines(string(maps)) {
				if _, path, ok := strings.Cut(strings.TrimSpace(line), "/"); ok && strings.Contains(path, "libruby") {
					libs = append(libs, "/"+path)
				}
			}
			libs = slices.Compact(libs)
			if len(libs) != 1 || c.want != "" && libs[0] != c.want || c.want == "" && !strings.HasPrefix(libs[0], filepath.Join(p.Tree, "usr/lib")+"/") {
				t.Errorf("maps %q, want %q", libs, c.want)
			}
		})
	}
}

// What the pair is made for: A's first major GC in a worker copies nearly all of the memory of the instruction sequences
// and changes nothing, B's does not.
func TestRubyPairForkTest(t *testing.T) {
	testkit.Require(t, "root", "pagemap")
	p := testkit.RubyPair(t)
	const mib = 1 << 20
	first := func(env string) *audit.EventSummary {
		var r audit.ForktestReport
		command(t, &r, 0, nil, "forktest", "--runs", "3", "--format", "json", "--ruby", p.Command, "--env", env)
		e := r.Summary.Event("first_major_gc")
		if e == nil || e.N != 3 {
			t.Fatalf("%s: %+v", env, r.Summary)
		}
		t.Logf("%s: %d to %d KiB of %d KiB, %+v", env, e.CopiedBytes.Low>>10, e.CopiedBytes.High>>10, e.SharedBefore.Median>>10, e.Change)
		return e
	}
	a, b := first(p.EnvA), first(p.EnvB)
	if a.CopiedBytes.Low <= 25*mib || 100*a.Change.Identical < 95*a.Change.Compared() {
		t.Errorf("A copies %d bytes; %+v", a.CopiedBytes.Low, a.Change)
	}
	if b.CopiedBytes.High >= 3*mib || b.CopiedBytes.Low <= 0 {
		t.Errorf("B copies %d to %d bytes", b.CopiedBytes.Low, b.CopiedBytes.High)
	}
}
