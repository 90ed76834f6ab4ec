package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cowaudit/pagemap"

	"github.com/google/go-cmp/cmp"
	"github.com/ulikunitz/xz"
	"golang.org/x/sys/unix"
)

// waitZombie waits for the end of a child and leaves it.
func waitZombie(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// pack packs a file as xz.
func pack(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := xz.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFlatten(t *testing.T) {
	type interval [2]uint64
	for _, c := range []struct {
		name string
		in   []interval
		want spans
	}{
		{"none", nil, spans{}},
		{"empty", []interval{{5, 5}, {9, 3}}, spans{}},
		{"one", []interval{{5, 9}}, spans{[]uint64{5, 9}, []int32{0, -1}}},
		{"apart", []interval{{5, 9}, {12, 13}}, spans{[]uint64{5, 9, 12, 13}, []int32{0, -1, 1, -1}}},
		{"touching", []interval{{5, 9}, {9, 13}}, spans{[]uint64{5, 9, 13}, []int32{0, 1, -1}}},
		{"nested", []interval{{0, 100}, {10, 20}}, spans{[]uint64{0, 10, 20, 100}, []int32{0, 1, 0, -1}}},
		{"nested, the outer one later", []interval{{10, 20}, {0, 100}}, spans{[]uint64{0, 100}, []int32{1, -1}}},
		{"overlapping", []interval{{0, 50}, {40, 60}}, spans{[]uint64{0, 40, 60}, []int32{0, 1, -1}}},
		{"same start", []interval{{0, 50}, {0, 20}}, spans{[]uint64{0, 20, 50}, []int32{1, 0, -1}}},
		{"the last address", []interval{{1<<64 - 2, 1<<64 - 1}}, spans{[]uint64{1<<64 - 2, 1<<64 - 1}, []int32{0, -1}}},
	} {
		got := flatten(len(c.in), func(i int32) uint64 { return c.in[i][0] }, func(i int32) uint64 { return c.in[i][1] })
		if len(got.starts) == 0 {
			got = spans{}
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(spans{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	// Against the definition, on small random sets.
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		in := make([]interval, rnd.IntN(8))
		for i := range in {
			in[i] = interval{rnd.Uint64N(20), rnd.Uint64N(24)}
		}
		got := flatten(len(in), func(i int32) uint64 { return in[i][0] }, func(i int32) uint64 { return in[i][1] })
		for a := range uint64(26) {
			want := int32(-1)
			for i, v := range in {
				if a >= v[0] && a < v[1] {
					want = int32(i)
				}
			}
			if at := got.at(a); at != want {
				t.Fatalf("%v: at %d %d, want %d", in, a, at, want)
			}
		}
	}
}

// Which of several symbols of one address has it.
func TestPreference(t *testing.T) {
	const global, weak, local = uint8(elf.STB_GLOBAL), uint8(elf.STB_WEAK), uint8(elf.STB_LOCAL)
	type sym struct {
		name string
		symbol
	}
	for _, c := range []struct {
		name string
		syms []sym
		want string
	}{
		{"global over local", []sym{{"g", symbol{bind: global}}, {"l", symbol{bind: local}}}, "g"},
		{"global over weak", []sym{{"w", symbol{bind: weak}}, {"g", symbol{bind: global}}}, "g"},
		{"function over label", []sym{{"f", symbol{bind: local}}, {"n", symbol{bind: global, notype: true}}}, "f"},
		{"sized over sizeless", []sym{{"n", symbol{bind: global, sizeless: true}}, {"s", symbol{bind: local, notype: true}}}, "s"},
		{"fewer underscores", []sym{{"__b", symbol{bind: global}}, {"b", symbol{bind: global}}, {"_b", symbol{bind: global}}}, "b"},
		{"the first of the alphabet", []sym{{"b", symbol{bind: global}}, {"a", symbol{bind: global}}}, "a"},
	} {
		for range 2 {
			tab := &table{parts: []part{{from: SourceSymtab}}}
			for _, s := range c.syms {
				s.symbol.name = uint32(len(tab.parts[0].strings))
				tab.parts[0].strings = append(append(tab.parts[0].strings, s.name...), 0)
				s.value, s.end = 0x100, 0x110
				tab.syms = append(tab.syms, s.symbol)
			}
			tab.finish(true)
			i := tab.at(0x105)
			if i < 0 {
				t.Fatalf("%s: nothing", c.name)
			}
			if got := string(tab.raw(&tab.syms[i])); got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
			for i, j := 0, len(c.syms)-1; i < j; i, j = i+1, j-1 {
				c.syms[i], c.syms[j] = c.syms[j], c.syms[i]
			}
		}
	}
}

// What lies after a sized function is not its neighbour's without a size, that begins where it begins.
func TestSizelessBesideSized(t *testing.T) {
	tab := &table{parts: []part{{from: SourceSymtab, strings: []byte("a\x00b\x00c\x00")}}, syms: []symbol{
		{value: 0x100, end: 0x200, name: 0, sizeless: true}, {value: 0x100, end: 0x110, name: 2}, {value: 0x108, end: 0x200, name: 4, sizeless: true},
	}}
	tab.finish(true)
	for addr, want := range map[uint64]int32{0xff: -1, 0x100: 0, 0x10f: 0, 0x110: -1, 0x1ff: -1} {
		if got := tab.at(addr); got != want {
			t.Errorf("%#x: %d, want %d", addr, got, want)
		}
	}
}

func TestReadable(t *testing.T) {
	for in, want := range map[string]string{
		"rb_gc_mark":                             "rb_gc_mark",
		"memcpy@@GLIBC_2.14":                     "memcpy",
		"_ZN3foo3barEi":                          "foo::bar(int)",
		"_ZN3foo3barEi.cold":                     "foo::bar(int) [clone .cold]",
		"rb_gc_mark.constprop.0":                 "rb_gc_mark.constprop.0",
		"a\nb;c\x1b[0m":                          `a\x0ab;c\x1b[0m`,
		"\xff":                                   `\xff`,
		"_Zzz":                                   "_Zzz",
		strings.Repeat("x", maxName+5):           strings.Repeat("x", maxName),
		"main.(*T).Do":                           "main.(*T).Do",
		"_RNvCs1234_7mycrate3foo":                "mycrate::foo",
		"_ZN4core3fmt5write17h0123456789abcdefE": "core::fmt::write",
	} {
		if got := readable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestFrameString(t *testing.T) {
	for _, c := range []struct {
		f    Frame
		want string
	}{
		{Frame{Addr: 0x1234}, "[unknown]+0x1234"},
		{Frame{Module: "libruby-3.3.so.3.3", Offset: 0x15bf4a}, "libruby-3.3.so.3.3+0x15bf4a"},
		{Frame{Module: "libruby-3.3.so.3.3", Offset: 0x15bf4a, Function: "rb_gc_mark"}, "rb_gc_mark"},
		{Frame{Module: "m", Function: "label", Sizeless: true}, "label?"},
		{Frame{Module: "m", Offset: 0x10, FileOffset: true}, "m@0x10"},
	} {
		if got := c.f.String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestUnxz(t *testing.T) {
	want := strings.Repeat("a", 3000)
	for _, name := range []string{"none", "crc32", "crc64", "sha256"} {
		b, err := os.ReadFile(filepath.Join("testdata", "xz", "xz-"+name+".xz"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := unxz(b, 3000)
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if _, err := unxz(b, 2999); !errors.Is(err, errXZLarge) {
			t.Errorf("%s, more than allowed: %v", name, err)
		}
		if _, err := unxz(b[:40], 3000); err == nil {
			t.Errorf("%s, cut: no error", name)
		}
		if name != "none" {
			bad := bytes.Clone(b)
			bad[12+12+20] ^= 1 // the checksum of the first block, after its header and 20 bytes
			if _, err := unxz(bad, 3000); err == nil {
				t.Errorf("%s, wrong checksum: no error", name)
			}
		}
	}
	b, err := os.ReadFile(filepath.Join("testdata", "xz", "xz-none.xz"))
	if err != nil {
		t.Fatal(err)
	}
	// A dictionary of 4 GiB: the header's properties byte, and its checksum.
	b[12+4] = 40
	binary.LittleEndian.PutUint32(b[12+8:], crc32.ChecksumIEEE(b[12:12+8]))
	if _, err := unxz(b, 3000); !errors.Is(err, errXZLarge) {
		t.Errorf("a large dictionary: %v", err)
	}
}

func TestParsePerfMap(t *testing.T) {
	text := "7f00 10 one\n0x8000 0x20 two words  here\nrubbish\n9000 zz bad size\nzz 10 bad start\n9000 0 nothing\nffffffffffffffff 10 over the end\n" +
		"9000 8\n9000 8 \na000 8 with\x1bescape\r\n"
	want := []perfEntry{{0x7f00, 0x7f10, "one"}, {0x8000, 0x8020, "two words  here"}, {0xa000, 0xa008, `with\x1bescape`}}
	if diff := cmp.Diff(want, parsePerfMap(nil, []byte(text), 100), cmp.AllowUnexported(perfEntry{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := parsePerfMap(nil, []byte(text), 2); len(got) != 2 {
		t.Errorf("%d entries, want the limit of 2", len(got))
	}
}

func TestParseDebugLink(t *testing.T) {
	f := &elf.File{FileHeader: elf.FileHeader{ByteOrder: binary.LittleEndian}}
	for _, c := range []struct {
		in   string
		name string
		ok   bool
	}{
		{"abc\x00\x01\x02\x03\x04", "abc", true},
		{"abcd\x00\x00\x00\x00\x01\x02\x03\x04", "abcd", true},
		{"abcd\x00\x00\x00\x00\x01\x02\x03", "", false},
		{"../../x\x00\x01\x02\x03\x04", "", false},
		{"..\x00\x00\x01\x02\x03\x04", "", false},
		{"\x00\x00\x00\x00\x01\x02\x03\x04", "", false},
		{"abc", "", false},
		{"", "", false},
	} {
		name, sum, ok := parseDebugLink([]byte(c.in), f)
		if name != c.name || ok != c.ok || ok && sum != 0x04030201 {
			t.Errorf("%q: %q %#x %v", c.in, name, sum, ok)
		}
	}
}

// The kernel maps whole pages, so an address may belong to the page of a segment and not to it.
func TestAddress(t *testing.T) {
	load := func(off, vaddr, size uint64, flags elf.ProgFlag) *elf.Prog {
		return &elf.Prog{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Off: off, Vaddr: vaddr, Filesz: size, Memsz: size, Flags: flags}}
	}
	const r, x, w = elf.PF_R, elf.PF_R | elf.PF_X, elf.PF_R | elf.PF_W
	for _, c := range []struct {
		name  string
		progs []*elf.Prog
		off   uint64
		want  uint64
		ok    bool
	}{
		{"inside", []*elf.Prog{load(0, 0x400000, 0x500, r), load(0x1000, 0x401000, 0x234, x)}, 0x1010, 0x401010, true},
		{"p_vaddr not p_offset", []*elf.Prog{load(0, 0, 0x500, r), load(0x500, 0x1500, 0x234, x)}, 0x510, 0x1510, true},
		{"the rest of its last page", []*elf.Prog{load(0x1000, 0x401000, 0x234, x)}, 0x1fff, 0x401fff, true},
		{"the page before its start", []*elf.Prog{load(0x1500, 0x2500, 0x234, x)}, 0x1000, 0x2000, true},
		{"past its last page", []*elf.Prog{load(0x1000, 0x401000, 0x234, x)}, 0x2000, 0, false},
		{"code first", []*elf.Prog{load(0, 0, 0x1800, r), load(0x1800, 0x2800, 0x100, x), load(0x1900, 0x3900, 0x100, w)}, 0x1810, 0x2810, true},
		{"data mapped as code", []*elf.Prog{load(0x1900, 0x3900, 0x100, w)}, 0x1910, 0x3910, true},
		{"two answers", []*elf.Prog{load(0x1000, 0x401000, 0x234, x), load(0x1000, 0x501000, 0x234, x)}, 0x1010, 0, false},
		{"no segments", nil, 0x1010, 0, false},
		{"absurd sizes", []*elf.Prog{load(1<<63, 1<<63, 1<<63, x)}, 0x1000, 0, false},
	} {
		m := &module{elf: &elf.File{Progs: c.progs}}
		m.head.Do(func() {})
		if got, ok := m.address(c.off, 4096); got != c.want || ok != c.ok {
			t.Errorf("%s: %#x %v, want %#x %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// seeds gives small ELF files: the vDSO of this machine, and libraries with all kinds of sections.
func seeds(f *testing.F) {
	f.Helper()
	list, err := pagemap.FS("").Maps(pagemap.PID(os.Getpid()))
	if err != nil {
		f.Fatal(err)
	}
	for i := range list {
		if list[i].Path == vdsoName {
			b := make([]byte, list[i].Size())
			s := &Space{r: New(Options{}), pid: pagemap.PID(os.Getpid())}
			if err := s.memory(b, uint64(list[i].Start)); err == nil {
				f.Add(b)
			}
		}
	}
	f.Add([]byte("\x7fELF"))
	small, err := filepath.Glob("testdata/elf/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range small {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// FuzzModule takes any bytes for a mapped file.
func FuzzModule(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := New(Options{Lines: true, DebugDirs: []string{}})
		defer r.Close()
		m := &module{r: r, path: "fuzz", data: bytes.NewReader(b)}
		if m.open() != nil {
			return
		}
		_ = readBuildID(m.elf)
		_ = m.byDebugLink()
		m.debugged.Do(func() {})
		for _, off := range []uint64{0, 0x40, 0x500, 0x1000, 1 << 63} {
			addr, ok := m.address(off, 4096)
			fr := Frame{Offset: addr}
			if !ok {
				fr.Offset = off
			}
			m.name(&fr)
			if fr.Function != "" && fr.FunctionOffset >= fr.Size {
				t.Errorf("%+v: outside of the function", fr)
			}
			if strings.ContainsAny(fr.Function, "\n\x1b\x00") {
				t.Errorf("name %q", fr.Function)
			}
		}
	})
}

func FuzzPerfMap(f *testing.F) {
	f.Add([]byte("7f00 10 one\n0x8000 0x20 two words\n"), uint64(0x7f00))
	f.Add([]byte("7f00 10 one\n7f08 20 two\nffffffffffffffff ffffffffffffffff x\n"), uint64(0x7f08))
	f.Fuzz(func(t *testing.T, b []byte, addr uint64) {
		list := parsePerfMap(nil, b, 1000)
		s := flatten(len(list), func(i int32) uint64 { return list[i].start }, func(i int32) uint64 { return list[i].end })
		want := int32(-1)
		for i, e := range list {
			if addr >= e.start && addr < e.end {
				want = int32(i)
			}
		}
		if got := s.at(addr); got != want {
			t.Errorf("at %#x entry %d, want %d", addr, got, want)
		}
	})
}

func FuzzUnxz(f *testing.F) {
	list, err := filepath.Glob("testdata/xz/*.xz")
	if err != nil || len(list) == 0 {
		f.Fatal(list, err)
	}
	for _, name := range list {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var out []byte
		err := guard(func() (err error) { out, err = unxz(b, 1<<16); return err })
		if err == nil && len(out) > 1<<16 {
			t.Errorf("%d bytes", len(out))
		}

	})
}
