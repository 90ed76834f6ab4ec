package pagemap

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// LearnForkRules reads what fork does with the mappings of some processes (smaps, VmFlags: dc and wf, 3.8 and 4.14), of
// each up to the mapping that holds the address given, and puts it into Family. smaps walks all page tables of what it
// tells, with the mmap_lock of the process held for reading, mapping by mapping, so it is asked only where a result
// depends on it, and only as far as it does.
func (c *Capture) LearnForkRules(upTo map[PID]Addr) error {
	for _, m := range c.members {
		p := &c.fam.Processes[m.index]
		last, ok := upTo[p.PID]
		if !ok {
			continue
		}
		smaps, err := c.fs.smapsUntil(p.PID, last)
		if errors.Is(err, ErrGone) || errors.Is(err, ErrNoMM) {
			c.warn("fork_rules_unknown", p.PID, fmt.Sprintf("process %d ended before it could be read which of its mappings fork leaves out", p.PID),
				"what the workers dropped or copied may never have been theirs: run again")
			continue
		}
		if err != nil {
			return err
		}
		rules := make(map[Addr]ForkRule, len(smaps))
		for i := range smaps {
			rules[smaps[i].Start] = ForkRuleOf(smaps[i].VmFlags)
		}
		p.Mappings = slices.Clone(p.Mappings)
		for i := range p.Mappings {
			p.Mappings[i].Fork = rules[p.Mappings[i].Extent().Start]
		}
	}
	return nil
}

// learnAll reads all that a snapshot keeps beside the pages.
func (c *Capture) learnAll() error {
	refs := map[PID]Addr{}
	for _, m := range c.members {
		if len(m.children) > 0 && !m.gone.Load() {
			refs[m.pid] = ^Addr(0)
		}
	}
	return c.LearnForkRules(refs)
}

// ReadPairs reads n pages of a process from at on, and n pages of its reference from refAt on, with their flags, as
// consistently as a window: what moves between two readings of the reference is marked unstable. With ref 0 it reads the
// process alone, without flags.
func (c *Capture) ReadPairs(pid PID, at Addr, ref PID, refAt Addr, n int) (own, others Row, err error) {
	m, r := c.memberOf(pid), c.memberOf(ref)
	if m == nil || (ref != 0 && r == nil) || n > WindowPages {
		return own, others, fmt.Errorf("read %d pages of process %d: not in this capture", n, pid)
	}
	own.Entries = make([]Entry, n)
	if ref == 0 {
		return own, others, m.read(own.Entries, at, c.page)
	}
	own.Unstable = make([]bool, n)
	others.Entries = make([]Entry, n)
	again := make([]Entry, n)
	for range maxRetries {
		for _, step := range []struct {
			m   *member
			dst []Entry
			at  Addr
		}{{r, others.Entries, refAt}, {m, own.Entries, at}, {r, again, refAt}} {
			if err := step.m.read(step.dst, step.at, c.page); err != nil {
				return own, others, err
			}
		}
		moved := false
		for k := range again {
			own.Unstable[k] = (others.Entries[k]^again[k])&sameMask != 0 || own.Entries[k].Transient()
			moved = moved || own.Unstable[k]
		}
		if !moved {
			break
		}
	}
	if c.flags.fd < 0 || !c.fam.Facts.FramesVisible {
		return own, others, nil
	}
	rows := [2]*Row{&own, &others}
	var want []frameWant
	for i, row := range rows {
		row.Flags = make([]KFlags, n)
		for k, e := range row.Entries {
			row.Flags[k] = FlagsUnread
			if pfn, ok := e.Frame(); ok {
				want = append(want, packWant(pfn, i, k))
			}
		}
	}
	err = c.flags.read(want, make([]uint64, WindowPages), func(i, k int, w uint64) { rows[i].Flags[k] = KFlags(w) })
	return own, others, err
}

func (c *Capture) memberOf(pid PID) *member {
	for _, m := range c.members {
		if m.pid == pid {
			return m
		}
	}
	return nil
}

// markHugeTLB finds the mappings of hugetlb pages (hugetlbfs files, MAP_HUGETLB, SHM_HUGETLB), which RSS leaves out. It
// costs nothing where the machine has no such pages.
func (c *Capture) markHugeTLB() error {
	if c.flags.fd < 0 || !c.fs.hugePages() {
		return nil
	}
	for _, m := range c.members {
		found := false
		for i := range m.maps {
			mp := &m.maps[i]
			if mp.Inode == 0 || (mp.Start|mp.End)&(1<<16-1) != 0 || strings.HasSuffix(mp.Path, ".so") {
				continue
			}
			if huge, err := c.isHugeTLB(m, mp); err != nil {
				return err
			} else if huge {
				found = true
			}
		}
		if !found {
			continue
		}
		smaps, err := c.fs.Smaps(m.pid)
		if err != nil {
			if errors.Is(err, ErrGone) || errors.Is(err, ErrNoMM) {
				continue
			}
			return err
		}
		sizes := make(map[Addr]Bytes, len(smaps))
		for i := range smaps {
			if smaps[i].KernelPageSize > c.page {
				sizes[smaps[i].Start] = smaps[i].KernelPageSize
			}
		}
		for _, list := range [][]Mapping{m.maps, m.kernel} {
			for i := range list {
				list[i].HugePage = sizes[list[i].Start]
			}
		}
	}
	return nil
}

// isHugeTLB looks at the flags of the first page present in a mapping.
func (c *Capture) isHugeTLB(m *member, mp *Mapping) (bool, error) {
	at, found, err := mp.Start, true, error(nil)
	if c.scan {
		at, found, err = nextPopulated(m.fd, mp.Start, mp.End)
	}
	if err != nil || !found {
		return false, ignoreGone(err)
	}
	var e [1]Entry
	if err := m.read(e[:], at, c.page); err != nil {
		return false, ignoreGone(err)
	}
	pfn, ok := e[0].Frame()
	if !ok {
		return false, nil
	}
	var w [1]uint64
	if _, err := preadWords(c.flags.fd, w[:], uint64(pfn)); err != nil {
		return false, fmt.Errorf("read flags of frame %#x: %w", uint64(pfn), err)
	}
	return KFlags(w[0])&KFlagHuge != 0, nil
}

func ignoreGone(err error) error {
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}
