package pagemap

import (
	"encoding/binary"
	"io"
	"sort"
)

// Shapes says what the unnamed private anonymous mappings of a process are, where their form shows it, and sets
// Mapping.Shape. What the form does not show for the whole mapping stays ShapeUnknown: the kernel merges neighbouring
// mappings, so one line of maps can hold several things. maps must ascend and be all of the process' mappings, since a
// shape is also a matter of the neighbours and of where pointers lead. A mapping that has a shape already keeps it.
//
// It reads some words through mem, which is /proc/PID/mem opened for reading (PTRACE_MODE_ATTACH), and keeps nothing of
// them. It reads only pages for which resident is true: reading an absent page would make the kernel fill it in. sp are
// the threads' stack pointers ([FS.StackPointers]). The process runs on meanwhile; a word that changes under the reading
// makes a shape unknown, hardly ever another one, since every shape rests on words that agree with each other or with
// the mapping's bounds.
//
//   - ShapeMallocArena: starts at a multiple of 64 MiB with a heap_info (glibc, malloc/arena.c), as does every further
//     64 MiB of it, and what the last one has not committed follows as ---p.
//   - ShapeRubyHeap: each 64 KiB (Ruby 3.2 and later; 16 KiB in 3.1) starts with a pointer to a struct heap_page that
//     points back into the same 64 KiB (gc.c, struct heap_page_header, heap_page.start).
//   - ShapeMallocLarge: the headers of mmapped chunks (glibc, malloc/malloc.c, IS_MMAPPED) chain to the mapping's end.
//   - ShapeThreadStack: the thread library's descriptor at its top says where it begins; or it lies directly above a guard
//     (---p, up to 64 KiB), and holds a thread's stack pointer, or is in use at its top and untouched at its low end (the
//     stack of a fiber). A stack pointer alone says nothing: it can lie in the heap of a runtime with stacks there (Go).
func Shapes(maps []Mapping, mem io.ReaderAt, resident func(Addr) bool, sp []Addr) {
	s := shaper{maps: maps, mem: mem, resident: resident, sp: sp}
	for i := range maps {
		m := &maps[i]
		switch {
		case !shapeless(m) || m.Shape != ShapeUnknown:
		case s.arena(i):
			m.Shape = ShapeMallocArena
		case s.rubyHeap(m):
			m.Shape = ShapeRubyHeap
		case s.mallocLarge(m):
			m.Shape = ShapeMallocLarge
		case s.threadStack(i):
			m.Shape = ShapeThreadStack
		}
	}
}

// shapeless reports an unnamed private anonymous mapping for data.
func shapeless(m *Mapping) bool { return m.Path == "" && m.Inode == 0 && m.Perms == "rw-p" }

type shaper struct {
	maps     []Mapping
	mem      io.ReaderAt
	resident func(Addr) bool
	sp       []Addr
	buf      [8 * maxWords]byte
	words    [maxWords]uint64
}

const (
	maxWords  = 512
	wordBytes = 8
)

// read gives n words at an address, or nil where they are not all resident or cannot be read. They are valid until the
// next read.
func (s *shaper) read(at Addr, n int) []uint64 {
	b := s.buf[:n*wordBytes]
	last := at + Addr(len(b)) - 1
	if at%wordBytes != 0 || last < at || int64(last) < 0 || !s.resident(at) || !s.resident(last) {
		return nil
	}
	if _, err := s.mem.ReadAt(b, int64(at)); err != nil {
		return nil
	}
	w := s.words[:n]
	for i := range w {
		w[i] = binary.NativeEndian.Uint64(b[i*wordBytes:])
	}
	return w
}

// anonymousAt reports whether an address lies in writable private anonymous memory, such as malloc's.
func (s *shaper) anonymousAt(at Addr) bool {
	i := sort.Search(len(s.maps), func(i int) bool { return s.maps[i].End > at })
	if i == len(s.maps) || s.maps[i].Start > at {
		return false
	}
	m := &s.maps[i]
	return m.Inode == 0 && len(m.Perms) == 4 && m.Perms[:2] == "rw" && m.Perms[3] == 'p'
}

