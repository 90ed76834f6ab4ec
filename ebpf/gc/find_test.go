package gc

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// made is a process with a library of our own in it.
type made struct {
	*testkit.Process
	library            string
	flags, count, high uint64
}

func (m *made) pid() pagemap.PID { return pagemap.PID(m.Process.PID()) }

// library compiles testdata/libruby.c under a name of its own; change may edit the file before it is loaded.
func library(t *testing.T, change func(path string), flags ...string) *made {
	t.Helper()
	testkit.Require(t, "root")
	flags = append([]string{"-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libruby-test.so"}, flags...)
	b, err := os.ReadFile(testkit.CC(t, "testdata/libruby.c", flags...))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libruby-test.so")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(path)
	}
	p := testkit.Start(t, testkit.CC(t, "testdata/host.c", "-ldl"), path)
	p.WaitLine("loaded")
	return &made{Process: p, library: path}
}

// start lets the library make its VM.
func (m *made) start(t *testing.T) {
	t.Helper()
	m.Send("start")
	line := m.WaitLine("flags")
	if _, err := fmt.Sscanf(line, "flags %v count %v major %v", &m.flags, &m.count, &m.high); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
}

func find(t *testing.T, pid pagemap.PID, want Provider) Plan {
	t.Helper()
	p, err := Find("", pid, want)
	if err != nil {
		t.Fatalf("find %s: %v", want, err)
	}
	return p
}

func TestFlagForms(t *testing.T) {
	mode := func(n uint64) *Bits { return &Bits{3, n} }
	during := func(bit uint8) Flag { return Flag{Size: 1, During: Bits{1 << bit, 1 << bit}, CountSize: 8} }
	whole := func(minor uint8, moving Bits) Flag {
		return Flag{
			Size: 4, During: Bits{32, 32}, Minor: &Bits{1 << minor, 1 << minor}, Unsettled: mode(0),
			Marking: mode(1), Sweeping: mode(2), Compacting: &moving, CountSize: 8,
		}
	}
	old, recent := whole(9, Bits{67, 66}), whole(10, Bits{3, 3})
	for _, c := range []struct {
		name    string
		version string
		flags   []string
		want    Flag
	}{
		{"3.1", "3.1.2", []string{"-O2", "-DMINOR=9"}, old},
		{"3.3", "3.3.8", []string{"-O2", "-DMINOR=10", "-DCHECK"}, recent},
		{"3.4", "3.4.11", []string{"-O2", "-DMINOR=10", "-DCALL"}, recent},
		{"4.0", "4.0.1", []string{"-O3", "-DMINOR=10", "-DCALL"}, recent},
		{"unoptimised", "3.3.8", []string{"-O0", "-DMINOR=10", "-DCHECK"}, recent},
		{"unoptimised calls", "3.4.2", []string{"-O0", "-DMINOR=10", "-DCALL"}, recent},
		{"small", "3.3.8", []string{"-Os", "-DMINOR=10", "-DCHECK"}, recent},
		{"small calls", "3.4.2", []string{"-Os", "-DMINOR=10", "-DCALL"}, recent},
		{"frame pointers", "3.3.8", []string{"-O2", "-fno-omit-frame-pointer", "-DMINOR=10", "-DCHECK"}, recent},
		{"landing pads", "3.4.2", []string{"-O2", "-fcf-protection=full", "-DMINOR=10", "-DCALL"}, recent},
		{"lazy binding", "3.4.2", []string{"-O1", "-Wl,-z,lazy", "-DMINOR=10", "-DCALL"}, recent},
		{"no procedure linkage table", "3.4.2", []string{"-O1", "-fno-plt", "-DMINOR=10", "-DCALL"}, recent},
		{"a module of its own", "3.4.2", []string{"-O2", "-DMINOR=10", "-DTABLE"}, recent},
		{"a release that is not known", "4.1.0", []string{"-O2", "-DMINOR=10", "-DCHECK"}, during(5)},
		{"not a release", "3.3", []string{"-O2", "-DMINOR=10", "-DCHECK"}, during(5)},
		{"a release built otherwise", "3.3.8", []string{"-O2", "-DMINOR=10", "-DSHIFT"}, during(6)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := library(t, nil, append(c.flags, fmt.Sprintf("-DVERSION=%q", c.version))...)
			m.start(t)
			p := find(t, m.pid(), ProviderUnknown)
			c.want.Addr, c.want.Count = m.flags, m.count
			if c.want.Minor != nil {
				c.want.MajorCount = m.high
			}
			if p.Provider != ProviderFlag || p.Runtime != "ruby" || p.Version != c.version || p.Module != m.library {
				t.Errorf("plan %+v, want a flag of %s in %s", p, c.version, m.library)
			}
			if diff := cmp.Diff(&c.want, p.Flag); diff != "" {
				t.Errorf("flag (-want +got):\n%s\n%s", diff, p.Why)
			}
			m.check(t, p.Flag)
		})
	}
}

