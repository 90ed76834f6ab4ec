package audit

import (
	"math"
	"strings"
	"testing"
)

const gatePage = 4096

// gateSide gives a side whose runs copied so many pages of the brk heap in the first major GC, all of them identical.
func gateSide(pages ...int64) Side {
	s := Side{Capture: Capture{PageSize: gatePage}}
	for i, n := range pages {
		c := Copied{SharedBefore: 1 << 20, CopiedPages: n, Change: Change{Identical: n}}
		s.Runs = append(s.Runs, Run{Seq: i, Events: []Event{{Name: "first_major_gc", Copied: c, Regions: []RegionDiff{{RegionBrkHeap, c}}}}})
	}
	return s
}

// traced adds to each run who wrote: f so many of its pages, g the rest.
func traced(s Side, f ...int64) Side {
	for i := range s.Runs {
		e := &s.Runs[i].Events[0]
		row := func(name string, n int64) AttributionRow {
			return AttributionRow{Name: name, Region: RegionBrkHeap, Pages: n, Change: Change{Identical: n}}
		}
		e.Attribution = &Attribution{Functions: []AttributionRow{row("f", f[i]), row("g", e.CopiedPages-f[i])}}
	}
	return s
}

func gateOne(r Rule, excuses []Excuse, a, b Side) *GateReport {
	r.Name = "rule"
	return Gate([]Rule{r}, excuses, []CompareReport{{Scenario: Scenario{Name: "s"}, A: a, B: b}}, "2026-12-04")
}

func limit(kind LimitKind, v float64) []Limit { return []Limit{{kind, v}} }

func TestGateVerdicts(t *testing.T) {
	wide := gateSide(100, 110, 90, 105, 95, 100)
	for _, c := range []struct {
		name    string
		rule    Rule
		excuses []Excuse
		a, b    Side
		want    GateVerdict
		why     string
	}{
		{"far within", Rule{Limits: limit(LimitMaxBytes, 200*gatePage)}, nil, Side{}, wide, GatePass, "high end"},
		{"far over", Rule{Limits: limit(LimitMaxBytes, 50*gatePage)}, nil, Side{}, wide, GateFail, "low end"},
		{"over, and the low end is not", Rule{Limits: limit(LimitMaxBytes, 98*gatePage)}, nil, Side{}, wide, GateInconclusive, "lies inside"},
		{"within, and the high end is not", Rule{Limits: limit(LimitMaxBytes, 102*gatePage)}, nil, Side{}, wide, GateInconclusive, "lies inside"},
		{"four runs that vary", Rule{Limits: limit(LimitMaxBytes, 50*gatePage)}, nil, Side{}, gateSide(100, 101, 102, 103), GateInconclusive, "1 more would"},
		{"three equal ones at the limit", Rule{Limits: limit(LimitMaxBytes, 7*gatePage)}, nil, Side{}, gateSide(7, 7, 7), GatePass, "the same in every run"},
		{"three equal ones a byte over", Rule{Limits: limit(LimitMaxBytes, 7*gatePage-1)}, nil, Side{}, gateSide(7, 7, 7), GateFail, "the same in every run"},
		{"an increase", Rule{Limits: limit(LimitIncreaseBytes, 50*gatePage)}, nil, wide, gateSide(300, 310, 290, 305, 295, 300), GateFail, "exceeds"},
		{"no increase", Rule{Limits: limit(LimitIncreaseBytes, 50*gatePage)}, nil, wide, wide, GatePass, "within"},
		{"percent", Rule{Limits: limit(LimitIncreasePercent, 100)}, nil, wide, gateSide(300, 310, 290, 305, 295, 300), GateFail, "100.0%"},
		{"percent of nothing", Rule{Limits: limit(LimitIncreasePercent, 10)}, nil, gateSide(0, 0, 0, 0), gateSide(1, 2, 3, 4), GateInconclusive, "use max_increase_bytes"},
		{"nothing over nothing", Rule{Limits: limit(LimitIncreasePercent, 10)}, nil, gateSide(0, 0, 0), gateSide(0, 0, 0), GatePass, "within"},
		{"one side only", Rule{Limits: limit(LimitIncreaseBytes, 1)}, nil, Side{}, wide, GateInconclusive, "--baseline"},
		{"no such event", Rule{Event: "exit", Limits: limit(LimitMaxBytes, 1)}, nil, Side{}, wide, GateInconclusive, "no run has copied_bytes for the event exit"},
		{"no such metric", Rule{Metric: "peak", Limits: limit(LimitMax, 1)}, nil, Side{}, wide, GateInconclusive, "no run has peak"},
		{"no such scenario", Rule{Scenario: "t", Limits: limit(LimitMaxBytes, 1)}, nil, Side{}, wide, GateInconclusive, "was not measured"},
		{"a region without pages", Rule{Region: RegionStack, Limits: limit(LimitMaxBytes, 0)}, nil, Side{}, wide, GatePass, "0 B"},
		{"a region", Rule{Region: RegionBrkHeap, Limits: limit(LimitMaxBytes, 50*gatePage)}, nil, Side{}, wide, GateFail, "exceeds"},
		{"a function, not traced", Rule{Function: "f", Limits: limit(LimitMaxBytes, 1)}, nil, Side{}, wide, GateInconclusive, "measure with --trace"},
		{"a function", Rule{Function: "f", Limits: limit(LimitMaxBytes, 10*gatePage)}, nil, Side{}, traced(gateSide(100, 100, 100), 20, 20, 20), GateFail, "exceeds"},
		{"excused region", Rule{Limits: limit(LimitMaxBytes, 0)}, []Excuse{{Region: RegionBrkHeap, Expires: "2026-12-04"}}, Side{}, wide, GatePass, "0 B"},
		{"expired", Rule{Limits: limit(LimitMaxBytes, 0)}, []Excuse{{Region: RegionBrkHeap, Expires: "2026-12-03"}}, Side{}, wide, GateFail, "exceeds"},
		{"excused function", Rule{Limits: limit(LimitMaxBytes, 80*gatePage)}, []Excuse{{Function: "f", Expires: "2027-01-01"}}, Side{}, traced(gateSide(100, 100, 100), 20, 20, 20), GatePass, "within"},
		{"excused function, not traced", Rule{Limits: limit(LimitMaxBytes, 0)}, []Excuse{{Function: "f", Expires: "2027-01-01"}}, Side{}, wide, GateFail, "no function was excused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gateOne(c.rule, c.excuses, c.a, c.b)
			if len(g.Rules) != 1 || g.Rules[0].Verdict != c.want || g.Verdict != c.want {
				t.Fatalf("%+v, want %s", g.Rules, c.want)
			}
			if !strings.Contains(g.Rules[0].Why, c.why) {
				t.Errorf("why: %q, want %q in it", g.Rules[0].Why, c.why)
			}
		})
	}
}

