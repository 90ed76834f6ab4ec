package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"cowaudit/audit"
)

// Bounds of what Markdown shows outside of its folded part, so that it fits a screen.
const (
	markdownRows  = 10 // of limits, or of metrics
	markdownWhere = 5  // of where the difference lies
)

// Markdown writes a result with a verdict (*audit.CompareReport, *audit.GateReport) for a merge request: the verdict, the cause
// and the rows that decided on one screen, all else folded away. Any other result is an error.
func Markdown(w io.Writer, v any) error {
	m := &markdownText{}
	switch r := v.(type) {
	case *audit.CompareReport:
		m.compare(r)
	case *audit.GateReport:
		m.gate(r)
	default:
		return fmt.Errorf("write markdown: %w", HasVerdict(v))
	}
	if _, err := io.WriteString(w, m.b.String()); err != nil {
		return fmt.Errorf("write markdown: %w", err)
	}
	return nil
}

// markdownText builds the text. What others chose goes through markdown or mdCell.
type markdownText struct{ b strings.Builder }

func (m *markdownText) line(format string, a ...any) { fmt.Fprintf(&m.b, format+"\n", a...) }

// table writes rows under a head, and nothing where there are none; numbers says which columns are set to the right.
func (m *markdownText) table(head []string, numbers []bool, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	m.line("")
	m.line("| %s |", strings.Join(head, " | "))
	rule := make([]string, len(head))
	for i := range head {
		rule[i] = "---"
		if numbers[i] {
			rule[i] = "--:"
		}
	}
	m.line("| %s |", strings.Join(rule, " | "))
	for _, r := range rows {
		m.line("| %s |", strings.Join(r, " | "))
	}
}

// details folds away what f writes.
func (m *markdownText) details(summary string, f func()) {
	m.line("")
	m.line("<details><summary>%s</summary>", summary)
	f()
	m.line("")
	m.line("</details>")
}

func (m *markdownText) compare(r *audit.CompareReport) {
	word := string(r.Verdict)
	if word == "" {
		word = "not judged"
	}
	m.line("### cowaudit compare: %s", markdown(word))
	m.line("")
	m.line("**%s** %s", markdown(capital(word)+"."), markdown(r.Conclusion))
	shown, rest := markdownSplit(r.Rows)
	m.table(rowHead, rowNumbers, rowCells(shown))
	m.where(r)
	m.details("Everything that was measured", func() {
		m.table(rowHead, rowNumbers, rowCells(rest))
		m.line("")
		m.sides(r)
		m.warnings(r)
	})
}

// capital makes the first letter of an ASCII word a capital.
func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// markdownSplit gives the rows that matter, as far as there is room, and the others: what is worse first, then what is
// inconclusive, better, the same.
func markdownSplit(rows []audit.CompareRow) (shown, rest []audit.CompareRow) {
	order := []audit.Verdict{audit.VerdictWorse, audit.VerdictInconclusive, audit.VerdictBetter, audit.VerdictSame, ""}
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(x, y audit.CompareRow) int {
		return slices.Index(order, x.Verdict) - slices.Index(order, y.Verdict)
	})
	n := 0
	for n < len(sorted) && n < markdownRows && sorted[n].Verdict != "" {
		n++
	}
	return sorted[:n], sorted[n:]
}

var (
	rowHead    = []string{"event", "metric", "A", "B", "B - A", "B / A", "p", "verdict"}
	rowNumbers = []bool{false, false, true, true, true, true, true, false}
)

func rowCells(rows []audit.CompareRow) (out [][]string) {
	for i := range rows {
		r := &rows[i]
		s := rowScale(r)
		ratio, interval := ratioWords(r)
		if interval != "" {
			ratio += " (" + interval + ")"
		}
		verdict := verdictWords(r)
		if r.Verdict == "" {
			verdict = "not judged"
		}
		if r.MoreRounds > 0 {
			verdict += ", " + plural(r.MoreRounds, "more round", "more rounds") + " would tell"
		}
		d := &r.Difference
		difference := strings.TrimSpace(fmt.Sprintf("%s (%s..%s) %s", s.signed(d.Median), s.signed(d.Low), s.signed(d.High), s.unit))
		cells := []string{audit.EventLabel(r.Event), metricName(r), s.with(r.A.Median), s.with(r.B.Median), difference, ratio, pWords(r), verdict}
		for k := range cells {
			cells[k] = mdCell(cells[k])
		}
		out = append(out, cells)
	}
	return out
}

// where says where the difference of the first event that differs lies; what is cut off is a row, so that the rows sum.
func (m *markdownText) where(r *audit.CompareReport) {
	for i := range r.Differences {
		d := &r.Differences[i]
		if !differs(r, d.Event) || len(d.ByRegionChange) == 0 {
			continue
		}
		scale := newValueScale("bytes", d.Total.A*float64(r.A.Capture.PageSize), d.Total.B*float64(r.A.Capture.PageSize))
		cells := func(d *audit.Delta, name string) []string {
			page := float64(r.A.Capture.PageSize)
			return []string{mdCell(name), mdCell(scale.format(d.A * page)), mdCell(scale.format(d.B * page)), mdCell(scale.signed(d.Pages * page))}
		}
		var rows [][]string
		list, rest := d.ByRegionChange, audit.Delta{}
		n := len(list)
		if n > markdownWhere+1 {
			n = markdownWhere
		}
		for k := range list[:n] {
			rows = append(rows, cells(&list[k], deltaRegion(&list[k])))
		}
		for k := range list[n:] {
			o := &list[n+k]
			rest.A, rest.B, rest.Pages = rest.A+o.A, rest.B+o.B, rest.Pages+o.Pages
		}
		if n < len(list) {
			rows = append(rows, cells(&rest, fmt.Sprintf("%d others", len(list)-n)))
		}
		rows = append(rows, cells(&d.Total, "total"))
		m.table([]string{mdCell("where, " + audit.EventLabel(d.Event)), "A, " + scale.unit, "B, " + scale.unit, "B - A, " + scale.unit}, []bool{false, true, true, true}, rows)
		return
	}
}

// sides says what was compared and how.
func (m *markdownText) sides(r *audit.CompareReport) {
	for _, s := range []struct {
		name string
		side *audit.Side
	}{{"A", &r.A}, {"B", &r.B}} {
		if len(s.side.Runs) == 0 {
			continue
		}
		words := []string{s.side.Subject.Name, s.side.Subject.Version}
		words = append(words, buildWords(&s.side.Subject)...)
		m.line("- %s: %s; %s", s.name, markdown(strings.Join(words, "; ")), plural(len(s.side.Runs), "run", "runs"))
	}
	if r.SameBuild {
		m.line("- **A and B are the same build with the same environment.**")
	}
	for i := range r.Unlike {
		m.line("- %s", markdown(unlikeWords(&r.Unlike[i])))
	}
	m.line("- %s", markdown(scenarioWords(&r.Scenario)+"; kernel "+r.B.Capture.Kernel+"; cowaudit "+r.Version))
}

func (m *markdownText) warnings(r *audit.CompareReport) {
	for _, w := range r.Warnings {
		m.line("- warning: %s", markdown(sentence(w.Text)+" "+sentence(w.Remedy)))
	}
}
