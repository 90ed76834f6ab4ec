package report

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"strings"

	"cowaudit/audit"
)

// compare writes a comparison: the verdict and its cause first, then what was compared, every metric, and where the
// difference lies.
func (p *text) compare(r *audit.CompareReport) {
	p.page = r.A.Capture.PageSize
	p.verdict(r)
	p.compared(r)
	p.findings(r.Findings)
	p.compareRows(r)
	for i := range r.Differences {
		if d := &r.Differences[i]; differs(r, d.Event) {
			p.difference(d)
		}
	}
	p.footnotes()
	p.warnings(r.Warnings)
	p.blank()
	p.captureOf("A captured", &r.A.Capture, "")
	p.captureOf("B captured", &r.B.Capture, r.Version)
}

// verdictStyle colours a verdict.
func verdictStyle(v audit.Verdict) style {
	switch v {
	case audit.VerdictBetter, audit.VerdictSame:
		return styleGood
	case audit.VerdictWorse, audit.VerdictInconclusive:
		return styleAlert
	}
	return styleNone
}

func (p *text) verdict(r *audit.CompareReport) {
	word := cmp.Or(printable(string(r.Verdict)), "not judged")
	p.wrap(verdictStyle(r.Verdict), strings.ToUpper(word)+": ", "  ", cmp.Or(printable(r.Conclusion), "Nothing was compared."))
}

// compared says what the two sides are, what they did, how often, and in what they were not alike.
func (p *text) compared(r *audit.CompareReport) {
	p.blank()
	p.side("A", &r.A.Subject)
	p.side("B", &r.B.Subject)
	if r.SameBuild {
		p.wrap(styleAlert, "! ", "  ", "A and B are the same build with the same environment, whatever their names.")
	}
	for _, u := range r.Unlike {
		p.wrap(styleAlert, "! ", "  ", unlikeWords(&u))
	}
	p.wrap(styleNone, "", "  ", strings.Join([]string{scenarioWords(&r.Scenario), roundWords(&r.Rounds), "kernel " + printable(r.B.Capture.Kernel)}, "; "))
}

// unlikeWords says in what else the two sides differ.
func unlikeWords(u *audit.Unlike) string {
	s := fmt.Sprintf("Not alike: %s: A has %s, B has %s.", printable(u.What), cmp.Or(printable(u.A), "none"), cmp.Or(printable(u.B), "none"))
	if u.Refused {
		s += " The numbers cannot be compared."
	}
	return s
}

// side names a subject: its own words about itself, then the library that was really loaded.
func (p *text) side(name string, s *audit.Subject) {
	head := cmp.Or(printable(s.Name), "no subject")
	if s.Version != "" && s.Version != s.Name {
		head += ": " + printable(s.Version)
	}
	p.wrap(styleBold, name+"  ", "   ", head)
	if words := buildWords(s); len(words) > 0 {
		p.wrap(styleNone, "   ", "   ", strings.Join(words, "; "))
	}
}

// buildWords say which build a subject is, its allocator and what was added to its environment.
func buildWords(s *audit.Subject) (words []string) {
	switch {
	case s.Library != "":
		words = append(words, printable(path.Base(s.Library))+buildID(s))
	case s.Executable != "":
		words = append(words, printable(path.Base(s.Executable))+buildID(s))
	}
	if s.Allocator != "" {
		words = append(words, printable(s.Allocator)+" malloc")
	}
	if len(s.Env) > 0 {
		words = append(words, "with "+printable(strings.Join(s.Env, " ")))
	}
	return words
}

// shortBuildID is how many digits of a build ID are shown: they tell any two builds apart.
const shortBuildID = 12

func buildID(s *audit.Subject) string {
	if s.BuildID == "" {
		return " (no build ID)"
	}
	return " (build " + printable(s.BuildID[:min(shortBuildID, len(s.BuildID))]) + ")"
}

func scenarioWords(c *audit.Scenario) string {
	s := "scenario " + printable(c.Name)
	if c.App != "" {
		s += " " + printable(c.App)
	}
	if c.Methods > 0 {
		s += fmt.Sprintf(" (%s methods, %s call sites)", Count(int64(c.Methods)), Count(int64(c.CallSites)))
	}
	return s + "; " + plural(c.Workers, "worker", "workers") + " a run"
}

func roundWords(r *audit.Rounds) string {
	s := plural(r.Done, "round", "rounds")
	if r.Limit > r.Done {
		s += fmt.Sprintf(" of at most %d", r.Limit)
	}
	if r.Warmup > 0 {
		s += fmt.Sprintf(" after %d to warm up", r.Warmup)
	}
	if !r.Ended {
		s += ", interrupted"
	}
	return s
}

// verdictWords is a row's verdict in a table.
func verdictWords(r *audit.CompareRow) string {
	return cmp.Or(printable(string(r.Verdict)), "-")
}

