package pagemap

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlanCoversMappings(t *testing.T) {
	const size = 0x400000
	m := func(r ...Addr) *member {
		x := &member{}
		for i := 0; i < len(r); i += 2 {
			x.maps = append(x.maps, Mapping{Start: r[i], End: r[i+1], Perms: "rw-p"})
		}
		return x
	}
	for _, c := range []struct {
		name    string
		members []*member
		lo, hi  Addr
		want    []chunk
	}{
		{"nothing", nil, 0, ^Addr(0), nil},
		{"one page", []*member{m(0x401000, 0x402000)}, 0, ^Addr(0), []chunk{{0x400000, 0x800000}}},
		{"two in one window", []*member{m(0x401000, 0x402000, 0x500000, 0x501000)}, 0, ^Addr(0), []chunk{{0x400000, 0x800000}}},
		{"across a border", []*member{m(0x7ff000, 0x801000)}, 0, ^Addr(0), []chunk{{0x400000, 0xc00000}}},
		{"far apart", []*member{m(0x401000, 0x402000), m(0x40000000, 0x40001000)}, 0, ^Addr(0), []chunk{{0x400000, 0x800000}, {0x40000000, 0x40400000}}},
		{"long: spans of 16 windows", []*member{m(0, 20*size)}, 0, ^Addr(0), []chunk{{0, 16 * size}, {16 * size, 20 * size}}},
		{"range cuts", []*member{m(0, 20*size)}, 3 * size, 3*size + 0x1000, []chunk{{3 * size, 4 * size}}},
		{"range misses", []*member{m(0x401000, 0x402000)}, 0x402000, 0x403000, nil},
		{"vsyscall is not read", []*member{{maps: []Mapping{{Start: 0xffffffffff600000, End: 0xffffffffff601000, Path: "[vsyscall]"}}}}, 0, ^Addr(0), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlan(c.members, size, c.lo, c.hi, false)
			var got []chunk
			for {
				s, ok, err := p.next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				got = append(got, s)
			}
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(chunk{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestCountWords(t *testing.T) {
	a, b := make([]byte, 4096), make([]byte, 4096)
	if n := countWords(a, b); n != 0 {
		t.Errorf("equal pages: %d words", n)
	}
	for i, off := range []int{0, 1, 7, 8, 4095} {
		b[off] ^= 0x80
		want := []int16{1, 1, 1, 2, 3}[i]
		if n := countWords(a, b); n != want {
			t.Errorf("byte %d changed too: %d words, want %d", off, n, want)
		}
	}
	for i := range b {
		b[i] = 0xff
	}
	if n := countWords(a, b); n != 512 {
		t.Errorf("all changed: %d words, want 512", n)
	}
}

func TestCountChangedMappings(t *testing.T) {
	m := func(s, e Addr) Mapping { return Mapping{Start: s, End: e, Perms: "rw-p"} }
	for _, c := range []struct {
		name string
		a, b []Mapping
		want int
	}{
		{"none", nil, nil, 0},
		{"same", []Mapping{m(1, 2), m(3, 4)}, []Mapping{m(1, 2), m(3, 4)}, 0},
		{"one new", []Mapping{m(1, 2)}, []Mapping{m(1, 2), m(3, 4)}, 1},
		{"one gone, first", []Mapping{m(1, 2), m(3, 4)}, []Mapping{m(3, 4)}, 1},
		{"grown", []Mapping{m(1, 2)}, []Mapping{m(1, 3)}, 1},
		{"split", []Mapping{m(1, 9)}, []Mapping{m(1, 4), m(4, 9)}, 2},
	} {
		if n := countChanged(c.a, c.b); n != c.want {
			t.Errorf("%s: %d, want %d", c.name, n, c.want)
		}
	}
}

func TestFrameWantPacks(t *testing.T) {
	w := packWant(1<<39+5, 16383, 1023)
	if w.pfn() != 1<<39+5 || w.row() != 16383 || w.page() != 1023 {
		t.Errorf("unpacked %#x, %d, %d", uint64(w.pfn()), w.row(), w.page())
	}
	if !(packWant(1, 16383, 1023) < packWant(2, 0, 0)) {
		t.Error("does not sort by frame")
	}
}
