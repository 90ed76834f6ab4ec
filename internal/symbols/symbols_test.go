package symbols

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cowaudit/internal/testkit"

	"github.com/google/go-cmp/cmp"
)

// Case 31: run-time address, offset in the file and link-time address are three numbers.
func TestThreeAddresses(t *testing.T) {
	t.Run("library with p_vaddr not p_offset", func(t *testing.T) {
		h := hold(t)
		lib := library(t, t.TempDir(), "libpre.so", "offset.c", "-Wl,-Ttext-segment=0x600000")
		checkOffset(t, lib, h.PID(), h.load(lib, "dirty_pages"))
	})
	t.Run("program at fixed addresses", func(t *testing.T) {
		testkit.Require(t, "root")
		bin := cc(t, "offset.c", "-no-pie", "-DPROGRAM")
		p := testkit.Start(t, bin)
		checkOffset(t, bin, p.PID(), number(t, p.WaitLine("AT ")))
	})
	t.Run("code in pages of its own", func(t *testing.T) {
		h := hold(t)
		lib := library(t, t.TempDir(), "libpages.so", "offset.c", "-Wl,-z,separate-code", "-Wl,-z,max-page-size=0x10000")
		checkOffset(t, lib, h.PID(), h.load(lib, "dirty_pages"))
	})
	t.Run("all in one segment", func(t *testing.T) {
		h := hold(t)
		lib := library(t, t.TempDir(), "libone.so", "offset.c", "-Wl,-z,noseparate-code")
		checkOffset(t, lib, h.PID(), h.load(lib, "dirty_pages"))
	})
}

// checkOffset looks up the first and last byte of dirty_pages, and what lies around it.
func checkOffset(t *testing.T, file string, pid int, at uint64) {
	t.Helper()
	r := resolver(t, Options{})
	s := space(t, r, pid)
	want := symbolOf(t, file, "dirty_pages")
	for _, c := range []struct {
		off  uint64
		name string
		at   uint64
	}{
		{0, "dirty_pages", 0}, {1, "dirty_pages", 1}, {want.Size - 1, "dirty_pages", want.Size - 1},
		{symbolOf(t, file, "decoy2").Value - want.Value, "decoy2", 0},
		{symbolOf(t, file, "decoy").Value - want.Value, "decoy", 0},
	} {
		got := s.Lookup(at + c.off)
		size := symbolOf(t, file, c.name).Size
		if diff := cmp.Diff(Frame{
			Addr: at + c.off, Module: filepath.Base(file), Path: file, BuildID: buildIDOf(t, file), Offset: want.Value + c.off,
			Function: c.name, FunctionOffset: c.at, Size: size, From: SourceSymtab,
		}, got); diff != "" {
			t.Errorf("%s+%d (-want +got):\n%s", c.name, c.at, diff)
		}
	}
	noProblems(t, r)
}

// hiddenLib builds case 32: a library whose static function is in no table of the stripped file; whole is the file before
// that.
func hiddenLib(t *testing.T, dir string) (whole, stripped string) {
	t.Helper()
	whole = library(t, t.TempDir(), "whole.so", "hidden.c")
	stripped = filepath.Join(dir, "libhidden.so.1.2")
	copyFile(t, whole, stripped)
	run(t, "strip", "-s", stripped)
	return whole, stripped
}

// lookHidden looks up the middle of hidden_writer in a process that has the library mapped.
func lookHidden(t *testing.T, o Options, h *holder, whole, mapped string) (*Resolver, Frame) {
	t.Helper()
	before := h.load(mapped, "exported_before")
	r := resolver(t, o)
	hidden := symbolOf(t, whole, "hidden_writer")
	got := space(t, r, h.PID()).Lookup(before - symbolOf(t, whole, "exported_before").Value + hidden.Value + 5)
	if got.Offset != hidden.Value+5 {
		t.Errorf("offset %#x, want %#x", got.Offset, hidden.Value+5)
	}
	return r, got
}

func wantHidden(t *testing.T, got Frame, from Source) {
	t.Helper()
	if got.Function != "hidden_writer" || got.FunctionOffset != 5 || got.From != from || got.String() != "hidden_writer" {
		t.Errorf("%v from %v: %+v, want hidden_writer+5 from %v", got, got.From, got, from)
	}
}

