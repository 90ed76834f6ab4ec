package demoserver

import (
	"fmt"
	"slices"

	"cowaudit/internal/demoserver/child"
)

// Counts says how many pages of one process, or of one region of it, must be counted as what. Names and meanings are
// those of the ledger of audit; what is not named here must be 0.
type Counts struct {
	Shared            int64 `json:"shared"`
	Copied            int64 `json:"copied"`
	New               int64 `json:"new"`
	Kept              int64 `json:"kept"`
	Unshared          int64 `json:"unshared"`
	File              int64 `json:"file"`
	Zero              int64 `json:"zero"`
	Held              int64 `json:"held"`
	Dropped           int64 `json:"dropped"`
	ReferenceOnly     int64 `json:"reference_only"`
	Private           int64 `json:"private"`
	CopiedByWorker    int64 `json:"copied_by_worker"`
	CopiedByReference int64 `json:"copied_by_reference"`
	CopiedByBoth      int64 `json:"copied_by_both"`
	Identical         int64 `json:"identical"` // from here on: of copied, what the writes changed
	OneWord           int64 `json:"one_word"`
	FewWords          int64 `json:"few_words"`
	ManyWords         int64 `json:"many_words"`
	Rewritten         int64 `json:"rewritten"`
}

// model follows every page of the regions through forks and orders, by the rules of copy-on-write: a write to a page that
// somebody else has too makes a copy, any other write does not.
type model struct {
	shapes []shape
	zero   bool         // a read of what was never written maps the kernel's zero page; else it takes a page
	procs  []*modelProc // the master first
	refs   []int        // for each frame ever made, how many hold it
}

type modelProc struct {
	regions [][]modelPage
	written []bool        // for each region, whether it ever held a page of its own
	forked  [][]modelPage // as they were at the fork; nil for the master
}

// modelPage is what a process has at an address.
type modelPage struct {
	frame int  // frameNone, frameZero, frameFile, or an index of refs
	words int  // how many of its words are complemented
	blank bool // never written, though it has a frame of its own: all zero
}

const (
	frameNone = iota
	frameZero // the kernel's zero page
	frameFile // shared memory
	frameFirst
)

func newModel(shapes []shape, zero bool) *model {
	m := &model{shapes: shapes, zero: zero, refs: make([]int, frameFirst)}
	p := &modelProc{written: make([]bool, len(shapes))}
	for _, s := range shapes {
		p.regions = append(p.regions, make([]modelPage, s.pages))
	}
	m.procs = append(m.procs, p)
	return m
}

// fork adds a worker. What can be filled again is not copied: page tables of shared memory, and of a mapping that was
// only ever read (mm/memory.c, vma_needs_copy).
func (m *model) fork() {
	c := &modelProc{written: slices.Clone(m.procs[0].written)}
	for r, pages := range m.procs[0].regions {
		now := make([]modelPage, len(pages))
		for i, p := range pages {
			switch {
			case p.frame == frameFile, p.frame == frameZero && !m.procs[0].written[r]:
				continue
			case p.frame >= frameFirst:
				m.refs[p.frame]++
			}
			now[i] = p
		}
		c.regions = append(c.regions, now)
		c.forked = append(c.forked, slices.Clone(now))
	}
	m.procs = append(m.procs, c)
}

