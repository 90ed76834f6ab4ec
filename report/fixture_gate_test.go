package report

import (
	"testing"

	"cowaudit/audit"
)

const gateDay = "2026-12-04"

func gate(t testing.TB, rules []audit.Rule, excuses []audit.Excuse, comparisons ...audit.CompareReport) *audit.GateReport {
	t.Helper()
	g := audit.Gate(rules, excuses, comparisons, gateDay)
	g.Version, g.File = "0.1.0", "cowaudit.toml"
	if err := audit.CheckGate(g); err != nil {
		t.Fatalf("the fixture is wrong: %v", err)
	}
	return g
}

func gateRules() []audit.Rule {
	return []audit.Rule{
		{Name: "first major GC", Limits: []audit.Limit{{Kind: audit.LimitMaxBytes, Value: 8 << 20}, {Kind: audit.LimitIncreasePercent, Value: 10}}},
		{Name: "second major GC", Event: audit.EventSecondMajorGC, Limits: []audit.Limit{{Kind: audit.LimitMaxBytes, Value: 1 << 20}}},
		{Name: "the iseq marker", Function: "rb_iseq_mark_and_move", Limits: []audit.Limit{{Kind: audit.LimitMaxBytes, Value: 1 << 20}}},
	}
}

// failedGate is the fixed build before, the one that rewrites after.
func failedGate(t testing.TB) *audit.GateReport { return gate(t, gateRules(), nil, *worseReport(t)) }

// passedGate has an excuse that expired and one that took nothing off.
func passedGate(t testing.TB) *audit.GateReport {
	excuses := []audit.Excuse{
		{Function: "rb_iseq_mark_and_move", Reason: "mended in 3.4; this service moves in January", Expires: "2026-11-30"},
		{Region: audit.RegionStack, Reason: "a deep stack is read", Expires: "2027-01-31"},
	}
	return gate(t, gateRules()[:2], excuses, *betterReport(t))
}

// excusedGate passes since a region is excused, on one side alone.
func excusedGate(t testing.TB) *audit.GateReport {
	b := compareSide("a", "c0ffee00112233445566", sideIdentical, sideOther)
	bare := audit.CompareReport{SchemaVersion: audit.SchemaVersion, Kind: audit.KindCompare, Version: "0.1.0", B: b, Scenario: b.Scenario}
	excuses := []audit.Excuse{{Region: audit.RegionBrkHeap, Reason: "known", Expires: "2027-01-31"}}
	rules := []audit.Rule{{Name: "first major GC", Limits: []audit.Limit{{Kind: audit.LimitMaxBytes, Value: 8 << 20}}}}
	return gate(t, rules, excuses, bare)
}

// openGate cannot tell: too few runs.
func openGate(t testing.TB) *audit.GateReport {
	return gate(t, []audit.Rule{
		{Name: "first major GC", Limits: []audit.Limit{{Kind: audit.LimitIncreaseBytes, Value: -1 << 20}}},
		{Name: "pause", Metric: "pause_ns", Limits: []audit.Limit{{Kind: audit.LimitMax, Value: 53_500_000}}},
		{Name: "elsewhere", Scenario: "callcache-warm", Limits: []audit.Limit{{Kind: audit.LimitMaxBytes, Value: 4096}}},
	}, nil, *openReport(t))
}

func hostileGate(t testing.TB) *audit.GateReport {
	rules := gateRules()
	rules[0].Name = hostileName
	g := gate(t, rules, []audit.Excuse{{Function: hostileName, Reason: hostileName, Expires: "2027-01-01"}}, *hostileCompare(t))
	g.File = hostileName
	g.Rules[0].Cause, g.Rules[0].Why, g.Rules[0].Scenario = hostileName, hostileName, hostileName
	return g
}
