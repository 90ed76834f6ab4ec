package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cowaudit/audit"
)

// tracedEvent is what the trace says of one event, summed over the workers of all runs in which it was traced. It is summed
// here from the events, which are held against the laws when a result is loaded; the summary is not.
type tracedEvent struct {
	*audit.Attribution
	copied          int64
	change          audit.Change
	workers, traced int64
}

func traced(r *audit.ForktestReport, name string) *tracedEvent {
	out := tracedEvent{}
	var list []*audit.Attribution
	for i := range r.Runs {
		for k := range r.Runs[i].Events {
			e := &r.Runs[i].Events[k]
			if e.Name != name {
				continue
			}
			out.workers++
			if e.Attribution == nil {
				continue
			}
			out.traced++
			out.copied += e.CopiedPages
			out.change.Add(&e.Change)
			list = append(list, e.Attribution)
		}
	}
	if len(list) == 0 {
		return nil
	}
	out.Attribution = audit.SumAttributions(list)
	return &out
}

// over says which workers a table sums over.
func (e *tracedEvent) over() string {
	switch {
	case e.traced < e.workers:
		return fmt.Sprintf(", summed over the %d of %d workers that were traced", e.traced, e.workers)
	case e.workers > 1:
		return fmt.Sprintf(", summed over %d workers", e.workers)
	}
	return ""
}

// tracer says how the writes of a fork test were traced, and what is missing.
func (p *text) tracer(t *audit.Tracer) {
	words := "writes traced"
	c := &t.Collector
	what := strings.TrimSpace(printable(c.Runtime + " " + c.Version))
	if what == "" {
		what = "the collector"
	}
	switch w := providerWords[c.Name]; {
	case w != "":
		words += fmt.Sprintf("; GC phase of %s: %s", what, w)
	case c.Why != "":
		words += fmt.Sprintf("; GC phase of %s: unknown: %s", what, printable(c.Why))
	default:
		words += "; GC phase: unknown"
	}
	p.wrap(styleNone, "", "  ", words)
	if !t.SeesQuiet {
		p.wrap(styleAlert, "! ", "  ", "Copies made without a fault (by mlock, or into pinned pages) are not seen by the trace.")
	}
	var lost []string
	for _, l := range []struct {
		n    int64
		what string
	}{
		{t.Lost.Records, "records"}, {t.Lost.Counts, "counts"}, {t.Lost.Missed, "runs of its programs"}, {t.Lost.Threads, "threads"},
		{t.Lost.Spaces, "collectors"}, {t.Lost.Stacks, "stacks"}, {t.Lost.Regions, "mappings"}, {t.Lost.Phases, "GC phases"},
	} {
		if l.n > 0 {
			lost = append(lost, Count(l.n)+" "+l.what)
		}
	}
	if len(lost) > 0 {
		p.wrap(styleAlert, "! ", "  ", "The trace lost, over all runs: "+strings.Join(lost, ", ")+".")
	}
}

// writers says who made the copies of an event, how much of them the trace does not explain, and how the counts agree.
func (p *text) writers(r *audit.ForktestReport, event string) {
	e := traced(r, event)
	if e == nil {
		return
	}
	if e.copied > 0 {
		p.writerTable(e, printable(audit.EventLabel(event)))
		p.unexplained(e)
	}
	if e.Counts != nil {
		p.counts(e)
	}
}

type writerRow struct {
	long, short, region string
	phase               audit.GCPhase
	pages               int64
	change              audit.Change
}

// writerRows are the rows of the table of writers; the parts of a collection are one row.
func writerRows(list []audit.AttributionRow) []writerRow {
	type key struct {
		name, module, path, buildID string
		phase                       audit.GCPhase
		region                      audit.RegionKind
		kernel, byReference         bool
	}
	at := map[key]int{}
	var out []writerRow
	for i := range list {
		a := &list[i]
		k := key{a.Name, a.Module, a.Path, a.BuildID, a.Phase, a.Region, a.KernelMode, a.ByReference}
		n, ok := at[k]
		if !ok {
			n = len(out)
			at[k] = n
			long, short := writerName(a)
			out = append(out, writerRow{long: long, short: short, region: traceRegionName(a.Region), phase: a.Phase})
		}
		out[n].pages += a.Pages
		out[n].change.Add(&a.Change)
	}
	slices.SortStableFunc(out, func(x, y writerRow) int { return cmp.Compare(y.pages, x.pages) })
	return out
}

// writerName is the function with its module and source line, and without; both say who made it write, if not the worker
// itself.
func writerName(a *audit.AttributionRow) (long, short string) {
	how := ""
	if a.KernelMode {
		how += ", by a system call"
	}
	if a.ByReference {
		how += ", in the master"
	}
	f := audit.FunctionRow{Name: a.Name, Module: a.Module, File: a.File, Line: a.Line}
	return functionName(&f) + how, printable(a.Name) + how
}

