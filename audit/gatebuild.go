package audit

import (
	"fmt"
	"strings"

	"cowaudit/pagemap"
)

// Gate holds comparisons against rules. today is the day for which excuses are judged, YYYY-MM-DD. A rule whose scenario was
// not measured, or whose event has no such metric, is inconclusive: nothing that was asked for passes unseen.
func Gate(rules []Rule, excuses []Excuse, comparisons []CompareReport, today string) *GateReport {
	g := &GateReport{
		SchemaVersion: SchemaVersion, Kind: KindGate, Rules: []RuleCheck{}, Excuses: []Excused{},
		Comparisons: comparisons, Warnings: []pagemap.Warning{},
	}
	var valid []Excuse
	var at []int // of the valid ones, in g.Excuses
	for i, e := range excuses {
		expired := e.expired(today)
		g.Excuses = append(g.Excuses, Excused{Function: e.Function, Region: string(e.Region), Reason: e.Reason, Expires: e.Expires, Expired: expired})
		if expired {
			g.Warnings = append(g.Warnings, pagemap.Warning{
				Code:   "excuse_expired",
				Text:   fmt.Sprintf("the excuse for %s expired on %s and was not applied", e.Function+string(e.Region), e.Expires),
				Remedy: "mend the cause, or give a later day with a reason",
			})
			continue
		}
		valid, at = append(valid, e), append(at, i)
	}
	for i := range rules {
		r := rules[i].withDefaults()
		measured := false
		for c := range comparisons {
			if r.Scenario != "" && r.Scenario != comparisons[c].Scenario.Name {
				continue
			}
			measured = true
			for _, l := range r.Limits {
				k, a, b := gateCheck(&r, l, &comparisons[c], valid)
				g.Rules = append(g.Rules, k)
				for x, bytes := range b.excused {
					g.Excuses[at[x]].Bytes = max(g.Excuses[at[x]].Bytes, bytes)
				}
				for x, bytes := range a.excused {
					g.Excuses[at[x]].BytesA = max(g.Excuses[at[x]].BytesA, bytes)
				}
			}
		}
		if !measured {
			for _, l := range r.Limits {
				k := newRuleCheck(&r, l, r.Scenario)
				k.undecided("the scenario was not measured", "name it under scenarios, or give a result of it")
				g.Rules = append(g.Rules, k)
			}
		}
	}
	g.conclude()
	return g
}

// conclude gives the verdict of all rules together, and the sentence.
func (g *GateReport) conclude() {
	n := map[GateVerdict]int{}
	var first *RuleCheck
	for i := range g.Rules {
		n[g.Rules[i].Verdict]++
	}
	switch {
	case n[GateFail] > 0:
		g.Verdict = GateFail
	case n[GateInconclusive] > 0 || len(g.Rules) == 0:
		g.Verdict = GateInconclusive
	default:
		g.Verdict = GatePass
	}
	for i := range g.Rules {
		if g.Rules[i].Verdict == g.Verdict {
			first = &g.Rules[i]
			break
		}
	}
	switch {
	case first == nil:
		g.Conclusion = "No limit was checked."
		return
	case g.Verdict == GatePass:
		g.Conclusion = fmt.Sprintf("Passed: %s held.", plural(len(g.Rules), "limit", "limits"))
		return
	}
	word := "Failed"
	if g.Verdict == GateInconclusive {
		word = "Inconclusive"
	}
	name, event := first.Name, EventLabel(first.Event)
	if !strings.Contains(strings.ToLower(name), strings.ToLower(event)) {
		name += ", " + event
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d of %s. %s: %s", word, n[g.Verdict], plural(len(g.Rules), "limit", "limits"), name, first.Why)
	if first.Cause != "" {
		b.WriteString("; most of it: " + first.Cause)
	}
	g.Conclusion = b.String() + "."
}
