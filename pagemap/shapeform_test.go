package pagemap

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeMemory is a few resident pages. Reading any other is an error of the test.
type fakeMemory struct {
	t     *testing.T
	pages map[Addr][]byte
}

func (f *fakeMemory) resident(a Addr) bool { return f.pages[a&^4095] != nil }

func (f *fakeMemory) ReadAt(b []byte, at int64) (int, error) {
	for i := range b {
		p := f.pages[Addr(at+int64(i))&^4095]
		if p == nil {
			f.t.Errorf("read of an absent page at %x", at+int64(i))
			return i, io.ErrUnexpectedEOF
		}
		b[i] = p[(at+int64(i))%4096]
	}
	return len(b), nil
}

func (f *fakeMemory) put(at Addr, words ...uint64) {
	for i, w := range words {
		a := at + Addr(i)*8
		if f.pages[a&^4095] == nil {
			f.pages[a&^4095] = make([]byte, 4096)
		}
		binary.NativeEndian.PutUint64(f.pages[a&^4095][a%4096:], w)
	}
}

func TestShapesByForm(t *testing.T) {
	const (
		mib   = 1 << 20
		arena = Addr(0x7f0000000000)
		heap  = Addr(0x55a000000000) // [heap]
	)
	anon := func(start, end Addr, perms string) Mapping { return Mapping{Start: start, End: end, Perms: perms} }
	brk := Mapping{Start: heap, End: heap + mib, Perms: "rw-p", Path: "[heap]"}
	// slots is the first word of a struct heap_page on this machine.
	slots := func(size, n uint16) uint64 {
		var b [8]byte
		binary.NativeEndian.PutUint16(b[0:], size)
		binary.NativeEndian.PutUint16(b[2:], n)
		return binary.NativeEndian.Uint64(b[:])
	}
	rubyPage := func(m *fakeMemory, at, page Addr, size, n uint16) {
		m.put(at, uint64(page))
		m.put(page, slots(size, n), 0, 0, uint64(at)+8, 0, 0, 0, 0)
	}
	tests := []struct {
		name  string
		maps  []Mapping
		fill  func(m *fakeMemory)
		sp    []Addr
		want  []Shape // of each mapping
		parts []ShapePart
	}{
		{
			name: "arena",
			maps: []Mapping{anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib, "---p")},
			fill: func(m *fakeMemory) { m.put(arena, uint64(arena)+0x30, 0, 0x21000, mib) },
			want: []Shape{ShapeMallocArena, ""},
		}, {
			name: "arena whose first page is not resident",
			maps: []Mapping{anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib, "---p")},
			want: []Shape{"", ""},
		}, {
			name: "arena that is not followed by its rest",
			maps: []Mapping{anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+63*mib, "---p")},
			fill: func(m *fakeMemory) { m.put(arena, uint64(arena)+0x30, 0, 0x21000, mib) },
			want: []Shape{"", ""},
		}, {
			name: "arena whose rest is merged with a guard",
			maps: []Mapping{anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib+4096, "---p")},
			fill: func(m *fakeMemory) { m.put(arena, uint64(arena)+0x30, 0, 0x21000, mib) },
			want: []Shape{ShapeMallocArena, ""},
		}, {
			name: "full heap and the next heap of the same arena in one mapping",
			maps: []Mapping{anon(arena, arena+65*mib, "rw-p"), anon(arena+65*mib, arena+128*mib, "---p")},
			fill: func(m *fakeMemory) {
				m.put(arena, uint64(arena)+0x30, 0, 64*mib, 64*mib)
				m.put(arena+64*mib, uint64(arena)+0x30, uint64(arena), 0x1000, mib)
			},
			want: []Shape{ShapeMallocArena, ""},
		}, {
			name: "full heap and something else in one mapping",
			maps: []Mapping{anon(arena, arena+65*mib, "rw-p"), anon(arena+65*mib, arena+128*mib, "---p")},
			fill: func(m *fakeMemory) {
				m.put(arena, uint64(arena)+0x30, 0, 64*mib, 64*mib)
				m.put(arena+64*mib, 1, 2, 3, 4)
			},
			want:  []Shape{"", ""},
			parts: []ShapePart{{arena, arena + 64*mib, ShapeMallocArena}},
		}, {
			name: "first heap that names a heap before it",
			maps: []Mapping{anon(arena-64*mib, arena-63*mib, "rw-p"), anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib, "---p")},
			fill: func(m *fakeMemory) { m.put(arena, uint64(arena)+0x30, uint64(arena)-64*mib, 0x21000, mib) },
			want: []Shape{"", "", ""},
		}, {
			name: "stack, arena and chunk in one mapping",
			maps: []Mapping{anon(arena-0x8000, arena+64*mib+0x20000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena-0x570, uint64(arena)-0x8000, 0x8000)
				m.put(arena, uint64(arena)+0x30, 0, 64*mib, 64*mib)
				m.put(arena+64*mib, 0, 0x20002)
			},
			want: []Shape{""},
			parts: []ShapePart{
				{arena - 0x8000, arena, ShapeThreadStack},
				{arena, arena + 64*mib, ShapeMallocArena},
				{arena + 64*mib, arena + 64*mib + 0x20000, ShapeMallocLarge},
			},
		}, {
			name: "something, and an arena with its rest",
			maps: []Mapping{anon(arena-0x8000, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib, "---p")},
			fill: func(m *fakeMemory) {
				m.put(arena-0x8000, 1)
				m.put(arena, uint64(arena)+0x30, 0, mib, mib)
			},
			want:  []Shape{"", ""},
			parts: []ShapePart{{arena, arena + mib, ShapeMallocArena}},
		}, {
			name: "second heap that names no heap before it",
			maps: []Mapping{anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib, "---p"), anon(arena+64*mib, arena+65*mib, "rw-p"), anon(arena+65*mib, arena+128*mib, "---p")},
			fill: func(m *fakeMemory) {
				m.put(arena, uint64(arena)+0x30, 0, 0x21000, mib)
				m.put(arena+64*mib, uint64(arena)+0x30, 0, 0x1000, mib)
			},
			want: []Shape{ShapeMallocArena, "", "", ""},
		}, {
			name: "small rest of an arena is no guard",
			maps: []Mapping{anon(arena, arena+64*mib-0x8000, "rw-p"), anon(arena+64*mib-0x8000, arena+64*mib, "---p"), anon(arena+64*mib, arena+65*mib, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena, uint64(arena)+0x30, 0, 64*mib-0x8000, 64*mib-0x8000)
				m.put(arena+65*mib-8, 1) // used at its top only
			},
			want: []Shape{ShapeMallocArena, "", ""},
		}, {
			name: "mapped chunks to the end",
			maps: []Mapping{anon(arena+0x1000, arena+0x6000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0x1000, 0, 0x2002)
				m.put(arena+0x3000, 0, 0x3002)
			},
			want: []Shape{ShapeMallocLarge},
		}, {
			name: "mapped chunks of glibc 2.43 to the end",
			maps: []Mapping{anon(arena+0x1000, arena+0x6000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0x1000, 0, 0x1ff2)
				m.put(arena+0x3000, 1, 0x2ff2)
			},
			want: []Shape{ShapeMallocLarge},
		}, {
			name: "mapped chunk and a tail",
			maps: []Mapping{anon(arena+0x1000, arena+0x6000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0x1000, 0, 0x2002)
				m.put(arena+0x3000, 7, 0x3002)
			},
			want: []Shape{""},
		}, {
			name: "Ruby heap pages of 64 KiB",
			maps: []Mapping{brk, anon(arena+0x10000, arena+0x30000, "rw-p")},
			fill: func(m *fakeMemory) {
				rubyPage(m, arena+0x10000, heap+0x100, 40, 1637)
				rubyPage(m, arena+0x20000, heap+0x1ff0, 640, 102) // its struct lies in two pages
			},
			want: []Shape{"", ShapeRubyHeap},
		}, {
			name: "Ruby heap pages of 16 KiB",
			maps: []Mapping{brk, anon(arena+0x14000, arena+0x1c000, "rw-p")},
			fill: func(m *fakeMemory) {
				rubyPage(m, arena+0x14000, heap+0x100, 40, 408)
				rubyPage(m, arena+0x18000, heap+0x200, 40, 408)
			},
			want: []Shape{"", ShapeRubyHeap},
		}, {
			name: "Ruby heap page whose struct is another's",
			maps: []Mapping{brk, anon(arena+0x10000, arena+0x30000, "rw-p")},
			fill: func(m *fakeMemory) {
				rubyPage(m, arena+0x10000, heap+0x100, 40, 1637)
				m.put(arena+0x20000, uint64(heap)+0x100)
			},
			want:  []Shape{"", ""},
			parts: []ShapePart{{arena + 0x10000, arena + 0x20000, ShapeRubyHeap}},
		}, {
			name: "Ruby heap page whose struct is not resident",
			maps: []Mapping{brk, anon(arena+0x10000, arena+0x20000, "rw-p")},
			fill: func(m *fakeMemory) { m.put(arena+0x10000, uint64(heap)+0x100) },
			want: []Shape{"", ""},
		}, {
			name: "Ruby heap page whose struct is resident in part",
			maps: []Mapping{brk, anon(arena+0x10000, arena+0x20000, "rw-p")},
			fill: func(m *fakeMemory) {
				rubyPage(m, arena+0x10000, heap+0xfe0, 40, 1637)
				delete(m.pages, heap+0x1000)
			},
			want: []Shape{"", ""},
		}, {
			name: "Ruby heap page with slots for half of it, and for more than it",
			maps: []Mapping{brk, anon(arena+0x10000, arena+0x20000, "rw-p"), anon(arena+0x30000, arena+0x40000, "rw-p")},
			fill: func(m *fakeMemory) {
				rubyPage(m, arena+0x10000, heap+0x100, 40, 800)
				rubyPage(m, arena+0x30000, heap+0x200, 40, 1700)
			},
			want: []Shape{"", "", ""},
		}, {
			name: "pointer to a file's memory",
			maps: []Mapping{{Start: heap, End: heap + mib, Perms: "rw-p", Inode: 9, Path: "/x"}, anon(arena+0x10000, arena+0x20000, "rw-p")},
			fill: func(m *fakeMemory) { rubyPage(m, arena+0x10000, heap+0x100, 40, 1637) },
			want: []Shape{"", ""},
		}, {
			name: "chunk, Ruby heap pages, something, a Ruby heap page, and a chunk that leads nowhere",
			maps: []Mapping{{Start: 0x1000, End: 0x2000, Perms: "r-xp", Inode: 1, Path: "/usr/bin/ruby3.3"}, brk, anon(arena+0xe000, arena+0x44000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0xe000, 0, 0x2002)
				rubyPage(m, arena+0x10000, heap+0x100, 40, 1637)
				m.put(arena+0x20000, 1, 2)
				rubyPage(m, arena+0x30000, heap+0x200, 40, 1637)
				m.put(arena+0x40000, 0, 0x1002)
			},
			want: []Shape{"", "", ""},
			parts: []ShapePart{
				{arena + 0xe000, arena + 0x10000, ShapeMallocLarge},
				{arena + 0x10000, arena + 0x20000, ShapeRubyHeap},
				{arena + 0x30000, arena + 0x40000, ShapeRubyHeap},
			},
		}, {
			name: "large mapped chunk and a tail",
			maps: []Mapping{anon(arena+0x1000, arena+0x31000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0x1000, 0, 0x20002)
				m.put(arena+0x21000, 7, 0x3002)
			},
			want:  []Shape{""},
			parts: []ShapePart{{arena + 0x1000, arena + 0x21000, ShapeMallocLarge}},
		}, {
			name: "stack with its thread's descriptor",
			maps: []Mapping{anon(arena, arena+0x1000, "---p"), anon(arena+0x1000, arena+0x9000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0x1000, 1) // used down to its end
				m.put(arena+0x8a90, uint64(arena), 0x9000)
			},
			want: []Shape{"", ShapeThreadStack},
		}, {
			name: "two stacks with guards inside the mapping",
			maps: []Mapping{anon(arena, arena+0x10000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0xfa90, uint64(arena)+0x8000, 0x8000)
				m.put(arena+0x7a90, uint64(arena), 0x8000)
			},
			want: []Shape{ShapeThreadStack},
		}, {
			name: "one stack above something else",
			maps: []Mapping{anon(arena, arena+0x10000, "rw-p")},
			fill: func(m *fakeMemory) { m.put(arena+0xfa90, uint64(arena)+0x8000, 0x8000) },
			want: []Shape{""},
		}, {
			name: "stack pointer above a guard",
			maps: []Mapping{anon(arena, arena+0x1000, "---p"), anon(arena+0x1000, arena+0x9000, "rw-p")},
			fill: func(m *fakeMemory) { m.put(arena+0x1000, 1) },
			sp:   []Addr{0x10, arena + 0x8ff8},
			want: []Shape{"", ShapeThreadStack},
		}, {
			name: "stack pointer without a guard",
			maps: []Mapping{anon(arena+0x1000, arena+0x9000, "rw-p")},
			sp:   []Addr{arena + 0x8ff8},
			want: []Shape{""},
		}, {
			name: "guard too large",
			maps: []Mapping{anon(arena, arena+0x11000, "---p"), anon(arena+0x11000, arena+0x19000, "rw-p")},
			sp:   []Addr{arena + 0x18ff8},
			want: []Shape{"", ""},
		}, {
			name: "guard that does not touch",
			maps: []Mapping{anon(arena, arena+0x1000, "---p"), anon(arena+0x2000, arena+0x9000, "rw-p")},
			sp:   []Addr{arena + 0x8ff8},
			want: []Shape{"", ""},
		}, {
			name: "not for data, shared, of a file, named",
			maps: []Mapping{
				anon(0x1000, 0x2000, "r--p"), anon(0x2000, 0x3000, "rw-s"), anon(0x3000, 0x4000, "rwxp"),
				{Start: 0x4000, End: 0x5000, Perms: "rw-p", Inode: 3, Path: "/x"}, {Start: 0x5000, End: 0x6000, Perms: "rw-p", Path: "[anon:x]"},
			},
			fill: func(m *fakeMemory) {
				for a := Addr(0x1000); a < 0x6000; a += 0x1000 {
					m.put(a, 0, 0x1002)
				}
			},
			want: []Shape{"", "", "", "", ""},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &fakeMemory{t: t, pages: map[Addr][]byte{}}
			if tt.fill != nil {
				tt.fill(m)
			}
			Shapes(tt.maps, m, m.resident, tt.sp)
			var got []Shape
			for _, x := range tt.maps {
				got = append(got, x.Shape)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("shapes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.parts, ShapeParts(tt.maps, m, m.resident)); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseSyscall(t *testing.T) {
	tests := []struct {
		in string
		sp Addr
		ok bool
	}{
		{"running\n", 0, false},
		{"-1 0x7ffd8c1fe000 0x7f10aa090000\n", 0x7ffd8c1fe000, true},
		{"0 0x0 0x7ffd 0x1 0x0 0x0 0x0 0x7ffd8c1fe008 0x7f10aa090000\n", 0x7ffd8c1fe008, true},
		{"0 0x0 0x0 0x0\n", 0, false},
		{"", 0, false},
		{"1 2 3\n", 0, false},
	}
	for _, tt := range tests {
		if sp, ok := parseSyscall([]byte(tt.in)); sp != tt.sp && tt.ok || ok != tt.ok {
			t.Errorf("%q: %x %t", tt.in, uint64(sp), ok)
		}
	}
}
