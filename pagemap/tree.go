package pagemap

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// Tree is the processes of a machine by parent, as one pass over /proc/PID/stat found them. A process that forks, ends or
// loses its parent during the pass may be missing or stand under its old or new parent.
type Tree struct {
	stats    map[PID]Stat
	children map[PID][]PID // ordered by start time, then PID
}

// Tree reads the stat of every process. It needs no privilege; a /proc mounted with hidepid shows other users' processes
// to none but root.
func (f FS) Tree() (*Tree, error) {
	dir, err := os.Open(f.Path())
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	t := &Tree{stats: make(map[PID]Stat, len(names))}
	var buf []byte
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		var s Stat
		s, buf, err = f.stat(PID(pid), buf)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		t.stats[s.PID] = s
	}
	t.link()
	return t, nil
}

func (t *Tree) link() {
	t.children = make(map[PID][]PID, len(t.stats)/2)
	for pid, s := range t.stats {
		t.children[s.PPID] = append(t.children[s.PPID], pid)
	}
	for _, list := range t.children {
		slices.SortFunc(list, t.byStart)
	}
}

// byStart orders by start time, then PID.
func (t *Tree) byStart(a, b PID) int {
	return cmp.Or(cmp.Compare(t.stats[a].Start, t.stats[b].Start), cmp.Compare(a, b))
}

// Get gives the stat of a process as the pass saw it.
func (t *Tree) Get(pid PID) (Stat, bool) {
	s, ok := t.stats[pid]
	return s, ok
}

// Children gives the children of a process by start time, then PID.
func (t *Tree) Children(pid PID) []PID { return slices.Clone(t.children[pid]) }

// Descendants gives the children of a process, their children, and so on: each generation before the next, within it by
// start time, then PID.
func (t *Tree) Descendants(pid PID) []PID {
	var out []PID
	seen := map[PID]bool{pid: true}
	for generation := []PID{pid}; len(generation) > 0; {
		var next []PID
		for _, p := range generation {
			for _, c := range t.children[p] {
				if !seen[c] { // a PID used again during the pass could close a circle
					seen[c] = true
					next = append(next, c)
				}
			}
		}
		slices.SortFunc(next, t.byStart)
		out = append(out, next...)
		generation = next
	}
	return out
}
