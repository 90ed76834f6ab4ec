package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// diff writes what was copied between two captures: by whom, where, and what became of the rest that was shared.
func (p *text) diff(r *audit.DiffReport) {
	p.page = r.After.PageSize
	roles := newRoles()
	for i := range r.Family {
		roles.add(r.Family[i].PID, r.Family[i].ReferencePID)
	}
	p.diffHead(r, roles)
	p.findings(r.Findings)
	visible := r.Before.FramesVisible && r.After.FramesVisible
	if !visible {
		p.remedy(r.Warnings, "frames_hidden")
	}
	if len(r.Family) > 0 {
		p.diffTable(r, roles, visible)
		p.diffAlso(&r.Totals)
		p.eventRegions(diffRegions(r), 1, "WHERE, summed over "+plural(len(r.Family), "process", "processes"))
		p.eventChange(&r.Totals.Change, 1)
	}
	p.footnotes()
	if p.o.Mappings {
		p.diffMappings(r, roles)
	}
	p.warnings(except(r.Warnings, "frames_hidden"))
	p.blank()
	p.captureOf("Before: captured", &r.Before, "")
	p.captureOf("After: captured", &r.After, r.Version)
}

func (p *text) diffHead(r *audit.DiffReport, roles *roles) {
	var masters []string
	for i := range r.Family {
		if m := r.Family[i].ReferencePID; m != 0 && roles.ref[m] == 0 && !slices.Contains(masters, fmt.Sprint(m)) {
			masters = append(masters, fmt.Sprint(m))
		}
	}
	word := "master "
	if len(masters) != 1 {
		word = "masters "
	}
	n := p.top(len(masters))
	names := strings.Join(masters[:n], ", ")
	if n < len(masters) {
		names += ", " + others(len(masters)-n)
	}
	apart := time.Duration(r.After.TimeUnixNano - r.Before.TimeUnixNano)
	p.wrap(styleBold, "", "", fmt.Sprintf("%s%s, %s: between two captures %s apart", word, names, plural(len(r.Family), "worker", "workers"), Duration(apart)))
	p.rangeLine(r.Range)
}

// eventRow is what a row of a table about an event is made from.
type eventRow struct {
	pid, role string
	copied    audit.Copied
	known     bool
}

// lost gives what was shared before and is neither shared nor copied after.
func lost(c *audit.Copied) int64 {
	return c.DroppedPages + c.KeptPages + c.ReplacedPages + c.UnknownPages
}

func (p *text) diffRows(r *audit.DiffReport, roles *roles) []eventRow {
	shown := pick(len(r.Family), p.top(len(r.Family)),
		func(i int) int64 { return r.Family[i].CopiedPages },
		func(i int) bool { return roles.isRef[r.Family[i].PID] })
	var rows []eventRow
	rest, total := eventRow{known: true}, eventRow{pid: "TOTAL", known: true}
	k := 0
	for i := range r.Family {
		m := &r.Family[i]
		total.copied.Add(&m.Copied)
		if k == len(shown) || shown[k] != i {
			rest.copied.Add(&m.Copied)
			continue
		}
		k++
		row := eventRow{pid: fmt.Sprint(m.PID), role: roles.of(m.PID), copied: m.Copied, known: m.State == pagemap.StateAudited}
		if !row.known {
			row.role = strings.ReplaceAll(printable(string(m.State)), "_", " ")
		}
		rows = append(rows, row)
	}
	if n := len(r.Family) - len(shown); n > 0 {
		rest.pid, rest.role = othersIn2(n)
		rows = append(rows, rest)
	}
	if len(r.Family) > 1 {
		rows = append(rows, total)
	}
	return rows
}

