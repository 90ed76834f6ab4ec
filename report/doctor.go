package report

import (
	"strings"

	"cowaudit/audit"
)

// doctorGroups are the headings of the groups of rows, in order.
var doctorGroups = []struct{ name, head string }{
	{"pages", "Pages"},
	{"processes", "Processes"},
	{"host", "This machine"},
	{"tracing", "Who copies: the fault tracer"},
	{"programs", "Programs"},
}

// doctor lists what a host can measure, a row for each thing: its state, its name, what was seen, and below it the remedy.
func (p *text) doctor(r *audit.DoctorReport) {
	p.wrap(styleDim, "", "", printable(r.Host)+", Linux "+printable(r.Kernel)+", "+printable(r.Machine)+", pages of "+Size(r.PageSize))
	if r.Measurable {
		p.wrap(styleGood, "", "", "Shared and copied pages can be told here, to the page.")
	} else {
		p.wrap(styleAlert, "", "", "Shared and copied pages cannot be told here.")
	}
	names := 0
	for _, row := range r.Rows {
		names = max(names, width(spaced(row.Name)))
	}
	for _, g := range doctorGroups {
		p.doctorGroup(g.head, r.Rows, names, func(row *audit.DoctorRow) bool { return row.Group == g.name })
	}
	p.doctorGroup("Other", r.Rows, names, func(row *audit.DoctorRow) bool {
		for _, g := range doctorGroups {
			if row.Group == g.name {
				return false
			}
		}
		return true
	})
	if r.Count(audit.AbilityUnknown) > 0 {
		p.blank()
		p.wrap(styleDim, "", "", "?: could not be told.")
	}
}

func (p *text) doctorGroup(head string, rows []audit.DoctorRow, names int, in func(*audit.DoctorRow) bool) {
	first, said := true, ""
	for i := range rows {
		row := &rows[i]
		if !in(row) {
			continue
		}
		if first {
			p.section("%s", head)
			first = false
		}
		mark, s := "?", styleAlert
		switch row.State {
		case audit.AbilityYes:
			mark, s = "yes", styleNone
		case audit.AbilityNo:
			mark = "no"
			if row.Remedy == "" { // a property of the machine, not a lack
				s = styleNone
			}
		}
		start := "  " + padded(mark, 5) + padded(spaced(row.Name), names+2)
		rest := strings.Repeat(" ", width(start))
		p.wrap(s, start, rest, printable(row.Detail))
		if row.Remedy != "" && row.State != audit.AbilityYes && row.Remedy != said { // once for rows that it helps alike
			said = row.Remedy
			p.wrap(styleDim, rest+"-> ", rest+"   ", printable(row.Remedy))
		}
	}
}

// spaced is a name of JSON as text.
func spaced(name string) string { return strings.ReplaceAll(printable(name), "_", " ") }

func padded(s string, columns int) string {
	return s + strings.Repeat(" ", max(0, columns-width(s)))
}