// check reads what the flag points to: start has set it as in the marking of a minor collection.
func (m *made) check(t *testing.T, f *Flag) {
	t.Helper()
	mem, err := openMemory("", m.pid())
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	w, err := word(mem, f.Addr, int(f.Size))
	if err != nil {
		t.Fatal(err)
	}
	if !f.During.Holds(w) {
		t.Errorf("word %#x: no collection, and there is one", w)
	}
	if f.Minor != nil && (!f.Minor.Holds(w) || f.Unsettled.Holds(w) || !f.Marking.Holds(w) || f.Sweeping.Holds(w) || f.Compacting.Holds(w)) {
		t.Errorf("word %#x: not the marking of a minor collection", w)
	}
	if n, err := word(mem, f.Count, int(f.CountSize)); err != nil || n != 12 {
		t.Errorf("count %d, %v, want 12", n, err)
	}
}

func TestNotYet(t *testing.T) {
	for _, form := range []string{"-DCHECK", "-DPLAIN", "-DCALL", "-DTABLE"} {
		t.Run(form, func(t *testing.T) {
			m := library(t, nil, "-O2", "-DMINOR=10", `-DVERSION="3.4.2"`, form)
			p, err := Find("", m.pid(), ProviderUnknown)
			if !errors.Is(err, ErrNotYet) || p.Runtime != "ruby" || p.Version != "3.4.2" {
				t.Errorf("before the VM is made: %+v, %v, want ErrNotYet", p, err)
			}
			m.start(t)
			if p := find(t, m.pid(), ProviderUnknown); p.Flag == nil || p.Flag.Addr != m.flags {
				t.Errorf("afterwards: %+v, want the flag at %#x", p, m.flags)
			}
		})
	}
}

func TestNothingToFind(t *testing.T) {
	m := library(t, nil, "-O2", "-DMINOR=10", `-DVERSION="3.3.8"`, "-DODD", "-Wl,-s")
	m.start(t)
	for _, want := range []Provider{ProviderUnknown, ProviderFlag, ProviderSymbols, ProviderUSDT} {
		p := find(t, m.pid(), want)
		if p.Provider != ProviderNone || p.Flag != nil || p.Probes != nil || !strings.Contains(p.Why, "install the debug symbols of libruby-test.so") {
			t.Errorf("%s: %+v, want none and a remedy", want, p)
		}
	}
}

