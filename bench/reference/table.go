package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"cowaudit/audit"
)

// table collects the comparisons of each scenario.
type table struct {
	subjects []subject
	rows     []*tableRow
	notes    []string // a sentence for each pair, or what went wrong
	versions map[string]string
	kernel   string
	zero     string // whether the kernel has a zero page, as audit.Environment says it
	program  string
}

// tableRow is one metric of one event: a cell for each subject, and a verdict between each two.
type tableRow struct {
	scenario, event, metric, unit string
	cells                         []*audit.Estimate
	verdicts                      []audit.Verdict
}

// add takes up the comparison of subject i with the next; err is why there is none.
func (t *table) add(scenario string, i int, r *audit.CompareReport, err error) {
	pair := fmt.Sprintf("%s, %s → %s", scenario, t.subjects[i].name, t.subjects[i+1].name)
	if err != nil {
		t.notes = append(t.notes, fmt.Sprintf("**%s**: not measured: %v", pair, err))
		return
	}
	if t.versions == nil {
		t.versions = map[string]string{}
	}
	t.versions[t.subjects[i].name], t.versions[t.subjects[i+1].name] = describe(&r.A), describe(&r.B)
	t.kernel, t.program = r.B.Capture.Kernel, r.Version
	if r.B.Environment != nil {
		t.zero = r.B.Environment.ZeroPage
	}
	t.notes = append(t.notes, fmt.Sprintf("**%s** (%d rounds): %s", pair, r.Rounds.Done, r.Conclusion))
	for k := range r.Rows {
		row := &r.Rows[k]
		if row.Verdict == "" {
			continue
		}
		to := t.row(scenario, row)
		if to.cells[i] == nil {
			to.cells[i] = &row.A
		}
		to.cells[i+1], to.verdicts[i] = &row.B, row.Verdict
	}
}

func describe(s *audit.Side) string {
	return fmt.Sprintf("%s, build %.12s, %s malloc", s.Subject.Version, s.Subject.BuildID, s.Subject.Allocator)
}

func (t *table) row(scenario string, of *audit.CompareRow) *tableRow {
	for _, r := range t.rows {
		if r.scenario == scenario && r.event == of.Event && r.metric == of.Metric {
			return r
		}
	}
	r := &tableRow{scenario: scenario, event: of.Event, metric: of.Metric, unit: of.Unit,
		cells: make([]*audit.Estimate, len(t.subjects)), verdicts: make([]audit.Verdict, len(t.subjects)-1)}
	t.rows = append(t.rows, r)
	return r
}

// dull reports a row that says nothing: it is the same with every subject.
func (r *tableRow) dull() bool {
	return !slices.ContainsFunc(r.verdicts, func(v audit.Verdict) bool { return v != "" && v != audit.VerdictSame })
}

func (t *table) write(w io.Writer) error {
	var b strings.Builder
	var names []string
	for _, s := range t.subjects {
		names = append(names, s.name)
	}
	fmt.Fprintf(&b, `# Reference table: %s

Each scenario, compared in interleaved rounds by "cowaudit compare" with its default sizes. Made by "make reference", on one
machine: the ratios hold elsewhere, the amounts for this page size. [method.md](method.md) explains the scenarios and verdicts;
a verdict between two columns is that of the right one against the left one. Libraries without symbols, as Debian's are, give
function names only where they export them: else the place in the library.

`, strings.Join(names, ", "))
	b.WriteString("| scenario | event | metric |")
	for i, s := range t.subjects {
		if i > 0 {
			b.WriteString(" → |")
		}
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---:|---|", len(t.subjects)-1) + "---:|\n")
	last := ""
	for _, r := range t.rows {
		if r.dull() {
			continue
		}
		name := r.scenario
		if name == last {
			name = ""
		}
		last = r.scenario
		fmt.Fprintf(&b, "| %s | %s | %s |", name, audit.EventLabel(r.event), strings.ReplaceAll(r.metric, "_", " "))
		for i, c := range r.cells {
			if i > 0 {
				fmt.Fprintf(&b, " %s |", r.verdicts[i-1])
			}
			fmt.Fprintf(&b, " %s |", cell(c, r.unit))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nMedians; rows that are the same in every column are left out.\n\n## The difference, in a sentence\n\n")
	for _, n := range t.notes {
		b.WriteString("- " + n + "\n")
	}
	b.WriteString("\n## What was measured\n\n")
	for _, s := range t.subjects {
		fmt.Fprintf(&b, "- %s: %s\n", s.name, t.versions[s.name])
	}
	fmt.Fprintf(&b, "- cowaudit %s, kernel %s", t.program, t.kernel)
	if t.zero == "no" {
		b.WriteString(" without a zero page: where there is one, what is only read is not copied, and figures below 2 MiB are smaller")
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// cell writes a median with its unit.
func cell(e *audit.Estimate, unit string) string {
	switch {
	case e == nil:
		return "–"
	case unit == "bytes" && e.Median < 1<<20:
		return fmt.Sprintf("%.0f KiB", e.Median/1024)
	case unit == "bytes":
		return fmt.Sprintf("%.1f MiB", e.Median/(1<<20))
	case unit == "ratio" || unit == "count" || unit == "":
		return fmt.Sprintf("%.3g", e.Median)
	}
	return fmt.Sprintf("%.3g %s", e.Median, strings.ReplaceAll(unit, "_", " "))
}