func (p *text) diffTable(r *audit.DiffReport, roles *roles, visible bool) {
	rows := p.diffRows(r, roles)
	t := &r.Totals
	if !visible {
		p.unknown(noteHidden)
	}
	copied := "copied"
	if t.InChangedMappings > 0 {
		copied += p.note(fmt.Sprintf("%s of it lies in mappings that were cut or replaced between the captures, and may have been given up and filled anew rather than copied.", p.size(t.InChangedMappings)))
	}
	if s := p.eventUndetermined(t); s != "" {
		copied += p.note(s)
	}
	var amounts []pagemap.Bytes
	for i := range rows {
		if visible && !rows[i].known {
			p.unknown("cannot be computed: the process, or its reference, was not there at both captures.")
		}
		amounts = append(amounts, p.bytes(rows[i].copied.SharedBefore), p.bytes(rows[i].copied.NewPages))
	}
	scale := CommonScale(amounts...)
	p.section("COPIED BETWEEN THE CAPTURES, in %s; %% is of what was shared before", scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		amount := func(c column, f func(*audit.Copied) int64) {
			b.pages(c, len(rows), func(i int) (int64, bool) {
				return f(&rows[i].copied), visible && (rows[i].known || c.head == "before")
			})
		}
		b.texts(column{head: "PID"}, len(rows), func(i int) string { return rows[i].pid })
		b.texts(column{head: "role", left: true}, len(rows), func(i int) string { return rows[i].role })
		amount(column{over: "shared", head: "before"}, func(c *audit.Copied) int64 { return c.SharedBefore })
		amount(column{head: copied}, func(c *audit.Copied) int64 { return c.CopiedPages })
		b.texts(column{head: "%"}, len(rows), func(i int) string {
			if !visible || !rows[i].known {
				return "?"
			}
			return Percent(rows[i].copied.CopiedPages, rows[i].copied.SharedBefore)
		})
		amount(column{over: "by", head: "worker", drop: 2}, func(c *audit.Copied) int64 { return c.CopiedByWorker })
		amount(column{over: "by", head: "master", drop: 2}, func(c *audit.Copied) int64 { return c.CopiedByReference })
		amount(column{over: "still", head: "shared"}, func(c *audit.Copied) int64 { return c.StillShared })
		if lost(t) > 0 {
			amount(column{head: "other"}, lost)
		}
		amount(column{head: "new", drop: 1}, func(c *audit.Copied) int64 { return c.NewPages })
		if len(rows) > 1 {
			g.lines[len(rows)-1].style = styleBold
		}
		return g
	})
	p.wrap(styleDim, "", "", "copied + still shared + other make what was shared before.")
}

// eventUndetermined says of how much of the copies the writer is not one known side.
func (p *text) eventUndetermined(c *audit.Copied) string {
	s := ""
	if c.CopiedByBoth > 0 {
		s = fmt.Sprintf("%s of it written by both sides. ", p.size(c.CopiedByBoth))
	}
	if c.CopiedByUndetermined > 0 {
		s += fmt.Sprintf("Who wrote is undetermined for %s.", p.size(c.CopiedByUndetermined))
	}
	return strings.TrimSpace(s)
}

func (p *text) diffAlso(t *audit.Copied) {
	p.alsoTable([]alsoRow{
		{t.DroppedPages, "dropped", "shared before; the worker gave it up"},
		{t.KeptPages, "kept", "shared before; the master gave its page up"},
		{t.ReplacedPages, "replaced", "shared before; now the file's page, merged by KSM or the zero page"},
		{t.UnknownPages, "unknown", "shared before; what became of it cannot be told"},
		{t.NewFromFile, "from file", "of new: was the file's page before"},
		{t.FreedPages, "freed", "held before and not shared; not held now"},
	})
}

func diffRegions(r *audit.DiffReport) []audit.RegionDiff {
	var out []audit.RegionDiff
	for i := range r.Family {
		out = append(out, r.Family[i].Regions...)
	}
	return out
}

// eventRegions says where copied pages lie: kinds of regions, the one with the most copies first, those of which nothing was
// copied as one row. The counts are divided
// by the number of workers they were summed over.
func (p *text) eventRegions(regions []audit.RegionDiff, workers int64, title string) {
	at := map[audit.RegionKind]int{}
	var sums []audit.RegionDiff
	var total audit.Copied
	for i := range regions {
		g := &regions[i]
		k, ok := at[g.Kind]
		if !ok {
			k = len(sums)
			at[g.Kind] = k
			sums = append(sums, audit.RegionDiff{Kind: g.Kind})
		}
		sums[k].Add(&g.Copied)
		total.Add(&g.Copied)
	}
	if len(sums) == 0 {
		return
	}
	audit.SortRegions(sums)
	type row struct {
		name string
		c    audit.Copied
	}
	var rows []row
	rest, quiet := audit.Copied{}, 0
	for i := range sums {
		if c := &sums[i].Copied; c.CopiedPages+c.NewPages == 0 && len(sums) > 2 {
			rest.Add(c)
			quiet++
			continue
		}
		rows = append(rows, row{regionName(sums[i].Kind), sums[i].Copied})
	}
	switch {
	case quiet == 1:
		rows = append(rows, row{"[1 other]", rest})
	case quiet > 1:
		rows = append(rows, row{others(quiet), rest})
	}
	if len(rows) > 1 {
		rows = append(rows, row{"TOTAL", total})
	}
	mean := func(pages int64) pagemap.Bytes { return p.bytes(pages) / pagemap.Bytes(workers) }
	scale := CommonScale(mean(total.SharedBefore), mean(total.NewPages))
	p.section("%s, in %s; %% is of what was shared there", title, scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		amount := func(c column, f func(*audit.Copied) int64) {
			b.amounts(c, len(rows), func(i int) (pagemap.Bytes, string) { return mean(f(&rows[i].c)), "" })
		}
		b.texts(column{head: "region", left: true}, len(rows), func(i int) string { return rows[i].name })
		amount(column{over: "shared", head: "before"}, func(c *audit.Copied) int64 { return c.SharedBefore })
		amount(column{head: "copied"}, func(c *audit.Copied) int64 { return c.CopiedPages })
		b.texts(column{head: "%"}, len(rows), func(i int) string { return Percent(rows[i].c.CopiedPages, rows[i].c.SharedBefore) })
		if total.Change.Compared() > 0 {
			b.texts(column{over: "of it", head: "identical"}, len(rows), func(i int) string {
				return Percent(rows[i].c.Change.Identical, rows[i].c.Change.Compared())
			})
		}
		amount(column{over: "by", head: "worker", drop: 2}, func(c *audit.Copied) int64 { return c.CopiedByWorker })
		amount(column{over: "by", head: "master", drop: 2}, func(c *audit.Copied) int64 { return c.CopiedByReference })
		amount(column{head: "new", drop: 1}, func(c *audit.Copied) int64 { return c.NewPages })
		if len(rows) > 1 {
			g.lines[len(rows)-1].style = styleBold
		}
		return g
	})
}