func TestNotes(t *testing.T) {
	flags := []string{"-O2", "-DMINOR=10", `-DVERSION="3.3.8"`, "-DODD", "-DNOTES", "-Wl,-s"}
	m := library(t, nil, flags...)
	m.start(t)
	p := find(t, m.pid(), ProviderUnknown)
	if p.Provider != ProviderUSDT || len(p.Probes) != 4 {
		t.Fatalf("%+v, want four notes", p)
	}
	file, err := os.ReadFile(m.library)
	if err != nil {
		t.Fatal(err)
	}
	semaphores := map[uint64]bool{}
	for _, probe := range p.Probes {
		if probe.Offset >= uint64(len(file)) || file[probe.Offset] != 0x90 {
			t.Errorf("%s: at %#x of the file is no nop", probe.Name, probe.Offset)
		}
		if probe.Semaphore == 0 || semaphores[probe.Semaphore] || probe.Return || probe.Rule != RuleNone || probe.Arg.Kind != ArgNone {
			t.Errorf("%+v: want a semaphore of its own, and no argument", probe)
		}
		semaphores[probe.Semaphore] = true
	}
	var events []Event
	for _, probe := range p.Probes {
		events = append(events, probe.Event)
	}
	if diff := cmp.Diff([]Event{MarkBegin, MarkEnd, SweepBegin, SweepEnd}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A library whose notes are damaged: the notes are refused, and what does not need them is still found.
func TestDamagedNotes(t *testing.T) {
	for _, c := range []struct {
		name string
		at   int // in the section
		to   byte
		says string
	}{
		{"length of the owner", 2, 0xff, "note 1 is cut off"},
		{"length of the body", 6, 0xff, "note 1 is cut off"},
		{"address", 20 + 5, 0x77, "is in no part of the file"},
		{"semaphore", 20 + 16 + 5, 0x77, "is in no part of the file"},
		{"a name that is not known", 20 + 24 + 5, 'x', "3 of the 4 notes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := library(t, func(path string) { patch(t, path, ".note.stapsdt", c.at, c.to) },
				"-O2", "-DMINOR=10", `-DVERSION="3.3.8"`, "-DCHECK", "-DNOTES")
			m.start(t)
			if p := find(t, m.pid(), ProviderUSDT); p.Provider != ProviderNone || !strings.Contains(p.Why, c.says) {
				t.Errorf("%+v, want none and %q", p, c.says)
			}
			if p := find(t, m.pid(), ProviderUnknown); p.Provider != ProviderFlag {
				t.Errorf("%+v, want the flag", p)
			}
		})
	}
}

func patch(t *testing.T, path, section string, at int, to byte) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section(section)
	h, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteAt([]byte{to}, int64(s.Offset)+int64(at)); err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// The file that is mapped counts, not the one that lies under its path now.
func TestReplacedLibrary(t *testing.T) {
	m := library(t, nil, "-O2", "-DMINOR=10", `-DVERSION="3.3.8"`, "-DCHECK")
	m.start(t)
	if err := os.Remove(m.library); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.library, []byte("another file"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := find(t, m.pid(), ProviderUnknown)
	if p.Flag == nil || p.Flag.Addr != m.flags || p.Module != m.library+" (deleted)" {
		t.Errorf("%+v, want the flag at %#x", p, m.flags)
	}
	b, err := os.ReadFile(p.File)
	if err != nil || !strings.HasPrefix(string(b), "\x7fELF") {
		t.Errorf("%s: %.20q, %v, want the library", p.File, b, err)
	}
}

func TestNoRuntime(t *testing.T) {
	testkit.Require(t, "root")
	p := testkit.Start(t, "cat")
	got := find(t, pagemap.PID(p.PID()), ProviderUnknown)
	if got.Provider != ProviderNone || !strings.Contains(got.Why, "neither Ruby nor CPython") {
		t.Errorf("%+v, want none", got)
	}
}

func TestGone(t *testing.T) {
	testkit.Require(t, "root")
	p := testkit.Start(t, "true")
	pid := pagemap.PID(p.PID())
	p.Wait()
	if _, err := Find("", pid, ProviderUnknown); !errors.Is(err, pagemap.ErrGone) {
		t.Errorf("a process that has ended: %v, want ErrGone", err)
	}
}

// A program for another kind of machine is refused in words.
func TestMachine(t *testing.T) {
	m := library(t, nil, "-O2", "-DMINOR=10", `-DVERSION="3.3.8"`)
	b, err := os.ReadFile(m.library)
	if err != nil {
		t.Fatal(err)
	}
	b[18] = byte(elf.EM_AARCH64) // e_machine
	path := filepath.Join(t.TempDir(), "libruby-arm.so")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	raw, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	err = (&module{raw: raw}).parse(pagemap.Mapping{})
	if !errors.Is(err, errMachine) || !strings.Contains(err.Error(), "EM_AARCH64: only x86-64 is understood") {
		t.Errorf("error %v, want words about the machine", err)
	}
}
