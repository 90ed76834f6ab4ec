package audit

import (
	"errors"
	"fmt"
)

// ErrConservation marks a result whose counts do not sum: a fault of cowaudit itself, never of the input.
var ErrConservation = errors.New("counts do not sum (please report this: it is a fault of cowaudit)")

func breach(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrConservation, fmt.Sprintf(format, a...))
}

// words sums the words of held pages.
func (p *Pages) words() int64 {
	return p.Shared + p.Copied + p.New + p.Kept + p.Unshared + p.File + p.Merged + p.Zero + p.Swapped + p.Unstable + p.Unknown
}

// check holds one ledger against the laws that hold inside it.
func (p *Pages) check(of string) error {
	switch {
	case p.words() != p.Held:
		return breach("%s: the words sum to %d of %d held pages", of, p.words(), p.Held)
	case p.CopiedByWorker+p.CopiedByReference+p.CopiedByBoth+p.CopiedByUndetermined != p.Copied:
		return breach("%s: the sides sum to %d of %d copied pages", of, p.CopiedByWorker+p.CopiedByReference+p.CopiedByBoth+p.CopiedByUndetermined, p.Copied)
	case p.NewFromFile > p.New, p.Moved > p.Shared, p.InSwap > p.Held, p.HugeTLB > p.Held, p.Private > p.Held:
		return breach("%s: a part is larger than the whole: %+v", of, *p)
	}
	for _, n := range p.all() {
		if *n < 0 {
			return breach("%s: a negative count: %+v", of, *p)
		}
	}
	return nil
}

// all gives every count.
func (p *Pages) all() [26]*int64 {
	return [...]*int64{&p.Shared, &p.Copied, &p.New, &p.Kept, &p.Unshared, &p.File, &p.Merged, &p.Zero, &p.Swapped, &p.Unstable,
		&p.Unknown, &p.Held, &p.Dropped, &p.NotForked, &p.Private, &p.SharedWithSiblings, &p.Moved, &p.NewFromFile, &p.InSwap,
		&p.HugeTLB, &p.Guard, &p.ReferenceOnly, &p.CopiedByWorker, &p.CopiedByReference, &p.CopiedByBoth, &p.CopiedByUndetermined}
}

func (p *Pages) add(o *Pages) {
	to, from := p.all(), o.all()
	for i := range to {
		*to[i] += *from[i]
	}
}

func (c *Change) sum() int64 {
	return c.Identical + c.OneWord + c.FewWords + c.ManyWords + c.Rewritten + c.NotCompared
}

// Check holds a result against the conservation laws: the words of each ledger sum to the pages held, mappings and regions
// to the process, processes to the totals, and what was compared to what was copied.
func Check(r *Report) error {
	var total Pages
	for i := range r.Family {
		p := &r.Family[i]
		of := fmt.Sprintf("process %d", p.PID)
		if err := p.Pages.check(of); err != nil {
			return err
		}
		var maps, regions Pages
		for k := range p.Mappings {
			m := &p.Mappings[k]
			if err := m.Pages.check(fmt.Sprintf("%s, mapping %#x", of, uint64(m.Start))); err != nil {
				return err
			}
			if n := int64(m.End-m.Start) / int64(r.Capture.PageSize); m.Pages.Held > n {
				return breach("%s, mapping %#x: %d pages held in %d", of, uint64(m.Start), m.Pages.Held, n)
			}
			maps.add(&m.Pages)
		}
		for k := range p.Regions {
			regions.add(&p.Regions[k].Pages)
		}
		if maps != p.Pages {
			return breach("%s: mappings sum to %+v, the process has %+v", of, maps, p.Pages)
		}
		if regions != p.Pages {
			return breach("%s: regions sum to %+v, the process has %+v", of, regions, p.Pages)
		}
		if p.Change != nil && p.Change.sum() != p.Pages.Copied {
			return breach("%s: %d pages compared or not, %d copied", of, p.Change.sum(), p.Pages.Copied)
		}
		total.add(&p.Pages)
	}
	if total != r.Totals.Pages {
		return breach("processes sum to %+v, the total is %+v", total, r.Totals.Pages)
	}
	if f := r.Totals.Frames; f != nil && (f.SavedByFork < 0 || f.DistinctAnon < 0 || f.DistinctFile < 0) {
		return breach("%+v: more distinct pages than the family holds", *f)
	}
	return nil
}
