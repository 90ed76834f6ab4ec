package pagemap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"cowaudit/internal/testkit"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseMaps(t *testing.T) {
	long := "/" + strings.Repeat("n", 200_000)
	tests := []struct {
		name, in string
		want     []Mapping
	}{
		{"empty", "", []Mapping{}},
		{
			"file, heap, unnamed, vsyscall",
			"00400000-00452000 r-xp 0000a000 fd:01 131077                             /opt/app with space/bin/app (deleted)\n" +
				"01a3c000-01c5d000 rw-p 00000000 00:00 0                                  [heap]\n" +
				"7f10a0000000-7f10a0021000 rw-p 00000000 00:00 0 \n" +
				"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n",
			[]Mapping{
				{Start: 0x400000, End: 0x452000, Perms: "r-xp", Offset: 0xa000, Major: 0xfd, Minor: 1, Inode: 131077, Path: "/opt/app with space/bin/app (deleted)"},
				{Start: 0x1a3c000, End: 0x1c5d000, Perms: "rw-p", Path: "[heap]"},
				{Start: 0x7f10a0000000, End: 0x7f10a0021000, Perms: "rw-p"},
				{Start: 0xffffffffff600000, End: 0xffffffffff601000, Perms: "--xp", Path: "[vsyscall]"},
			},
		},
		{
			"wide numbers",
			"7f10aa090000-7f10aa091000 r--s ffffffffff000 fffff:fffff 18446744073709551615 /srv/big major.so\n",
			[]Mapping{{Start: 0x7f10aa090000, End: 0x7f10aa091000, Perms: "r--s", Offset: 0xffffffffff000, Major: 0xfffff, Minor: 0xfffff, Inode: 1<<64 - 1, Path: "/srv/big major.so"}},
		},
		{
			"names that look like something else",
			"1000-2000 rw-p 00000000 00:00 0  /tmp/7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n" +
				"2000-3000 rw-p 00000000 00:00 0  /tmp/a\tb \n" +
				"3000-4000 rw-p 00000000 00:00 0  /tmp/bad\xff\xfe\r\n" +
				"4000-5000 rwxs 00000000 00:00 0  [anon:main space (region space)]\n",
			[]Mapping{
				{Start: 0x1000, End: 0x2000, Perms: "rw-p", Path: "/tmp/7f0000000000-7f0000001000 rw-p 00000000 00:00 0"},
				{Start: 0x2000, End: 0x3000, Perms: "rw-p", Path: "/tmp/a\tb "},
				{Start: 0x3000, End: 0x4000, Perms: "rw-p", Path: "/tmp/bad\xff\xfe\r"},
				{Start: 0x4000, End: 0x5000, Perms: "rwxs", Path: "[anon:main space (region space)]"},
			},
		},
		{
			"a long line",
			"1000-2000 ---p 00000000 00:00 0 " + long + "\n",
			[]Mapping{{Start: 0x1000, End: 0x2000, Perms: "---p", Path: long}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.in), oneByte{strings.NewReader(tt.in)}} {
				got, err := ParseMaps(r)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestParseMapsErrors(t *testing.T) {
	const good = "1000-2000 rw-p 00000000 00:00 0 \n"
	for _, bad := range []string{
		"1000-2000 rw-p 00000000 00:00 0 ",         // torn at the very end
		"1000-2000 rw-p 000000",                    // torn
		"\n",                                       //
		"1000-2000 rw-p 00000000 00:00\n",          // no inode
		"1000-2000 rw-p 00000000 00:00 \n",         //
		"1000-2000 rw-p 00000000 0000 0\n",         // no minor
		"1000-2000 rw-p 00000000 00:100000000 0\n", // minor of 33 bits
		"1000-2000 rw-p 00000000 100000000:00 0\n", // major of 33 bits
		"1000-2000 rw-p 00000000 00:00 99999999999999999999\n",
		"1000-2000 rw-p 00000000 00:00 12a\n",
		"1000-2000 rw-p 10000000000000000 00:00 0\n",     // offset of 65 bits
		"1000-10000000000000000 rw-p 00000000 00:00 0\n", // address of 65 bits
		"1000-1000 rw-p 00000000 00:00 0\n",              // empty
		"2000-1000 rw-p 00000000 00:00 0\n",              // backwards
		"-2000 rw-p 00000000 00:00 0\n",                  //
		"1000- rw-p 00000000 00:00 0\n",                  //
		"1000-2000 rwp 00000000 00:00 0\n",               //
		"1000-2000 rw-x 00000000 00:00 0\n",              //
		"1000-2000 wr-p 00000000 00:00 0\n",              //
		"1000-2000 rw-pp 00000000 00:00 0\n",             //
		"1000-2000  rw-p 00000000 00:00 0\n",             // two blanks
		"1000-2000\n",                                    //
		"1000-200G rw-p 00000000 00:00 0\n",              //
		"cat: /proc/1/maps: Permission denied\n",         // an error message in the place of maps
		"Size:                  4 kB\n",                  // a line of smaps
	} {
		_, err := ParseMaps(strings.NewReader(good + bad + good))
		if strings.HasSuffix(bad, "\n") {
			if !errors.Is(err, ErrFormat) || !contains(err, "line 2") {
				t.Errorf("%q: %v", bad, err)
			}
			continue
		}
		if _, err = ParseMaps(strings.NewReader(good + bad)); !errors.Is(err, ErrFormat) || !contains(err, "line 2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	broken := errors.New("broken")
	if _, err := ParseMaps(io.MultiReader(strings.NewReader(good), errReader{broken})); !errors.Is(err, broken) {
		t.Errorf("error of the reader: %v", err)
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// Paths and permissions that come again are not allocated again.
func TestParseMapsAllocations(t *testing.T) {
	var text []byte
	for i := range 60_000 {
		text = fmt.Appendf(text, "%x-%x rw-p 00000000 fd:01 %d                     /srv/file %d\n", 0x10000+i*0x2000, 0x11000+i*0x2000, i, i%7)
	}
	allocs := testing.AllocsPerRun(3, func() {
		if list, err := parseMaps(text); err != nil || len(list) != 60_000 {
			t.Fatal(len(list), err)
		}
	})
	if allocs > 20 {
		t.Errorf("%v allocations for 60,000 mappings", allocs)
	}
}

// The names that have fooled parsers, each a file that this process maps, read through the kernel.
func TestMapsNames(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name, file string
		unlink     bool
		shown      string // by the kernel; "": as it is
	}{
		{name: "blanks", file: "lib with spaces.so"},
		{name: "newline", file: "line1\nline2", shown: `line1\012line2`},
		{name: "its escape", file: `line1\012line2`},
		{name: "looks deleted", file: "plain (deleted)"},
		{name: "deleted", file: "gone.so", unlink: true, shown: "gone.so (deleted)"},
		{name: "deleted, and looks so", file: "twice (deleted)", unlink: true, shown: "twice (deleted) (deleted)"},
		{name: "leading blanks", file: "  two blanks"},
		{name: "trailing blanks", file: "trailing  "},
		{name: "tab", file: "a\tb"},
		{name: "utf-8", file: "caf\u00e9-\u96ea.so"},
		{name: "not utf-8", file: "bad\xff\xfe.so"},
		{name: "looks like the heap", file: "[heap]"},
		{name: "looks like a named mapping", file: "[anon:fake]"},
		{name: "looks like a line", file: "7f0000000000-7f0000001000 rw-p 00000000 00:00 0"},
		{name: "long", file: strings.Repeat("n", 255)},
	}
	inode := make([]uint64, len(tests))
	at := make([]Addr, len(tests))
	page := os.Getpagesize()
	for i, tt := range tests {
		path := filepath.Join(dir, tt.file)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(int64(page)); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		inode[i] = st.Ino
		b, err := unix.Mmap(int(f.Fd()), 0, page, unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		at[i] = Addr(uintptr(unsafe.Pointer(&b[0])))
		t.Cleanup(func() {
			if err := unix.Munmap(b); err != nil {
				t.Error(err)
			}
		})
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if tt.unlink {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	maps, err := FS("").Maps(PID(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	smaps, err := FS("").Smaps(PID(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	byStart := map[Addr]Mapping{}
	for _, m := range maps {
		byStart[m.Start] = m
	}
	for _, s := range smaps {
		m := s.Mapping
		m.Fork, m.HugePage = "", 0
		if got, ok := byStart[m.Start]; ok && got.End == m.End {
			if diff := cmp.Diff(got, m); diff != "" {
				t.Errorf("maps and smaps (-maps +smaps):\n%s", diff)
			}
		}
	}
	for i, tt := range tests {
		shown := tt.shown
		if shown == "" {
			shown = tt.file
		}
		m := byStart[at[i]]
		if want := filepath.Join(dir, shown); m.Path != want {
			t.Errorf("%s: path %q, want %q", tt.name, m.Path, want)
		}
		if m.Inode != inode[i] || m.Perms != "r--p" || m.End != m.Start+Addr(page) {
			t.Errorf("%s: %+v, want inode %d", tt.name, m, inode[i])
		}
	}
}

// Each line of every process that can be read comes out as it went in.
func TestMapsRoundTrip(t *testing.T) {
	tree, err := FS("").Tree()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for pid := range tree.stats {
		raw, err := os.ReadFile(FS("").file(pid, "maps"))
		if err != nil || len(raw) == 0 {
			continue
		}
		list, err := ParseMaps(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("maps of %d: %v", pid, err)
		}
		seen++
		if got := formatMaps(list); !bytes.Equal(got, raw) {
			t.Errorf("maps of %d (-want +got):\n%s", pid, cmp.Diff(string(raw), string(got)))
		}
	}
	if seen == 0 {
		t.Error("no maps could be read")
	}
}

// formatMaps prints lines as the kernel does (fs/proc/task_mmu.c, show_vma_header_prefix and seq_pad).
func formatMaps(list []Mapping) []byte {
	var b []byte
	for _, m := range list {
		line := fmt.Appendf(nil, "%08x-%08x %s %08x %02x:%02x %d ", uint64(m.Start), uint64(m.End), m.Perms, m.Offset, m.Major, m.Minor, m.Inode)
		if m.Path != "" {
			for len(line) < 25+8*6-1 {
				line = append(line, ' ')
			}
			line = append(line, ' ')
		}
		b = append(append(append(b, line...), m.Path...), '\n')
	}
	return b
}

func TestMapsOfNoProcess(t *testing.T) {
	tree := startTree(t, buildTree(t), "z Z")
	zombie := tree.pids["Z"]
	gone := endedPID(t)
	type readings map[string]error
	read := func(pid PID) readings {
		_, maps := FS("").Maps(pid)
		_, smaps := FS("").Smaps(pid)
		_, rollup := FS("").Rollup(pid)
		_, exe := FS("").Exe(pid)
		return readings{"maps": maps, "smaps": smaps, "smaps_rollup": rollup, "exe": exe}
	}
	check := func(who string, pid PID, want error) {
		for name, err := range read(pid) {
			if !errors.Is(err, want) || !contains(err, fmt.Sprintf("read %s of %d", name, pid)) {
				t.Errorf("%s: %s: %v, want %v", who, name, err, want)
			}
		}
	}
	check("zombie", zombie, ErrNoMM)
	check("gone", gone, ErrGone)
	if _, err := FS("").Stat(gone); !errors.Is(err, ErrGone) {
		t.Errorf("stat of a gone process: %v", err)
	}
	if _, err := FS("").Status(gone); !errors.Is(err, ErrGone) {
		t.Errorf("status of a gone process: %v", err)
	}
	if _, err := FS("").Cmdline(gone); !errors.Is(err, ErrGone) {
		t.Errorf("cmdline of a gone process: %v", err)
	}
	if s, err := FS("").Cmdline(zombie); err != nil || s != "" {
		t.Errorf("cmdline of a zombie: %q, %v", s, err)
	}
	if s, err := FS("").Status(zombie); err != nil || s.HasMM {
		t.Errorf("status of a zombie: %+v, %v", s, err)
	}
	t.Run("kernel thread", func(t *testing.T) {
		testkit.Require(t, "root")
		pid := aKernelThread(t)
		for name, err := range read(pid) {
			if !errors.Is(err, ErrNoMM) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestProcErrorsKeepTheirCause(t *testing.T) {
	refused := readError(7, "maps", &fs.PathError{Op: "open", Path: "/proc/7/maps", Err: syscall.EACCES})
	if !errors.Is(refused, fs.ErrPermission) || errors.Is(refused, ErrGone) || refused.Error() != "read maps of 7: permission denied" {
		t.Errorf("%v", refused)
	}
	ended := readError(7, "maps", &fs.PathError{Op: "read", Path: "/proc/7/maps", Err: syscall.ESRCH})
	if !errors.Is(ended, ErrGone) || !errors.Is(ended, syscall.ESRCH) || errors.Is(ended, fs.ErrPermission) {
		t.Errorf("%v", ended)
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte("00400000-00452000 r-xp 0000a000 fd:01 131077                             /opt/app with space/bin/app (deleted)\n"))
	f.Add([]byte("7f10a0000000-7f10a0021000 rw-p 00000000 00:00 0 \nffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"))
	f.Add([]byte("1000-2000 rw-s fffffffffffff000 103:0a 9000000000001 anon_inode:[io_uring]"))
	if own, err := os.ReadFile("/proc/self/maps"); err == nil {
		f.Add(own)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		list, err := ParseMaps(bytes.NewReader(in))
		if err != nil {
			if !errors.Is(err, ErrFormat) || list != nil {
				t.Fatalf("%v, %d mappings", err, len(list))
			}
			return
		}
		if lines := bytes.Count(in, []byte{'\n'}); lines != len(list) {
			t.Fatalf("%d lines, %d mappings", lines, len(list))
		}
		for _, m := range list {
			if m.Start >= m.End || len(m.Perms) != 4 || !bytes.Contains(in, []byte(m.Path)) {
				t.Fatalf("%+v", m)
			}
		}
		again, err := ParseMaps(bytes.NewReader(formatMaps(list)))
		if err != nil {
			t.Fatalf("what was parsed does not print: %v", err)
		}
		if diff := cmp.Diff(list, again); diff != "" {
			t.Fatalf("printed and parsed again:\n%s", diff)
		}
		for ordered, i := laterWins(append([]Mapping(nil), list...)), 0; i < len(ordered); i++ {
			if m := ordered[i]; m.Start >= m.End || i > 0 && m.Start < ordered[i-1].End {
				t.Fatalf("not in order: %+v", ordered)
			}
		}
	})
}