// Case 32: no symbol covers the address, and the nearest one must not be named.
func TestStrippedLibraryHasNoNearestName(t *testing.T) {
	h := hold(t)
	whole, lib := hiddenLib(t, t.TempDir())
	r, got := lookHidden(t, Options{}, h, whole, lib)
	if want := "libhidden.so.1.2+0x" + hexOf(symbolOf(t, whole, "hidden_writer").Value+5); got.String() != want || got.Function != "" || got.From != SourceNone {
		t.Errorf("%v (%+v), want %s", got, got, want)
	}
	s := space(t, r, h.PID())
	if got := s.Lookup(h.load(lib, "exported_before")); got.Function != "exported_before" || got.From != SourceDynsym {
		t.Errorf("an exported function: %+v", got)
	}
	noProblems(t, r)
}

// byBuildID puts a debug file where its build-id leads to.
func byBuildID(t *testing.T, dir, whole string) {
	t.Helper()
	id := buildIDOf(t, whole)
	to := filepath.Join(dir, ".build-id", id[:2], id[2:]+".debug")
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "objcopy", "--only-keep-debug", whole, to)
}

func TestDebugFileByBuildID(t *testing.T) {
	h := hold(t)
	dir := t.TempDir()
	whole, lib := hiddenLib(t, dir)
	byBuildID(t, filepath.Join(dir, "dbg"), whole)
	r, got := lookHidden(t, Options{DebugDirs: []string{"/nonexistent", filepath.Join(dir, "dbg")}, Lines: true}, h, whole, lib)
	wantHidden(t, got, SourceBuildID)
	if filepath.Base(got.File) != "hidden.c" || got.Line < 4 || got.Line > 7 {
		t.Errorf("source line %s:%d, want hidden.c:4 to 7", got.File, got.Line)
	}
	noProblems(t, r)
}

// A file under the name of the build-id that is of another build is refused.
func TestDebugFileOfAnotherBuild(t *testing.T) {
	h := hold(t)
	dir := t.TempDir()
	whole, lib := hiddenLib(t, dir)
	id := buildIDOf(t, whole)
	other := library(t, t.TempDir(), "other.so", "version.c")
	copyFile(t, other, filepath.Join(dir, "dbg", ".build-id", id[:2], id[2:]+".debug"))
	r, got := lookHidden(t, Options{DebugDirs: []string{filepath.Join(dir, "dbg")}}, h, whole, lib)
	if got.Function != "" {
		t.Errorf("%+v from the symbols of another build", got)
	}
	if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0].Err.Error(), errOtherBuild.Error()) {
		t.Errorf("problems: %v", p)
	}
}

func TestDebugLink(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    func(lib string) string // where the debug file is put
		spoil bool
		bare  bool // no build-id: the checksum alone decides
	}{
		{name: "beside", at: func(lib string) string { return filepath.Join(filepath.Dir(lib), "hidden.debug") }},
		{name: ".debug", at: func(lib string) string { return filepath.Join(filepath.Dir(lib), ".debug", "hidden.debug") }},
		{name: "debug folder", at: func(lib string) string {
			return filepath.Join(filepath.Dir(lib), "dbg", filepath.Dir(lib), "hidden.debug")
		}},
		{name: "wrong checksum", at: func(lib string) string { return filepath.Join(filepath.Dir(lib), "hidden.debug") }, spoil: true},
		{name: "no build-id", at: func(lib string) string { return filepath.Join(filepath.Dir(lib), "hidden.debug") }, bare: true},
		{name: "no build-id, wrong checksum", at: func(lib string) string { return filepath.Join(filepath.Dir(lib), "hidden.debug") }, bare: true, spoil: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hold(t)
			dir := t.TempDir()
			whole, lib := hiddenLib(t, dir)
			if c.bare {
				bare := filepath.Join(dir, "bare.so")
				run(t, "objcopy", "--remove-section=.note.gnu.build-id", whole, bare)
				whole = bare
				run(t, "objcopy", "--remove-section=.note.gnu.build-id", lib)
			}
			debug := c.at(lib)
			if err := os.MkdirAll(filepath.Dir(debug), 0o755); err != nil {
				t.Fatal(err)
			}
			run(t, "objcopy", "--only-keep-debug", whole, debug)
			run(t, "objcopy", "--add-gnu-debuglink="+debug, lib)
			if c.spoil {
				f, err := os.OpenFile(debug, os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString("more"); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			r, got := lookHidden(t, Options{DebugDirs: []string{filepath.Join(dir, "dbg")}}, h, whole, lib)
			if !c.spoil {
				wantHidden(t, got, SourceDebugLink)
				noProblems(t, r)
				return
			}
			if got.Function != "" {
				t.Errorf("%+v from a file with the wrong checksum", got)
			}
			if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0].Err.Error(), errOtherSum.Error()) {
				t.Errorf("problems: %v", p)
			}
		})
	}
}