// guardAfter and guardBefore give the anonymous ---p mapping that touches mapping i.
func (s *shaper) guardAfter(i int) *Mapping {
	if i+1 < len(s.maps) && s.maps[i+1].Start == s.maps[i].End {
		return guard(&s.maps[i+1])
	}
	return nil
}

func (s *shaper) guardBefore(i int) *Mapping {
	if i > 0 && s.maps[i-1].End == s.maps[i].Start {
		return guard(&s.maps[i-1])
	}
	return nil
}

func guard(m *Mapping) *Mapping {
	if m.Perms == "---p" && m.Inode == 0 && m.Path == "" {
		return m
	}
	return nil
}

const (
	arenaBytes = 64 << 20 // HEAP_MAX_SIZE with 64-bit pointers
	wholePage  = 4096     // of glibc's sizes: a multiple of every page size is a multiple of this
)

// arena checks every 64 MiB of mapping i.
func (s *shaper) arena(i int) bool {
	m := &s.maps[i]
	if m.Start%arenaBytes != 0 {
		return false
	}
	for at := m.Start; at < m.End; at += arenaBytes {
		if !s.arenaHeap(i, at) {
			return false
		}
	}
	return true
}

// arenaHeap checks the 64 MiB at an address in mapping i: what is not in the mapping must follow it as ---p.
func (s *shaper) arenaHeap(i int, at Addr) bool {
	if end := at + arenaBytes; end > s.maps[i].End {
		if g := s.guardAfter(i); g == nil || g.End < end {
			return false
		}
	}
	return s.heapInfo(at)
}

// heapInfo checks the start of a heap of a thread arena: its arena, the heap before it in that arena, its size and how
// much of it is committed. The arena itself lies behind the heap_info of its first heap, which has none before it.
func (s *shaper) heapInfo(at Addr) bool {
	w := s.read(at, 4)
	if w == nil {
		return false
	}
	arena, prev, size, committed := Addr(w[0]), Addr(w[1]), w[2], w[3]
	first := arena &^ (arenaBytes - 1)
	switch {
	case arena%16 != 0 || arena-first < 4*wordBytes || arena-first > 16*wordBytes || !s.anonymousAt(arena):
		return false
	case first == at && prev != 0, first != at && (prev == 0 || prev%arenaBytes != 0 || prev == at || !s.anonymousAt(prev)):
		return false
	}
	return size > 0 && size <= committed && committed <= arenaBytes && size%wholePage == 0 && committed%wholePage == 0
}

func (s *shaper) mallocLarge(m *Mapping) bool { return s.chunks(m.Start, m.End) == m.End }

// chunks follows the headers of mmapped chunks from an address to where they end.
func (s *shaper) chunks(at, end Addr) Addr {
	for at < end {
		w := s.read(at, 2)
		if w == nil {
			break
		}
		size := chunkSize(w[0], w[1])
		if size == 0 || size > end-at {
			break
		}
		at += size
	}
	return at
}

// chunkSize gives how much is mapped for an mmapped chunk whose header lies at the start of that, 0 where it is none
// (glibc, malloc/malloc.c, sysmalloc_mmap). The first word, a size of a chunk before it, is 0; the second is its size, all
// of what is mapped, with IS_MMAPPED as the only flag. Since 2.43 (mmap_set_chunk) the first word has bit 0 set where huge
// pages are used, and the size leaves out the header.
func chunkSize(before, head uint64) Addr {
	const isMmapped, flagBits, hugePage, headerBytes = 2, 7, 1, 16
	size := head &^ flagBits
	switch {
	case head&flagBits != isMmapped || size == 0 || size > 1<<62:
		return 0
	case before == 0 && size%wholePage == 0:
		return Addr(size)
	case before&^hugePage == 0 && (size+headerBytes)%wholePage == 0:
		return Addr(size + headerBytes)
	}
	return 0
}

// maxRubyChecks is how many heap pages of one mapping are looked at, evenly spread and always the first and the last.
const maxRubyChecks = 256

