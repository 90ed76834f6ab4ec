package symbols

import (
	"container/heap"
	"slices"
	"sort"
)

// spans says for each address which of several overlapping intervals it belongs to: from starts[i] on it is owners[i], -1
// for none.
type spans struct {
	starts []uint64
	owners []int32
}

// flatten makes spans of n intervals [lo, hi). Where several cover an address, the one of the highest number has it. Empty
// intervals cover nothing.
func flatten(n int, lo, hi func(i int32) uint64) spans {
	order := make([]int32, 0, n)
	for i := range int32(n) {
		if lo(i) < hi(i) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		if la, lb := lo(a), lo(b); la != lb {
			if la < lb {
				return -1
			}
			return 1
		}
		return int(a) - int(b)
	})
	var s spans
	emit := func(at uint64, owner int32) {
		if k := len(s.starts); k > 0 && s.starts[k-1] == at {
			s.owners[k-1] = owner
			return
		} else if k > 0 && s.owners[k-1] == owner {
			return
		}
		s.starts, s.owners = append(s.starts, at), append(s.owners, owner)
	}
	var open numbers // intervals begun; those that have ended meanwhile are dropped when they come up
	var at uint64
	for len(order) > 0 || len(open) > 0 {
		for len(open) > 0 && hi(open[0]) <= at {
			heap.Pop(&open)
		}
		if len(open) == 0 {
			if len(s.starts) > 0 {
				emit(at, -1)
			}
			if len(order) == 0 {
				break
			}
			at = lo(order[0])
		} else {
			emit(at, open[0])
			end := hi(open[0])
			if len(order) > 0 {
				end = min(end, lo(order[0]))
			}
			at = end
		}
		for len(order) > 0 && lo(order[0]) == at {
			heap.Push(&open, order[0])
			order = order[1:]
		}
	}
	s.starts, s.owners = slices.Clip(s.starts), slices.Clip(s.owners)
	return s
}

// at gives the owner of an address, -1 for none.
func (s *spans) at(addr uint64) int32 {
	i := sort.Search(len(s.starts), func(i int) bool { return s.starts[i] > addr })
	if i == 0 {
		return -1
	}
	return s.owners[i-1]
}

// numbers is a heap with the highest number first.
type numbers []int32

func (h numbers) Len() int           { return len(h) }
func (h numbers) Less(i, j int) bool { return h[i] > h[j] }
func (h numbers) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *numbers) Push(x any)        { *h = append(*h, x.(int32)) }
func (h *numbers) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