// Symbols of a debug file whose code lies elsewhere are not those of this file, whatever its build-id.
func TestSameCode(t *testing.T) {
	at := func(addr uint64) *elf.File {
		return &elf.File{Sections: []*elf.Section{{SectionHeader: elf.SectionHeader{Name: ".text", Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: addr, Size: 16}}}}
	}
	if !sameCode(at(0x1000), at(0x1000)) || sameCode(at(0x1000), at(0x2000)) || !sameCode(at(0x1000), &elf.File{}) {
		t.Error("the addresses of .text are not compared")
	}
}

func TestMiniDebugInfo(t *testing.T) {
	h := hold(t)
	dir := t.TempDir()
	whole, lib := hiddenLib(t, dir)
	mini := filepath.Join(dir, "mini")
	run(t, "objcopy", "--only-keep-debug", whole, mini+".debug")
	run(t, "objcopy", "-S", "--keep-symbol=hidden_writer", mini+".debug", mini)
	packed := filepath.Join(dir, "mini.xz")
	pack(t, mini, packed)
	run(t, "objcopy", "--add-section", ".gnu_debugdata="+packed, lib)
	r, got := lookHidden(t, Options{}, h, whole, lib)
	wantHidden(t, got, SourceMini)
	if got := space(t, r, h.PID()).Lookup(h.load(lib, "exported_before")); got.Function != "exported_before" || got.From != SourceDynsym {
		t.Errorf("an exported function: %+v", got)
	}
	noProblems(t, r)
}