// rubyHeap checks that a mapping consists of heap pages of one size.
func (s *shaper) rubyHeap(m *Mapping) bool {
	size := s.rubyPage(m.Start)
	if size == 0 || (m.End-m.Start)%size != 0 {
		return false
	}
	pages := int((m.End - m.Start) / size)
	checks := min(pages, maxRubyChecks)
	for k := 1; k < checks; k++ {
		if at := m.Start + Addr(k*(pages-1)/(checks-1))*size; s.rubyPage(at) != size {
			return false
		}
	}
	return true
}

// Sizes of Ruby's heap pages, which are their alignments too.
const (
	rubyPageSmall = 16 << 10 // 3.1
	rubyPageLarge = 64 << 10 // 3.2 and later
)

// rubyPage gives the size of the Ruby heap page at an address, 0 where there is none. The first word of a heap page
// points to its struct heap_page, which is malloc'd. That begins with the size and the number of the slots and has,
// within its first 64 bytes, the address of the first slot (gc.c, since 3.4 gc/default/default.c; 3.1 to 4.0).
func (s *shaper) rubyPage(at Addr) Addr {
	if at%rubyPageSmall != 0 {
		return 0
	}
	w := s.read(at, 1)
	if w == nil {
		return 0
	}
	page := Addr(w[0])
	if page%wordBytes != 0 || !s.anonymousAt(page) {
		return 0
	}
	w = s.read(page, 8)
	if w == nil {
		return 0
	}
	slots := Addr(binary.NativeEndian.Uint16(s.buf[0:])) * Addr(binary.NativeEndian.Uint16(s.buf[2:]))
	size := Addr(rubyPageSmall)
	if slots > rubyPageSmall {
		size = rubyPageLarge
	}
	if at%size != 0 || page-at < size || slots > size || slots < size/8*7 {
		return 0
	}
	for _, v := range w {
		if slot := Addr(v); slot > at && slot < at+1024 {
			return size
		}
	}
	return 0
}

const maxGuard = 64 << 10

func (s *shaper) threadStack(i int) bool {
	m := &s.maps[i]
	g := s.guardBefore(i)
	if s.threadBlocks(m, g) {
		return true
	}
	if g == nil || g.Size() > maxGuard || s.arenaTail(i-1) {
		return false
	}
	for _, sp := range s.sp {
		if sp >= m.Start && sp < m.End {
			return true
		}
	}
	return m.End-m.Start > wholePage && s.resident(m.End-1) && !s.resident(m.Start)
}

// arenaTail reports whether guard i is what a malloc arena has not committed.
func (s *shaper) arenaTail(i int) bool {
	return i > 0 && s.maps[i].End%arenaBytes == 0 && s.maps[i-1].End == s.maps[i].Start && s.maps[i-1].Shape == ShapeMallocArena
}

// threadBlocks follows thread descriptors down from the mapping's end: within the highest 4 KiB of a stack lies the
// thread library's struct pthread, which holds the start and the size of the block that the stack is in, guard included
// (glibc, nptl/descr.h: stackblock, stackblock_size; musl, pthread_impl.h: map_base, map_size). The last block must begin
// where the mapping or its guard does. Guards of glibc 2.42 and later are inside the mapping, so stacks may follow each
// other in it.
func (s *shaper) threadBlocks(m, g *Mapping) bool {
	for end := m.End; ; {
		base, ok := s.threadBlock(m, g, end)
		if !ok {
			return false
		}
		if base <= m.Start {
			return true
		}
		end = base
	}
}

// threadBlock gives the start of the stack block that ends at end.
func (s *shaper) threadBlock(m, g *Mapping, end Addr) (base Addr, ok bool) {
	if end-m.Start < maxWords*wordBytes {
		return 0, false
	}
	w := s.read(end-maxWords*wordBytes, maxWords)
	for k := 0; k+1 < len(w); k++ {
		base, size := Addr(w[k]), Addr(w[k+1])
		if base+size == end && size >= maxWords*wordBytes && size%wholePage == 0 &&
			(base >= m.Start || g != nil && base == g.Start) && base < end {
			return base, true
		}
	}
	return 0, false
}
