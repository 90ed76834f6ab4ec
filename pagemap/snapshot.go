package pagemap

import (
	"fmt"
	"slices"
	"sync"
)

// Snapshot is a capture kept in memory, and what its file holds; it is a [Source]. It has frame numbers and flags, never
// contents.
type Snapshot struct {
	Fam     Family
	Windows []Window // ascending by Start
}

// Record walks a source and keeps all of it: 8 bytes for each page of each process, and for each window in which a
// process maps anything, whole windows.
func Record(src Source) (*Snapshot, error) {
	var rec recorder
	if err := src.Walk(func() Visitor { return &rec }); err != nil {
		return nil, err
	}
	slices.SortFunc(rec.windows, func(a, b Window) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	if c, ok := src.(*Capture); ok {
		if err := c.learnAll(); err != nil {
			return nil, err
		}
	}
	return &Snapshot{Fam: *src.Family(), Windows: rec.windows}, nil
}

// recorder is a Visitor that keeps copies; it may be used from several goroutines.
type recorder struct {
	mu      sync.Mutex
	windows []Window
}

func (r *recorder) Window(w *Window) error {
	c := Window{Start: w.Start, Rows: make([]Row, len(w.Rows))}
	for i := range w.Rows {
		o := &w.Rows[i]
		c.Rows[i] = Row{slices.Clone(o.Entries), slices.Clone(o.Flags), slices.Clone(o.Counts), slices.Clone(o.Words), slices.Clone(o.Unstable)}
	}
	r.mu.Lock()
	r.windows = append(r.windows, c)
	r.mu.Unlock()
	return nil
}

// Family implements Source.
func (s *Snapshot) Family() *Family { return &s.Fam }

// Walk implements Source.
func (s *Snapshot) Walk(newVisitor func() Visitor) error {
	v := newVisitor()
	for i := range s.Windows {
		if err := v.Window(&s.Windows[i]); err != nil {
			return err
		}
	}
	return nil
}

// Find gives the window that starts at an address, or nil.
func (s *Snapshot) Find(start Addr) *Window {
	i, ok := slices.BinarySearchFunc(s.Windows, start, func(w Window, a Addr) int {
		switch {
		case w.Start < a:
			return -1
		case w.Start > a:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &s.Windows[i]
}

// Process gives the index of the process with this identity in Family.Processes.
func (f *Family) Process(id Identity) (int, bool) {
	for i := range f.Processes {
		if f.Processes[i].Identity == id {
			return i, true
		}
	}
	return 0, false
}

// ReadPairs gives n pages of a process from at on, and n of its reference from refAt on, out of the windows kept; with
// ref 0, of the process alone.
func (s *Snapshot) ReadPairs(pid PID, at Addr, ref PID, refAt Addr, n int) (own, others Row, err error) {
	own, err = s.pages(pid, at, n)
	if err == nil && ref != 0 {
		others, err = s.pages(ref, refAt, n)
	}
	return own, others, err
}

func (s *Snapshot) pages(pid PID, at Addr, n int) (Row, error) {
	i := slices.IndexFunc(s.Fam.Processes, func(p Process) bool { return p.PID == pid })
	if i < 0 {
		return Row{}, fmt.Errorf("pages of process %d: not in this snapshot", pid)
	}
	page := Addr(s.Fam.Facts.PageSize)
	row := Row{Entries: make([]Entry, n), Flags: make([]KFlags, n)}
	for k := range n {
		row.Flags[k] = FlagsUnread
		a := at + Addr(k)*page
		start := a &^ (page*WindowPages - 1)
		w := s.Find(start)
		if w == nil || w.Rows[i].Entries == nil {
			continue
		}
		j := int((a - start) / page)
		row.Entries[k] = w.Rows[i].Entries[j]
		if f := w.Rows[i].Flags; f != nil {
			row.Flags[k] = f[j]
		}
	}
	return row, nil
}