// Case 33: the path names another file by now.
func TestReplacedLibrary(t *testing.T) {
	h := hold(t)
	dir := t.TempDir()
	lib := library(t, dir, "libw.so", "version.c")
	old := library(t, t.TempDir(), "old.so", "version.c")
	entry := h.load(lib, "entry")
	work := entry - symbolOf(t, old, "entry").Value + symbolOf(t, old, "work_v1").Value
	fresh := library(t, dir, "new.so", "version.c", "-DNEW")
	if err := os.Rename(fresh, lib); err != nil {
		t.Fatal(err)
	}
	if buildIDOf(t, lib) == buildIDOf(t, old) {
		t.Fatal("the two versions are one")
	}
	r := resolver(t, Options{})
	want := symbolOf(t, old, "work_v1")
	if diff := cmp.Diff(Frame{
		Addr: work + 4, Module: "libw.so", Path: lib, Deleted: true, BuildID: buildIDOf(t, old), Offset: want.Value + 4,
		Function: "work_v1", FunctionOffset: 4, Size: want.Size, From: SourceSymtab,
	}, space(t, r, h.PID()).Lookup(work+4)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	noProblems(t, r)
}

// A live file's name may end as the kernel marks deleted ones.
func TestNameThatEndsInDeleted(t *testing.T) {
	testkit.Require(t, "root")
	name := filepath.Join(t.TempDir(), "still (deleted)")
	copyFile(t, cc(t, "still.c"), name)
	p := testkit.Start(t, name)
	at := number(t, p.WaitLine("AT "))
	if got := space(t, resolver(t, Options{}), p.PID()).Lookup(at); got.Deleted || got.Path != name || got.Function != "in_the_root" {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if got := space(t, resolver(t, Options{}), p.PID()).Lookup(at); !got.Deleted || got.Path != name || got.Function != "in_the_root" {
		t.Errorf("after it was removed: %+v", got)
	}
}

func TestNames(t *testing.T) {
	h := hold(t)
	lib := library(t, t.TempDir(), "libnames.so", "names.c")
	plain := h.load(lib, "plain")
	bias := plain - symbolOf(t, lib, "plain").Value
	r := resolver(t, Options{})
	s := space(t, r, h.PID())
	bare := symbolOf(t, lib, "bare").Value
	for _, c := range []struct {
		name string
		at   uint64 // link-time
		want string
	}{
		{"C++", symbolOf(t, lib, "_ZN4demo5Store3putERKSsi").Value, "demo::Store::put(std::string const&, int)"},
		{"Rust, legacy", symbolOf(t, lib, "_ZN5alloc3vec12Vec$LT$T$GT$4push17h0123456789abcdefE").Value, "alloc::vec::Vec<T>::push"},
		{"Rust, v0", symbolOf(t, lib, "_RNvCs1234_7mycrate3foo").Value, "mycrate::foo"},
		{"aliases", symbolOf(t, lib, "plain").Value, "plain"},
		{"no size", bare, "bare?"},
		{"no size, its last byte", bare + 31, "bare?"},
		{"the label after it", bare + 32, "second_label?"},
		{"up to the next symbol", bare + 63, "second_label?"},
		{"a size", bare + 64, "sized"},
		{"after a size", bare + 80, "libnames.so+0x" + hexOf(bare+80)},
	} {
		if got := s.Lookup(bias + c.at); got.String() != c.want || got.Offset != c.at {
			t.Errorf("%s: %v at %#x, want %s at %#x", c.name, got, got.Offset, c.want, c.at)
		}
	}
	if got := s.Lookup(bias + bare + 40); !got.Sizeless || got.Size != 32 || got.FunctionOffset != 8 {
		t.Errorf("a label without a size: %+v", got)
	}
	noProblems(t, r)

	// In a stripped library the exported label has neighbours that are not known.
	for _, how := range []string{"-s", "-x"} {
		stripped := filepath.Join(t.TempDir(), "libbare.so")
		copyFile(t, lib, stripped)
		run(t, "strip", how, stripped)
		moved := h.load(stripped, "plain") - (plain - bias)
		s := space(t, resolver(t, Options{}), h.PID())
		if got := s.Lookup(moved + bare + 3); got.Function != "" {
			t.Errorf("%v from a table without local symbols (strip %s)", got, how)
		}
		if got := s.Lookup(moved + symbolOf(t, lib, "sized").Value); got.Function != "sized" {
			t.Errorf("strip %s: %+v", how, got)
		}
	}
}

func TestSourceLines(t *testing.T) {
	for _, c := range []struct{ name, flag string }{
		{"DWARF 5", "-gdwarf-5"}, {"DWARF 4", "-gdwarf-4"}, {"compressed", "-gz=zlib"}, {"compressed, GNU", "-gz=zlib-gnu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hold(t)
			lib := library(t, t.TempDir(), "liblines.so", "hidden.c", c.flag)
			at := h.load(lib, "exported_after")
			r := resolver(t, Options{Lines: true})
			s := space(t, r, h.PID())
			if got := s.Lookup(at); filepath.Base(got.File) != "hidden.c" || got.Line != 7 {
				t.Errorf("%s:%d, want hidden.c:7", got.File, got.Line)
			}
			lines := map[int]bool{}
			hidden := symbolOf(t, lib, "hidden_writer")
			bias := at - symbolOf(t, lib, "exported_after").Value
			for i := range hidden.Size {
				lines[s.Lookup(bias+hidden.Value+i).Line] = true
			}
			if !lines[5] || lines[7] || lines[2] {
				t.Errorf("lines of hidden_writer: %v, want 5 among them and not 2 or 7", lines)
			}
			noProblems(t, r)
		})
	}
}

func TestVDSO(t *testing.T) {
	h := hold(t)
	r := resolver(t, Options{})
	s := space(t, r, h.PID())
	var at *code
	for _, c := range s.live {
		if c.kind == kindVDSO {
			at = c
		}
	}
	if at == nil || at.mod == nil {
		t.Fatal("no vDSO")
	}
	tab := at.mod.load()
	if len(tab.syms) == 0 {
		t.Fatal("a vDSO without symbols")
	}
	got := s.Lookup(uint64(at.m.Start) + tab.syms[0].value)
	if got.Module != "[vdso]" || got.From != SourceVDSO || got.Function == "" || got.Offset != tab.syms[0].value {
		t.Errorf("%+v", got)
	}
	other := space(t, r, os.Getpid())
	for _, c := range other.live {
		if c.kind == kindVDSO && c.mod != at.mod {
			t.Error("one vDSO is read as two")
		}
	}
	noProblems(t, r)
}
