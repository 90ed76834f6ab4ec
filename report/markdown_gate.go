package report

import (
	"slices"

	"cowaudit/audit"
)

// gate writes the verdict, the cause, and the limits that failed or are open before those that passed.
func (m *markdownText) gate(g *audit.GateReport) {
	word := gateWord(g.Verdict)
	_, words := gateVerdict(g)
	m.line("### cowaudit gate: %s", word)
	m.line("")
	m.line("**%s:** %s", capital(word), markdown(words))
	rules := slices.Clone(g.Rules)
	order := []audit.GateVerdict{audit.GateFail, audit.GateInconclusive, audit.GatePass}
	slices.SortStableFunc(rules, func(x, y audit.RuleCheck) int {
		return slices.Index(order, x.Verdict) - slices.Index(order, y.Verdict)
	})
	n := min(len(rules), markdownRows)
	m.rules(rules[:n])
	if len(g.Comparisons) == 1 {
		m.where(&g.Comparisons[0])
	}
	m.details("What decided, and what was measured", func() {
		m.rules(rules[n:])
		m.line("")
		for i := range g.Rules {
			m.line("- %s", markdown(g.Rules[i].Name+" ("+g.Rules[i].LimitKind+"): "+ruleAbout(&g.Rules[i])+": "+g.Rules[i].Why))
		}
		for i := range g.Excuses {
			m.line("- excused: %s", markdown(excuseWords(&g.Excuses[i])))
		}
		for i := range g.Comparisons {
			m.sides(&g.Comparisons[i])
		}
		for _, w := range g.Warnings {
			m.line("- warning: %s", markdown(sentence(w.Text)+" "+sentence(w.Remedy)))
		}
	})
}

// gateWord is a verdict as a participle.
func gateWord(v audit.GateVerdict) string {
	switch gateOutcome(v) {
	case outcomeBad:
		return "failed"
	case outcomeFine:
		return "passed"
	}
	return "inconclusive"
}

func (m *markdownText) rules(rules []audit.RuleCheck) {
	var rows [][]string
	for i := range rules {
		k := &rules[i]
		s := ruleScale(k)
		measured, between := "?", ""
		if k.Measured.N > 0 {
			measured, between = s.with(k.Measured.Median), s.format(k.Measured.Low)+".."+s.format(k.Measured.High)
		}
		cells := []string{string(k.Verdict), k.Name, measured, between, s.with(k.Limit) + " " + limitWords(k), k.Cause}
		for c := range cells {
			cells[c] = mdCell(cells[c])
		}
		rows = append(rows, cells)
	}
	m.table([]string{"verdict", "rule", "measured", "from..to", "limit", "most of it"}, []bool{false, false, true, true, true, false}, rows)
}
