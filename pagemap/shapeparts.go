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
// malloc's mapped chunks often lie side by side in one mapping. The parts ascend and do not overlap; what lies between
// them is unknown. Arguments and manner of reading are those of Shapes.
func ShapeParts(maps []Mapping, mem io.ReaderAt, resident func(Addr) bool) []ShapePart {
	s := shaper{maps: maps, mem: mem, resident: resident}
	ruby := false
	for i := range maps {
		ruby = ruby || maps[i].Shape == ShapeRubyHeap || strings.Contains(path.Base(maps[i].Path), "ruby")
	}
	var out []ShapePart
	for i := range maps {
		if m := &maps[i]; shapeless(m) && m.Shape == ShapeUnknown {
			out = append(out, s.parts(m, ruby)...)
		}
	}
	return out
}

// mmapThreshold is the size from which malloc maps a block by default (glibc, DEFAULT_MMAP_THRESHOLD).
const mmapThreshold = 128 << 10

// parts walks one mapping. Chunks are believed where they lead to the mapping's end or to a heap page, which names itself,
// and else when they are as large as malloc's mapped blocks usually are: the first such block of a process tends to lie
// right below what the loader mapped for itself. Behind something unknown only heap pages are looked for, and only in a
// Ruby.
func (s *shaper) parts(m *Mapping, ruby bool) []ShapePart {
	var out []ShapePart
	for at := m.Start; at < m.End; {
		end := at
		for size := s.rubyPage(at); size != 0 && end+size <= m.End; size = s.rubyPage(end) {
			end += size
		}
		if end > at {
			out = append(out, ShapePart{at, end, ShapeRubyHeap})
			at = end
			continue
		}
		if end = s.chunks(at, m.End); end > at && (end == m.End || end-at >= mmapThreshold || s.rubyPage(end) != 0) {
			out = append(out, ShapePart{at, end, ShapeMallocLarge})
			at = end
			continue
		}
		if !ruby {
			break
		}
		for at = nextMultiple(at, rubyPageSmall); at < m.End && s.rubyPage(at) == 0; {
			at = nextMultiple(at, rubyPageSmall)
		}
	}
	return out
}

// nextMultiple gives the first multiple of n above a.
func nextMultiple(a, n Addr) Addr { return a/n*n + n }
