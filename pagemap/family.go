package pagemap

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// FamilyOptions say which processes belong to a family and whom they are judged against.
type FamilyOptions struct {
	// Reference is judged against by every process that did not exec; 0: each by its own parent.
	Reference PID
	// Alone leaves out the descendants.
	Alone bool
}

// Family describes the processes to audit: the given ones and all their descendants, parents before children, then by
// start time, then by PID, each once. A reference that is not among them comes first.
//
// The state of a process that can be audited is StateAudited. One that exec'd since it was forked from another member has
// nothing in common with it (StateExeced), unless members were forked from it since: then it is the root of a family of
// its own, audited without a reference. A process whose parent is not a member has no reference: it is the root, or it
// was orphaned and its reference has to be inferred from the frames.
//
// It needs no privilege but for finding shared address spaces (kcmp(2), PTRACE_MODE_READ). A single process that does not
// exist is an error that wraps [ErrGone]; among several it is a warning and a process in StateGone, listed last.
func (f FS) Family(pids []PID, o FamilyOptions) ([]Process, []Warning, error) {
	tree, err := f.Tree()
	if err != nil {
		return nil, nil, err
	}
	fam := familyFinder{fs: f, tree: tree, o: o, index: map[PID]int{}}
	if err := fam.choose(pids); err != nil {
		return nil, nil, err
	}
	fam.order()
	fam.describe()
	if len(pids) == 1 && fam.gone(pids[0]) {
		return nil, nil, fmt.Errorf("process %d: %w", pids[0], ErrGone)
	}
	fam.sharedSpaces()
	if err := fam.references(); err != nil {
		return nil, nil, err
	}
	fam.execed()
	return fam.list, fam.warnings, nil
}

type familyFinder struct {
	fs       FS
	tree     *Tree
	o        FamilyOptions
	list     []Process
	index    map[PID]int // into list
	first    PID         // a reference that is not a member otherwise
	warnings []Warning
}

func (f *familyFinder) warn(code string, pid PID, text, remedy string) {
	f.warnings = append(f.warnings, Warning{Code: code, PID: pid, Text: text, Remedy: remedy})
}

func (f *familyFinder) get(pid PID) *Process {
	if i, ok := f.index[pid]; ok {
		return &f.list[i]
	}
	return nil
}

func (f *familyFinder) gone(pid PID) bool {
	p := f.get(pid)
	return p != nil && p.State == StateGone
}

