package audit

import (
	"errors"
	"time"

	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// ErrCountsOnly: a trace without a record of each fault, whose pages cannot be told.
var ErrCountsOnly = errors.New("the trace has only counts of faults, not each fault with its address")

// AttributeOptions say which part of a trace lies between two captures.
type AttributeOptions struct {
	// From and To are the moments, on the trace's clock, when the first capture began and when the second one was done. A page
	// that was copied while a capture ran counts in it or not: what the capture read decides.
	From, To time.Duration
	// PID leaves out all processes but this one and its reference; 0: none.
	PID pagemap.PID
}

// Attribute joins the copied pages of a diff with the copies that a trace saw between the two captures: by address space and
// address of the page. Of several copies of a page in one address space the last stands. A page that the worker copied is
// looked up in the worker's space, one that the reference copied in the reference's; where both sides did, or it is not known
// which, the worker's copy comes first. A copy of a folio of 1<<order pages stands for each of them.
//
// The error is ErrCountsOnly, or wraps [ErrConservation].
func Attribute(pages *CopiedPages, t *ebpf.Trace, o AttributeOptions) (*Attribution, error) {
	if t.Faults == nil && t.Totals[ebpf.KindCopied].Faults > 0 {
		return nil, ErrCountsOnly
	}
	a := newAttributor(pages, t, o)
	a.gather()
	a.match()
	a.explain()
	a.leftOver()
	r := a.report()
	if err := checkAttribution(r, int64(len(a.pages))); err != nil {
		return nil, err
	}
	return r, nil
}

// spacePage is a page of an address space.
type spacePage struct {
	space ebpf.SpaceID
	addr  pagemap.Addr
}

// tracedPage is a page that was copied, by the trace.
type tracedPage struct {
	spacePage
	fault int // its last copy
	used  int // copied pages that it explains
}

type attributor struct {
	*traceIndex
	o     AttributeOptions
	c     *CopiedPages
	pages []*copiedPage
	page  pagemap.Addr
	space map[pagemap.PID]ebpf.SpaceID // of the processes judged and their references, at the second capture
	late  map[ebpf.SpaceID]bool        // not traced from the first capture on

	traced  []tracedPage
	at      map[spacePage]int      // into traced
	quiet   map[ebpf.SpaceID][]int // copies whose address is not known, by number of the fault
	open    map[int]bool           // pages without an explanation, by index
	rows    attributionRows
	byNum   attributionRows
	profile profileBuilder

	out        Attribution
	unexplain  map[string]int64
	notCopied  map[string]int64
	notOwn     map[string]int64 // of notCopied: in the space of process o.PID
	ownCopies  int64            // traced copies in the space of process o.PID
	ownRepeats int64
	byRef      int64 // explained pages that the reference's copy explains
	// of process o.PID
	ownByNumber, ownSame int64
	differs              Differs
}

func newAttributor(c *CopiedPages, t *ebpf.Trace, o AttributeOptions) *attributor {
	x := newTraceIndex(t)
	a := &attributor{
		traceIndex: x, o: o, c: c, page: pagemap.Addr(t.PageSize), space: map[pagemap.PID]ebpf.SpaceID{}, late: map[ebpf.SpaceID]bool{},
		at: map[spacePage]int{}, quiet: map[ebpf.SpaceID][]int{}, open: map[int]bool{}, rows: attributionRows{}, byNum: attributionRows{},
		profile: newProfileBuilder(x), unexplain: map[string]int64{}, notCopied: map[string]int64{}, notOwn: map[string]int64{},
	}
	for i := range c.pages {
		if p := &c.pages[i]; o.PID == 0 || p.pair.proc.PID == o.PID {
			a.pages = append(a.pages, p)
		}
	}
	for _, p := range c.d.pairs {
		if o.PID != 0 && p.proc.PID != o.PID {
			continue
		}
		a.findSpace(p.proc.Identity)
		if ref := c.d.refOf(p); ref != nil {
			a.findSpace(*ref)
		}
	}
	return a
}

// refOf gives the identity of a process' reference.
func (d *differ) refOf(p *pairDiff) *pagemap.Identity {
	if p.ib >= 0 {
		return &d.b.fam.Processes[d.b.ref[p.ib]].Identity
	}
	if p.ia >= 0 {
		return &d.a.fam.Processes[d.a.ref[p.ia]].Identity
	}
	return nil
}

// findSpace finds the address space that a process has at the second capture, or had last before it.
func (a *attributor) findSpace(id pagemap.Identity) {
	var best *ebpf.Space
	for i := range a.trace.Spaces {
		s := &a.trace.Spaces[i]
		if s.Process.PID != id.PID || s.Process.Start != 0 && id.Start != 0 && s.Process.Start != id.Start || s.Began > a.o.To {
			continue
		}
		if best == nil || s.Began >= best.Began {
			best = s
		}
	}
	if best == nil {
		return
	}
	a.space[id.PID] = best.ID
	if best.Began > a.o.From {
		a.late[best.ID] = true
	}
}

// relevant reports whether the faults of a space are counted.
func (a *attributor) relevant(id ebpf.SpaceID) bool {
	if a.o.PID == 0 {
		return true
	}
	for _, s := range a.space {
		if s == id {
			return true
		}
	}
	return false
}

func (a *attributor) own(id ebpf.SpaceID) bool {
	return a.o.PID == 0 || a.space[a.o.PID] == id && id != 0
}

func (a *attributor) inWindow(f *ebpf.Fault) bool { return f.Time >= a.o.From && f.Time <= a.o.To }

// eachPage calls f with the address of each base page of a fault.
func (a *attributor) eachPage(f *ebpf.Fault, do func(k spacePage)) {
	size := a.page << f.Order
	start := f.Addr - f.Addr%size
	for at := start; at < start+size; at += a.page {
		do(spacePage{f.Space, at})
	}
}

// gather takes the copies between the captures.
func (a *attributor) gather() {
	relevant := map[ebpf.SpaceID]bool{}
	for i := range a.trace.Spaces {
		relevant[a.trace.Spaces[i].ID] = a.relevant(a.trace.Spaces[i].ID)
	}
	for i := range a.trace.Faults {
		f := &a.trace.Faults[i]
		if f.Kind != ebpf.KindCopied || !a.inWindow(f) || !relevant[f.Space] && (a.o.PID != 0 || a.spaces[f.Space] != nil) {
			continue
		}
		a.out.TracedCopies += f.Pages()
		if a.own(f.Space) {
			a.ownCopies += f.Pages()
		}
		if f.Addr == 0 || f.Detail&ebpf.DetailNoFault != 0 {
			a.out.QuietCopies += f.Pages()
			for range f.Pages() {
				a.quiet[f.Space] = append(a.quiet[f.Space], i)
			}
			continue
		}
		a.eachPage(f, func(k spacePage) {
			n, ok := a.at[k]
			if !ok {
				a.at[k] = len(a.traced)
				a.traced = append(a.traced, tracedPage{spacePage: k, fault: i})
				return
			}
			a.out.RepeatedCopies++
			if a.own(f.Space) {
				a.ownRepeats++
			}
			if f.Time >= a.trace.Faults[a.traced[n].fault].Time {
				a.traced[n].fault = i
			}
		})
	}
	a.out.TracedPages = int64(len(a.traced))
}

// places gives where the copy of a page is looked up, in order, and the other places, which would contradict the page tables.
func (a *attributor) places(p *copiedPage) (places, others []spacePage) {
	worker, reference := a.space[p.pair.proc.PID], a.space[p.pair.proc.Reference]
	own := []spacePage{{worker, p.addr}}
	if p.was != p.addr {
		own = append(own, spacePage{worker, p.was})
	}
	ref := []spacePage{{reference, p.refAddr}}
	switch p.by {
	case cByWorker:
		return own, ref
	case cByReference:
		return ref, own
	}
	return append(own, ref...), nil
}

// match finds the copy of each copied page.
func (a *attributor) match() {
	for i, p := range a.pages {
		places, _ := a.places(p)
		found := false
		for _, k := range places {
			if n, ok := a.at[k]; ok && k.space != 0 {
				a.explained(p, n)
				found = true
				break
			}
		}
		if !found {
			a.open[i] = true
		}
	}
}

// explained counts a copied page for which a traced one stands.
func (a *attributor) explained(p *copiedPage, n int) {
	t := &a.traced[n]
	t.used++
	if t.used == 1 {
		a.out.MatchedPages++
	} else {
		a.out.SameCopyPages++
		if a.own(t.space) {
			a.ownSame++
		}
	}
	a.out.ExplainedPages++
	f := &a.trace.Faults[t.fault]
	byReference := t.space != a.space[p.pair.proc.PID]
	if byReference {
		a.byRef++
	}
	a.rows.add(a.traceIndex, f, p, byReference)
	var identical *int64
	if p.change != cNotCompared {
		identical = new(int64)
		if p.change == cIdentical {
			*identical = 1
		}
	}
	a.profile.add(sampleKey{
		pid: a.pid(f.Space), region: p.region, phase: gcPhase(f.GC.Phase), step: gcStep(f.GC.Step), frame: f.Frame, stack: f.Stack,
		kernel: f.Detail&ebpf.DetailKernel != 0,
	}, 1, 1, identical)
}
