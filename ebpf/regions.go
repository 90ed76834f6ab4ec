package ebpf

import (
	"slices"
	"sort"

	"cowaudit/pagemap"
)

// mappingAt gives the mapping that covers an address; nil: none.
func mappingAt(maps []pagemap.Mapping, a pagemap.Addr) *pagemap.Mapping {
	i := sort.Search(len(maps), func(i int) bool { return maps[i].End > a })
	if i < len(maps) && maps[i].Start <= a {
		return &maps[i]
	}
	return nil
}

// keepShapes gives mappings that have just been read the shapes that they had before, where they are the same.
func keepShapes(maps, before []pagemap.Mapping) []pagemap.Mapping {
	out := make([]pagemap.Mapping, 0, len(maps))
	for i := range maps {
		m := maps[i]
		k := sort.Search(len(before), func(k int) bool { return before[k].End > m.Start })
		first := k
		for k < len(before) && before[k].Start < m.End && before[k].Extent() == (pagemap.Extent{Start: m.Start, End: m.End}) &&
			before[k].Perms == m.Perms && before[k].Path == m.Path && before[k].Inode == m.Inode {
			k++
		}
		if k > first && before[first].Start == m.Start && before[k-1].End == m.End {
			out = append(out, before[first:k]...)
		} else {
			out = append(out, m)
		}
	}
	return out
}

// nameRegion takes over what /proc says of the mapping at the region's place, if it is the same one: mappings grow and
// shrink (brk, stacks), so the extents need not be equal; what they are of must be.
func nameRegion(r *region, maps []pagemap.Mapping) {
	first := sort.Search(len(maps), func(i int) bool { return maps[i].End > r.Mapping.Start })
	for i := first; i < len(maps) && maps[i].Start < r.Mapping.End; i++ {
		m := &maps[i]
		if m.Private() != r.Mapping.Private() || (m.Inode != 0) != r.file {
			continue
		}
		if r.file && m.Offset-uint64(m.Start) != r.Mapping.Offset-uint64(r.Mapping.Start) && m.Path != "/dev/zero" {
			continue
		}
		r.Mapping.Path, r.Named = m.Path, true
		r.Mapping.Shape = pagemap.ShapeUnknown
		if m.Whole == nil {
			r.Mapping.Shape = m.Shape
		}
		r.Mapping.Major, r.Mapping.Minor, r.Mapping.Inode = m.Major, m.Minor, m.Inode
		r.Mapping.Fork, r.Mapping.HugePage = m.Fork, m.HugePage
		return
	}
}

// lookAgain reads the mappings of the processes that are still there once more, with their shapes. It is done at the end
// alone: looking at shapes reads some of a process' memory, which keeps a reference to the page until its processor's
// batch of them is full (mm/swap.c, folio_mark_accessed), and a write that would have reused the page copies it meanwhile
// (mm/memory.c, wp_can_reuse_anon_folio). A process that has ended gets the shapes that its parent has at the same place.
func (g *gatherer) lookAgain() {
	ids := make([]SpaceID, 0, len(g.spaces))
	for id := range g.spaces {
		ids = append(ids, id)
	}
	slices.Sort(ids) // parents first
	for _, id := range ids {
		s := g.spaces[id]
		if s.Mappings == nil {
			continue
		}
		maps, ok := g.shapedMaps(s)
		if p := g.spaces[s.Parent]; !ok && p != nil && s.Cause == CauseFork {
			maps, ok = keepShapes(s.Mappings, p.Mappings), true
		}
		if !ok {
			continue
		}
		s.Mappings = maps
		for _, r := range g.regionsOf[s.ID] {
			nameRegion(r, maps)
		}
	}
}

func (g *gatherer) shapedMaps(s *space) ([]pagemap.Mapping, bool) {
	if s.Ended != 0 || s.superseded || s.Process.Start == 0 {
		return nil, false
	}
	maps, err := g.t.o.FS.ShapedMaps(s.Process)
	return maps, err == nil && len(maps) > 0
}

// split takes apart the regions in which the kernel merged several things, where the addresses of the faults are known:
// the fault's region is then the part that it lies in. A fault without a region gets one here too.
func (g *gatherer) split() {
	if !g.t.o.Faults {
		return
	}
	type part struct {
		space  SpaceID
		region RegionID
		start  pagemap.Addr
	}
	parts := map[part]RegionID{}
	var last RegionID
	for id := range g.regions {
		last = max(last, id)
	}
	clear(g.counts)
	for i := range g.faults {
		f := &g.faults[i]
		r, s := g.regions[f.region], g.spaces[f.space]
		if s != nil && f.addr != 0 && (r == nil || !r.file) {
			m := mappingAt(s.Mappings, pagemap.Addr(f.addr))
			// Where the kernel's side could not look the mapping up, as a writer had it locked, the list has to do.
			late := r == nil && m != nil
			if late || m != nil && m.Whole != nil && m.Private() == r.Mapping.Private() && m.Inode == 0 {
				k := part{f.space, f.region, m.Start}
				if parts[k] == 0 {
					last++
					parts[k] = last
					g.addRegion(&region{Region: Region{ID: last, Space: f.space, Mapping: *m, Named: true}})
				}
				f.region = parts[k]
			}
			if late {
				g.late++
			}
		}
		g.count(f)
	}
}