// writerTable lists the writers, the copies that the trace does not explain, and all copied pages as the TOTAL.
func (p *text) writerTable(e *tracedEvent, event string) {
	all := writerRows(e.Functions)
	phased := slices.ContainsFunc(all, func(w writerRow) bool { return w.phase != audit.GCUnknown })
	shown := p.top(len(all))
	rows := append([]writerRow{}, all[:shown]...)
	left := e.change
	var rest writerRow
	for i := range all {
		subtract(&left, &all[i].change)
		if i >= shown {
			rest.pages += all[i].pages
			rest.change.Add(&all[i].change)
		}
	}
	if n := len(all) - shown; n > 0 {
		rest.long, rest.short = others(n), others(n)
		rows = append(rows, rest)
	}
	if n := e.copied - e.ExplainedPages; n > 0 {
		rows = append(rows, writerRow{long: "[not explained]", short: "[not explained]", pages: n, change: left})
	}
	rows = append(rows, writerRow{long: "TOTAL", short: "TOTAL", pages: e.copied, change: e.change})
	p.section("WHO WROTE what the %s copied%s", event, e.over())
	p.table(func(bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g}
		b.texts(column{head: "pages"}, len(rows), func(i int) string { return Count(rows[i].pages) })
		b.texts(column{head: "size"}, len(rows), func(i int) string { return p.size(rows[i].pages) })
		b.texts(column{head: "%"}, len(rows), func(i int) string { return Percent(rows[i].pages, e.copied) })
		b.texts(column{over: "of it", head: "identical"}, len(rows), func(i int) string {
			c := &rows[i].change
			if c.Compared() == 0 {
				p.unknown("what the writes changed was not compared there.")
				return "?"
			}
			return Percent(c.Identical, c.Compared())
		})
		if phased {
			b.texts(column{head: "phase", left: true}, len(rows), func(i int) string {
				switch rows[i].phase {
				case "":
					return ""
				case audit.GCUnknown:
					p.unknown("whether a collection ran is not known there.")
					return "?"
				}
				return rows[i].phase.Label()
			})
		}
		b.texts(column{head: "region", left: true}, len(rows), func(i int) string { return rows[i].region })
		b.namesOr("function", len(rows), func(i int) (string, string) { return rows[i].long, rows[i].short })
		g.lines[len(rows)-1].style = styleBold
		return g
	})
}

func subtract(from, c *audit.Change) {
	from.Identical -= c.Identical
	from.OneWord -= c.OneWord
	from.FewWords -= c.FewWords
	from.ManyWords -= c.ManyWords
	from.Rewritten -= c.Rewritten
	from.NotCompared -= c.NotCompared
}

// unexplained says why the trace has no copy of some of the copied pages.
func (p *text) unexplained(e *tracedEvent) {
	n := e.copied - e.ExplainedPages
	if n <= 0 {
		return
	}
	p.section("NOT EXPLAINED by the trace%s", e.over())
	g := &grid{columns: []column{{head: "pages"}, {head: "size"}, {head: "%"}, {head: "why", left: true}}}
	for i := range e.Unexplained {
		u := &e.Unexplained[i]
		g.addReason(p.o.Width, u.Text, Count(u.Pages), p.size(u.Pages), Percent(u.Pages, n))
	}
	if len(e.Unexplained) > 1 {
		g.addStyled(styleBold, Count(n), p.size(n), "100%", "TOTAL")
	}
	p.b.WriteString(g.render(p.paint, "", p.o.Width))
	var names []string
	for _, w := range writerRows(e.ByNumber) {
		names = append(names, Count(w.pages)+" "+w.long)
	}
	if len(names) > 0 {
		p.wrap(styleDim, "", "", "Matched by number, not by address: "+strings.Join(names, "; ")+".")
	}
}

// addReason adds a row that ends in words; words that do not fit go under it.
func (g *grid) addReason(limit int, words string, cells ...string) {
	words = printable(words)
	l := line{cells: append(cells, words)}
	w := width(words)
	for _, c := range cells {
		w += max(width(c), 8) + 2 // 8: as wide as an amount is in most rows
	}
	if w > limit {
		l.cells[len(cells)], l.below, l.prose = "", words, true
	}
	g.lines = append(g.lines, l)
}

// counts leads from the page tables' count to the trace's, and from that to the kernel's own.
func (p *text) counts(e *tracedEvent) {
	c := e.Counts
	p.section("THREE COUNTS of the workers' copied pages%s", e.over())
	s := printable(c.Sentence()) + "."
	if e.copied > 0 {
		s += fmt.Sprintf(" By address the trace explains %s.", Percent(e.ExplainedPages, e.copied))
	}
	p.wrap(styleNone, "", "", s)
	if len(c.Residue) == 0 {
		return
	}
	g := &grid{columns: []column{{head: "pages"}, {head: "what", left: true}}}
	step := func(of string) {
		for i := range c.Residue {
			if d := &c.Residue[i]; d.Of == of {
				n := Count(d.Pages)
				if d.Pages > 0 {
					n = "+" + n
				}
				g.addReason(p.o.Width, d.Text, n)
			}
		}
	}
	g.addStyled(styleBold, Count(c.PageTables), "by the page tables")
	step(audit.ResidueTraced)
	g.addStyled(styleBold, Count(c.Traced), "traced")
	if c.KernelWPCopy != nil {
		step(audit.ResidueKernel)
		g.addStyled(styleBold, Count(*c.KernelWPCopy), "by the kernel (wpcopy_count)")
	}
	p.b.WriteString(g.render(p.paint, "", p.o.Width))
}
