package pagemap

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// plan hands out spans of windows in ascending order. Before each span it asks PAGEMAP_SCAN for the next address that any
// member has populated, so that what is reserved and never touched costs nothing. Without PAGEMAP_SCAN large empty mappings
// must have been taken out before (see dropEmptyMappings).
type plan struct {
	mu      sync.Mutex
	chunks  []chunk // disjoint, ascending, aligned to windows
	members []*member
	size    Addr // bytes of a window
	scan    bool
	windows Addr // of the next span
}

type chunk struct{ start, end Addr }

// spanWindows is the largest number of windows handed out at once.
const spanWindows = 16

// newPlan joins the mappings of all members inside [lo, hi) into chunks.
func newPlan(members []*member, size, lo, hi Addr, scan bool) *plan {
	var chunks []chunk
	for _, m := range members {
		for i := range m.maps {
			mp := &m.maps[i]
			if !mp.Readable() || mp.End <= lo || mp.Start >= hi {
				continue
			}
			chunks = append(chunks, chunk{max(mp.Start, lo) &^ (size - 1), min(mp.End, hi)})
		}
		chunks = joinChunks(chunks, size)
	}
	return &plan{chunks: chunks, members: members, size: size, scan: scan, windows: spanWindows}
}

// joinChunks sorts chunks, rounds their ends up to windows and joins those that touch.
func joinChunks(chunks []chunk, size Addr) []chunk {
	slices.SortFunc(chunks, func(a, b chunk) int {
		switch {
		case a.start < b.start:
			return -1
		case a.start > b.start:
			return 1
		}
		return 0
	})
	out := chunks[:0]
	for _, c := range chunks {
		c.end = (c.end + size - 1) &^ (size - 1)
		if n := len(out); n > 0 && c.start <= out[n-1].end {
			out[n-1].end = max(out[n-1].end, c.end)
			continue
		}
		out = append(out, c)
	}
	return out
}

// next gives the next span; ok is false at the end.
func (p *plan) next() (span chunk, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.chunks) > 0 {
		c := &p.chunks[0]
		if p.scan && c.end-c.start > p.size {
			at, found, err := p.firstPopulated(c.start, c.end)
			if err != nil {
				return chunk{}, false, err
			}
			if !found {
				p.chunks = p.chunks[1:]
				continue
			}
			// Where much is empty, few windows at a time: those behind a lone page need not be read.
			p.windows = min(2*p.windows, spanWindows)
			if at &^= p.size - 1; at != c.start {
				p.windows = 1
			}
			c.start = at
		}
		span = chunk{c.start, min(c.end, c.start+p.windows*p.size)}
		if c.start = span.end; c.start >= c.end {
			p.chunks = p.chunks[1:]
		}
		return span, true, nil
	}
	return chunk{}, false, nil
}

func (p *plan) firstPopulated(start, end Addr) (at Addr, found bool, err error) {
	at = end
	for _, m := range p.members {
		if m.gone.Load() || at == start {
			continue
		}
		lo, hi, ok := m.mapped(start, at)
		if !ok {
			continue
		}
		a, f, err := nextPopulated(m.fd, lo, hi)
		if errors.Is(err, ErrGone) {
			m.gone.Store(true)
			continue
		}
		if err != nil {
			return 0, false, fmt.Errorf("scan page tables of %d: %w", m.pid, err)
		}
		if f {
			at, found = max(a, lo), true
		}
	}
	return at, found, nil
}

// sparseMapping is the size from which, without PAGEMAP_SCAN, smaps is asked whether a mapping holds anything at all.
const sparseMapping = 64 << 20

// dropEmptyMappings is the way without PAGEMAP_SCAN (before 6.7): large mappings of which smaps says that they hold no page
// are taken out of a member's list for reading. smaps walks the page tables in the kernel, which skips empty ones; a
// large mapping with few pages in it is read whole.
func (m *member) dropEmptyMappings(f FS) error {
	large := false
	for i := range m.maps {
		large = large || m.maps[i].Size() >= sparseMapping
	}
	if !large {
		return nil
	}
	smaps, err := f.Smaps(m.pid)
	if err != nil {
		return err
	}
	held := make(map[Addr]bool, len(smaps))
	for i := range smaps {
		s := &smaps[i]
		held[s.Start] = s.Rss != 0 || s.Swap != 0 || s.SharedHugetlb+s.PrivateHugetlb != 0
	}
	m.maps = slices.DeleteFunc(slices.Clone(m.maps), func(mp Mapping) bool {
		h, known := held[mp.Start]
		return known && !h && mp.Size() >= sparseMapping
	})
	return nil
}
