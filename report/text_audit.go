package report

import (
	"fmt"
	"strings"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

const (
	noteSingle  = "Copied or replaced: one capture cannot tell a page that was copied from one that was given up and filled anew at the same address. A snapshot from before the event (cowaudit snapshot, then diff) tells."
	noteDropped = "Or never held: from one capture, a page that the master allocated after the fork can look the same."
	noteHidden  = "cannot be computed: frame numbers are hidden."
)

// audit writes one family at one moment: who it is, what stands out, who shares what, where it lies, what the writes changed.
func (p *text) audit(r *audit.Report) {
	p.page = r.Capture.PageSize
	roles := rolesOf(r)
	p.auditHead(r, roles)
	p.findings(r.Findings)
	if !r.Capture.FramesVisible {
		p.remedy(r.Warnings, "frames_hidden")
	}
	if list, _ := workersOf(r); len(list) > 0 {
		p.familyTable(r, roles)
		p.memoryLine(r)
		p.also(r)
		p.auditRegions(r)
		p.auditChange(r)
	}
	p.footnotes()
	if p.o.Mappings {
		p.auditMappings(r, roles)
	}
	p.notAudited(r)
	p.rollup(r)
	p.warnings(except(r.Warnings, "frames_hidden"))
	p.capture(&r.Capture, r.Version)
}

// auditHead writes who the family is: the master's command, its PID, the number of workers.
func (p *text) auditHead(r *audit.Report, roles *roles) {
	workers, rest := 0, 0
	var first *audit.Process
	for i := range r.Family {
		m := &r.Family[i]
		switch {
		case m.State != pagemap.StateAudited:
			continue
		case m.ReferencePID != 0:
			workers++
		case first == nil:
			first = m
		default:
			rest++
		}
	}
	if first == nil && len(r.Family) > 0 {
		first = &r.Family[0]
	}
	if first == nil {
		p.plain(styleBold, "audit of no process")
		return
	}
	head := fmt.Sprintf("PID %d", first.PID)
	if roles.isRef[first.PID] {
		head = fmt.Sprintf("master %d", first.PID)
	}
	if workers > 0 {
		head += ", " + plural(workers, "worker", "workers")
	}
	if rest > 0 {
		head += ", " + plural(rest, "other process", "other processes")
	}
	p.plain(styleBold, head)
	command := first.Command
	if command == "" {
		command = "[" + first.Comm + "]"
	}
	p.plain(styleNone, cut(printable(command), p.o.Width))
	p.rangeLine(r.Range)
}

func (p *text) rangeLine(r *audit.Range) {
	if r != nil {
		p.plain(styleAlert, fmt.Sprintf("only addresses %x-%x", uint64(r.Start), uint64(r.End)))
	}
}

// remedy writes what to do about one warning right where it matters.
func (p *text) remedy(list []pagemap.Warning, code string) {
	for i := range list {
		if list[i].Code == code {
			p.wrap(styleAlert, "  → ", "    ", sentence(list[i].Remedy))
			return
		}
	}
}

func except(list []pagemap.Warning, code string) (out []pagemap.Warning) {
	for i := range list {
		if list[i].Code != code {
			out = append(out, list[i])
		}
	}
	return out
}

// familyRow is what a row of the family table is made from.
type familyRow struct {
	pid, role string
	rss       pagemap.Bytes
	pages     audit.Pages
	hasRef    bool // copied, new and who wrote mean something
	sum       bool
}

// anonymous gives the pages of anonymous memory held.
func anonymous(p *audit.Pages) int64 { return p.Held - p.File - p.Zero }

// otherWords gives the pages held under the words that have no column of their own.
func otherWords(p *audit.Pages) int64 {
	return p.Held - p.Shared - p.Copied - p.New - p.File
}

// familyRows gives the rows of the family table: the processes with children and those that copied most, the rest folded.
func (p *text) familyRows(r *audit.Report, roles *roles) []familyRow {
	var all []*audit.Process
	for i := range r.Family {
		if r.Family[i].State == pagemap.StateAudited {
			all = append(all, &r.Family[i])
		}
	}
	shown := pick(len(all), p.top(len(all)),
		func(i int) int64 { return all[i].Pages.Copied + all[i].Pages.New },
		func(i int) bool { return roles.isRef[all[i].PID] })
	var rows []familyRow
	var rest, total familyRow
	k := 0
	for i, m := range all {
		row := familyRow{pid: fmt.Sprint(m.PID), role: roles.of(m.PID), rss: m.RSS, pages: m.Pages, hasRef: m.ReferencePID != 0}
		total.add(&row)
		if k < len(shown) && shown[k] == i {
			rows = append(rows, row)
			k++
			continue
		}
		rest.add(&row)
	}
	if n := len(all) - len(shown); n > 0 {
		rest.pid, rest.role = othersIn2(n)
		rows = append(rows, rest)
	}
	if len(all) > 1 {
		total.pid = "TOTAL"
		rows = append(rows, total)
	}
	return rows
}

func (f *familyRow) add(o *familyRow) {
	f.sum = true
	f.rss += o.rss
	f.hasRef = f.hasRef || o.hasRef
	f.pages.Add(&o.pages)
}

// familyTable has a row for each process: what it holds, by word.
func (p *text) familyTable(r *audit.Report, roles *roles) {
	rows := p.familyRows(r, roles)
	t := &r.Totals.Pages
	scale := CommonScale(p.amounts(rows)...)
	copied, other := "copied", otherWords(t) > 0
	if r.Capture.Basis == audit.BasisSingle && t.Copied > 0 {
		copied += p.note(noteSingle)
	}
	byWhom := t.CopiedByWorker+t.CopiedByReference > 0
	if t.CopiedByBoth+t.CopiedByUndetermined > 0 && r.Capture.FramesVisible {
		copied += p.note(p.undetermined(t, &r.Capture))
	}
	visible, anyRef := r.Capture.FramesVisible, rows[len(rows)-1].hasRef
	if !visible {
		p.unknown(noteHidden)
	}
	p.section("WHO SHARES WHAT, in %s; %% is of the process' anonymous memory", scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		for range rows {
			g.lines = append(g.lines, line{})
		}
		b.texts(column{head: "PID"}, len(rows), func(i int) string { return rows[i].pid })
		b.texts(column{head: "role", left: true}, len(rows), func(i int) string { return rows[i].role })
		b.amounts(column{head: "RSS"}, len(rows), func(i int) (pagemap.Bytes, string) { return rows[i].rss, "" })
		word := func(c column, f func(*audit.Pages) int64, known, needsRef bool) {
			b.amounts(c, len(rows), func(i int) (pagemap.Bytes, string) {
				if !known {
					return 0, "?"
				}
				if needsRef && !rows[i].hasRef {
					return 0, "-"
				}
				return p.bytes(f(&rows[i].pages)), ""
			})
		}
		word(column{head: "shared"}, func(g *audit.Pages) int64 { return g.Shared }, visible, false)
		b.texts(column{head: "%"}, len(rows), func(i int) string {
			if !visible {
				return "?"
			}
			return Percent(rows[i].pages.Shared, anonymous(&rows[i].pages))
		})
		if anyRef {
			word(column{head: copied}, func(g *audit.Pages) int64 { return g.Copied }, visible, true)
		}
		if byWhom {
			word(column{over: "by", head: "worker", drop: 3}, func(g *audit.Pages) int64 { return g.CopiedByWorker }, visible, true)
			word(column{over: "by", head: "master", drop: 3}, func(g *audit.Pages) int64 { return g.CopiedByReference }, visible, true)
		}
		if anyRef {
			word(column{head: "new"}, func(g *audit.Pages) int64 { return g.New }, visible, true)
		}
		if other {
			word(column{head: "other"}, otherWords, true, false)
		}
		word(column{head: "file", drop: 1}, func(g *audit.Pages) int64 { return g.File }, true, false)
		word(column{head: "private", drop: 2}, func(g *audit.Pages) int64 { return g.Private }, true, false)
		for i := range rows {
			if rows[i].pid == "TOTAL" {
				g.lines[i].style = styleBold
			}
		}
		return g
	})
	p.columnsLine(visible, anyRef, other)
	p.namespaces(r)
}

