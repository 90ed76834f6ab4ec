package pagemap

import "fmt"

// inferSample bounds the pages looked at for each pair of processes.
const inferSample = 64 * WindowPages

// inferReferences finds a reference for processes that have none although the family has older members: orphans, whose
// fork parent has gone. Siblings hold the same frames at the same addresses; of the older members the one with the most
// frames in common is taken, the oldest of equals. Without frame numbers, and where nothing is in common, none is.
func (c *Capture) inferReferences() error {
	if !c.fam.Facts.FramesVisible || len(c.members) < 2 {
		return nil
	}
	for i, m := range c.members {
		p := &c.fam.Processes[m.index]
		if m.ref >= 0 || p.Exec || i == 0 {
			continue
		}
		best, most := -1, 0
		for j := range i {
			n, err := c.overlap(m, c.members[j])
			if err != nil {
				return err
			}
			if n > most {
				best, most = j, n
			}
		}
		if best < 0 {
			continue
		}
		q := &c.fam.Processes[c.members[best].index]
		p.Reference, p.Basis = q.PID, ReferenceInferred
		m.ref = best
		c.members[best].children = append(c.members[best].children, i)
		c.warn("reference_inferred", p.PID, fmt.Sprintf("the process that forked %d is gone or was not named; it is judged against %d, with which it shares the most frames", p.PID, q.PID),
			"name the process to compare with as --reference PID")
	}
	return nil
}

// overlap counts anonymous pages that two processes have in common at the same address, in a sample of their writable
// private mappings.
func (c *Capture) overlap(a, b *member) (int, error) {
	var x, y [WindowPages]Entry
	n, left := 0, inferSample
	page := Addr(c.page)
	for i := range a.maps {
		mp := &a.maps[i]
		if !mp.Private() || !mp.Readable() || mp.Perms[1] != 'w' {
			continue
		}
		lo, hi, ok := b.mapped(mp.Start, mp.End)
		for at := lo; ok && at < hi && left > 0; at += WindowPages * page {
			if c.scan {
				next, found, err := nextPopulated(a.fd, at, hi)
				if err != nil {
					return 0, ignoreGone(err)
				}
				if !found {
					break
				}
				at = max(at, next)
			}
			k := int(min(WindowPages, (hi-at)/page))
			left -= k
			for _, s := range []struct {
				m   *member
				dst []Entry
			}{{a, x[:k]}, {b, y[:k]}} {
				if err := s.m.read(s.dst, at, c.page); err != nil {
					return 0, ignoreGone(err)
				}
			}
			for j := range k {
				if !x[j].File() && x[j].SamePage(y[j]) && PFN(x[j]&entryFrameMask) != c.fam.Facts.ZeroFrames[0] {
					n++
				}
			}
		}
	}
	return n, nil
}
