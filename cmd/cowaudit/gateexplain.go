package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"cowaudit/audit"
	"cowaudit/pagemap"
	"cowaudit/report"
)

// gateText writes the verdict of a gate for people: the conclusion, a line for each limit, the excuses and warnings; with
// explain also the samples, the interval and the probability behind each verdict.
func gateText(w io.Writer, g *audit.GateReport, explain bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", g.Conclusion)
	for i := range g.Rules {
		k := &g.Rules[i]
		fmt.Fprintf(&b, "%-12s  %s (%s): %s\n", k.Verdict, k.Name, gateSubjectOf(k), k.Why)
		if k.Cause != "" {
			fmt.Fprintf(&b, "    most of it: %s\n", k.Cause)
		}
		if explain {
			explainCheck(&b, k)
		}
	}
	for i := range g.Excuses {
		e := &g.Excuses[i]
		state := "until " + e.Expires
		if e.Expired {
			state = "expired on " + e.Expires + ", not applied"
		}
		fmt.Fprintf(&b, "excuse        %s (%s), %s: took off %s\n", e.Function+e.Region, e.Reason, state, report.Size(pagemap.Bytes(math.Round(e.Bytes))))
	}
	for _, m := range g.Warnings {
		fmt.Fprintf(&b, "warning       %s: %s\n", m.Text, m.Remedy)
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, oneLine(line)); err != nil {
			return err
		}
	}
	return nil
}

func gateSubjectOf(k *audit.RuleCheck) string {
	words := []string{k.Scenario, audit.EventLabel(k.Event), k.Metric, string(k.Region), k.Function, k.LimitKind}
	var out []string
	for _, w := range words {
		if w != "" {
			out = append(out, w)
		}
	}
	return strings.Join(out, ", ")
}

// explainCheck writes what decided one limit.
func explainCheck(b *strings.Builder, k *audit.RuleCheck) {
	fmt.Fprintf(b, "    limit     %s\n", gateAmount(k.Limit, k.Unit))
	if k.Measured.N == 0 {
		return
	}
	m := k.Measured
	interval := "range, too few runs for an interval"
	switch {
	case k.Exact:
		interval = "the same in every run"
	case m.Confidence > 0:
		interval = fmt.Sprintf("%.0f%% interval", 100*m.Confidence)
	}
	fmt.Fprintf(b, "    measured  %s, from %s to %s (%s, %d runs)\n", gateAmount(m.Median, k.Unit), gateAmount(m.Low, k.Unit), gateAmount(m.High, k.Unit), interval, m.N)
	unit := k.Unit
	if k.LimitKind == string(audit.LimitIncreasePercent) {
		unit = "bytes"
		if k.Metric != "copied_bytes" && k.Metric != "new_bytes" {
			unit = ""
		}
	}
	for _, side := range []struct {
		name   string
		values []float64
	}{{"A", k.A}, {"B", k.B}} {
		var words []string
		for _, v := range side.values {
			words = append(words, gateAmount(v, unit))
		}
		if len(words) > 0 {
			fmt.Fprintf(b, "    %s         %s\n", side.name, strings.Join(words, ", "))
		}
	}
	fmt.Fprintf(b, "    p         %.3g, one-sided, of the limit; the interval decides\n", k.P)
	if k.Excused > 0 {
		fmt.Fprintf(b, "    excused   %s\n", gateAmount(k.Excused, "bytes")) // only copied bytes are ever excused
	}
}

// gateAmount writes a value in the unit of a check.
func gateAmount(v float64, unit string) string {
	switch unit {
	case "bytes":
		return report.Size(pagemap.Bytes(math.Round(v)))
	case "percent":
		return strconv.FormatFloat(v, 'f', 1, 64) + "%"
	}
	return strings.TrimSpace(strconv.FormatFloat(v, 'g', 6, 64) + " " + unit)
}
