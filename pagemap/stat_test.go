package pagemap

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	tests := []struct {
		name, in string
		want     Stat
	}{{
		name: "a Ruby server of 6.12",
		in: "4711 (ruby) S 4700 4711 4700 34816 4711 4194304 8313 0 0 0 45 7 0 0 20 0 12 0 151790 205619200 7130 18446744073709551615 " +
			"94558730240000 94558730244325 140722914185088 0 0 0 0 0 1107394127 0 0 0 17 1 0 0 0 0 0 94558730255776 94558730256400 94558734102528 140722914189231 140722914189260 140722914189260 140722914193385 0\n",
		want: Stat{PID: 4711, Comm: "ruby", State: 'S', PPID: 4700, Flags: 4194304, NumThreads: 12, Start: 151790, RSSPages: 7130, StartStack: 140722914185088, StartBrk: 94558734102528},
	}, {
		name: "kernel thread",
		in:   statLine(Stat{PID: 2, Comm: "kthreadd", State: 'S', Flags: 0x208040, NumThreads: 1, Start: 3}),
		want: Stat{PID: 2, Comm: "kthreadd", State: 'S', Flags: 0x208040, NumThreads: 1, Start: 3},
	}, {
		name: "name with all that separates",
		in:   statLine(Stat{PID: 9, Comm: ") S 1 (x)\n) R", State: 'Z', PPID: 8, NumThreads: 1, Start: 1<<64 - 1}),
		want: Stat{PID: 9, Comm: ") S 1 (x)\n) R", State: 'Z', PPID: 8, NumThreads: 1, Start: 1<<64 - 1},
	}, {
		name: "no name",
		in:   statLine(Stat{PID: 9, State: 'I', NumThreads: 1}),
		want: Stat{PID: 9, State: 'I', NumThreads: 1},
	}, {
		name: "before 3.3, without the brk heap",
		in:   strings.Join(strings.Fields(statLine(Stat{PID: 9, Comm: "old", State: 'R', PPID: 1, Start: 7}))[:44], " ") + "\n",
		want: Stat{PID: 9, Comm: "old", State: 'R', PPID: 1, Start: 7},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseStat([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseStatErrors(t *testing.T) {
	good := statLine(Stat{PID: 9, Comm: "x", State: 'S', PPID: 1, NumThreads: 1, Start: 7})
	for _, in := range []string{
		"",
		"\n",
		strings.TrimSuffix(good, "\n"),
		good[:30] + "\n",
		strings.Replace(good, "(", "", 1),
		strings.Replace(good, ")", "", 1),
		strings.Replace(good, ") S ", ") Sleeping ", 1),
		strings.Replace(good, ") S ", ")\n", 1),
		strings.Replace(good, ") S 1 ", ") S -1 ", 1),
		strings.Replace(good, ") S 1 ", ") S  1 ", 1),
		strings.Replace(good, "9 ", "x ", 1),
		strings.Replace(good, "9 ", "99999999999 ", 1),
		strings.Replace(good, " 7 ", " 0x7 ", 1),
	} {
		if s, err := ParseStat([]byte(in)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %+v, %v", in, s, err)
		}
	}
}

func TestStatOfThisProcess(t *testing.T) {
	name := "a) R (b\nc"
	old, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/proc/self/comm", []byte(name), 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile("/proc/self/comm", bytes.TrimSuffix(old, []byte{'\n'}), 0); err != nil {
			t.Error(err)
		}
	}()
	pid := PID(os.Getpid())
	s, err := FS("").Stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	if s.PID != pid || s.PPID != PID(os.Getppid()) || s.Comm != name || s.Forked() || s.KernelThread() || s.Zombie() || s.NumThreads < 2 || s.RSSPages == 0 {
		t.Errorf("%+v", s)
	}
	maps, err := FS("").Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	inStack := false
	for _, m := range maps {
		inStack = inStack || m.Path == "[stack]" && s.StartStack >= m.Start && s.StartStack < m.End
	}
	if !inStack || s.StartBrk == 0 {
		t.Errorf("stack at %#x, brk at %#x", uint64(s.StartStack), uint64(s.StartBrk))
	}

	status, err := FS("").Status(pid)
	if err != nil {
		t.Fatal(err)
	}
	if !status.HasMM || status.TGID != pid || status.VmRSS == 0 || status.VmHWM < status.VmRSS/2 {
		t.Errorf("%+v", status)
	}
	if want := [4]uint32{uint32(os.Getuid()), uint32(os.Geteuid()), uint32(os.Geteuid()), uint32(os.Geteuid())}; status.UID != want {
		t.Errorf("uid %v, want %v", status.UID, want)
	}
	if diff := cmp.Diff([]PID{pid}, status.NSPID); diff != "" {
		t.Errorf("NSPID (-want +got):\n%s", diff)
	}
	exe, err := FS("").Exe(pid)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.Readlink("/proc/self/exe"); err != nil || exe != want {
		t.Errorf("exe %q, want %q", exe, want)
	}
	list, _, err := FS("").Family([]PID{pid}, FamilyOptions{Alone: true})
	if err != nil || len(list) != 1 || list[0].Comm != "a) R (b?c" {
		t.Errorf("%v, %+v", err, list)
	}
}

func TestParseStatus(t *testing.T) {
	got, err := ParseStatus([]byte("Name:\ta\\nTgid: 5\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t14213\nNgid:\t0\nPid:\t14213\nPPid:\t14212\n" +
		"Uid:\t1000\t0\t0\t4294967295\nGid:\t0\t0\t0\t0\nNStgid:\t14213\t7\t1\nNSpid:\t14213\t7\t1\nVmHWM:\t   10240 kB\nVmRSS:\t    9216 kB\nVmSwap:\t      12 kB\nThreads:\t1\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Status{TGID: 14213, UID: [4]uint32{1000, 0, 0, 1<<32 - 1}, NSPID: []PID{14213, 7, 1}, VmRSS: 9 << 20, VmHWM: 10 << 20, VmSwap: 12 << 10, HasMM: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, in := range []string{"", "Tgid:\tx\n", "Tgid:\t1\nVmRSS:\t12\n", "Tgid:\t1\nUid:\t4294967296\n", "Tgid:\t1\nNSpid:\t-1\n"} {
		if _, err := ParseStatus([]byte(in)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestCmdline(t *testing.T) {
	proc := newFakeProc(t)
	long := strings.Repeat("ä", 3000)
	tests := []struct{ name, raw, want string }{
		{"arguments", "puma\x00-C\x00config file\x00", "puma -C config file"},
		{"empty arguments", "a\x00\x00b\x00", "a  b"},
		{"a title, as servers set it", "nginx: master process\x00\x00\x00\x00\x00", "nginx: master process"},
		{"a terminal's orders", "a\x1b[2J\x00b\nc\u009bd\u202ee\x7f", "a?[2J b?c?d?e?"},
		{"not utf-8", "bad\xff\xfe", "bad??"},
		{"other letters", "café 雪\x00", "café 雪"},
		{"empty", "", ""},
		{"long", long, long[:4096]},
		{"cut before a rune", "x" + long, "x" + long[:4094]},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pid := PID(100 + i)
			proc.write(pid, "cmdline", tt.raw)
			got, err := proc.fs().Cmdline(pid)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want || !utf8.ValidString(got) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statLine(Stat{PID: 4711, Comm: "ruby", State: 'S', PPID: 4700, Flags: 0x400040, NumThreads: 12, Start: 151790, RSSPages: 7130, StartStack: 0x7ffd1c000000, StartBrk: 0x55a0})))
	f.Add([]byte(statLine(Stat{PID: 9, Comm: ") S 1 (x)\n) R", State: 'Z'})))
	f.Add([]byte("1 (x) S 1"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := ParseStat(in)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if s.PID < 0 || s.PPID < 0 || s.NumThreads < 0 || s.RSSPages < 0 || !bytes.Contains(in, []byte("("+s.Comm+")")) {
			t.Fatalf("%+v", s)
		}
		if s.State >= utf8.RuneSelf { // statLine prints a rune
			return
		}
		again, err := ParseStat([]byte(statLine(s)))
		if err != nil {
			t.Fatalf("what was parsed does not print: %v", err)
		}
		if diff := cmp.Diff(s, again); diff != "" {
			t.Fatalf("printed and parsed again:\n%s", diff)
		}
	})
}
