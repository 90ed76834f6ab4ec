package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// also lists the words and cuts that have no column of their own, over the whole family, each with what it means.
func (p *text) also(r *audit.Report) {
	t := &r.Totals.Pages
	dropped := ""
	if r.Capture.Basis == audit.BasisSingle && t.Dropped > 0 {
		dropped = p.note(noteDropped)
	}
	p.alsoTable([]alsoRow{
		{t.Unshared, "unshared", "the master's: no other process of the family has it"},
		{t.Kept, "kept", "inherited; the master gave its page up since"},
		{t.Swapped, "swapped", "in swap, not in the slot of the master's page"},
		{t.Merged, "merged", "one frame for many by KSM: shared by content, not by fork"},
		{t.Zero, "zero", "the kernel's zero page: costs nothing"},
		{t.Unstable, "unstable", "changed each time it was read"},
		{t.Unknown, "unknown", "cannot be told here"},
		{t.Dropped, "dropped" + dropped, "not held: the master holds a page, the worker gave it up"},
		{t.ReferenceOnly, "master's own", "not held: the master allocated it since the fork"},
		{t.NotForked, "not forked", "not held: fork left it out (MADV_DONTFORK, MADV_WIPEONFORK)"},
		{t.Guard, "guard", "not held: guard regions, no page behind them"},
		{t.SharedWithSiblings, "siblings'", "not shared with the master, but with other workers"},
		{t.Moved, "moved", "of shared: the master has it at another address"},
		{t.NewFromFile, "from file", "of new: first write to a page of a private file mapping"},
		{t.InSwap, "in swap", "of held: in a swap slot, so not in RSS"},
		{t.HugeTLB, "hugetlb", "of held: in hugetlb pages, which RSS leaves out"},
	})
}

// alsoRow is a count beside the words of a table, left out where it is 0.
type alsoRow struct {
	pages      int64
	word, what string
}

func (p *text) alsoTable(rows []alsoRow) {
	g := &grid{columns: []column{{left: true}, {}, {left: true}}}
	for _, row := range rows {
		if row.pages > 0 {
			g.add(row.word, p.size(row.pages), row.what)
		}
	}
	if len(g.lines) == 0 {
		return
	}
	p.section("ALSO, over all processes")
	p.described(g)
}

// described writes a grid of a word, an amount and a description, which continues below itself.
func (p *text) described(g *grid) {
	w, _ := g.widths(2)
	for _, l := range g.lines {
		pad := func(i int) string { return strings.Repeat(" ", w[i]-width(l.cells[i])) }
		first := l.cells[0] + pad(0) + "  " + pad(1) + l.cells[1] + "  "
		p.wrap(styleNone, first, strings.Repeat(" ", w[0]+w[1]+4), l.cells[2])
	}
}

// regionSum is one kind of region summed over processes.
type regionSum struct {
	kind   string
	pages  audit.Pages
	change audit.Change
	sum    bool
}

