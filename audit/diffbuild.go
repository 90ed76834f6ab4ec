package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"cowaudit/pagemap"
)

// Add adds another's counts.
func (c *Copied) Add(o *Copied) {
	to, from := c.all(), o.all()
	for i := range to {
		*to[i] += *from[i]
	}
	c.CopiedBytes += o.CopiedBytes
	c.Change.Add(&o.Change)
}

// all gives the counts of pages.
func (c *Copied) all() [15]*int64 {
	return [...]*int64{&c.SharedBefore, &c.StillShared, &c.CopiedPages, &c.DroppedPages, &c.KeptPages, &c.ReplacedPages,
		&c.UnknownPages, &c.CopiedByWorker, &c.CopiedByReference, &c.CopiedByBoth, &c.CopiedByUndetermined,
		&c.InChangedMappings, &c.NewPages, &c.NewFromFile, &c.FreedPages}
}

// Add adds another's counts.
func (c *Change) Add(o *Change) {
	c.Identical += o.Identical
	c.OneWord += o.OneWord
	c.FewWords += o.FewWords
	c.ManyWords += o.ManyWords
	c.Rewritten += o.Rewritten
	c.NotCompared += o.NotCompared
}

// report turns the counts into the result.
func (d *differ) report(before, after *pagemap.Snapshot, o Options) *DiffReport {
	r := &DiffReport{
		SchemaVersion: SchemaVersion, Kind: KindDiff, Version: o.Version, Range: o.Range,
		Before: captureOf(&before.Fam.Facts, BasisBaseline), After: captureOf(&after.Fam.Facts, BasisBaseline),
		Family: []ProcessDiff{}, Findings: []Finding{}, Warnings: []pagemap.Warning{},
	}
	r.Warnings = append(append(r.Warnings, before.Fam.Warnings...), after.Fam.Warnings...)
	for _, p := range d.pairs {
		pd := d.reportProcess(p)
		r.Totals.Add(&pd.Copied)
		r.Family = append(r.Family, pd)
		r.Warnings = append(r.Warnings, d.pairWarnings(p, &pd, before)...)
	}
	r.After.UnstablePages = countUnstable(after)
	r.Before.UnstablePages = countUnstable(before)
	r.Warnings = append(r.Warnings, captureWarnings(&after.Fam.Facts, r.After.UnstablePages)...)
	return r
}

func countUnstable(s *pagemap.Snapshot) (n int64) {
	for i := range s.Windows {
		for _, row := range s.Windows[i].Rows {
			for _, u := range row.Unstable {
				if u {
					n++
				}
			}
		}
	}
	return n
}

// pairWarnings says what a process' end, its absence at one moment or a remapping keeps from being known.
func (d *differ) pairWarnings(p *pairDiff, pd *ProcessDiff, before *pagemap.Snapshot) (w []pagemap.Warning) {
	switch {
	case p.ia < 0:
		w = append(w, pagemap.Warning{Code: "exited", PID: pd.PID,
			Text: fmt.Sprintf("process %d, or its reference, exited or exec'd during the event; last reading at %s; what it copied after that is unknown",
				pd.PID, time.Unix(0, before.Fam.Facts.TimeUnixNano).UTC().Format(time.RFC3339)),
			Remedy: "copies made at exit are seen by the tracer only; capture again before the process ends"})
	case p.ib < 0:
		w = append(w, pagemap.Warning{Code: "no_baseline", PID: pd.PID,
			Text:   fmt.Sprintf("process %d was forked between the captures: there is nothing to compare it with", pd.PID),
			Remedy: "take the first capture after all workers have been forked"})
	case pd.InChangedMappings > 0:
		w = append(w, pagemap.Warning{Code: "remapped", PID: pd.PID,
			Text:   fmt.Sprintf("%d of the %d copied pages of process %d lie in mappings that were cut or replaced between the captures: they may have been given up and filled anew rather than copied", pd.InChangedMappings, pd.CopiedPages, pd.PID),
			Remedy: "take captures closer to the event"})
	}
	return w
}

