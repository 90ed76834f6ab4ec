package audit

import (
	"cmp"
	"fmt"

	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// words gives the counts of faults, in the order of [ebpf.Kind] from copied on, the unknown ones last.
func (f *FaultCounts) words() [ebpf.NKinds]*int64 {
	return [...]*int64{&f.Unknown, &f.Copied, &f.Reused, &f.Zero, &f.File, &f.New, &f.Read, &f.Shared, &f.Swapped, &f.HugeTLB, &f.Other}
}

// all gives every count but the bytes.
func (f *FaultCounts) all() []*int64 {
	w := f.words()
	return append(w[:], &f.CopiedPages, &f.NewPages, &f.KernelMode, &f.WithoutFault, &f.FromSwap)
}

// Total gives the number of faults.
func (f *FaultCounts) Total() (n int64) {
	for _, v := range f.words() {
		n += *v
	}
	return n
}

// Add adds another's counts.
func (f *FaultCounts) Add(o *FaultCounts) {
	to, from := f.all(), o.all()
	for i := range to {
		*to[i] += *from[i]
	}
	f.CopiedBytes += o.CopiedBytes
}

// count adds one count of a trace.
func (f *FaultCounts) count(c *ebpf.Count, page pagemap.Bytes) {
	k := c.Kind
	if k >= ebpf.NKinds {
		k = ebpf.KindUnknown
	}
	*f.words()[k] += c.Faults
	switch k {
	case ebpf.KindCopied:
		f.CopiedPages += c.Pages
		f.CopiedBytes += pagemap.Bytes(c.Pages) * page
		if c.Detail&ebpf.DetailKernel != 0 {
			f.KernelMode += c.Faults
		}
		if c.Detail&ebpf.DetailNoFault != 0 {
			f.WithoutFault += c.Faults
		}
		if c.Detail&ebpf.DetailFromSwap != 0 {
			f.FromSwap += c.Faults
		}
	case ebpf.KindNew:
		f.NewPages += c.Pages
	}
}

// compare puts the row with the most copies first.
func (f *FaultCounts) compare(o *FaultCounts) int {
	return cmp.Or(cmp.Compare(o.CopiedPages, f.CopiedPages), cmp.Compare(o.Copied, f.Copied), cmp.Compare(o.Total(), f.Total()))
}

// CheckTrace holds a trace's report against the conservation laws: each table sums to what is in the tables; that, what was
// left out and what was lost sum to the kernel's totals, kind by kind (read faults are in the totals alone); no more is
// missing than the kernel says was lost.
func CheckTrace(r *TraceReport) error {
	var sums [5]FaultCounts
	names := [...]string{"processes", "by_region", "by_function", "by_phase", "by_stack"}
	for i := range r.Processes {
		sums[0].Add(&r.Processes[i].FaultCounts)
	}
	for i := range r.ByRegion {
		sums[1].Add(&r.ByRegion[i].FaultCounts)
	}
	for i := range r.ByFunction {
		f := &r.ByFunction[i]
		sums[2].Add(&f.FaultCounts)
		if f.CopiedByPhase.Sum() != f.CopiedPages {
			return breach("by_function: the phases of %s sum to %d of %d copied pages", f.Name, f.CopiedByPhase.Sum(), f.CopiedPages)
		}
	}
	during := int64(0)
	for i := range r.ByPhase {
		sums[3].Add(&r.ByPhase[i].FaultCounts)
		if r.ByPhase[i].Phase.During() {
			during += r.ByPhase[i].CopiedPages
		}
	}
	for i := range r.ByStack {
		sums[4].Add(&r.ByStack[i].FaultCounts)
	}
	for i := range sums {
		if sums[i] != r.InTables && (i < 4 || r.Trace.Stacks) {
			return breach("%s sums to %+v, not to %+v", names[i], sums[i], r.InTables)
		}
	}
	for i := range r.GC {
		during -= r.GC[i].CopiedPages
	}
	if during != 0 {
		return breach("the collections sum to %d copied pages less than the phases", during)
	}
	if err := r.checkSamples(); err != nil {
		return err
	}
	return r.checkTotals()
}

func (r *TraceReport) checkSamples() error {
	var copies, pages int64
	for i := range r.Samples {
		s := &r.Samples[i]
		copies += s.Copies
		pages += s.CopiedPages
		if s.Stack < 0 || s.Stack >= len(r.Stacks) {
			return breach("sample %d has stack %d of %d", i, s.Stack, len(r.Stacks))
		}
	}
	if copies != r.InTables.Copied || pages != r.InTables.CopiedPages {
		return breach("the samples sum to %d copies of %d pages, the tables to %d of %d", copies, pages, r.InTables.Copied, r.InTables.CopiedPages)
	}
	return nil
}

func (r *TraceReport) checkTotals() error {
	whole := r.Faults.words()
	tables, left := r.InTables.words(), r.LeftOut.words()
	lost := int64(0)
	for k := range whole {
		n := *whole[k] - *tables[k] - *left[k]
		if ebpf.Kind(k) == ebpf.KindRead && n > 0 {
			continue // in the totals alone
		}
		if n < 0 {
			return breach("%d faults of kind %q are in the tables and not in the totals", -n, ebpf.Kind(k))
		}
		lost += n
	}
	switch {
	case lost != r.Faults.Lost:
		return breach("%d faults are in no table, %d are said to be lost", lost, r.Faults.Lost)
	case lost > r.Lost.Records+r.Lost.Counts:
		return breach("%d faults are in no table, and the kernel says that %d were lost", lost, r.Lost.Records+r.Lost.Counts)
	case r.Faults.CopiedPages < r.InTables.CopiedPages+r.LeftOut.CopiedPages:
		return breach("%d copied pages are in the tables, %d in the totals", r.InTables.CopiedPages+r.LeftOut.CopiedPages, r.Faults.CopiedPages)
	}
	return nil
}

// TraceWarnings gives the warnings of a trace, and says what it lost, with a remedy.
func TraceWarnings(t *ebpf.Trace) []pagemap.Warning {
	w := append([]pagemap.Warning{}, t.Warnings...)
	add := func(n int64, code, text, remedy string) {
		if n > 0 {
			w = append(w, pagemap.Warning{Code: code, Text: fmt.Sprintf(text, n), Remedy: remedy})
		}
	}
	l := &t.Lost
	add(l.Records, "lost_records", "%d records were lost because they were not read in time: their faults are in the totals and in no table", "trace fewer processes at once, or count only (no records of each fault)")
	add(l.Counts, "lost_counts", "%d faults had no room in the table of counts: they are in the totals and in no table", "trace fewer processes at once, or without stacks")
	add(l.Threads, "lost_threads", "%d threads could not be followed: their faults are missing", "trace fewer processes at once")
	add(l.Spaces, "lost_spaces", "the collector of %d processes could not be followed: their GC phase is unknown", "trace fewer processes at once")
	add(l.Stacks, "lost_stacks", "%d stacks could not be taken", "their faults are counted under the writing function")
	add(l.Regions, "lost_regions", "the mapping of %d faults could not be looked up", "their faults are counted under an unknown region")
	add(l.Phases, "lost_phases", "the collector's state could not be read at %d faults: their GC phase is unknown", "")
	add(l.Missed, "lost_missed", "the kernel skipped the tracing program %d times: faults are missing, from the totals too", "compare with the kernel's own count of copies (wpcopy_count)")
	return w
}
