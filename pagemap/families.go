package pagemap

import (
	"cmp"
	"errors"
	"os"
	"slices"
)

// FamilySummary is one forking family of the machine: a process and those forked from it, directly or through others,
// that run the same program in memory of their own.
type FamilySummary struct {
	Root    Process // without mappings
	Workers int     // members besides the root
	RSS     Bytes   // summed over all: what is shared counts again in each
	Command string  // of the root
}

// Families lists the forking families, the largest RSS first. A child belongs to its parent's family when it did not exec
// (PF_FORKNOEXEC), has an address space of its own, and its parent runs the same file: a daemon whose parent ended is
// init's child, and not a fork of init.
//
// Without privilege the files that others run cannot be seen; then a child counts as its parent's fork unless the parent
// is process 1, and one that shares its parent's address space for a moment (vfork) counts too.
func (f FS) Families() ([]FamilySummary, error) {
	tree, err := f.Tree()
	if err != nil {
		return nil, err
	}
	return f.families(tree), nil
}

func (f FS) families(tree *Tree) []FamilySummary {
	own := f.ownPIDs()
	root := map[PID]PID{} // of each process that was forked
	for pid, s := range tree.stats {
		if f.forkOf(tree, s, own) {
			root[pid] = s.PPID
		}
	}
	page := Bytes(os.Getpagesize())
	byRoot := map[PID]*FamilySummary{}
	for pid := range root {
		top := pid
		for n := 0; n <= len(root); n++ { // the bound ends a circle
			up, ok := root[top]
			if !ok {
				break
			}
			top = up
		}
		s := byRoot[top]
		if s == nil {
			st, _ := tree.Get(top)
			s = &FamilySummary{RSS: Bytes(st.RSSPages) * page}
			byRoot[top] = s
		}
		s.Workers++
		s.RSS += Bytes(tree.stats[pid].RSSPages) * page
	}
	var out []FamilySummary
	for pid, s := range byRoot {
		p, err := f.rootProcess(tree, pid)
		if err != nil {
			continue // ended meanwhile
		}
		s.Root, s.Command = p, p.Command
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b FamilySummary) int {
		return cmp.Or(cmp.Compare(b.RSS, a.RSS), cmp.Compare(a.Root.PID, b.Root.PID))
	})
	return out
}

// forkOf reports whether a process is a fork of its parent, by the rule of Families.
func (f FS) forkOf(tree *Tree, s Stat, ownPIDs bool) bool {
	parent, ok := tree.Get(s.PPID)
	if !ok || !s.Forked() || s.KernelThread() || s.Zombie() || parent.KernelThread() || parent.Zombie() {
		return false
	}
	if same, known := f.sameExe(s.PID, s.PPID); known {
		if !same {
			return false
		}
	} else if s.PPID == 1 {
		return false
	}
	if ownPIDs {
		if c, err := compareMM(s.PID, s.PPID); err == nil && c == 0 || errors.Is(err, ErrGone) {
			return false
		}
	}
	return true
}

func (f FS) rootProcess(tree *Tree, pid PID) (Process, error) {
	s, _ := tree.Get(pid)
	status, err := f.Status(pid)
	if err != nil {
		return Process{}, err
	}
	p := Process{Identity: s.Identity(), PPID: s.PPID, State: StateAudited, Comm: printable(s.Comm), Exec: !s.Forked()}
	if len(status.NSPID) > 1 {
		p.NSPID = status.NSPID
	}
	p.Command, err = f.Cmdline(pid)
	return p, err
}