// A page that a region's excuse and a function's name is taken off once; both are listed with what they took.
func TestGateExcuses(t *testing.T) {
	b := traced(gateSide(100, 100, 100), 20, 20, 20)
	g := gateOne(Rule{Limits: limit(LimitMaxBytes, 0)}, []Excuse{
		{Function: "f", Reason: "known", Expires: "2027-01-01"},
		{Region: RegionBrkHeap, Reason: "known", Expires: "2027-01-01"},
		{Function: "g", Reason: "old", Expires: "2026-01-01"},
	}, Side{}, b)
	k := g.Rules[0]
	if k.Measured.Median != 0 || k.Excused != 100*gatePage || g.Excuses[0].Bytes != 0 || g.Excuses[1].Bytes != 100*gatePage {
		t.Errorf("%+v, %+v", k, g.Excuses)
	}
	if !g.Excuses[2].Expired || len(g.Warnings) != 1 || g.Warnings[0].Code != "excuse_expired" || g.Warnings[0].Remedy == "" {
		t.Errorf("%+v, %+v", g.Excuses, g.Warnings)
	}
}

// What is excused is taken off A too, and the report says so.
func TestGateExcusesBothSides(t *testing.T) {
	a, b := traced(gateSide(90, 90, 90), 80, 80, 80), traced(gateSide(12, 12, 12), 2, 2, 2)
	g := gateOne(Rule{Limits: limit(LimitIncreaseBytes, 0)}, []Excuse{{Function: "f", Reason: "known", Expires: "2027-01-01"}}, a, b)
	k := g.Rules[0]
	if k.Measured.Median != 0 || k.ExcusedA != 80*gatePage || k.Excused != 2*gatePage || g.Excuses[0].BytesA != 80*gatePage || g.Excuses[0].Bytes != 2*gatePage {
		t.Errorf("%+v, %+v", k, g.Excuses)
	}
}

func TestGateCause(t *testing.T) {
	a, b := traced(gateSide(10, 10, 10), 5, 5, 5), traced(gateSide(100, 100, 100), 80, 80, 80)
	g := gateOne(Rule{Limits: limit(LimitIncreaseBytes, 0)}, nil, a, b)
	if want := "the brk heap, identical pages, written by f"; g.Rules[0].Cause != want || !strings.Contains(g.Conclusion, want) {
		t.Errorf("%q, %q", g.Rules[0].Cause, g.Conclusion)
	}
}

// Sides that cannot be compared leave B's own limits decided, and no increase.
func TestGateRefused(t *testing.T) {
	s := gateSide(7, 7, 7)
	c := CompareReport{A: s, B: s, Unlike: []Unlike{{What: "kernel", A: "6.1", B: "6.12", Refused: true}}}
	g := Gate([]Rule{{Limits: []Limit{{LimitIncreaseBytes, 0}, {LimitMaxBytes, 7 * gatePage}}}}, nil, []CompareReport{c}, "2026-12-04")
	if k := g.Rules[0]; k.Verdict != GateInconclusive || !strings.Contains(k.Why, "kernel") {
		t.Errorf("%+v", k)
	}
	if g.Rules[1].Verdict != GatePass || g.Verdict != GateInconclusive {
		t.Errorf("%+v, %s", g.Rules[1], g.Verdict)
	}
}

// A gate over no rule has checked nothing, and does not pass.
func TestGateNoRules(t *testing.T) {
	if g := Gate(nil, nil, nil, "2026-12-04"); g.Verdict != GateInconclusive {
		t.Errorf("%s", g.Verdict)
	}
}

func TestGateRankTail(t *testing.T) {
	for _, c := range []struct {
		m, n, u int
		want    float64
	}{
		{3, 3, 0, 1. / 20}, {4, 4, 0, 1. / 70}, {4, 4, 1, 2. / 70}, {5, 5, 2, 4. / 252}, {2, 3, 6, 1}, {24, 24, 288, 0.5}, {30, 30, 450, 0.5}, {4, 4, -1, 0},
	} {
		if got := gateRankTail(c.m, c.n, c.u); math.Abs(got-c.want) > 0.01*c.want+0.004*float64(c.m/24) {
			t.Errorf("%d, %d: P(U <= %d) = %v, want %v", c.m, c.n, c.u, got, c.want)
		}
	}
}