// workersOf gives the audited processes that are judged against another; where there are none, all audited ones.
func workersOf(r *audit.Report) (list []*audit.Process, workers bool) {
	var all []*audit.Process
	for i := range r.Family {
		m := &r.Family[i]
		if m.State != pagemap.StateAudited {
			continue
		}
		all = append(all, m)
		if m.ReferencePID != 0 {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		return all, false
	}
	return list, true
}

func sumRegions(list []*audit.Process) []regionSum {
	at := map[audit.RegionKind]int{}
	var out []regionSum
	total := regionSum{kind: "TOTAL", sum: true}
	for _, m := range list {
		for i := range m.Regions {
			g := &m.Regions[i]
			k, ok := at[g.Kind]
			if !ok {
				k = len(out)
				at[g.Kind] = k
				out = append(out, regionSum{kind: regionName(g.Kind)})
			}
			for _, s := range []*regionSum{&out[k], &total} {
				s.pages.Add(&g.Pages)
				if g.Change != nil {
					s.change.Add(g.Change)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b regionSum) int {
		return cmp.Or(cmp.Compare(b.pages.Copied, a.pages.Copied), cmp.Compare(b.pages.Held, a.pages.Held), cmp.Compare(a.kind, b.kind))
	})
	if len(out) > 1 {
		out = append(out, total)
	}
	return out
}

// summedOver says which processes a table sums.
func summedOver(list []*audit.Process, workers bool) string {
	switch {
	case len(list) == 1 && workers:
		return fmt.Sprintf("in worker %d", list[0].PID)
	case len(list) == 1:
		return fmt.Sprintf("in PID %d", list[0].PID)
	case workers:
		return "summed over " + plural(len(list), "worker", "workers")
	}
	return "summed over " + plural(len(list), "process", "processes")
}

// auditRegions says where the pages lie: kinds of regions, the one with the most copies first.
func (p *text) auditRegions(r *audit.Report) {
	list, workers := workersOf(r)
	rows := sumRegions(list)
	if len(rows) == 0 {
		return
	}
	var amounts []pagemap.Bytes
	for i := range rows {
		amounts = append(amounts, p.bytes(rows[i].pages.Held))
	}
	scale := CommonScale(amounts...)
	visible := r.Capture.FramesVisible
	compared := rows[len(rows)-1].change.Compared() > 0
	copied := workers && visible
	share := ""
	if copied {
		share = "; % is of what was inherited there"
	}
	p.section("WHERE, %s, in %s%s", summedOver(list, workers), scale.Unit(), share)
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		amount := func(c column, known bool, f func(*audit.Pages) int64) {
			b.pages(c, len(rows), func(i int) (int64, bool) { return f(&rows[i].pages), known })
		}
		b.texts(column{head: "region", left: true}, len(rows), func(i int) string { return rows[i].kind })
		amount(column{head: "held"}, true, func(g *audit.Pages) int64 { return g.Held })
		amount(column{head: "shared"}, visible, func(g *audit.Pages) int64 { return g.Shared })
		if copied {
			amount(column{head: "copied"}, true, func(g *audit.Pages) int64 { return g.Copied })
			b.texts(column{head: "%"}, len(rows), func(i int) string {
				g := &rows[i].pages
				return Percent(g.Copied, g.Shared+g.Copied+g.Kept)
			})
			if compared {
				b.texts(column{over: "of it", head: "identical"}, len(rows), func(i int) string {
					return Percent(rows[i].change.Identical, rows[i].change.Compared())
				})
			}
			amount(column{head: "new"}, true, func(g *audit.Pages) int64 { return g.New })
		}
		amount(column{head: "file", drop: 2}, true, func(g *audit.Pages) int64 { return g.File })
		amount(column{head: "private", drop: 1}, true, func(g *audit.Pages) int64 { return g.Private })
		if rows[len(rows)-1].sum {
			g.lines[len(rows)-1].style = styleBold
		}
		return g
	})
}

// auditChange says what the writes changed, over all processes whose contents were compared.
func (p *text) auditChange(r *audit.Report) {
	if r.Totals.Pages.Copied == 0 {
		return
	}
	var c audit.Change
	for i := range r.Family {
		if r.Family[i].Change != nil {
			c.Add(r.Family[i].Change)
		}
	}
	if r.Capture.Contents && c.Compared() == 0 {
		p.section("WHAT THE WRITES CHANGED")
		p.wrap(styleNone, "", "", "Not known: no copied page could be compared.")
		return
	}
	if !r.Capture.Contents {
		p.section("WHAT THE WRITES CHANGED")
		p.wrap(styleNone, "", "", "Not known: contents were not compared. A live audit with --contents compares them, in memory.")
		return
	}
	p.section("WHAT THE WRITES CHANGED on the copied pages")
	p.change(&c)
}

// change writes a table of what writes changed.
func (p *text) change(c *audit.Change) {
	rows := []struct {
		name  string
		pages int64
	}{
		{"nothing: identical", c.Identical}, {"one word of 8 bytes", c.OneWord}, {"2 to 8 words", c.FewWords}, {"9 to 64 words", c.ManyWords},
		{"more: rewritten", c.Rewritten}, {"not compared", c.NotCompared},
	}
	all := c.Compared() + c.NotCompared
	g := &grid{columns: []column{{head: "changed", left: true}, {head: "pages"}, {head: "size"}, {head: "share"}}}
	for _, r := range rows {
		if r.pages > 0 || r.name != "not compared" {
			g.add(r.name, Count(r.pages), p.size(r.pages), Percent(r.pages, all))
		}
	}
	g.addStyled(styleBold, "TOTAL", Count(all), p.size(all), Percent(all, all))
	p.b.WriteString(g.render(p.paint, "", p.o.Width))
}

// auditMappings lists the mappings of each process.
func (p *text) auditMappings(r *audit.Report, roles *roles) {
	for i := range r.Family {
		m := &r.Family[i]
		if len(m.Mappings) > 0 {
			p.mappings(m, roles, r.Capture.FramesVisible)
		}
	}
}

func (p *text) mappings(m *audit.Process, roles *roles, visible bool) {
	who := fmt.Sprintf("PID %d", m.PID)
	if role := roles.of(m.PID); role != "" {
		who = fmt.Sprintf("PID %d (%s)", m.PID, role)
	}
	shown := pick(len(m.Mappings), p.top(len(m.Mappings)),
		func(i int) int64 { return m.Mappings[i].Pages.Copied<<20 + m.Mappings[i].Pages.Held },
		func(int) bool { return false })
	var rest, total audit.Pages
	var rows []mappingRow
	k := 0
	for i := range m.Mappings {
		x := &m.Mappings[i]
		total.Add(&x.Pages)
		if k == len(shown) || shown[k] != i {
			rest.Add(&x.Pages)
			continue
		}
		k++
		rows = append(rows, p.mappingRow(x))
	}
	if n := len(m.Mappings) - len(shown); n > 0 {
		rows = append(rows, mappingRow{at: others(n), pages: rest})
	}
	rows = append(rows, mappingRow{at: "TOTAL", pages: total})
	scale := CommonScale(p.bytes(total.Held))
	p.section("MAPPINGS of %s, in %s", who, scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		amount := func(c column, known bool, f func(*audit.Pages) int64) {
			b.pages(c, len(rows), func(i int) (int64, bool) { return f(&rows[i].pages), known })
		}
		b.texts(column{head: "addresses", left: true}, len(rows), func(i int) string { return rows[i].at })
		b.texts(column{head: "perms", left: true}, len(rows), func(i int) string { return rows[i].perms })
		amount(column{head: "held"}, true, func(g *audit.Pages) int64 { return g.Held })
		amount(column{head: "shared"}, visible, func(g *audit.Pages) int64 { return g.Shared })
		if m.ReferencePID != 0 {
			amount(column{head: "copied"}, visible, func(g *audit.Pages) int64 { return g.Copied })
			amount(column{head: "new"}, visible, func(g *audit.Pages) int64 { return g.New })
		}
		amount(column{head: "file"}, true, func(g *audit.Pages) int64 { return g.File })
		amount(column{head: "private", drop: 1}, true, func(g *audit.Pages) int64 { return g.Private })
		b.names(len(rows), func(i int) string { return rows[i].name })
		g.lines[len(rows)-1].style = styleBold
		return g
	})
}

type mappingRow struct {
	at, perms, name string
	pages           audit.Pages
}

func (p *text) mappingRow(x *audit.Mapping) mappingRow {
	row := mappingRow{at: addresses(x.Start, x.End), perms: printable(x.Perms), name: printable(x.Path), pages: x.Pages}
	if row.name == "" {
		row.name = regionName(x.Region)
	}
	if x.Gone {
		row.name += fmt.Sprintf(" (the master's only; %s dropped)", p.size(x.Pages.Dropped))
	}
	return row
}

func addresses(start, end pagemap.Addr) string {
	return fmt.Sprintf("%x-%x", uint64(start), uint64(end))
}
