package pagemap

import (
	"cmp"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// learnShapes looks at the unnamed mappings of each process and puts what they are into Family; a mapping in which the
// kernel merged several things is listed there in parts. It reads a few words of pages that are present, and keeps none
// of them. A mapping that the reference has too is taken to be what it is there.
func (c *Capture) learnShapes() error {
	for _, m := range c.members {
		if err := c.shapesOf(m); err != nil {
			return err
		}
		c.fam.Processes[m.index].Mappings = m.shaped()
	}
	return nil
}

// shapeKnown marks a mapping without a shape that need not be looked at again: its reference has it too.
const shapeKnown Shape = "known"

func (c *Capture) shapesOf(m *member) error {
	m.shapes = make([]Mapping, len(m.kernel))
	copy(m.shapes, m.kernel)
	mem, err := m.memory(c.fs)
	if errors.Is(err, ErrGone) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil // shapes stay unknown
	}
	if err != nil {
		return err
	}
	resident := func(a Addr) bool {
		var e [1]Entry
		a &^= Addr(c.page) - 1
		return m.read(e[:], a, c.page) == nil && e[0].Present()
	}
	m.takeShapes(c)
	Shapes(m.shapes, mem, resident, c.fs.StackPointers(m.pid))
	m.parts = append(m.parts, ShapeParts(m.shapes, mem, resident)...)
	for i := range m.shapes {
		if m.shapes[i].Shape == shapeKnown {
			m.shapes[i].Shape = ShapeUnknown
		}
	}
	return nil
}

// takeShapes takes over the shapes and parts of mappings that the reference has too.
func (m *member) takeShapes(c *Capture) {
	if m.ref < 0 {
		return
	}
	ref := c.members[m.ref]
	for i := range m.shapes {
		mp := &m.shapes[i]
		k := mappingAt(ref.shapes, mp.Start)
		if k == len(ref.shapes) || !sameMapping(&ref.shapes[k], mp) {
			continue
		}
		if mp.Shape = ref.shapes[k].Shape; mp.Shape == ShapeUnknown {
			mp.Shape = shapeKnown
		}
		for _, p := range ref.parts {
			if p.Start >= mp.Start && p.End <= mp.End {
				m.parts = append(m.parts, p)
			}
		}
	}
}

func sameMapping(a, b *Mapping) bool {
	return a.Start == b.Start && a.End == b.End && a.Perms == b.Perms && a.Inode == b.Inode && a.Path == b.Path
}

// shaped gives the mappings with their shapes, cut where parts of one differ.
func (m *member) shaped() []Mapping {
	if len(m.parts) == 0 {
		return m.shapes
	}
	slices.SortFunc(m.parts, func(a, b ShapePart) int { return cmp.Compare(a.Start, b.Start) })
	out := make([]Mapping, 0, len(m.shapes)+2*len(m.parts))
	parts := m.parts
	for i := range m.shapes {
		mp := m.shapes[i]
		whole := Extent{mp.Start, mp.End}
		at := mp.Start
		cut := func(end Addr, shape Shape) {
			if end > at {
				part := mp
				part.Start, part.End, part.Shape, part.Whole = at, end, shape, &whole
				out = append(out, part)
				at = end
			}
		}
		n := 0
		for ; n < len(parts) && parts[n].Start < mp.End; n++ {
			cut(parts[n].Start, ShapeUnknown)
			cut(parts[n].End, parts[n].Shape)
		}
		if parts = parts[n:]; n == 0 {
			out = append(out, mp)
			continue
		}
		cut(mp.End, ShapeUnknown)
	}
	return out
}

// ShapedMaps is [FS.Maps] with the shapes of the unnamed mappings, and with a mapping in parts where the kernel merged
// several things into one, as a capture lists them. It reads a few words of pages that are present, and keeps none of
// them; without the right to (PTRACE_MODE_ATTACH) the shapes stay unknown. The error is ErrGone when the process has ended
// or is another one by now.
func (f FS) ShapedMaps(id Identity) ([]Mapping, error) {
	m, err := openMember(f, &Process{Identity: id}, Options{})
	if err != nil {
		return nil, err
	}
	defer m.close()
	c := &Capture{fs: f, page: Bytes(os.Getpagesize())}
	if err := c.shapesOf(m); err != nil {
		return nil, err
	}
	return m.shaped(), nil
}
