package pagemap

import (
	"io"
	"path"
	"strings"
)

// ShapePart is one stretch of a mapping that holds several things.
type ShapePart struct {
	Start, End Addr
	Shape      Shape
}

// ShapeParts gives the parts of the mappings that [Shapes] left unknown and that are known in part: Ruby's heap pages and
// malloc's mapped chunks often lie side by side in one mapping, and a thread's stack right below an arena. The parts
// ascend and do not overlap; what lies between them is unknown. Arguments and manner of reading are those of Shapes.
func ShapeParts(maps []Mapping, mem io.ReaderAt, resident func(Addr) bool) []ShapePart {
	p := partFinder{shaper: shaper{maps: maps, mem: mem, resident: resident}}
	for i := range maps {
		p.ruby = p.ruby || maps[i].Shape == ShapeRubyHeap || strings.Contains(path.Base(maps[i].Path), "ruby")
	}
	for i := range maps {
		if m := &maps[i]; shapeless(m) && m.Shape == ShapeUnknown {
			p.mapping(i)
		}
	}
	return p.parts
}

type partFinder struct {
	shaper
	ruby  bool // the process is a Ruby
	parts []ShapePart
}

// mapping finds the arenas in mapping i, and walks what lies between them.
func (p *partFinder) mapping(i int) {
	m := &p.maps[i]
	if m.Size() > maxParts {
		return
	}
	from := m.Start
	for at := (m.Start + arenaBytes - 1) / arenaBytes * arenaBytes; at < m.End; at += arenaBytes {
		if !p.arenaHeap(i, at) {
			continue
		}
		p.walk(i, from, at)
		from = min(at+arenaBytes, m.End)
		p.parts = append(p.parts, ShapePart{at, from, ShapeMallocArena})
	}
	p.walk(i, from, m.End)
}

// mmapThreshold is the size from which malloc maps a block by default (glibc, DEFAULT_MMAP_THRESHOLD).
const mmapThreshold = 128 << 10

// maxParts bounds the mappings that are looked into: what is larger was reserved by a program that manages it itself.
const maxParts = 4 << 30

// maxSearch bounds the stretch that is searched for heap pages: two reads for each 16 KiB.
const maxSearch = 256 << 20

// walk goes through a stretch of mapping i. Chunks are believed where they lead to the end of the stretch or to a heap
// page, which names itself, and else when they are as large as malloc's mapped blocks usually are: the first such block
// of a process tends to lie right below what the loader mapped for itself. Behind something unknown only heap pages are
// looked for, and only in a Ruby.
func (p *partFinder) walk(i int, at, stop Addr) {
	if at < stop {
		var g *Mapping
		if at == p.maps[i].Start {
			g = p.guardBefore(i)
		}
		if p.threadBlocks(&Mapping{Start: at, End: stop}, g) {
			p.parts = append(p.parts, ShapePart{at, stop, ShapeThreadStack})
			return
		}
	}
	for at < stop {
		end := at
		for size := p.rubyPage(at); size != 0 && end+size <= stop; size = p.rubyPage(end) {
			end += size
		}
		if end > at {
			p.parts = append(p.parts, ShapePart{at, end, ShapeRubyHeap})
			at = end
			continue
		}
		if end = p.chunks(at, stop); end > at && (end == stop || end-at >= mmapThreshold || p.rubyPage(end) != 0) {
			p.parts = append(p.parts, ShapePart{at, end, ShapeMallocLarge})
			at = end
			continue
		}
		if !p.ruby || stop-at > maxSearch {
			break
		}
		for at = nextMultiple(at, rubyPageSmall); at < stop && p.rubyPage(at) == 0; {
			at = nextMultiple(at, rubyPageSmall)
		}
	}
}

// nextMultiple gives the first multiple of n above a.
func nextMultiple(a, n Addr) Addr { return a/n*n + n }
