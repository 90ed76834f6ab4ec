package audit

import (
	"fmt"
	"math"
	"strconv"

	"cowaudit/pagemap"
)

// gateMostRounds is from how many more rounds on it is said that none would tell.
const gateMostRounds = 200

// gateCheck holds one limit of a rule against one comparison. a is empty where the limit is on B alone.
func gateCheck(r *Rule, l Limit, c *CompareReport, excuses []Excuse) (k RuleCheck, a, b gateSamples) {
	k = newRuleCheck(r, l, c.Scenario.Name)
	b = gateSample(r, &c.B, excuses)
	k.B = b.values
	if b.missing != "" {
		k.undecided(b.missing, b.remedy)
		return k, a, b
	}
	if l.Kind != LimitIncreasePercent {
		k.Unit = b.unit
	}
	if bytes := b.unit == "bytes"; (l.Kind == LimitMaxBytes || l.Kind == LimitIncreaseBytes) && !bytes {
		k.undecided(fmt.Sprintf("%s is in %s, the limit in bytes", r.Metric, b.unit), "use max for it")
		return k, a, b
	}
	k.Excused = b.taken()
	if !l.increase() {
		k.Measured = gateMedian(b.values)
		k.Exact = gateExact(b.values)
		k.P = gateSignP(b.values, l.Value)
		k.decide(gateMinRuns, "run")
	} else {
		a = k.judgeIncrease(r, l, c, b, excuses)
		k.ExcusedA = a.taken()
	}
	if k.Verdict != GatePass {
		k.Cause = gateCause(r, c, l.increase(), excuses)
	}
	if a.blind || b.blind {
		k.Why += "; no function was excused, since no run was traced (measure with --trace)"
	}
	if a.once || b.once {
		k.Why += "; what is excused by function is as the traced round saw it"
	}
	return k, a, b
}

func newRuleCheck(r *Rule, l Limit, scenario string) RuleCheck {
	k := RuleCheck{
		Name: r.Name, Scenario: scenario, Event: r.Event, Metric: r.Metric, Region: r.Region, Function: r.Function,
		Limit: l.Value, LimitKind: string(l.Kind), Unit: "bytes", A: []float64{}, B: []float64{},
	}
	if l.Kind == LimitIncreasePercent {
		k.Unit = "percent"
	}
	return k
}

// judgeIncrease judges B against A, and gives what it has of A.
func (k *RuleCheck) judgeIncrease(r *Rule, l Limit, c *CompareReport, b gateSamples, excuses []Excuse) (a gateSamples) {
	if len(c.A.Runs) == 0 {
		k.undecided("an increase needs two sides, and only one was measured", "give a second subject, or --baseline FILE")
		return a
	}
	for _, u := range c.Unlike {
		if u.Refused {
			k.undecided(fmt.Sprintf("the two sides cannot be compared: %s is %q in A and %q in B", u.What, u.A, u.B), "measure both on the same machine")
			return a
		}
	}
	a = gateSample(r, &c.A, excuses)
	k.A = a.values
	if a.missing != "" {
		k.undecided("side A: "+a.missing, a.remedy)
		return a
	}
	f := func(a, b float64) float64 { return b - a }
	if l.Kind == LimitIncreasePercent {
		zero := 0
		for _, v := range a.values {
			if v <= 0 {
				zero++
			}
		}
		if zero > 0 && !(gateExact(a.values) && gateExact(b.values) && b.values[0] == a.values[0]) {
			k.undecided("A has a run of 0, and an increase over it has no percentage", "use max_increase_bytes")
			return a
		}
		f = func(a, b float64) float64 {
			if a == b {
				return 0
			}
			return 100 * (b/a - 1)
		}
	}
	k.Measured = gatePairs(a.values, b.values, f)
	k.Exact = gateExact(a.values) && gateExact(b.values)
	k.P = gatePairsP(a.values, b.values, f, l.Value)
	k.decide(gateMinPairs, "run a side")
	return a
}

