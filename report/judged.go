package report

import (
	"fmt"
	"strings"
	"time"

	"cowaudit/audit"
)

// Formats that need a verdict: those of a comparison and of a gate.
const (
	FormatMarkdown = "markdown"
	FormatJUnit    = "junit"
	FormatGitHub   = "github"
	FormatGitLab   = "gitlab"
)

// VerdictFormats lists the formats that only results with a verdict have.
var VerdictFormats = []string{FormatMarkdown, FormatJUnit, FormatGitHub, FormatGitLab}

// HasVerdict reports a result that the formats of VerdictFormats can be made from; the error says which are.
func HasVerdict(v any) error {
	_, err := judgedOf(v)
	return err
}

// outcome is what became of one thing that was judged.
type outcome int

const (
	outcomeFine outcome = iota // it passed, or B is the same or better
	outcomeOpen                // inconclusive
	outcomeBad                 // it failed, or B is worse
)

// judgedItem is one limit of a gate, or one row of a comparison: what pipelines know as a test.
type judgedItem struct {
	name    string // short, and one of its kind within a scenario
	outcome outcome
	verdict string   // in the result's own word
	message string   // one sentence
	detail  []string // what else is to say, line by line
	event   string
	key     string // stays the same from one result to the next
}

// judgedSuite is what was judged in one scenario.
type judgedSuite struct {
	scenario   string
	comparison *audit.CompareReport // nil: the scenario was not measured
	items      []judgedItem
}

// judged is a result in the form that pipelines take.
type judged struct {
	command    string // "compare", "gate"
	verdict    outcome
	conclusion string
	file       string // that the rules are from
	suites     []judgedSuite
}

func judgedOf(v any) (*judged, error) {
	switch r := v.(type) {
	case *audit.CompareReport:
		return judgedCompare(r), nil
	case *audit.GateReport:
		return judgedGate(r), nil
	}
	return nil, fmt.Errorf("%s has no verdict: a result of compare has one, and one of gate", resultName(v))
}

// resultName names a kind of result in a sentence.
func resultName(v any) string {
	switch v.(type) {
	case *audit.Report:
		return "an audit"
	case *audit.DiffReport:
		return "a diff"
	case *audit.ForktestReport:
		return "a fork test"
	case *audit.TraceReport:
		return "a trace"
	case *audit.FamiliesReport:
		return "a list of families"
	case *audit.DoctorReport:
		return "what doctor found"
	}
	return fmt.Sprintf("%T", v)
}

func compareOutcome(v audit.Verdict) outcome {
	switch v {
	case audit.VerdictWorse:
		return outcomeBad
	case audit.VerdictSame, audit.VerdictBetter:
		return outcomeFine
	}
	return outcomeOpen
}

func gateOutcome(v audit.GateVerdict) outcome {
	switch v {
	case audit.GateFail:
		return outcomeBad
	case audit.GatePass:
		return outcomeFine
	}
	return outcomeOpen
}

// judgedCompare gives the rows that have a verdict.
func judgedCompare(r *audit.CompareReport) *judged {
	s := judgedSuite{scenario: r.Scenario.Name, comparison: r}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Verdict == "" {
			continue
		}
		s.items = append(s.items, judgedItem{
			name: audit.EventLabel(row.Event) + ": " + strings.ReplaceAll(row.Metric, "_", " "), outcome: compareOutcome(row.Verdict),
			verdict: string(row.Verdict), message: rowSentence(row), detail: []string{r.Conclusion}, event: row.Event,
			key: strings.Join([]string{"compare", r.Scenario.Name, row.Event, row.Metric}, "\x00"),
		})
	}
	return &judged{command: "compare", verdict: compareOutcome(r.Verdict), conclusion: r.Conclusion, suites: []judgedSuite{s}}
}

// rowSentence says what a row comes to: "B has 29.9 MiB, A 0.5 MiB: worse by 29.4 MiB (…)".
func rowSentence(row *audit.CompareRow) string {
	s := rowScale(row)
	d := &row.Difference
	words := fmt.Sprintf("%s: %s in A, %s in B; B - A is %s, from %s to %s", row.Verdict, s.with(row.A.Median), s.with(row.B.Median),
		strings.TrimSpace(s.signed(d.Median)+" "+s.unit), strings.TrimSpace(s.signed(d.Low)+" "+s.unit), strings.TrimSpace(s.signed(d.High)+" "+s.unit))
	if ratio, interval := ratioWords(row); ratio != "?" {
		words += fmt.Sprintf("; B / A is %s (%s)", ratio, interval)
	}
	if row.Exact {
		words += "; exact"
	} else {
		words += "; p " + probability(row.PAdjusted)
	}
	if n := needs(row); n != "" {
		return words + "; " + n
	}
	return words
}

func judgedGate(g *audit.GateReport) *judged {
	out := &judged{command: "gate", verdict: gateOutcome(g.Verdict), conclusion: g.Conclusion, file: g.File}
	for i := range g.Comparisons {
		out.suites = append(out.suites, judgedSuite{scenario: g.Comparisons[i].Scenario.Name, comparison: &g.Comparisons[i]})
	}
	at := func(scenario string) *judgedSuite {
		for i := range out.suites {
			if out.suites[i].scenario == scenario {
				return &out.suites[i]
			}
		}
		out.suites = append(out.suites, judgedSuite{scenario: scenario})
		return &out.suites[len(out.suites)-1]
	}
	for i := range g.Rules {
		k := &g.Rules[i]
		item := judgedItem{
			name: k.Name + " (" + k.LimitKind + ")", outcome: gateOutcome(k.Verdict), verdict: string(k.Verdict), message: k.Why, event: k.Event,
			key: strings.Join([]string{"gate", k.Scenario, k.Name, k.Event, k.Metric, string(k.Region), k.Function, k.LimitKind}, "\x00"),
		}
		detail := []string{"about: " + ruleAbout(k), "limit: " + ruleScale(k).with(k.Limit) + " " + limitWords(k)}
		if k.Cause != "" {
			item.message += "; most of it: " + k.Cause
			detail = append(detail, "most of it: "+k.Cause)
		}
		if words := takenOff(k.ExcusedA, k.Excused); words != "" {
			detail = append(detail, "excused, and taken off: "+words)
		}
		item.detail = detail
		s := at(k.Scenario)
		s.items = append(s.items, item)
	}
	return out
}

// took gives how long an event took in all runs of B, as the workers measured it.
func (s *judgedSuite) took(event string) (d time.Duration) {
	if s.comparison == nil {
		return 0
	}
	for i := range s.comparison.B.Runs {
		for k := range s.comparison.B.Runs[i].Events {
			if e := &s.comparison.B.Runs[i].Events[k]; e.Name == event {
				d += time.Duration(e.DurationNano)
			}
		}
	}
	return d
}
