package report

import (
	"fmt"
	"strings"
	"time"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// faultRow is a row of a table of faults.
type faultRow struct {
	name, pid, from string
	n               audit.FaultCounts
}

// rest gives the write faults that no column of a table of faults shows.
func (f *faultRow) rest() int64 {
	return f.n.Total() - f.n.Copied - f.n.Reused - f.n.Zero - f.n.File - f.n.New
}

// foldFaults keeps the first rows that the options allow and that have copies, sums the others, and adds the total.
func (p *text) foldFaults(all []faultRow) []faultRow {
	total, rest := faultRow{name: "TOTAL", pid: "TOTAL"}, faultRow{}
	shown := p.top(len(all))
	if p.o.Top >= 0 {
		copying := 0
		for copying < len(all) && all[copying].n.CopiedPages > 0 {
			copying++
		}
		if shown > copying+1 && copying > 0 { // one row is not worth folding
			shown = copying
		}
	}
	for i := range all {
		total.n.Add(&all[i].n)
		if i >= shown {
			rest.n.Add(&all[i].n)
		}
	}
	rows := append([]faultRow{}, all[:shown]...)
	if n := len(all) - shown; n > 0 {
		rest.name = others(n)
		rest.pid, rest.from = othersIn2(n)
		rows = append(rows, rest)
	}
	return append(rows, total)
}

// faultColumns adds the columns that tables of faults have in common.
func (p *text) faultColumns(b *gridBuilder, rows []faultRow) {
	total := &rows[len(rows)-1]
	b.pages(column{head: "copied"}, len(rows), func(i int) (int64, bool) { return rows[i].n.CopiedPages, true })
	if total.n.CopiedPages > 0 {
		b.texts(column{head: "%"}, len(rows), func(i int) string { return Percent(rows[i].n.CopiedPages, total.n.CopiedPages) })
	}
	count := func(c column, f func(*faultRow) int64) {
		if f(total) > 0 {
			b.texts(c, len(rows), func(i int) string { return Count(f(&rows[i])) })
		}
	}
	count(column{head: "reused", drop: 1}, func(r *faultRow) int64 { return r.n.Reused })
	count(column{head: "zero", drop: 3}, func(r *faultRow) int64 { return r.n.Zero })
	count(column{head: "file", drop: 2}, func(r *faultRow) int64 { return r.n.File })
	count(column{head: "new", drop: 5}, func(r *faultRow) int64 { return r.n.New })
	count(column{head: "other", drop: 4}, (*faultRow).rest)
}

// traceRegions says where the faults fell.
func (p *text) traceRegions(r *audit.TraceReport) {
	if len(r.ByRegion) == 0 {
		return
	}
	var all []faultRow
	for i := range r.ByRegion {
		g := &r.ByRegion[i]
		name := traceRegionName(g.Region)
		if g.Path != "" {
			name += ": " + printable(g.Path[strings.LastIndexByte(g.Path, '/')+1:])
		}
		all = append(all, faultRow{name: name, n: g.FaultCounts})
	}
	rows := p.foldFaults(all)
	scale := CommonScale(p.bytes(rows[len(rows)-1].n.CopiedPages))
	p.section("WHERE: copied in %s; the others in faults", scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		p.faultColumns(&b, rows)
		b.namesUnder("region", len(rows), func(i int) string { return rows[i].name })
		g.lines[len(rows)-1].style = styleBold
		return g
	})
}