func (d *differ) reportProcess(p *pairDiff) ProcessDiff {
	pd := ProcessDiff{PID: p.proc.PID, ReferencePID: p.proc.Reference, State: p.proc.State, Comm: p.proc.Comm, Regions: []RegionDiff{}, Mappings: []MappingDiff{}}
	add := func(maps []pagemap.Mapping, counts map[int]*Copied, gone bool) {
		kinds := regionKinds(maps)
		for k, c := range counts {
			if *c == (Copied{}) {
				continue
			}
			c.CopiedBytes = pagemap.Bytes(c.CopiedPages) * pagemap.Bytes(d.a.page)
			m := &maps[k]
			pd.Mappings = append(pd.Mappings, MappingDiff{Start: m.Start, End: m.End, Perms: m.Perms, Path: m.Path, Region: kinds[k], Gone: gone, Copied: *c})
		}
	}
	if p.ia >= 0 {
		add(d.a.fam.Processes[p.ia].Mappings, p.own, false)
	} else {
		pd.State = d.stateAfter(p)
	}
	if p.ib < 0 {
		pd.State = pagemap.StateForkedSince
	} else {
		add(d.b.fam.Processes[p.ib].Mappings, p.gone, true)
	}
	slices.SortFunc(pd.Mappings, func(a, b MappingDiff) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	at := map[RegionKind]int{}
	for i := range pd.Mappings {
		m := &pd.Mappings[i]
		k, ok := at[m.Region]
		if !ok {
			k = len(pd.Regions)
			at[m.Region] = k
			pd.Regions = append(pd.Regions, RegionDiff{Kind: m.Region})
		}
		pd.Regions[k].Copied.Add(&m.Copied)
		pd.Copied.Add(&m.Copied)
	}
	SortRegions(pd.Regions)
	return pd
}

func (d *differ) stateAfter(p *pairDiff) pagemap.State {
	if i, ok := d.a.fam.Process(p.proc.Identity); ok && d.a.fam.Processes[i].State != pagemap.StateAudited {
		return d.a.fam.Processes[i].State
	}
	return pagemap.StateGone
}

// SortRegions puts the region with the most copied pages first.
func SortRegions(r []RegionDiff) {
	slices.SortFunc(r, func(a, b RegionDiff) int {
		return cmp.Or(cmp.Compare(b.CopiedPages, a.CopiedPages), cmp.Compare(b.SharedBefore, a.SharedBefore), cmp.Compare(a.Kind, b.Kind))
	})
}

// check holds one set of counts against the laws that hold inside it.
func (c *Copied) check(of string) error {
	switch {
	case c.StillShared+c.CopiedPages+c.DroppedPages+c.KeptPages+c.ReplacedPages+c.UnknownPages != c.SharedBefore:
		return breach("%s: what became of the shared pages does not sum to the %d there were: %+v", of, c.SharedBefore, *c)
	case c.CopiedByWorker+c.CopiedByReference+c.CopiedByBoth+c.CopiedByUndetermined != c.CopiedPages:
		return breach("%s: the sides do not sum to the %d copied pages: %+v", of, c.CopiedPages, *c)
	case c.Change.sum() != c.CopiedPages:
		return breach("%s: what the writes changed does not sum to the %d copied pages: %+v", of, c.CopiedPages, *c)
	case c.InChangedMappings > c.CopiedPages, c.NewFromFile > c.NewPages:
		return breach("%s: a part is larger than the whole: %+v", of, *c)
	}
	for _, n := range c.all() {
		if *n < 0 {
			return breach("%s: a negative count: %+v", of, *c)
		}
	}
	return nil
}

// CheckDiff holds a result against the conservation laws.
func CheckDiff(r *DiffReport) error {
	var total Copied
	for i := range r.Family {
		p := &r.Family[i]
		of := fmt.Sprintf("process %d", p.PID)
		if err := p.Copied.check(of); err != nil {
			return err
		}
		var maps, regions Copied
		for k := range p.Mappings {
			if err := p.Mappings[k].Copied.check(fmt.Sprintf("%s, mapping %#x", of, uint64(p.Mappings[k].Start))); err != nil {
				return err
			}
			maps.Add(&p.Mappings[k].Copied)
		}
		for k := range p.Regions {
			if err := p.Regions[k].Copied.check(fmt.Sprintf("%s, region %s", of, p.Regions[k].Kind)); err != nil {
				return err
			}
			regions.Add(&p.Regions[k].Copied)
		}
		if maps != p.Copied || regions != p.Copied {
			return breach("%s: mappings sum to %+v, regions to %+v, the process has %+v", of, maps, regions, p.Copied)
		}
		if p.CopiedBytes != pagemap.Bytes(p.CopiedPages)*r.After.PageSize {
			return breach("%s: %d bytes copied are not %d pages", of, p.CopiedBytes, p.CopiedPages)
		}
		total.Add(&p.Copied)
	}
	if total != r.Totals {
		return breach("processes sum to %+v, the total is %+v", total, r.Totals)
	}
	return nil
}
