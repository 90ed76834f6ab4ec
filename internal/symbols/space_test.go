package symbols

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

func TestRefresh(t *testing.T) {
	h := hold(t)
	dir := t.TempDir()
	a, b := library(t, dir, "liba.so", "hidden.c"), library(t, dir, "libb.so", "hidden.c", "-DB")
	r := resolver(t, Options{})
	s := space(t, r, h.PID())
	at := h.load(a, "exported_after")
	if got := s.Lookup(at); got.Module != "" || got.String() != fmt.Sprintf("[unknown]+0x%x", at) {
		t.Errorf("a library loaded after the reading: %v %+v", got, got)
	}
	refresh := func() {
		t.Helper()
		if err := s.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	if got := s.Lookup(at); got.Path != a || got.Function != "exported_after" {
		t.Errorf("after it was loaded: %+v", got)
	}
	h.close()
	refresh()
	if got := s.Lookup(at); got.Path != a || got.Function != "exported_after" {
		t.Errorf("after it was closed: %+v", got)
	}
	again := h.load(b, "exported_after")
	refresh()
	if got := s.Lookup(again); got.Path != b {
		t.Errorf("the newest: %+v", got)
	}
	if again == at && len(s.past) == 0 {
		t.Error("what was at the address before is forgotten")
	}
	child := s.Child()
	if got := child.Lookup(again); got.Path != b {
		t.Errorf("in a child: %+v", got)
	}
	if err := child.Refresh(); !errors.Is(err, pagemap.ErrGone) {
		t.Errorf("a child's maps: %v", err)
	}
	h.End()
	if err := s.Refresh(); !errors.Is(err, pagemap.ErrGone) {
		t.Errorf("after its end: %v", err)
	}
	if got := s.Lookup(again); got.Function != "exported_after" {
		t.Errorf("after its end: %+v", got)
	}
	if _, err := r.Space(pagemap.PID(h.PID())); !errors.Is(err, pagemap.ErrGone) {
		t.Errorf("a process that is gone: %v", err)
	}
	noProblems(t, r)
}

// A process in a root of its own: its file, and the debug file in its root, by an absolute link there.
func TestChroot(t *testing.T) {
	testkit.Require(t, "root")
	root := t.TempDir()
	whole := cc(t, "still.c", "-static", "-g", "-Wl,--build-id")
	bin := filepath.Join(root, "bin", "still")
	copyFile(t, whole, bin)
	run(t, "strip", "-s", bin)
	p := testkit.Start(t, testkit.Program(t, "chroot"), root, "/bin/still")
	at := number(t, p.WaitLine("AT "))
	if got := space(t, resolver(t, Options{}), p.PID()).Lookup(at); got.Path != bin || got.Function != "" || got.Offset != symbolOf(t, whole, "in_the_root").Value {
		t.Errorf("without its debug file: %+v", got)
	}
	byBuildID(t, filepath.Join(root, "usr", "store"), whole)
	if err := os.MkdirAll(filepath.Join(root, "usr", "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/store", filepath.Join(root, "usr", "lib", "debug")); err != nil {
		t.Fatal(err)
	}
	r := resolver(t, Options{DebugDirs: []string{"/usr/lib/debug"}})
	got := space(t, r, p.PID()).Lookup(at)
	if got.Function != "in_the_root" || got.From != SourceBuildID || got.Module != "still" {
		t.Errorf("%+v", got)
	}
	noProblems(t, r)
}

// In a mount namespace of its own the path in maps leads elsewhere, or nowhere, from here.
func TestMountNamespace(t *testing.T) {
	testkit.Require(t, "root", "mountns", "unshare")
	dir := t.TempDir()
	bin := cc(t, "still.c")
	script := `set -e; mount -t tmpfs none "$0"; cp "$1" "$0/still"; exec "$0/still"`
	p := testkit.Start(t, testkit.Program(t, "unshare"), "--mount", "sh", "-c", script, dir, bin)
	at := number(t, p.WaitLine("AT "))
	// What is at that path here is another program.
	copyFile(t, cc(t, "offset.c", "-DPROGRAM"), filepath.Join(dir, "still"))
	r := resolver(t, Options{})
	if got := space(t, r, p.PID()).Lookup(at); got.Function != "in_the_root" || got.Path != filepath.Join(dir, "still") {
		t.Errorf("%+v", got)
	}
	noProblems(t, r)
}

// On overlayfs, as in containers, maps and stat may name different files: for a file that was changed in the container, stat
// shows the inode of the layer below.
func TestOverlay(t *testing.T) {
	testkit.Require(t, "root", "mountns", "unshare")
	for _, c := range []struct{ name, change string }{
		{"of the image", ":"},
		{"changed in the container", `chmod 700 "$0/merged/still"`},
		{"written anew", `cp "$0/merged/still" "$0/merged/new"; mv "$0/merged/new" "$0/merged/still"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			script := `set -e; mount -t tmpfs none "$0"; cd "$0"; mkdir lower upper work merged; cp "$1" lower/still
				mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none merged 2>/dev/null || { echo none; exit 0; }; ` + c.change + `
				exec "$0/merged/still"`
			p := testkit.Start(t, testkit.Program(t, "unshare"), "--mount", "sh", "-c", script, dir, cc(t, "still.c", "-Wl,--build-id"))
			line, _ := p.Line()
			if line == "none" {
				testkit.Missing(t, "overlayfs cannot be mounted")
			}
			r := resolver(t, Options{})
			if got := space(t, r, p.PID()).Lookup(number(t, line)); got.Function != "in_the_root" || got.Path != filepath.Join(dir, "merged", "still") {
				t.Errorf("%+v", got)
			}
			noProblems(t, r)
		})
	}
}

// Several goroutines may ask one space while it is read again.
func TestConcurrent(t *testing.T) {
	h := hold(t)
	lib := library(t, t.TempDir(), "libc.so", "names.c")
	at, page := h.load(lib, "plain"), h.code()
	s := space(t, resolver(t, Options{Lines: true}), h.PID())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if err := s.Refresh(); err != nil {
					t.Error(err)
				}
				if got := s.Lookup(at); got.Function != "plain" || got.Line == 0 {
					t.Errorf("%+v", got)
				}
				if got, _ := s.Child().Stack([]uint64{h.main, page + 1}); len(got) != 2 || got[0].Function != "main" || got[1].Module != "[JIT]" {
					t.Errorf("%+v", got)
				}
			}
		})
	}
	wg.Wait()
}

// Without the privilege for map_files the path must lead to the mapped file.
func TestWithoutMapFiles(t *testing.T) {
	h := hold(t)
	dir := t.TempDir()
	lib := library(t, dir, "libw.so", "version.c")
	at := h.load(lib, "work_v1")
	s := space(t, resolver(t, Options{}), h.PID())
	c := s.find(at)
	moved := c.m
	moved.Start += 4096 // no such range in map_files
	if mod, name, gone, err := s.file(&moved, nil); err != nil || mod != c.mod || name != lib || gone {
		t.Errorf("by its path: %v %s %v %v", mod, name, gone, err)
	}
	fresh := library(t, dir, "new.so", "version.c", "-DNEW")
	if err := os.Rename(fresh, lib); err != nil {
		t.Fatal(err)
	}
	list, err := pagemap.FS("").Maps(pagemap.PID(h.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if mod, _, _, err := s.file(&moved, list); mod != nil || err == nil {
		t.Errorf("another file under its path: %v %v", mod, err)
	}
}

// Where device and inode say nothing, the build-id in memory does.
func TestBuildIDInMemory(t *testing.T) {
	h := hold(t)
	dir := t.TempDir()
	lib := library(t, dir, "libw.so", "version.c")
	at := h.load(lib, "work_v1")
	s := space(t, resolver(t, Options{}), h.PID())
	list, err := pagemap.FS("").Maps(pagemap.PID(h.PID()))
	if err != nil {
		t.Fatal(err)
	}
	m := &s.find(at).m
	for _, c := range []struct {
		name, file string
		ok         bool
	}{
		{"a copy", lib, true},
		{"another version", library(t, dir, "new.so", "version.c", "-DNEW"), false},
		{"no ELF file", "testdata/version.c", false},
	} {
		f, err := os.Open(c.file)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.inMemory(f, m, list); (err == nil) != c.ok || err != nil && !errors.Is(err, errOtherFile) {
			t.Errorf("%s: %v", c.name, err)
		}
		f.Close()
	}
}

func TestPerfMapFile(t *testing.T) {
	h := hold(t)
	page, second := h.code(), h.code()
	file := fmt.Sprintf("/tmp/perf-%d.map", h.PID())
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Remove(file) })
	write(fmt.Sprintf("%x 40 Integer#times@<internal:numeric>:237\n", page) +
		fmt.Sprintf("%x 40 not_in_code\n", h.main&^0xfff) +
		fmt.Sprintf("%x 10 comp", page+0x40))
	r := resolver(t, Options{})
	s := space(t, r, h.PID())
	got := s.Lookup(page + 0x3f)
	if got.Function != "Integer#times@<internal:numeric>:237" || got.FunctionOffset != 0x3f || got.Size != 0x40 || got.From != SourcePerfMap || got.Module != "[JIT]" {
		t.Errorf("%+v", got)
	}
	if got := s.Lookup(page + 0x40); got.String() != fmt.Sprintf("[JIT]+0x%x", page+0x40) {
		t.Errorf("a line that is not complete: %v", got)
	}
	if got := s.Lookup(h.main); got.Function != "main" {
		t.Errorf("code of a file named by the map file: %+v", got)
	}
	child := space(t, r, h.fork())
	write("iled\n")
	if got := s.Lookup(page + 0x40); got.Function != "compiled" {
		t.Errorf("after the file has grown: %+v", got)
	}
	if got := child.Lookup(page + 1); got.Function != "Integer#times@<internal:numeric>:237" {
		t.Errorf("inherited code: %+v", got)
	}
	if got := child.Lookup(page + 0x40); got.Function != "" {
		t.Errorf("what the parent compiled after the fork is not in the child: %+v", got)
	}
	if got := s.Child().Lookup(page + 0x40); got.Function != "compiled" {
		t.Errorf("in a copy: %+v", got)
	}
	write(fmt.Sprintf("%x 20 recompiled\n", page+0x10))
	for off, want := range map[uint64]string{0: "Integer#times@<internal:numeric>:237", 0x10: "recompiled", 0x2f: "recompiled", 0x30: "Integer#times@<internal:numeric>:237"} {
		if got := s.Lookup(page + off); got.Function != want {
			t.Errorf("+%#x: %v, want %s: the later entry counts", off, got, want)
		}
	}
	if got := s.Lookup(second); got.Function != "" || got.Module != "[JIT]" {
		t.Errorf("code that nobody named: %+v", got)
	}
	noProblems(t, r)

	// Of another user: not trusted.
	if err := os.Chown(file, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	r = resolver(t, Options{})
	if got := space(t, r, h.PID()).Lookup(page); got.Function != "" {
		t.Errorf("named by another user's file: %+v", got)
	}
	if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0].Err.Error(), "12345") {
		t.Errorf("problems: %v", p)
	}
	// A pipe instead of a file must not be waited for.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := space(t, resolver(t, Options{}), h.PID()).Lookup(page); got.Function != "" {
		t.Errorf("named by a pipe: %+v", got)
	}
}

// In a pid namespace the map file has the number that the process has there.
func TestPerfMapInPIDNamespace(t *testing.T) {
	testkit.Require(t, "root", "pidns", "unshare")
	root := t.TempDir()
	copyFile(t, cc(t, "hold.c", "-ldl", "-static"), filepath.Join(root, "hold"))
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := testkit.Start(t, testkit.Program(t, "unshare"), "--pid", "--fork", "--kill-child", testkit.Program(t, "chroot"), root, "/hold")
	p.WaitLine("READY ")
	p.Send("code")
	page := number(t, p.WaitLine("AT "))
	inside := childOf(t, p.PID())
	if err := os.WriteFile(filepath.Join(root, "tmp", "perf-1.map"), fmt.Appendf(nil, "%x 100 in_namespace\n", page), 0o644); err != nil {
		t.Fatal(err)
	}
	r := resolver(t, Options{})
	if got := space(t, r, inside).Lookup(page); got.Function != "in_namespace" {
		t.Errorf("%+v", got)
	}
	noProblems(t, r)
}

func childOf(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(string(b), &child); err != nil {
		t.Fatal(err)
	}
	return child
}

func TestStack(t *testing.T) {
	h := hold(t)
	h.Send("stack")
	var addrs []uint64
	for _, w := range strings.Fields(strings.TrimPrefix(h.WaitLine("STACK "), "STACK ")) {
		addrs = append(addrs, number(t, " "+w))
	}
	s := space(t, resolver(t, Options{}), h.PID())
	names := func(frames []Frame) string {
		var out []string
		for _, f := range frames {
			out = append(out, f.Function)
		}
		return strings.Join(out, " ")
	}
	frames, cut := s.Stack(addrs)
	if got := names(frames); got != "inner middle outer main" || !cut {
		t.Errorf("%s, cut %v", got, cut)
	}
	if frames[1].Addr != addrs[1] {
		t.Errorf("address %#x, want that of the stack, %#x", frames[1].Addr, addrs[1])
	}
	start := number(t, " "+hexOf(h.main-symbolOf(t, cc(t, "hold.c", "-ldl", "-fno-omit-frame-pointer"), "main").Value+symbolOf(t, cc(t, "hold.c", "-ldl", "-fno-omit-frame-pointer"), "_start").Value))
	for _, c := range []struct {
		name  string
		addrs []uint64
		want  string
		cut   bool
	}{
		{"to the start", append(append([]uint64{}, addrs...), start+8), "inner middle outer main _start", false},
		{"rubbish after the start", append(append([]uint64{}, addrs...), start+8, 0x1234), "inner middle outer main _start", false},
		{"rubbish in the middle", append(append([]uint64{}, addrs[:2]...), 0x1234, addrs[3]), "inner middle", true},
		{"zeros at the end", append(append([]uint64{}, addrs[:2]...), 0, 0), "inner middle", true},
		{"rubbish alone", []uint64{0x1234}, "", true},
		{"nothing", nil, "", true},
		// A call at the very end of a function: the address after it is the next function's.
		{"the innermost is no return address", []uint64{addrs[0], addrs[0]}, "inner ", true},
	} {
		frames, cut := s.Stack(c.addrs)
		if got := names(frames); cut != c.cut || c.name != "the innermost is no return address" && got != c.want || strings.Contains(got, "inner inner") {
			t.Errorf("%s: %q, cut %v; want %q, %v", c.name, got, cut, c.want, c.cut)
		}
	}
}

// A hundred spaces and lookups leave no descriptor.
func TestDescriptors(t *testing.T) {
	h := hold(t)
	lib := library(t, t.TempDir(), "libd.so", "hidden.c")
	at := h.load(lib, "exported_after")
	page := h.code()
	open := func() int {
		t.Helper()
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := open()
	r := New(Options{Lines: true})
	first := 0
	for i := range 100 {
		s := space(t, r, h.PID())
		for range 100 {
			if s.Lookup(at).Function != "exported_after" || s.Lookup(page).Module != "[JIT]" || s.Lookup(h.main).Function != "main" {
				t.Fatal("wrong names")
			}
		}
		if i == 0 {
			first = open()
		}
	}
	if now := open(); now != first {
		t.Errorf("%d descriptors after one space, %d after 100", first, now)
	}
	s := space(t, r, h.PID())
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if now := open(); now != before {
		t.Errorf("%d descriptors before, %d after", before, now)
	}
	if got := s.Lookup(at); got.Function != "exported_after" {
		t.Errorf("after Close: %+v", got)
	}
	if err := s.Refresh(); !errors.Is(err, ErrClosed) {
		t.Errorf("Refresh after Close: %v", err)
	}
	if _, err := r.Space(pagemap.PID(h.PID())); !errors.Is(err, ErrClosed) {
		t.Errorf("Space after Close: %v", err)
	}
}

// Of processes without memory of their own there is no space.
func TestNoSpace(t *testing.T) {
	r := resolver(t, Options{})
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := waitZombie(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Space(pagemap.PID(cmd.Process.Pid)); !errors.Is(err, pagemap.ErrNoMM) {
		t.Errorf("a zombie: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkLookup(b *testing.B) {
	h := hold(b)
	lib := library(b, b.TempDir(), "libb.so", "hidden.c")
	at := h.load(lib, "exported_after")
	for _, lines := range []bool{false, true} {
		b.Run(fmt.Sprintf("lines=%v", lines), func(b *testing.B) {
			s := space(b, resolver(b, Options{Lines: lines}), h.PID())
			s.Lookup(at)
			b.ReportAllocs()
			for b.Loop() {
				if s.Lookup(at).Function == "" {
					b.Fatal("no name")
				}
			}
		})
	}
}

func BenchmarkSpace(b *testing.B) {
	h := hold(b)
	r := resolver(b, Options{})
	space(b, r, h.PID())
	b.ReportAllocs()
	for b.Loop() {
		space(b, r, h.PID())
	}
}