// tracedProcesses says who faulted, where there is more than one process: those with the most copies, in the order in which
// they came up.
func (p *text) tracedProcesses(r *audit.TraceReport) {
	if len(r.Processes) < 2 {
		return
	}
	shown := pick(len(r.Processes), p.top(len(r.Processes)),
		func(i int) int64 { return r.Processes[i].CopiedPages<<20 + min(r.Processes[i].Total(), 1<<20-1) },
		func(int) bool { return false })
	var list []faultRow
	total, rest := faultRow{pid: "TOTAL"}, faultRow{}
	k := 0
	for i := range r.Processes {
		s := &r.Processes[i]
		total.n.Add(&s.FaultCounts)
		if k == len(shown) || shown[k] != i {
			rest.n.Add(&s.FaultCounts)
			continue
		}
		k++
		row := faultRow{pid: fmt.Sprint(s.PID), name: commandName(s.Command), n: s.FaultCounts}
		if s.ParentPID != 0 {
			row.from = fmt.Sprint(s.ParentPID)
		}
		if s.Cause == "exec" {
			row.from = "exec"
		}
		if s.PID == 0 {
			row.pid, row.name = "?", "[unknown]"
		}
		list = append(list, row)
	}
	if n := len(r.Processes) - len(shown); n > 0 {
		rest.pid, rest.from = othersIn2(n)
		list = append(list, rest)
	}
	rows := append(list, total)
	scale := CommonScale(p.bytes(total.n.CopiedPages))
	p.section("PROCESSES: copied in %s; the others in faults", scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		b.texts(column{head: "PID"}, len(rows), func(i int) string { return rows[i].pid })
		b.texts(column{head: "from"}, len(rows), func(i int) string { return rows[i].from })
		b.pages(column{head: "copied"}, len(rows), func(i int) (int64, bool) { return rows[i].n.CopiedPages, true })
		if total.n.CopiedPages > 0 {
			b.texts(column{head: "%"}, len(rows), func(i int) string { return Percent(rows[i].n.CopiedPages, total.n.CopiedPages) })
		}
		b.texts(column{head: "reused"}, len(rows), func(i int) string { return Count(rows[i].n.Reused) })
		b.texts(column{head: "new"}, len(rows), func(i int) string { return Count(rows[i].n.New) })
		b.texts(column{head: "other"}, len(rows), func(i int) string { return Count(rows[i].rest() + rows[i].n.Zero + rows[i].n.File) })
		_, w := g.widths(2)
		room := max(p.o.Width-w-2, 16)
		b.texts(column{head: "command", left: true}, len(rows), func(i int) string { return cut(rows[i].name, room) })
		g.lines[len(rows)-1].style = styleBold
		return g
	})
}

// commandName is a command without the folder of its program.
func commandName(c string) string {
	program, rest, _ := strings.Cut(c, " ")
	name := strings.TrimSpace(program[strings.LastIndexByte(program, '/')+1:] + " " + rest)
	if name == "" {
		return "[not known]"
	}
	return printable(name)
}

// phases says in which part of a collection the copies fell.
func (p *text) phases(r *audit.TraceReport) {
	var all []faultRow
	for i := range r.ByPhase {
		h := &r.ByPhase[i]
		name := h.Phase.Label()
		if h.Step != audit.StepUnknown && h.Step != audit.StepNone {
			name += ", " + printable(string(h.Step))
		}
		all = append(all, faultRow{name: name, n: h.FaultCounts})
	}
	rows := p.foldFaults(all)
	scale := CommonScale(p.bytes(rows[len(rows)-1].n.CopiedPages))
	p.section("WHEN: copied in %s; the others in faults", scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		p.faultColumns(&b, rows)
		b.namesUnder("phase", len(rows), func(i int) string { return rows[i].name })
		g.lines[len(rows)-1].style = styleBold
		return g
	})
}

