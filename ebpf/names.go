package ebpf

import (
	"cmp"
	"slices"

	"cowaudit/pagemap"
)

// names keeps what is needed to name the code of each space, also after its process has ended.
type names struct {
	open     func(pagemap.PID) (codeSpace, error)
	shut     func() error
	problems func() []pagemap.Warning
	spaces   map[SpaceID]codeSpace
}

// codeSpace names addresses of one address space.
type codeSpace interface {
	Lookup(addr uint64) Frame
	Stack(addrs []uint64) (frames []Frame, cut bool)
	Refresh() error
	Child() codeSpace
}

// space makes sure that a space's mappings are known as they are now.
func (n *names) space(id SpaceID, pid pagemap.PID) {
	if s := n.spaces[id]; s != nil {
		// What cannot be read again is as it was.
		_ = s.Refresh()
		return
	}
	if s, err := n.open(pid); err == nil {
		n.spaces[id] = s
	}
}

// inherit gives a forked process that has ended its parent's code.
func (n *names) inherit(id, parent SpaceID) {
	if p := n.spaces[parent]; p != nil && n.spaces[id] == nil {
		n.spaces[id] = p.Child()
	}
}

func (n *names) close() error { return n.shut() }

// unknownFrame is an address in a space whose mappings could not be read.
func unknownFrame(addr uint64) Frame { return Frame{Addr: addr, Name: "[unknown]"} }

func (n *names) lookup(id SpaceID, addr uint64) Frame {
	if s := n.spaces[id]; s != nil && addr != 0 {
		return s.Lookup(addr)
	}
	return unknownFrame(addr)
}

func (n *names) walk(id SpaceID, addrs []uint64) (frames []Frame, cut bool) {
	if s := n.spaces[id]; s != nil {
		return s.Stack(addrs)
	}
	for _, a := range addrs {
		frames = append(frames, unknownFrame(a))
	}
	return frames, true
}

// place is an instruction, or a stack, of one space.
type place struct {
	space SpaceID
	at    uint64 // address, or stack id
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.space, b.space), cmp.Compare(a.at, b.at))
}

// numbering gives frames and stacks their numbers in a Trace, 0 for the unknown frame and the empty stack. Places of the
// same name in different processes get the same number: they are the same code.
type numbering struct {
	frames  []Frame
	stacks  []Stack
	frameOf map[place]FrameID
	stackOf map[place]StackID
	same    map[Frame]FrameID
}

// number names all places of the gatherer's counts, in order.
func (g *gatherer) number(stacks map[uint64][]uint64) *numbering {
	n := &numbering{
		frames: []Frame{unknownFrame(0)}, stacks: []Stack{{}}, frameOf: map[place]FrameID{}, stackOf: map[place]StackID{}, same: map[Frame]FrameID{},
	}
	ips, ids := map[place]bool{}, map[place]bool{}
	for k := range g.counts {
		ips[place{k.Space, k.IP}] = true
		if k.Stack != 0 {
			ids[place{k.Space, k.Stack}] = true
		}
	}
	for _, p := range sorted(ips) {
		n.frameOf[p] = n.add(g.names.lookup(p.space, p.at))
	}
	for _, p := range sorted(ids) {
		frames, cut := g.names.walk(p.space, stacks[p.at])
		s := Stack{Cut: cut}
		for _, f := range frames {
			s.Frames = append(s.Frames, n.add(f))
		}
		n.stackOf[p] = StackID(len(n.stacks))
		n.stacks = append(n.stacks, s)
	}
	return n
}

func sorted(m map[place]bool) []place {
	out := make([]place, 0, len(m))
	for p := range m {
		out = append(out, p)
	}
	slices.SortFunc(out, comparePlaces)
	return out
}

// add numbers a frame; the address in the process is left out of what makes two the same.
func (n *numbering) add(f Frame) FrameID {
	key := f
	if f.Module != "" {
		key.Addr = 0
	}
	if id, ok := n.same[key]; ok {
		return id
	}
	id := FrameID(len(n.frames))
	n.same[key] = id
	n.frames = append(n.frames, f)
	return id
}
