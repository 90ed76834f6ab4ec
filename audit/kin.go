package audit

import "cowaudit/pagemap"

// family is what all ledgers of one result know of the processes; it does not change while windows are read.
type family struct {
	classifier
	fam     *pagemap.Family
	page    pagemap.Addr
	lo, hi  pagemap.Addr
	ref     []int  // index of the reference among the processes, -1: none
	forked  []bool // has a child in the family: what its own fork cleared says nothing of it
	audited []bool
	parent  []int   // index of the parent by PID, -1: not in the family
	older   [][]int // siblings forked before the process
}

func newFamily(f *pagemap.Family, rng *Range) *family {
	n := len(f.Processes)
	s := &family{fam: f, page: pagemap.Addr(f.Facts.PageSize), hi: ^pagemap.Addr(0), ref: make([]int, n), forked: make([]bool, n), audited: make([]bool, n)}
	s.visible = f.Facts.FramesVisible
	s.zero = f.Facts.ZeroFrames
	if rng != nil {
		s.lo, s.hi = rng.Start, rng.End
	}
	at := make(map[pagemap.PID]int, n)
	for i := range f.Processes {
		s.audited[i] = f.Processes[i].State == pagemap.StateAudited
		if s.audited[i] {
			at[f.Processes[i].PID] = i
		}
	}
	for i := range f.Processes {
		s.ref[i] = -1
		if r, ok := at[f.Processes[i].Reference]; ok && s.audited[i] && r != i {
			s.ref[i] = r
			s.forked[r] = true
		}
	}
	s.older = make([][]int, n)
	for i := range f.Processes {
		for j := range f.Processes {
			if s.ref[i] >= 0 && s.ref[j] == s.ref[i] && pagemap.OlderSibling(&f.Processes[j], &f.Processes[i]) {
				s.older[i] = append(s.older[i], j)
			}
		}
	}
	index := make(map[pagemap.PID]int, n)
	for i := range f.Processes {
		index[f.Processes[i].PID] = i
	}
	s.parent = make([]int, n)
	for i := range f.Processes {
		s.parent[i] = -1
		if p, ok := index[f.Processes[i].PPID]; ok && p != i {
			s.parent[i] = p
			s.forked[p] = true
		}
	}
	return s
}

// descends reports whether process i was forked from process j or from a process that was.
func (f *family) descends(i, j int) bool {
	for range f.parent { // no longer than the family is large, should PIDs read at different moments form a ring
		if i = f.parent[i]; i < 0 {
			return false
		}
		if i == j {
			return true
		}
	}
	return false
}