// collections lists the collections, in order; of many those that copied most.
func (p *text) collections(r *audit.TraceReport) {
	if len(r.GC) == 0 {
		return
	}
	shown := pick(len(r.GC), p.top(len(r.GC)), func(i int) int64 { return r.GC[i].CopiedPages<<20 + min(r.GC[i].Faults, 1<<20-1) }, func(int) bool { return false })
	timed := false
	type row struct {
		pid, seq, kind, first, span string
		faults, copies, pages       int64
	}
	var rows []row
	rest, total := row{}, row{pid: "TOTAL"}
	add := func(to *row, c *audit.Collection) {
		to.faults += c.Faults
		to.copies += c.Copies
		to.pages += c.CopiedPages
	}
	k := 0
	for i := range r.GC {
		c := &r.GC[i]
		add(&total, c)
		if k == len(shown) || shown[k] != i {
			add(&rest, c)
			continue
		}
		k++
		one := row{pid: fmt.Sprint(c.PID), seq: "-", kind: c.Kind.Label()}
		if c.Seq != 0 {
			one.seq = Count(int64(c.Seq))
		}
		if c.FirstNano != nil && c.LastNano != nil {
			timed = true
			one.first = Duration(time.Duration(*c.FirstNano))
			one.span = Duration(time.Duration(*c.LastNano - *c.FirstNano))
		}
		add(&one, c)
		rows = append(rows, one)
	}
	if n := len(r.GC) - len(shown); n > 0 {
		rest.pid, rest.seq = othersIn2(n)
		rows = append(rows, rest)
	}
	rows = append(rows, total)
	scale := CommonScale(p.bytes(total.pages))
	p.section("COLLECTIONS, as far as faults fell in them; copied in %s", scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		b.texts(column{head: "PID"}, len(rows), func(i int) string { return rows[i].pid })
		b.texts(column{head: "number"}, len(rows), func(i int) string { return rows[i].seq })
		b.texts(column{head: "kind", left: true}, len(rows), func(i int) string { return rows[i].kind })
		if timed {
			b.texts(column{over: "first", head: "fault at", drop: 1}, len(rows), func(i int) string { return rows[i].first })
			b.texts(column{over: "to the", head: "last", drop: 2}, len(rows), func(i int) string { return rows[i].span })
		}
		b.texts(column{head: "faults"}, len(rows), func(i int) string { return Count(rows[i].faults) })
		b.texts(column{head: "copies"}, len(rows), func(i int) string { return Count(rows[i].copies) })
		b.pages(column{head: "copied"}, len(rows), func(i int) (int64, bool) { return rows[i].pages, true })
		g.lines[len(rows)-1].style = styleBold
		return g
	})
}

// maxFrames is how many frames of a stack are shown; --all shows every one.
const maxFrames = 16

// stacks lists the chains of calls that made copies.
func (p *text) stacks(r *audit.TraceReport) {
	if !r.Trace.Stacks || r.InTables.CopiedPages == 0 {
		return
	}
	n := 0
	for i := range r.ByStack {
		if r.ByStack[i].Copied > 0 {
			n++
		}
	}
	// Stacks are long: half as many as of anything else.
	shown := n
	if p.o.Top >= 0 {
		shown = min(n, (p.o.Top+1)/2)
	}
	p.section("STACKS that copied, innermost call first")
	var rest, total audit.FaultCounts
	for i := range r.ByStack[:n] {
		s := &r.ByStack[i]
		total.Add(&s.FaultCounts)
		if i >= shown {
			rest.Add(&s.FaultCounts)
			continue
		}
		if i > 0 {
			p.blank()
		}
		p.stackHead(styleBold, fmt.Sprintf("#%d", i+1), s.Copied, s.CopiedBytes, total2(r))
		frames := s.Frames
		if p.o.Top >= 0 && len(frames) > maxFrames {
			frames = frames[:maxFrames]
		}
		for _, f := range frames {
			p.plain(styleNone, "  "+cut(printable(f), p.o.Width-2))
		}
		switch k := len(s.Frames) - len(frames); {
		case k > 0:
			p.plain(styleDim, "  "+fmt.Sprintf("[%d outer calls]", k))
		case len(s.Frames) == 0:
			p.plain(styleDim, "  [the stack could not be taken]")
		case s.Cut:
			p.plain(styleDim, "  [cut: code without frame pointers, or too deep]")
		}
	}
	p.blank()
	if n > shown {
		p.stackHead(styleNone, others(n-shown), rest.Copied, rest.CopiedBytes, total2(r))
	}
	p.stackHead(styleBold, "TOTAL", total.Copied, total.CopiedBytes, total2(r))
}

func total2(r *audit.TraceReport) pagemap.Bytes { return r.InTables.CopiedBytes }

func (p *text) stackHead(s style, name string, copies int64, size, all pagemap.Bytes) {
	p.plain(s, fmt.Sprintf("%s  %s, %s (%s)", name, Size(size), plural(int(copies), "copy", "copies"), Percent(int64(size), int64(all))))
}
