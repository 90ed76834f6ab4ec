package audit

import (
	"fmt"
	"slices"
)

// Names of events that a fork test knows by itself.
const (
	EventNull          = "null"
	EventFirstMajorGC  = "first_major_gc"
	EventSecondMajorGC = "second_major_gc"
	EventApp           = "app_event" // the user's own, of a hook
)

// eventFacts takes the counts of an event's shared pages.
func eventFacts(c *Copied, capture Capture, runs int64) facts {
	f := facts{
		runs: runs, page: capture.PageSize, inherited: c.SharedBefore, shared: c.StillShared, copied: c.CopiedPages, change: c.Change,
		byRef: c.CopiedByReference, byWorker: c.CopiedByWorker, byBoth: c.CopiedByBoth,
	}
	f.most.identical, f.most.byRef = c.Change.Identical, c.CopiedByReference
	return f
}

// FindingsForDiff says what stands out between two captures. It does not change the report.
func FindingsForDiff(r *DiffReport) []Finding {
	if !r.Before.FramesVisible || !r.After.FramesVisible {
		return one("frames_hidden", "Frame numbers were hidden from a capture: what was shared and what was copied cannot be told.")
	}
	workers, identical, byRef := 0, int64(0), int64(0)
	var regions []regionFacts
	var copies []workerCopies
	for i := range r.Family {
		if p := &r.Family[i]; p.ReferencePID != 0 {
			workers++
			identical, byRef = max(identical, p.Change.Identical), max(byRef, p.CopiedByReference)
			regions = addEventRegions(regions, p.Regions)
			copies = append(copies, workerCopies{p.PID, p.CopiedPages, p.SharedBefore})
		}
	}
	if workers == 0 {
		return one("no_workers", "No process here was forked from another one of the family: there is nothing to compare.")
	}
	t := &r.Totals
	if t.SharedBefore == 0 {
		return one("nothing_shared", "No page was shared before: there is nothing of which it could be told whether it was copied.")
	}
	f := eventFacts(t, r.After, 1)
	f.most.identical, f.most.byRef = identical, byRef
	across := ""
	if workers > 1 {
		across = fmt.Sprintf(", over %d workers", workers)
	}
	out := f.writes("the copied pages", across)
	out = append(out, copiedRegions(&f, regions, "")...)
	if f.enough(t.CopiedPages) && share(t.CopiedPages, t.SharedBefore) >= quarter {
		out = append(out, finding("much_copied", "%s of the pages that %s shared before %s copied (%s of %s).",
			percent(t.CopiedPages, t.SharedBefore), workersObject(workers), wasWere(t.CopiedPages), mib(t.CopiedBytes), mib(f.bytes(t.SharedBefore))))
	}
	out = append(out, oneWorker(&f, copies, "shared before")...)
	if share(t.UnknownPages, t.SharedBefore) >= twentieth {
		out = append(out, finding("unknown_pages", "What became of %s of the pages shared before cannot be told (%s of %s).",
			percent(t.UnknownPages, t.SharedBefore), mib(f.bytes(t.UnknownPages)), mib(f.bytes(t.SharedBefore))))
	}
	if len(out) == 0 {
		out = one("nothing_stands_out", "%s copied of %s shared before%s: nothing stands out.", mib(t.CopiedBytes), mib(f.bytes(t.SharedBefore)), across)
	}
	return out
}

// addEventRegions adds a process' regions to sums by kind, in order of first appearance.
func addEventRegions(sums []regionFacts, regions []RegionDiff) []regionFacts {
	for i := range regions {
		g := &regions[i]
		k := slices.IndexFunc(sums, func(s regionFacts) bool { return s.kind == g.Kind })
		if k < 0 {
			k = len(sums)
			sums = append(sums, regionFacts{kind: g.Kind})
		}
		sums[k].inherited += g.SharedBefore
		sums[k].copied += g.CopiedPages
	}
	return sums
}

