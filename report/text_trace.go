package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"cowaudit/audit"
	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// trace writes who writes to shared pages: what became of the faults, by which function, where, in which process and
// during which collection.
func (p *text) trace(r *audit.TraceReport) {
	p.page = r.Trace.PageSize
	p.traceHead(r)
	p.findings(r.Findings)
	p.faults(r)
	phased := p.tracedPhases(r)
	if r.InTables.CopiedPages > 0 {
		p.functions(r, phased)
	}
	p.traceRegions(r)
	p.tracedProcesses(r)
	if phased {
		p.phases(r)
	}
	p.collections(r)
	p.stacks(r)
	p.footnotes()
	p.warnings(r.Warnings)
	p.blank()
	f := &r.Trace
	each := "counted in the kernel"
	if f.Each {
		each = "each recorded"
	}
	p.wrap(styleDim, "", "", fmt.Sprintf("Traced from %s on %s, kernel %s, page size %s; faults %s, programs attached by %s. cowaudit %s.",
		time.Unix(0, f.TimeUnixNano).UTC().Format("2006-01-02 15:04:05 UTC"), printable(f.Host), printable(f.Kernel), Size(f.PageSize),
		each, printable(f.Variant), printable(r.Version)))
}

// traceHead says what was traced, for how long, how the collector's phase is known, and what is missing.
func (p *text) traceHead(r *audit.TraceReport) {
	pids := map[pagemap.PID]bool{}
	for i := range r.Processes {
		if r.Processes[i].PID != 0 {
			pids[r.Processes[i].PID] = true
		}
	}
	only := ""
	if r.Trace.OnlyGC {
		only = ", during collections only"
	}
	p.wrap(styleBold, "", "  ", fmt.Sprintf("page faults of %s in %s%s", plural(len(pids), "process", "processes"), Duration(time.Duration(r.Trace.DurationNano)), only))
	for _, l := range collectorLines(r) {
		p.wrap(styleNone, "", "  ", l)
	}
	if n := r.Faults.Lost; n > 0 {
		p.wrap(styleAlert, "! ", "  ", fmt.Sprintf("%s of %s faults are in the totals alone: their records were lost.", Count(n), Count(r.Faults.Total())))
	}
	if n := r.Lost.Missed; n > 0 {
		p.wrap(styleAlert, "! ", "  ", fmt.Sprintf("At least %s are in no count at all: the kernel skipped the program.", plural(int(n), "fault", "faults")))
	}
}

// providerWords put a collector's provider into words.
var providerWords = map[string]string{
	"flag":    "read from its own flag at each fault",
	"symbols": "from probes on the collector's functions",
	"usdt":    "from its USDT notes",
}

// collectorLines says for each runtime how the GC phase is known; what has no runtime has no phase to tell.
func collectorLines(r *audit.TraceReport) (out []string) {
	type key struct{ name, runtime, version, why string }
	count := map[key]int{}
	var order []key
	for i := range r.Processes {
		c := &r.Processes[i].Collector
		k := key{c.Name, c.Runtime, c.Version, ""}
		if providerWords[c.Name] == "" {
			k.why = c.Why
			if c.Runtime == "" {
				continue
			}
		}
		if count[k] == 0 {
			order = append(order, k)
		}
		count[k]++
	}
	for _, k := range order {
		what := strings.TrimSpace(printable(k.runtime + " " + k.version))
		if len(order) > 1 || count[k] < len(r.Processes) {
			what += " (" + plural(count[k], "process", "processes") + ")"
		}
		if w := providerWords[k.name]; w != "" {
			out = append(out, fmt.Sprintf("GC phase of %s: %s", what, w))
		} else {
			out = append(out, fmt.Sprintf("GC phase of %s: unknown: %s", what, printable(k.why)))
		}
	}
	return out
}