func (m *model) do(proc int, o child.Order) error {
	if o.Region >= uint64(len(m.shapes)) {
		return fmt.Errorf("order on region %d of %d", o.Region, len(m.shapes))
	}
	shared := m.shapes[o.Region].shared
	pages := m.procs[proc].regions[o.Region]
	if shared && o.Op != child.OpDrop && (o.First != 0 || o.Stride != 1 || o.Pages != uint64(len(pages))) {
		return fmt.Errorf("order on a part of shared memory: a fault maps neighbours too (mm/memory.c, do_fault_around)")
	}
	for i := range o.Pages {
		at := o.First + i*o.Stride
		if at >= uint64(len(pages)) {
			return fmt.Errorf("order on page %d of region %s, which has %d", at, m.shapes[o.Region].name, len(pages))
		}
		p := &pages[at]
		switch o.Op {
		case child.OpWrite:
			switch {
			case shared:
				p.frame = frameFile
			case p.frame < frameFirst || m.refs[p.frame] > 1:
				m.release(p)
				p.frame = m.take(proc, o.Region)
			}
			p.words, p.blank = int(o.Words), false
		case child.OpRead:
			switch {
			case shared:
				p.frame = frameFile
			case p.frame != frameNone:
			case m.zero:
				p.frame = frameZero
			default:
				p.frame, p.blank = m.take(proc, o.Region), true
			}
		case child.OpDrop:
			m.release(p)
			*p = modelPage{}
		default:
			return fmt.Errorf("order %d is unknown", o.Op)
		}
	}
	return nil
}

// take gives a process a frame of its own in a region.
func (m *model) take(proc int, region uint64) int {
	m.procs[proc].written[region] = true
	m.refs = append(m.refs, 1)
	return len(m.refs) - 1
}

func (m *model) release(p *modelPage) {
	if p.frame >= frameFirst {
		m.refs[p.frame]--
	}
}

// counts gives the truth of one region of one process. It refuses what one capture from outside cannot tell.
func (m *model) counts(proc, region int) (Counts, error) {
	var c Counts
	p := m.procs[proc]
	for i, own := range p.regions[region] {
		var err error
		switch {
		case own.frame == frameFile:
			c.File++
		case own.frame == frameZero:
			c.Zero++
		case proc == 0 && own.frame >= frameFirst:
			m.countMaster(&c, own)
		case proc == 0:
		case own.frame >= frameFirst:
			err = m.countHeld(&c, own, p.forked[region][i], m.procs[0].regions[region][i])
		default:
			countAbsent(&c, p.forked[region][i], m.procs[0].regions[region][i])
		}
		if err != nil {
			return c, fmt.Errorf("page %d of region %s: %w", i, m.shapes[region].name, err)
		}
		if own.frame >= frameFirst && m.refs[own.frame] == 1 {
			c.Private++
		}
	}
	c.Held = c.Shared + c.Copied + c.New + c.Kept + c.Unshared + c.File + c.Zero
	return c, nil
}

func (m *model) countMaster(c *Counts, own modelPage) {
	if m.refs[own.frame] > 1 {
		c.Shared++
	} else {
		c.Unshared++
	}
}

// countHeld counts a page of a worker: own is what it has, was what it got by the fork, ref what the master has.
func (m *model) countHeld(c *Counts, own, was, ref modelPage) error {
	inherited := was.frame >= frameFirst
	switch {
	case own.frame == ref.frame:
		c.Shared++
	case ref.frame >= frameFirst && inherited:
		c.Copied++
		switch {
		case own.frame == was.frame:
			c.CopiedByReference++
		case ref.frame == was.frame:
			c.CopiedByWorker++
		default:
			c.CopiedByBoth++
		}
		c.change(own, ref)
	case ref.frame >= frameFirst:
		return fmt.Errorf("both sides allocated it since the fork: one capture takes that for a copy")
	case own.frame == was.frame:
		c.Kept++
	default:
		c.New++
	}
	return nil
}

func countAbsent(c *Counts, was, ref modelPage) {
	switch {
	case ref.frame < frameFirst:
	case ref.frame == was.frame:
		c.Dropped++
	default:
		c.ReferenceOnly++
	}
}

// change counts a copied page by the number of words that differ.
func (c *Counts) change(own, ref modelPage) {
	words := max(own.words-ref.words, ref.words-own.words)
	switch {
	case own.blank != ref.blank:
		c.Rewritten++ // no word that a write leaves is 0
	case own.blank || words == 0:
		c.Identical++
	case words == 1:
		c.OneWord++
	case words <= 8:
		c.FewWords++
	case words <= 64:
		c.ManyWords++
	default:
		c.Rewritten++
	}
}
