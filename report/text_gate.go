package report

import (
	"cmp"
	"fmt"
	"strings"

	"cowaudit/audit"
)

// gate writes the verdict of a gate: what decided and why first, then every limit, what was excused, and what was measured.
func (p *text) gate(g *audit.GateReport) {
	word, words := gateVerdict(g)
	p.wrap(gateStyle(g.Verdict), word+": ", "  ", words)
	p.limits(g)
	if p.o.Explain {
		for i := range g.Rules {
			p.explain(&g.Rules[i])
		}
	}
	p.excuses(g.Excuses)
	for i := range g.Comparisons {
		p.gateComparison(&g.Comparisons[i])
	}
	p.footnotes()
	p.warnings(g.Warnings)
	if g.Version != "" {
		p.blank()
		p.wrap(styleDim, "", "", "cowaudit "+printable(g.Version)+".")
	}
}

// gateVerdict gives the verdict in one word, and the sentence without the word that it begins with.
func gateVerdict(g *audit.GateReport) (word, sentence string) {
	sentence = cmp.Or(printable(g.Conclusion), "Nothing was checked.")
	for _, w := range []string{"Failed: ", "Inconclusive: ", "Passed: "} {
		sentence = strings.TrimPrefix(sentence, w)
	}
	return strings.ToUpper(cmp.Or(printable(string(g.Verdict)), "not judged")), sentence
}

func gateStyle(v audit.GateVerdict) style {
	switch v {
	case audit.GatePass:
		return styleGood
	case audit.GateFail, audit.GateInconclusive:
		return styleAlert
	}
	return styleNone
}

// ruleScale is the unit of all numbers of a limit.
func ruleScale(k *audit.RuleCheck) valueScale {
	return newValueScale(k.Unit, k.Limit, k.Measured.Median, k.Measured.Low, k.Measured.High)
}

// limitWords says what a limit is on: "increase", or B itself.
func limitWords(k *audit.RuleCheck) string {
	if strings.HasPrefix(k.LimitKind, "max_increase") {
		return "of B over A"
	}
	return "of B"
}

// ruleAbout says what a rule is about, beside its name: "callcache-cold, first major GC, copied bytes, brk heap".
func ruleAbout(k *audit.RuleCheck) string {
	words := []string{k.Scenario, audit.EventLabel(k.Event), strings.ReplaceAll(k.Metric, "_", " ")}
	if k.Region != "" {
		words = append(words, strings.TrimPrefix(k.Region.Label(), "the "))
	}
	words = append(words, k.Function)
	var out []string
	for _, w := range words {
		if w != "" {
			out = append(out, printable(w))
		}
	}
	return strings.Join(out, ", ")
}

// maxRuleName is the width from which the name of a rule is cut in the table, and stands in full below its row.
const maxRuleName = 24

// limits writes the table of limits, each with what was measured, why it was judged so, and the cause.
func (p *text) limits(g *audit.GateReport) {
	if len(g.Rules) == 0 {
		return
	}
	p.section("LIMITS%s", from(g.File))
	p.table(func(bool) *grid {
		t := &grid{columns: []column{
			{head: "verdict", left: true}, {head: "measured"}, {head: "from..to"}, {head: "limit"}, {head: "unit", left: true},
			{head: "what", left: true}, {head: "rule", left: true},
		}}
		for i := range g.Rules {
			k := &g.Rules[i]
			s := ruleScale(k)
			measured, between := "?", ""
			if k.Measured.N > 0 {
				measured, between = s.format(k.Measured.Median), s.format(k.Measured.Low)+".."+s.format(k.Measured.High)
			} else {
				p.unknown("Not measured: the reason stands below the row.")
			}
			words := ruleAbout(k) + ": " + printable(k.Why)
			if k.Cause != "" {
				words += "; most of it: " + printable(k.Cause)
			}
			name := printable(k.Name)
			if width(name) > maxRuleName {
				name, words = cut(name, maxRuleName), name+": "+words
			}
			l := line{below: words, prose: true, cells: []string{printable(string(k.Verdict)), measured, between, s.format(k.Limit), s.unit, limitWords(k), name}}
			if k.Verdict != audit.GatePass {
				l.style = styleAlert
			}
			t.lines = append(t.lines, l)
		}
		return t
	})
}

func from(file string) string {
	if file == "" {
		return ""
	}
	return " of " + printable(file)
}