// kindRow is a word of the fault table, in the order of the table.
var faultWords = []struct {
	kind    ebpf.Kind
	faults  func(*audit.FaultCounts) int64
	meaning string
}{
	{ebpf.KindCopied, func(f *audit.FaultCounts) int64 { return f.Copied }, "a page shared with another process, copied"},
	{ebpf.KindReused, func(f *audit.FaultCounts) int64 { return f.Reused }, "nobody shared it any more: written in place"},
	{ebpf.KindZero, func(f *audit.FaultCounts) int64 { return f.Zero }, "first write on the kernel's zero page"},
	{ebpf.KindFile, func(f *audit.FaultCounts) int64 { return f.File }, "first write to a page of a private file mapping"},
	{ebpf.KindNew, func(f *audit.FaultCounts) int64 { return f.New }, "first touch: an empty page"},
	{ebpf.KindRead, func(f *audit.FaultCounts) int64 { return f.Read }, "read only: nothing became private"},
	{ebpf.KindShared, func(f *audit.FaultCounts) int64 { return f.Shared }, "a write to shared memory"},
	{ebpf.KindSwapped, func(f *audit.FaultCounts) int64 { return f.Swapped }, "a write to a page in swap"},
	{ebpf.KindHugeTLB, func(f *audit.FaultCounts) int64 { return f.HugeTLB }, "hugetlb: copied or written in place"},
	{ebpf.KindOther, func(f *audit.FaultCounts) int64 { return f.Other }, "a write that took no page"},
	{ebpf.KindUnknown, func(f *audit.FaultCounts) int64 { return f.Unknown }, "could not be told"},
}

// faults writes what became of the faults of the whole trace.
func (p *text) faults(r *audit.TraceReport) {
	p.section("FAULTS")
	t := &r.Faults.FaultCounts
	g := &grid{columns: []column{{left: true}, {head: "faults"}, {head: "memory"}, {head: "what became of the page", left: true}}}
	for _, w := range faultWords {
		n := w.faults(t)
		if n == 0 && w.kind != ebpf.KindCopied && w.kind != ebpf.KindReused {
			continue
		}
		memory := ""
		switch w.kind {
		case ebpf.KindCopied:
			memory = Size(t.CopiedBytes)
		case ebpf.KindNew:
			memory = p.size(t.NewPages)
		}
		g.add(w.kind.String(), Count(n), memory, w.meaning)
	}
	g.addStyled(styleBold, "TOTAL", Count(t.Total()), "", "")
	p.b.WriteString(g.render(p.paint, "", p.o.Width))
	var cuts []string
	in := &r.InTables
	for _, c := range []struct {
		n    int64
		what string
	}{
		{in.KernelMode, "by system calls that write into the process"},
		{in.WithoutFault, "without a fault, by the kernel on its own account"},
		{in.FromSwap, "read in from swap first"},
	} {
		if c.n > 0 {
			cuts = append(cuts, Count(c.n)+" "+c.what)
		}
	}
	if len(cuts) > 0 {
		p.wrap(styleDim, "", "", "Of the copied: "+strings.Join(cuts, "; ")+".")
	}
	if !r.Trace.SeesQuiet {
		p.wrap(styleAlert, "", "", "Copies made without a fault (by mlock, or into pinned pages) are not seen.")
	}
	if r.Trace.OnlyGC {
		p.wrap(styleNone, "", "", fmt.Sprintf("During collections: %s faults, %s copied (%s). The tables below have these alone.",
			Count(in.Total()), Count(in.Copied), Size(in.CopiedBytes)))
	}
}

// tracedPhases reports that the phase of a collector is known for some of the copies.
func (p *text) tracedPhases(r *audit.TraceReport) bool {
	for i := range r.ByPhase {
		if r.ByPhase[i].Phase != audit.GCUnknown && r.ByPhase[i].CopiedPages > 0 {
			return true
		}
	}
	return false
}

// during writes the pages copied during a collection: "?" where no phase is known, "≥" where it is for some.
func (p *text) during(b *gridBuilder, c column, n int, phases func(i int) *audit.PhaseCounts) {
	in := func(i int) int64 { c := phases(i); return c.Minor + c.Major + c.GC }
	var all []pagemap.Bytes
	for i := range n {
		all = append(all, p.bytes(in(i)))
	}
	s := b.scale.For(all...)
	b.texts(c, n, func(i int) string {
		if phases(i).Unknown == 0 {
			return s.amount(p.bytes(in(i)))
		}
		p.unknown("whether a collection ran is not known there; ≥: not known of all of it.")
		if in(i) == 0 {
			return "?"
		}
		return "≥" + s.amount(p.bytes(in(i)))
	})
}