// decide gives the verdict. It fails where the estimate and the low end of its interval both exceed the limit, passes where
// both the estimate and the high end are within it, and is inconclusive otherwise. With fewer runs than least the ends are
// only the range, and say too little; a metric that does not vary is decided all the same.
func (k *RuleCheck) decide(least int, runs string) {
	m := k.Measured
	size, limit := k.amount(m.Median), k.amount(k.Limit)
	over := m.Median > k.Limit
	switch {
	case !k.Exact && m.N < least:
		k.Verdict, k.MoreRounds = GateInconclusive, least-m.N
		k.Why = fmt.Sprintf("%s of %s, from %d %s: too few to tell; %s more would", size, limit, m.N, gateRuns(m.N, runs), strconv.Itoa(k.MoreRounds))
	case over && m.Low > k.Limit:
		k.Verdict = GateFail
		k.Why = fmt.Sprintf("%s exceeds the limit of %s%s", size, limit, k.near(m.Low, "and so does the low end of its interval"))
	case !over && m.High <= k.Limit:
		k.Verdict = GatePass
		k.Why = fmt.Sprintf("%s is within the limit of %s%s", size, limit, k.near(m.High, "and so is the high end of its interval"))
	default:
		k.Verdict = GateInconclusive
		k.Why = fmt.Sprintf("the limit of %s lies inside of the interval of %s, from %s to %s", limit, size, k.amount(m.Low), k.amount(m.High))
		if k.MoreRounds = k.more(); k.MoreRounds > 0 {
			k.Why += fmt.Sprintf(": about %d more rounds would tell", k.MoreRounds)
		} else {
			k.Why += ": too close to the limit for more rounds to tell"
		}
	}
}

func (k *RuleCheck) near(end float64, words string) string {
	if k.Exact {
		return ", the same in every run"
	}
	return ", " + words + ", " + k.amount(end)
}

// more gives how many more rounds would bring the near end of the interval to the limit, as its width shrinks with the
// square root of the number of rounds; 0 where none in reason would.
func (k *RuleCheck) more() int {
	m := k.Measured
	near, gap := m.Median-m.Low, math.Abs(m.Median-k.Limit)
	if m.Median <= k.Limit {
		near = m.High - m.Median
	}
	if gap == 0 {
		return 0
	}
	n := math.Ceil(float64(m.N) * (near / gap) * (near / gap))
	if n-float64(m.N) > gateMostRounds {
		return 0
	}
	return max(1, int(n)-m.N)
}

func (k *RuleCheck) undecided(why, remedy string) {
	k.Verdict, k.Why = GateInconclusive, why+": "+remedy
}

// amount writes a value of the check with its unit.
func (k *RuleCheck) amount(v float64) string {
	switch k.Unit {
	case "bytes":
		b := pagemap.Bytes(math.Round(v))
		switch {
		case b < 0:
			return "-" + exactOrMiB(-b)
		default:
			return exactOrMiB(b)
		}
	case "percent":
		return strconv.FormatFloat(v, 'f', 1, 64) + "%"
	}
	return strconv.FormatFloat(v, 'g', 6, 64) + " " + k.Unit
}

// exactOrMiB writes what is below 0.1 MiB exactly: a limit must not be shown as "less than 0.1 MiB".
func exactOrMiB(b pagemap.Bytes) string {
	if b > 0 && b < 1<<20/10 && b%1024 == 0 {
		return strconv.FormatInt(int64(b/1024), 10) + " KiB"
	}
	if b < 1<<20/10 {
		return strconv.FormatInt(int64(b), 10) + " B"
	}
	return mib(b)
}

// gateRuns gives the plural of "run" in "run" or "run a side".
func gateRuns(n int, words string) string {
	if n == 1 {
		return words
	}
	return "runs" + words[len("run"):]
}