// pWords is the probability in a table. Of what does not vary there is none.
func pWords(r *audit.CompareRow) string {
	if r.Exact {
		return "exact"
	}
	return probability(r.PAdjusted)
}

// ratioWords gives B / A and its interval; "?" where A has a sample of nothing.
func ratioWords(r *audit.CompareRow) (ratio, interval string) {
	if r.Ratio == 0 && r.RatioLow == 0 && r.RatioHigh == 0 {
		return "?", ""
	}
	return ratioText(r.Ratio), ratioText(r.RatioLow) + ".." + ratioText(r.RatioHigh)
}

// rowScale is the unit of all numbers of a row.
func rowScale(r *audit.CompareRow) valueScale {
	return newValueScale(r.Unit, r.A.Median, r.B.Median, r.Difference.Median)
}

// metricName is a metric without its unit, which has a column.
func metricName(r *audit.CompareRow) string { return metricWords(r.Metric, r.Unit) }

// needs says what would decide an inconclusive row, and why it is not decided.
func needs(r *audit.CompareRow) string {
	if r.Verdict != audit.VerdictInconclusive {
		return ""
	}
	s := "inconclusive, no number of rounds would tell: "
	if r.MoreRounds > 0 {
		s = fmt.Sprintf("inconclusive, %s would tell: ", plural(r.MoreRounds, "more round", "more rounds"))
	}
	return s + printable(r.Why)
}

// compareRows writes the table of all metrics, event by event.
func (p *text) compareRows(r *audit.CompareReport) {
	if len(r.Rows) == 0 {
		return
	}
	confidence, alike, ranges := 0.0, true, false
	for i := range r.Rows {
		d := &r.Rows[i].Difference
		if !r.Rows[i].Exact {
			alike = alike && (d.Confidence == confidence || confidence == 0)
			confidence = d.Confidence
		}
		ranges = ranges || d.Confidence == 0
		if ratio, _ := ratioWords(&r.Rows[i]); ratio == "?" {
			p.unknown("A has a run of 0, and nothing is so many times as much.")
		}
	}
	between := "from..to"
	switch {
	case ranges:
		between += p.note("The smallest and the largest difference of two runs: too few rounds for an interval.")
	case alike && confidence > 0:
		between += p.note(fmt.Sprintf("%.4g%% confidence interval of the difference: wide enough for all rows together.", 100*confidence))
	case confidence > 0:
		between += p.note("Confidence interval of the difference: wide enough for all rows together.")
	}
	p.section("ROWS, medians of %s", plural(r.Rounds.Done, "round", "rounds"))
	p.table(func(bool) *grid {
		g := &grid{columns: []column{
			{head: "event, metric", left: true}, {head: "A"}, {head: "B"}, {head: "unit", left: true}, {head: "B - A"}, {head: between}, {over: "B/A", head: "times"},
			{head: "from..to", drop: 1}, {head: "p", drop: 2}, {head: "verdict", left: true},
		}}
		event := ""
		for i := range r.Rows {
			row := &r.Rows[i]
			if row.Event != event || i == 0 {
				event = row.Event
				g.addStyled(styleBold, rowEvent(event), "", "", "", "", "", "", "", "", "")
			}
			p.compareRow(g, row)
		}
		return g
	})
}

// rowEvent is an event at the head of its rows.
func rowEvent(name string) string {
	if name == audit.EventNull {
		return "null (noise)"
	}
	return printable(audit.EventLabel(name))
}

func (p *text) compareRow(g *grid, row *audit.CompareRow) {
	s := rowScale(row)
	ratio, interval := ratioWords(row)
	l := line{below: needs(row), prose: true, cells: []string{
		"  " + metricName(row), s.format(row.A.Median), s.format(row.B.Median), s.unit, s.signed(row.Difference.Median),
		s.signed(row.Difference.Low) + ".." + s.signed(row.Difference.High), strings.TrimSuffix(ratio, "×"),
		strings.ReplaceAll(interval, "×", ""), pWords(row), verdictWords(row),
	}}
	if row.Verdict == audit.VerdictWorse {
		l.style = styleAlert
	}
	g.lines = append(g.lines, l)
}

// differs reports an event of which the copied pages differ, or seem to by more than matters.
func differs(r *audit.CompareReport, event string) bool {
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Event == event && row.Metric == "copied_bytes" {
			return row.Verdict == audit.VerdictBetter || row.Verdict == audit.VerdictWorse ||
				row.Verdict == audit.VerdictInconclusive && math.Abs(row.Difference.Median) > row.Matters
		}
	}
	return false
}

// deltaBytes is a mean number of pages as an amount.
func (p *text) deltaBytes(pages float64) float64 { return math.Round(pages * float64(p.page)) }
