package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// A saved comparison that was changed by hand is refused, with what does not fit.
func TestLoadRefusesComparisons(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *audit.CompareReport)
		want   string
	}{
		{"the verdict", func(r *audit.CompareReport) { r.Verdict = audit.VerdictSame }, `the verdict is "same", the rows say "better"`},
		{"a row's verdict", func(r *audit.CompareReport) { copiedRow(r).Verdict = audit.VerdictWorse }, `row copied_bytes of first_major_gc: the verdict "worse" does not follow`},
		{"no verdict", func(r *audit.CompareReport) { copiedRow(r).Verdict = "" }, `the verdict "" does not follow`},
		{"a verdict that there is not", func(r *audit.CompareReport) { copiedRow(r).Verdict = "great" }, `the verdict "great" does not follow`},
		{"the null event judged", func(r *audit.CompareReport) { r.Rows[0].Verdict = audit.VerdictSame }, `row copied_bytes of null: the verdict "same"`},
		{"a median", func(r *audit.CompareReport) { copiedRow(r).A.Median++ }, "row copied_bytes of first_major_gc, a: the median is"},
		{"an interval", func(r *audit.CompareReport) { copiedRow(r).Difference.Low = 1 }, "row copied_bytes of first_major_gc, difference"},
		{"a metric of no run", func(r *audit.CompareReport) { copiedRow(r).Metric = "smell" }, "row smell of first_major_gc, a: the median is"},
		{"a probability", func(r *audit.CompareReport) { copiedRow(r).P = 2 }, "p is 2"},
		{"a region", func(r *audit.CompareReport) { r.Differences[0].ByRegion[0].A++ }, "first_major_gc, by_region: a difference of"},
		{"a change", func(r *audit.CompareReport) { r.Differences[0].ByChange[0].Identical++ }, "first_major_gc, by_change: the rows sum to"},
		{"a total", func(r *audit.CompareReport) { r.Differences[0].TracedTotal.B += 9 }, "first_major_gc, by_function: the rows sum to"},
		{"no total", func(r *audit.CompareReport) { r.Differences[0].TracedTotal = nil }, "first_major_gc: functions without a total"},
		{"a run", func(r *audit.CompareReport) { r.B.Runs[0].Events[1].CopiedPages++ }, `event "first_major_gc" of worker 1: what became of the shared pages`},
		{"a traced run", func(r *audit.CompareReport) { r.A.Traced[0].Events[1].ExplainedPages++ }, "the functions sum to"},
		{"a page size", func(r *audit.CompareReport) { r.B.Capture.PageSize = 3 }, "page_size_bytes 3 is no page size"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := betterReport(t)
			c.change(r)
			_, err := Load(bytes.NewReader(encode(t, r)))
			if !errors.Is(err, pagemap.ErrFormat) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func copiedRow(r *audit.CompareReport) *audit.CompareRow {
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Event == audit.EventFirstMajorGC && row.Metric == "copied_bytes" {
			return row
		}
	}
	return nil
}

// A saved result of a gate that was changed by hand is refused too.
func TestLoadRefusesGates(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(g *audit.GateReport)
		want   string
	}{
		{"the verdict", func(g *audit.GateReport) { g.Verdict = audit.GatePass }, `the verdict is "pass", the rules say "fail"`},
		{"a rule's verdict", func(g *audit.GateReport) { g.Rules[0].Verdict = audit.GatePass }, `rule first major GC (max_bytes): the verdict "pass" does not follow`},
		{"a limit", func(g *audit.GateReport) { g.Rules[0].Limit = 1 << 40 }, `the verdict "fail" does not follow`},
		{"a verdict that there is not", func(g *audit.GateReport) { g.Rules[0].Verdict = "" }, `the verdict "" does not follow`},
		{"passed without a measurement", func(g *audit.GateReport) { g.Rules[3].Verdict = audit.GatePass }, `the verdict "pass" does not follow`},
		{"an interval", func(g *audit.GateReport) { g.Rules[0].Measured.High = 0 }, "is not between"},
		{"no rules", func(g *audit.GateReport) { g.Rules = nil }, `the rules say "inconclusive"`},
		{"a comparison", func(g *audit.GateReport) { g.Comparisons[0].Verdict = audit.VerdictSame }, `scenario callcache-cold: counts do not sum`},
		{"a side", func(g *audit.GateReport) { g.Comparisons[0].A.Capture.PageSize = 0 }, "page_size_bytes 0 is no page size"},
		{"an excuse", func(g *audit.GateReport) {
			g.Excuses = []audit.Excused{{Function: "f", Expired: true, Bytes: 1}}
		}, "the excuse for f took off 1 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := failedGate(t)
			c.change(g)
			_, err := Load(bytes.NewReader(encode(t, g)))
			if !errors.Is(err, pagemap.ErrFormat) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}
