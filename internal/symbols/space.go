package symbols

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"

	"cowaudit/pagemap"
)

const (
	vdsoName = "[vdso]"
	jitName  = "[JIT]"
	deleted  = " (deleted)"
	// maxPast bounds the mappings that are remembered of one process after they are gone; the oldest are forgotten.
	maxPast = 16384
)

// Space is the code in the address space of one process: what was mapped executable at some time that it was looked at.
type Space struct {
	r     *Resolver
	pid   pagemap.PID // 0: that process is not to be asked any more
	start uint64      // of the process, clock ticks after boot

	mu   sync.RWMutex
	live []*code // by address, as of the last reading
	past []*code // gone since, in the order in which they went
	jit  []jitNames

	roots []*root // where its files may lie, while Refresh runs
}

// code is one executable mapping.
type code struct {
	m       pagemap.Mapping // as maps has it
	mod     *module         // nil: no file, or it could not be opened
	kind    codeKind
	path    string // without " (deleted)"
	name    string // the last part of it
	deleted bool
}

type codeKind int

const (
	kindFile codeKind = iota
	kindVDSO
	kindKernel // another mapping of the kernel's own
	kindJIT    // anonymous memory
)

// jitNames is a map file, and where it holds: nil: everywhere.
type jitNames struct {
	file   *perfMap
	within []pagemap.Extent
}

// Space reads the executable mappings of a process and opens the files they are of, as far as they are not open yet. It needs
// what /proc/PID/maps needs (PTRACE_MODE_READ); see the package for the rest. A process that is gone is [pagemap.ErrGone]; a
// file that cannot be opened is none (see [Resolver.Problems]).
func (r *Resolver) Space(pid pagemap.PID) (*Space, error) {
	st, err := r.options.FS.Stat(pid)
	if err != nil {
		return nil, err
	}
	s := &Space{r: r, pid: pid, start: st.Start}
	if err := s.Refresh(); err != nil {
		return nil, err
	}
	return s, nil
}

// Child is a copy for a process that was forked from this one and ended before its own maps were read.
func (s *Space) Child() *Space {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &Space{r: s.r, live: slices.Clone(s.live), past: slices.Clone(s.past), jit: slices.Clone(s.jit)}
}

// Refresh reads the mappings again. Those that are gone are remembered, and give way to newer ones at their addresses. After
// an error everything is as it was; that a process is gone (and always for a [Space.Child]) is [pagemap.ErrGone].
func (s *Space) Refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid == 0 {
		return fmt.Errorf("read maps: %w", pagemap.ErrGone)
	}
	list, err := s.r.options.FS.Maps(s.pid)
	if err != nil {
		return err
	}
	if st, err := s.r.options.FS.Stat(s.pid); err != nil {
		return err
	} else if st.Start != s.start {
		return fmt.Errorf("read maps of %d: %w: another process has its number", s.pid, pagemap.ErrGone)
	}
	s.r.mu.Lock()
	closed := s.r.closed
	s.r.mu.Unlock()
	if closed {
		return ErrClosed
	}
	defer func() { s.roots = nil }() // it may change its root
	before := map[pagemap.Mapping]*code{}
	for _, c := range s.live {
		before[c.m] = c
	}
	var live []*code
	anonymous := false
	for i := range list {
		m := &list[i]
		if m.Perms[2] != 'x' {
			continue
		}
		c := before[*m]
		if c == nil || c.kind == kindFile && c.mod == nil {
			n := s.code(m, list)
			n.m.Path = s.r.intern(n.m.Path)
			c = n
		}
		delete(before, *m)
		anonymous = anonymous || c.kind == kindJIT
		live = append(live, c)
	}
	gone := make([]*code, 0, len(before))
	for _, c := range before {
		gone = append(gone, c)
	}
	slices.SortFunc(gone, func(a, b *code) int { return cmp.Compare(a.m.Start, b.m.Start) })
	s.past = append(s.past, gone...)
	if over := len(s.past) - maxPast; over > 0 {
		s.past = slices.Clone(s.past[over:])
	}
	s.live = live
	if anonymous {
		s.findJIT()
	}
	return nil
}

// code makes what is known of a mapping.
func (s *Space) code(m *pagemap.Mapping, list []pagemap.Mapping) *code {
	c := &code{m: *m, path: m.Path}
	switch {
	case m.Path == vdsoName:
		c.kind, c.name = kindVDSO, vdsoName
		image, err := s.image(m)
		if err != nil {
			s.r.problem(vdsoName, err)
			break
		}
		c.mod = s.r.vdso(image)
	case m.Special() || m.Path == "[vsyscall]":
		c.kind, c.name = kindKernel, m.Path
	case m.Anonymous() || strings.HasPrefix(m.Path, "/dev/zero") || strings.HasPrefix(m.Path, "/memfd:") && !s.isELF(m):
		c.kind, c.name = kindJIT, jitName
		if m.Path != "" {
			c.name = clean(strings.TrimSuffix(m.Path, deleted))
		}
	default:
		var err error
		if c.mod, c.path, c.deleted, err = s.file(m, list); err != nil {
			s.r.problem(m.Path, err)
		}
		c.name = clean(path.Base(c.path))
	}
	c.path = s.r.intern(c.path)
	return c
}

// find gives the newest mapping that covers an address.
func (s *Space) find(addr uint64) *code {
	covers := func(c *code) bool { return addr >= uint64(c.m.Start) && addr < uint64(c.m.End) }
	i := sort.Search(len(s.live), func(i int) bool { return uint64(s.live[i].m.Start) > addr })
	if i > 0 && covers(s.live[i-1]) {
		return s.live[i-1]
	}
	for i := len(s.past) - 1; i >= 0; i-- {
		if covers(s.past[i]) {
			return s.past[i]
		}
	}
	return nil
}

// Lookup names an address. It always gives a frame; what is not known of it is empty.
func (s *Space) Lookup(addr uint64) Frame {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lookup(addr)
}

func (s *Space) lookup(addr uint64) Frame {
	f := Frame{Addr: addr, Offset: addr}
	c := s.find(addr)
	if c == nil {
		return f
	}
	f.Module, f.Path, f.Deleted = c.name, c.path, c.deleted
	at := addr - uint64(c.m.Start)
	switch c.kind {
	case kindKernel:
		f.Offset = at
	case kindJIT:
		s.nameJIT(&f)
	default:
		if c.mod == nil && c.kind == kindVDSO {
			f.Offset = at
			break
		}
		at += c.m.Offset
		var ok bool
		if c.mod != nil {
			f.Offset, ok = c.mod.address(at, s.r.pageSize())
		}
		if !ok {
			f.Offset, f.FileOffset = at, true
			break
		}
		f.BuildID = c.mod.buildText
		c.mod.name(&f)
	}
	return f
}

// nameJIT asks the map files, the process' own first.
func (s *Space) nameJIT(f *Frame) {
	for _, j := range s.jit {
		if j.within != nil && !slices.ContainsFunc(j.within, func(e pagemap.Extent) bool {
			return f.Addr >= uint64(e.Start) && f.Addr < uint64(e.End)
		}) {
			continue
		}
		if e, ok := j.file.at(f.Addr); ok {
			f.Function, f.FunctionOffset, f.Size, f.From = e.name, f.Addr-e.start, e.end-e.start, SourcePerfMap
			return
		}
	}
}