// choose fills the list with the members, in no order yet.
func (f *familyFinder) choose(pids []PID) error {
	if len(pids) == 0 {
		return errors.New("no process given")
	}
	found := 0
	for _, pid := range pids {
		err := f.find(pid)
		if errors.Is(err, ErrGone) && len(pids) > 1 {
			if f.get(pid) == nil {
				f.add(Process{Identity: Identity{PID: pid}, State: StateGone})
				f.warn("process_gone", pid, fmt.Sprintf("process %d does not exist", pid), "check the PID: it may have been restarted under another one")
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		found++
		f.member(pid)
		if !f.o.Alone {
			for _, d := range f.tree.Descendants(pid) {
				f.member(d)
			}
		}
	}
	if found == 0 {
		return fmt.Errorf("none of the %d processes given exists: %w", len(pids), ErrGone)
	}
	if r := f.o.Reference; r != 0 {
		if err := f.find(r); err != nil {
			return fmt.Errorf("reference process %d: %w", r, err)
		}
		if f.get(r) == nil {
			f.first = r
		}
		f.member(r)
	}
	return nil
}

// find makes sure that the tree has a process. One that was forked since the pass is added; the PID of a thread is an
// error that names its process.
func (f *familyFinder) find(pid PID) error {
	if pid <= 0 {
		return errors.New("not a PID")
	}
	if _, ok := f.tree.Get(pid); ok {
		return nil
	}
	s, err := f.fs.Status(pid)
	if err != nil {
		if errors.Is(err, ErrGone) {
			return ErrGone
		}
		return err
	}
	if s.TGID != pid {
		return fmt.Errorf("it is a thread of process %d", s.TGID)
	}
	st, err := f.fs.Stat(pid)
	if err != nil {
		return err
	}
	f.tree.stats[pid] = st
	f.tree.link()
	return nil
}

func (f *familyFinder) add(p Process) {
	if _, ok := f.index[p.PID]; !ok {
		f.index[p.PID] = len(f.list)
		f.list = append(f.list, p)
	}
}

func (f *familyFinder) member(pid PID) {
	s, _ := f.tree.Get(pid)
	p := Process{Identity: s.Identity(), PPID: s.PPID, Comm: printable(s.Comm), Exec: !s.Forked(), State: StateAudited}
	switch {
	case s.KernelThread():
		p.State = StateKernelThread
	case s.Zombie():
		p.State = StateZombie
	}
	f.add(p)
}

// order sorts by generation, start time and PID. A reference from outside comes first, what does not exist last.
func (f *familyFinder) order() {
	generation := map[PID]int{}
	var of func(p *Process) int
	of = func(p *Process) int {
		g, ok := generation[p.PID]
		if !ok {
			generation[p.PID] = 0 // ends a circle
			if parent := f.get(p.PPID); parent != nil && p.State != StateGone {
				g = of(parent) + 1
			}
			generation[p.PID] = g
		}
		return g
	}
	for i := range f.list {
		of(&f.list[i])
	}
	place := func(p *Process) int {
		switch {
		case p.PID == f.first:
			return 0
		case p.State == StateGone:
			return 2
		}
		return 1
	}
	slices.SortFunc(f.list, func(a, b Process) int {
		return cmp.Or(
			cmp.Compare(place(&a), place(&b)),
			cmp.Compare(generation[a.PID], generation[b.PID]),
			cmp.Compare(a.Start, b.Start),
			cmp.Compare(a.PID, b.PID))
	})
	for i := range f.list {
		f.index[f.list[i].PID] = i
	}
}

// describe adds what the tree does not have. A process that went away since is StateGone.
func (f *familyFinder) describe() {
	for i := range f.list {
		p := &f.list[i]
		if p.State == StateGone {
			continue
		}
		status, err := f.fs.Status(p.PID)
		if errors.Is(err, ErrGone) {
			p.State = StateGone
			f.warn("process_gone", p.PID, fmt.Sprintf("process %d (%s) ended before it could be read", p.PID, p.Comm), "run it again to leave it out")
			continue
		}
		if err == nil && len(status.NSPID) > 1 {
			p.NSPID = status.NSPID
		}
		p.Command, _ = f.fs.Cmdline(p.PID) // only said, never used
		if s, _ := f.tree.Get(p.PID); p.State == StateZombie && s.NumThreads > 1 {
			f.warn("main_thread_exited", p.PID, fmt.Sprintf("the main thread of process %d (%s) has exited and %d other threads still run: /proc shows nothing of their memory", p.PID, p.Comm, s.NumThreads-1), "audit a process whose main thread lives")
		}
	}
}

// sharedSpaces finds members that run in the address space of another (CLONE_VM, vfork).
func (f *familyFinder) sharedSpaces() {
	live := 0
	for i := range f.list {
		if f.list[i].State == StateAudited {
			live++
		}
	}
	if live < 2 {
		return
	}
	const remedy = "run as root in the pid namespace of /proc: until then a process that shares its parent's memory (vfork, CLONE_VM) is taken for a fork"
	if !f.fs.ownPIDs() {
		f.warn("kcmp_refused", 0, fmt.Sprintf("%s is of another pid namespace: shared address spaces cannot be told", f.fs.Path()), remedy)
		return
	}
	s := spaces{fs: f.fs}
	for i := range f.list {
		p := &f.list[i]
		if p.State != StateAudited {
			continue
		}
		if owner := s.owner(p.PID); owner != 0 {
			p.State, p.SharesMM = StateSharedMM, owner
		}
	}
	if s.err != nil {
		f.warn("kcmp_refused", 0, fmt.Sprintf("shared address spaces cannot all be told: %v", s.err), remedy)
	}
}

// references sets whom each process is judged against.
func (f *familyFinder) references() error {
	var given *Process
	if f.o.Reference != 0 {
		given = f.space(f.get(f.o.Reference))
		if given == nil {
			r := f.get(f.o.Reference)
			return fmt.Errorf("reference process %d: %w: it is %s", r.PID, noMemory(r.State), stateWords[r.State])
		}
	}
	for i := range f.list {
		p := &f.list[i]
		if p.State != StateAudited || p.Exec || p == given {
			continue
		}
		ancestor := f.ancestor(p)
		switch {
		case given != nil && f.sameImage(p, given):
			p.Reference, p.Basis = given.PID, ReferenceGiven
		case ancestor != nil:
			p.Reference, p.Basis = ancestor.PID, ReferenceParent
		}
	}
	return nil
}

var stateWords = map[State]string{
	StateGone: "gone", StateZombie: "a zombie", StateKernelThread: "a kernel thread",
}

func noMemory(s State) error {
	if s == StateGone {
		return ErrGone
	}
	return ErrNoMM
}

// space gives the member that stands for the address space of p, nil when p has none.
func (f *familyFinder) space(p *Process) *Process {
	if p != nil && p.State == StateSharedMM {
		p = f.get(p.SharesMM)
	}
	if p == nil || p.State != StateAudited {
		return nil
	}
	return p
}

// ancestor gives the nearest member that p's memory can come from: its parent, or where that has no memory any more the
// parent's parent, but nothing beyond a member that exec'd.
func (f *familyFinder) ancestor(p *Process) *Process {
	from := p.PID
	for n := 0; n <= len(f.list) && !p.Exec; n++ {
		if p = f.get(p.PPID); p == nil {
			return nil
		}
		if a := f.space(p); a != nil && a.PID != from {
			return a
		}
	}
	return nil
}

// sameImage reports whether p can have its memory from the given reference: not when it was forked from a member that
// exec'd inside the family and the reference was not.
func (f *familyFinder) sameImage(p, given *Process) bool {
	root := f.imageRoot(p)
	return !root.Exec || f.get(root.PPID) == nil || root == f.imageRoot(given)
}

// imageRoot follows the parents of p to the member that exec'd its program, or whose parent is not a member.
func (f *familyFinder) imageRoot(p *Process) *Process {
	for n := 0; n <= len(f.list) && !p.Exec; n++ {
		parent := f.get(p.PPID)
		if parent == nil {
			break
		}
		p = parent
	}
	return p
}

// execed marks what has its own program since the fork and no forks of its own in the family.
func (f *familyFinder) execed() {
	forked := map[PID]bool{}
	for i := range f.list {
		p := &f.list[i]
		forked[p.Reference] = true
		if p.State == StateAudited && !p.Exec {
			forked[p.PPID] = true
		}
	}
	for i := range f.list {
		p := &f.list[i]
		if p.State == StateAudited && p.Exec && f.get(p.PPID) != nil && !forked[p.PID] {
			p.State = StateExeced
		}
	}
}