// functions says which functions made the copies.
func (p *text) functions(r *audit.TraceReport, phased bool) {
	type row struct {
		name, short, region string
		copies, pages       int64
		phases              audit.PhaseCounts
	}
	where := functionRegions(r)
	var rows []row
	rest, total := row{}, row{name: "TOTAL", short: "TOTAL"}
	add := func(to *row, f *audit.FunctionRow) {
		to.copies += f.Copied
		to.pages += f.CopiedPages
		addPhases(&to.phases, &f.CopiedByPhase)
	}
	n := 0
	for i := range r.ByFunction {
		if r.ByFunction[i].Copied > 0 {
			n++
		}
	}
	shown := p.top(n)
	for i := range r.ByFunction[:n] {
		f := &r.ByFunction[i]
		add(&total, f)
		if i >= shown {
			add(&rest, f)
			continue
		}
		one := row{name: functionName(f), short: printable(f.Name), region: where[[3]string{f.Name, f.Path, f.BuildID}]}
		add(&one, f)
		rows = append(rows, one)
	}
	if n > shown {
		rest.name, rest.short = others(n-shown), others(n-shown)
		rows = append(rows, rest)
	}
	rows = append(rows, total)
	scale := CommonScale(p.bytes(total.pages))
	p.section("WHO COPIES, in %s", scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		b.texts(column{head: "copies"}, len(rows), func(i int) string { return Count(rows[i].copies) })
		b.pages(column{head: "copied"}, len(rows), func(i int) (int64, bool) { return rows[i].pages, true })
		b.texts(column{head: "%"}, len(rows), func(i int) string { return Percent(rows[i].pages, total.pages) })
		if phased && !r.Trace.OnlyGC {
			p.during(&b, column{over: "during", head: "GC"}, len(rows), func(i int) *audit.PhaseCounts { return &rows[i].phases })
		}
		b.texts(column{head: "region", left: true, drop: 1}, len(rows), func(i int) string { return rows[i].region })
		b.namesOr("function", len(rows), func(i int) (string, string) { return rows[i].name, rows[i].short })
		g.lines[len(rows)-1].style = styleBold
		return g
	})
}

func addPhases(to, from *audit.PhaseCounts) {
	to.None += from.None
	to.Minor += from.Minor
	to.Major += from.Major
	to.GC += from.GC
	to.Unknown += from.Unknown
}

// functionName is the function with its module, and its source line where there is one.
func functionName(f *audit.FunctionRow) string {
	name := printable(f.Name)
	if f.Module != "" && !strings.HasPrefix(f.Name, f.Module+"+") {
		name += " (" + printable(shortModule(f.Module)) + ")"
	}
	if f.File != "" {
		name += fmt.Sprintf(" %s:%d", printable(f.File[strings.LastIndexByte(f.File, '/')+1:]), f.Line)
	}
	return name
}

// shortModule leaves out a library's version.
func shortModule(m string) string {
	if i := strings.Index(m, ".so."); i > 0 {
		return m[:i+3]
	}
	return m
}

// traceRegionName is a kind of region in a table of a trace.
func traceRegionName(k audit.RegionKind) string {
	if k == audit.RegionUnknown {
		return "unknown"
	}
	return regionName(k)
}

// functionRegions gives for each function, by name, path and build ID, where it copies: one kind of region, or how many.
func functionRegions(r *audit.TraceReport) map[[3]string]string {
	sums := map[[3]string]map[audit.RegionKind]int64{}
	for i := range r.Samples {
		s := &r.Samples[i]
		frames := r.Stacks[s.Stack].Frames
		if len(frames) == 0 {
			continue
		}
		f := &r.Frames[frames[0]]
		k := [3]string{f.Name, f.Path, f.BuildID}
		if sums[k] == nil {
			sums[k] = map[audit.RegionKind]int64{}
		}
		sums[k][s.Region] += s.CopiedPages
	}
	out := map[[3]string]string{}
	for k, m := range sums {
		out[k] = mostRegions(m)
	}
	return out
}

// mostRegions names the region with the most pages, and that there are others.
func mostRegions(m map[audit.RegionKind]int64) string {
	kinds := make([]audit.RegionKind, 0, len(m))
	for k := range m {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b audit.RegionKind) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	name := traceRegionName(kinds[0])
	if len(kinds) > 1 {
		name += fmt.Sprintf(" +%d", len(kinds)-1)
	}
	return name
}