// FindingsForForktest says what stands out in a fork test: about its main event (the first that is not the null event),
// about a second collection, and about the noise floor. Shares, and the amounts beside
// them, are of the sums over all runs and workers; what an event copied is the median. It does
// not change the report.
func FindingsForForktest(r *ForktestReport) []Finding {
	if !r.Capture.FramesVisible {
		return one("frames_hidden", "Frame numbers were hidden: what was shared and what was copied cannot be told.")
	}
	main := r.Summary.Main()
	if main == nil {
		return one("no_event", "Nothing but the null event was measured.")
	}
	var sum Copied
	workers := int64(0)
	for i := range r.Runs {
		for k := range r.Runs[i].Events {
			if e := &r.Runs[i].Events[k]; e.Name == main.Name {
				sum.Add(&e.Copied)
				workers++
			}
		}
	}
	name := EventLabel(main.Name)
	f := eventFacts(&sum, r.Capture, workers)
	across := ""
	if workers > 1 {
		across = fmt.Sprintf(", mean of %d workers", workers)
	}
	out := f.writes("the pages that the "+name+" copied", across)
	if main.Attribution != nil {
		over := ""
		if workers > 1 {
			over = fmt.Sprintf(" (in %d workers)", workers)
		}
		out = append(FindingsForAttribution(main.Attribution, "pages that the "+name+" copied", over), out...)
	}
	out = append(out, copiedRegions(&f, addEventRegions(nil, main.Regions), " by the "+name)...)
	copied, shared := main.CopiedBytes.Median, main.SharedBefore.Median
	if copied >= minFound && shared > 0 && float64(copied) >= quarter*float64(shared) {
		out = append(out, finding("much_copied", "The %s copies %s of %s shared (%s).", name, mib(copied), mib(shared), percent(int64(copied), int64(shared))))
	}
	more := noise(r, main)
	if second := secondCollection(r, main); second != nil && (len(out) > 0 || second[0].Code == "second_gc_copies") {
		more = append(second, more...)
	}
	if len(out) == 0 {
		out = one("nothing_stands_out", "The %s copies %s of %s shared: nothing stands out.", name, mib(copied), mib(shared))
		if len(more) > 0 {
			out = one("copied", "The %s copies %s of %s shared.", name, mib(copied), mib(shared))
		}
	}
	return append(out, more...)
}

// Main gives the event that a fork test is about, the first that is not the null event; nil where there is none.
func (s *Summary) Main() *EventSummary {
	for i := range s.Events {
		if s.Events[i].Name != EventNull {
			return &s.Events[i]
		}
	}
	return nil
}

// Event gives an event by its name, nil where there is none.
func (s *Summary) Event(name string) *EventSummary {
	for i := range s.Events {
		if s.Events[i].Name == name {
			return &s.Events[i]
		}
	}
	return nil
}

// secondCollection says whether the copying of a first collection worth speaking of goes on in the second.
func secondCollection(r *ForktestReport, main *EventSummary) []Finding {
	second := r.Summary.Event(EventSecondMajorGC)
	if main.Name != EventFirstMajorGC || second == nil || main.CopiedBytes.Median < minFound {
		return nil
	}
	a, b := main.CopiedBytes.Median, second.CopiedBytes.Median
	switch {
	case float64(b) <= quiet*float64(a):
		return one("second_gc_quiet", "The second major GC copies %s: a worker pays once.", mib(b))
	case b >= minFound && float64(b) >= half*float64(a):
		return one("second_gc_copies", "The second major GC copies another %s: a worker pays again and again.", mib(b))
	}
	return nil
}

// noise says when the null event copies more than the noise floor should be, and enough to matter beside the main event.
func noise(r *ForktestReport, main *EventSummary) []Finding {
	null := r.Summary.Event(EventNull)
	if null == nil || null.CopiedBytes.Median < noiseFloor || float64(null.CopiedBytes.Median) < twentieth*float64(main.CopiedBytes.Median) {
		return nil
	}
	return one("noise_high", "The null event, in which nothing happens, copies %s: take no smaller difference for real.", mib(null.CopiedBytes.Median))
}
