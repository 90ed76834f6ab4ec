package audit

import "fmt"

// CheckGate holds a gate's result against the laws: the comparisons as [CheckCompare] does, each rule's verdict follows from
// its limit and its interval, and the verdict of all from those of the rules.
func CheckGate(g *GateReport) error {
	for i := range g.Comparisons {
		if err := CheckCompare(&g.Comparisons[i]); err != nil {
			return fmt.Errorf("scenario %s: %w", g.Comparisons[i].Scenario.Name, err)
		}
	}
	n := map[GateVerdict]int{}
	for i := range g.Rules {
		k := &g.Rules[i]
		n[k.Verdict]++
		of := fmt.Sprintf("rule %s (%s)", k.Name, k.LimitKind)
		if err := checkEstimate(&k.Measured, of); err != nil {
			return err
		}
		m, holds := &k.Measured, false
		switch k.Verdict {
		case GateFail:
			holds = m.N > 0 && m.Median > k.Limit && m.Low > k.Limit
		case GatePass:
			holds = m.N > 0 && m.Median <= k.Limit && m.High <= k.Limit
		case GateInconclusive:
			holds = true
		}
		if !holds {
			return breach("%s: the verdict %q does not follow from %g, from %g to %g, and a limit of %g", of, k.Verdict, m.Median, m.Low, m.High, k.Limit)
		}
	}
	want := GatePass
	switch {
	case n[GateFail] > 0:
		want = GateFail
	case n[GateInconclusive] > 0 || len(g.Rules) == 0:
		want = GateInconclusive
	}
	if g.Verdict != want {
		return breach("the verdict is %q, the rules say %q", g.Verdict, want)
	}
	for i := range g.Excuses {
		if e := &g.Excuses[i]; e.Bytes < 0 || e.Expired && e.Bytes != 0 {
			return breach("the excuse for %s took off %g bytes", e.Function+e.Region, e.Bytes)
		}
	}
	return nil
}