// explain writes what decided one limit: each side's samples, and how likely they are.
func (p *text) explain(k *audit.RuleCheck) {
	p.section("WHAT DECIDED %s, %s (%s)", printable(k.Name), ruleAbout(k), printable(k.LimitKind))
	m := &k.Measured
	s := ruleScale(k)
	if m.N == 0 {
		p.wrap(styleNone, "", "  ", "limit "+s.with(k.Limit)+"; nothing was measured")
		return
	}
	interval := "the smallest and the largest: too few runs for an interval"
	switch {
	case k.Exact:
		interval = "the same in every run"
	case m.Confidence > 0:
		interval = fmt.Sprintf("%.4g%% interval", 100*m.Confidence)
	}
	p.wrap(styleNone, "", "  ", fmt.Sprintf("limit %s; measured %s, from %s to %s (%s), %s", s.with(k.Limit), s.with(m.Median), s.with(m.Low), s.with(m.High), interval, plural(m.N, "run", "runs")))
	unit := sampleUnit(k)
	scale := newValueScale(unit, append(append([]float64{}, k.A...), k.B...)...)
	for _, side := range []struct {
		name   string
		values []float64
	}{{"A", k.A}, {"B", k.B}} {
		if len(side.values) == 0 {
			continue
		}
		var words []string
		for _, v := range side.values {
			words = append(words, scale.format(v))
		}
		p.wrap(styleNone, side.name+"  ", "   ", strings.TrimSpace(strings.Join(words, ", ")+" "+scale.unit))
	}
	p.wrap(styleNone, "p  ", "   ", probability(k.P)+", one-sided, of the limit; the interval decides, not this")
	if words := takenOff(k.ExcusedA, k.Excused); words != "" {
		p.wrap(styleNone, "", "  ", "excused, and taken off: "+words)
	}
}

// sampleUnit is the unit of a limit's samples: that of the metric, also where the limit is in per cent.
func sampleUnit(k *audit.RuleCheck) string {
	if k.LimitKind != string(audit.LimitIncreasePercent) {
		return k.Unit
	}
	if strings.HasSuffix(k.Metric, "_bytes") {
		return "bytes"
	}
	return ""
}

// takenOff says what was excused on each side: "" for nothing on either.
func takenOff(a, b float64) string {
	amount := func(v float64, side string) string {
		if v == 0 {
			return "nothing of " + side
		}
		return newValueScale("bytes", v).with(v) + " of " + side
	}
	switch {
	case a == 0 && b == 0:
		return ""
	case a == 0:
		return amount(b, "B")
	}
	return amount(a, "A") + ", " + amount(b, "B")
}

// excuseWords says what is excused, why, until when, and how much it took off.
func excuseWords(e *audit.Excused) string {
	what := printable(e.Function)
	if e.Region != "" {
		what = printable(strings.TrimPrefix(audit.RegionKind(e.Region).Label(), "the "))
	}
	state := "until " + printable(e.Expires)
	switch {
	case e.Expired:
		state = "expired on " + printable(e.Expires) + ", not applied"
	default:
		state += ", took off " + cmp.Or(takenOff(e.BytesA, e.Bytes), "nothing")
	}
	return fmt.Sprintf("%s: %s (%s)", what, printable(e.Reason), state)
}

func (p *text) excuses(list []audit.Excused) {
	if len(list) == 0 {
		return
	}
	p.section("EXCUSED")
	for i := range list {
		p.wrap(styleNone, "- ", "  ", excuseWords(&list[i]))
	}
}

// gateComparison says what the limits were held against.
func (p *text) gateComparison(c *audit.CompareReport) {
	p.section("MEASURED in %s", scenarioWords(&c.Scenario))
	if len(c.A.Runs) > 0 {
		p.side("A", &c.A.Subject)
	}
	p.side("B", &c.B.Subject)
	if c.SameBuild {
		p.wrap(styleAlert, "! ", "  ", "A and B are the same build with the same environment, whatever their names.")
	}
	for i := range c.Unlike {
		p.wrap(styleAlert, "! ", "  ", unlikeWords(&c.Unlike[i]))
	}
	if c.Conclusion != "" {
		p.wrap(styleNone, "   ", "   ", "B against A: "+printable(c.Conclusion))
	}
	p.wrap(styleDim, "   ", "   ", fmt.Sprintf("%s; kernel %s", sideRuns(c), printable(c.B.Capture.Kernel)))
}

// sideRuns says how many runs there are of each side.
func sideRuns(c *audit.CompareReport) string {
	if len(c.A.Runs) == 0 {
		return plural(len(c.B.Runs), "run", "runs")
	}
	return fmt.Sprintf("%s of A, %d of B", plural(len(c.A.Runs), "run", "runs"), len(c.B.Runs))
}
