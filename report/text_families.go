package report

import (
	"fmt"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// families lists the forking families of a machine and says how to go on.
func (p *text) families(r *audit.FamiliesReport) {
	if len(r.Families) == 0 {
		p.wrap(styleBold, "", "", "No forking family found: no process here runs beside forks of itself.")
		p.wrap(styleNone, "", "", "A server of another user or container may be hidden: run as root on the host. Any process can be named: cowaudit audit PID.")
		p.warnings(r.Warnings)
		return
	}
	p.plain(styleBold, plural(len(r.Families), "forking family", "forking families")+" on this machine, the largest first")
	p.blank()
	shown := p.top(len(r.Families))
	g := &grid{columns: []column{{head: "PID"}, {head: "workers"}, {head: "RSS, summed"}, {head: "command", left: true}}}
	var restWorkers int
	var restRSS pagemap.Bytes
	for i := range r.Families {
		f := &r.Families[i]
		if i >= shown {
			restWorkers += f.Workers
			restRSS += f.RSS
			continue
		}
		command := f.Command
		if command == "" {
			command = "[" + f.Comm + "]"
		}
		g.add(fmt.Sprint(f.PID), Count(int64(f.Workers)), Size(f.RSS), printable(command))
	}
	if n := len(r.Families) - shown; n > 0 {
		g.add(others(n), Count(int64(restWorkers)), Size(restRSS), "")
	}
	g.cutLast(p.o.Width)
	p.b.WriteString(g.render(p.paint, "", p.o.Width))
	p.blank()
	p.wrap(styleNone, "", "", "RSS counts a shared page again in each process that has it; what is really shared:")
	p.plain(styleBold, fmt.Sprintf("  cowaudit audit %d", r.Families[0].PID))
	p.warnings(r.Warnings)
}

// cutLast shortens the last column so that the grid fits.
func (g *grid) cutLast(limit int) {
	last := len(g.columns) - 1
	w, total := g.widths(2)
	room := max(limit-(total-w[last]), 12)
	for i := range g.lines {
		g.lines[i].cells[last] = cut(g.lines[i].cells[last], room)
	}
}