// eventChange says what the writes of an event changed, where that is known.
func (p *text) eventChange(c *audit.Change, workers int64) {
	all := c.Compared() + c.NotCompared
	if all == 0 {
		return
	}
	if c.Compared() == 0 {
		p.section("WHAT THE WRITES CHANGED")
		p.wrap(styleNone, "", "", "Not known: contents were not compared when the second capture was taken (--contents compares them, in memory, and keeps only how many words differ).")
		return
	}
	over := ""
	if workers > 1 {
		over = fmt.Sprintf(", summed over %d workers", workers)
	}
	p.section("WHAT THE WRITES CHANGED on the copied pages%s", over)
	p.change(c)
}

func (p *text) diffMappings(r *audit.DiffReport, roles *roles) {
	for i := range r.Family {
		m := &r.Family[i]
		if len(m.Mappings) == 0 {
			continue
		}
		who := fmt.Sprintf("PID %d", m.PID)
		if role := roles.of(m.PID); role != "" {
			who = fmt.Sprintf("PID %d (%s)", m.PID, role)
		}
		p.diffMappingsOf(m, who)
	}
}

func (p *text) diffMappingsOf(m *audit.ProcessDiff, who string) {
	type row struct {
		at, perms, name string
		c               audit.Copied
	}
	shown := pick(len(m.Mappings), p.top(len(m.Mappings)),
		func(i int) int64 { return m.Mappings[i].CopiedPages<<20 + m.Mappings[i].SharedBefore },
		func(int) bool { return false })
	var rows []row
	var rest, total audit.Copied
	k := 0
	for i := range m.Mappings {
		x := &m.Mappings[i]
		total.Add(&x.Copied)
		if k == len(shown) || shown[k] != i {
			rest.Add(&x.Copied)
			continue
		}
		k++
		name := printable(x.Path)
		if name == "" {
			name = regionName(x.Region)
		}
		if x.Gone {
			name += " (gone)"
		}
		rows = append(rows, row{addresses(x.Start, x.End), printable(x.Perms), name, x.Copied})
	}
	if n := len(m.Mappings) - len(shown); n > 0 {
		rows = append(rows, row{at: others(n), c: rest})
	}
	rows = append(rows, row{at: "TOTAL", c: total})
	scale := CommonScale(p.bytes(total.SharedBefore), p.bytes(total.NewPages))
	p.section("MAPPINGS of %s, in %s", who, scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		amount := func(c column, f func(*audit.Copied) int64) {
			b.amounts(c, len(rows), func(i int) (pagemap.Bytes, string) { return p.bytes(f(&rows[i].c)), "" })
		}
		b.texts(column{head: "addresses", left: true}, len(rows), func(i int) string { return rows[i].at })
		b.texts(column{head: "perms", left: true}, len(rows), func(i int) string { return rows[i].perms })
		amount(column{over: "shared", head: "before"}, func(c *audit.Copied) int64 { return c.SharedBefore })
		amount(column{head: "copied"}, func(c *audit.Copied) int64 { return c.CopiedPages })
		amount(column{head: "new"}, func(c *audit.Copied) int64 { return c.NewPages })
		b.names(len(rows), func(i int) string { return rows[i].name })
		g.lines[len(rows)-1].style = styleBold
		return g
	})
}