// columnsLine says how the columns belong together.
func (p *text) columnsLine(visible, anyRef, other bool) {
	words := "shared + "
	if anyRef {
		words += "copied + new + "
	}
	words += "file"
	if other {
		words += " + other"
	}
	words += " make what a process holds; "
	private := "private: no other process maps it"
	if !visible {
		words, private = "", private+", which is known without frame numbers"
	}
	p.wrap(styleDim, "", "", words+private+".")
}

// namespaces gives the PIDs that processes of another PID namespace have there.
func (p *text) namespaces(r *audit.Report) {
	var list []string
	for i := range r.Family {
		if m := &r.Family[i]; len(m.NSPIDs) > 1 {
			list = append(list, fmt.Sprintf("%d is %d", m.PID, m.NSPIDs[len(m.NSPIDs)-1]))
		}
	}
	if len(list) == 0 {
		return
	}
	n := p.top(len(list))
	words := strings.Join(list[:n], ", ")
	if n < len(list) {
		words += ", " + others(len(list)-n)
	}
	p.wrap(styleNone, "", "", "In a PID namespace of its own: "+words+".")
}

func (p *text) undetermined(t *audit.Pages, c *audit.Capture) string {
	why := "both wrote since, huge pages, or a kernel before 5.19"
	if !c.FlagsVisible {
		why = "/proc/kpageflags may not be read: run as root"
	}
	s := ""
	if t.CopiedByBoth > 0 {
		s = fmt.Sprintf("%s of it written by both sides. ", p.size(t.CopiedByBoth))
	}
	if t.CopiedByUndetermined > 0 {
		s += fmt.Sprintf("Who wrote is undetermined for %s (%s).", p.size(t.CopiedByUndetermined), why)
	}
	return strings.TrimSpace(s)
}

// amounts gives every amount of the table, for the choice of one unit.
func (p *text) amounts(rows []familyRow) (out []pagemap.Bytes) {
	for i := range rows {
		out = append(out, rows[i].rss, p.bytes(rows[i].pages.Held))
	}
	return out
}

// memoryLine says what the family takes together, where it is more than one process.
func (p *text) memoryLine(r *audit.Report) {
	t := &r.Totals
	if t.Processes < 2 || !r.Capture.FramesVisible {
		return
	}
	p.blank()
	if t.Frames == nil {
		p.wrap(styleNone, "", "", "What the family holds with each page counted once, and what sharing saves: ?, since a process ended or exec'd while it was read.")
		return
	}
	p.wrap(styleNone, "", "", fmt.Sprintf("With each page counted once, the family holds %s of anonymous memory and %s of files; sharing by fork saves %s.",
		p.size(t.Frames.DistinctAnon), p.size(t.Frames.DistinctFile), p.size(t.Frames.SavedByFork)))
}
