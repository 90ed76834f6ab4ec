package audit

import (
	"fmt"
	"math"
	"strings"

	"cowaudit/pagemap"
)

// From which share of a difference on a sentence says so.
const (
	wholeShare  = 0.985
	nearlyShare = 0.90
	mostShare   = 0.50
)

// conclude says in one sentence what a comparison comes to.
func conclude(r *CompareReport) string {
	row := r.mainRow(r.Verdict)
	var s string
	switch {
	case row == nil:
		s = "Nothing was measured that could be better or worse"
	case r.Verdict == VerdictSame:
		s = fmt.Sprintf("B is the same as A: of %s none differs by as much as matters (%s: %s)", plural(judgedRows(r.Rows), "metric", "metrics"),
			row.label(), row.Why)
	case r.Verdict == VerdictInconclusive:
		s = fmt.Sprintf("After %s it is not known whether B differs from A (%s: %s)", plural(r.Rounds.Done, "round", "rounds"), row.label(), row.Why)
		if row.MoreRounds > 0 {
			s += fmt.Sprintf(": %s would tell", plural(row.MoreRounds, "more round", "more rounds"))
		}
	default:
		s = row.effect()
		if d := r.difference(row.Event); d != nil && row.Metric == metricCopied {
			s += d.words(r.A.Capture.PageSize)
		}
		// What is worse decides, and is not all that there is to know.
		if better := r.mainRow(VerdictBetter); r.Verdict == VerdictWorse && better != nil {
			s += fmt.Sprintf(". It is better in %s: %s instead of %s", better.label(), better.amount(better.B.Median), better.amount(better.A.Median))
		}
	}
	if r.SameBuild {
		s = "A and B are the same build with the same settings. " + s
	}
	return s + "."
}

func judgedRows(rows []CompareRow) (n int) {
	for i := range rows {
		if rows[i].Verdict != "" {
			n++
		}
	}
	return n
}

func (r *CompareReport) difference(event string) *EventDifference {
	for i := range r.Differences {
		if r.Differences[i].Event == event {
			return &r.Differences[i]
		}
	}
	return nil
}

// label names a row: "copied bytes, first major GC".
func (r *CompareRow) label() string {
	return strings.ReplaceAll(r.Metric, "_", " ") + ", " + EventLabel(r.Event)
}

// effect says how much B differs: "B copies 29.4 MiB less in the first major GC".
func (r *CompareRow) effect() string {
	d := r.Difference.Median
	more := "more"
	if d < 0 {
		more = "less"
	}
	amount := r.amount(math.Abs(d))
	switch r.Metric {
	case metricCopied:
		return fmt.Sprintf("B copies %s %s in the %s (%s instead of %s)", amount, more, EventLabel(r.Event), r.amount(r.B.Median), r.amount(r.A.Median))
	case metricNew:
		return fmt.Sprintf("B allocates %s %s in the %s (%s instead of %s)", amount, more, EventLabel(r.Event), r.amount(r.B.Median), r.amount(r.A.Median))
	}
	return fmt.Sprintf("B is %s in %s: %s instead of %s", r.Verdict, r.label(), r.amount(r.B.Median), r.amount(r.A.Median))
}

// words says where the difference lies: region, what the writes changed, function.
func (d *EventDifference) words(page pagemap.Bytes) string {
	total := d.Total.Pages
	if total == 0 || len(d.ByRegion) == 0 {
		return ""
	}
	top := &d.ByRegion[0]
	part := func(pages float64) float64 { return pages / total }
	var s string
	switch p := part(top.Pages); {
	case p >= wholeShare:
		s = "; the whole difference is in " + top.Region.Label()
	case p >= nearlyShare:
		s = "; nearly the whole difference is in " + top.Region.Label()
	case p >= mostShare:
		s = fmt.Sprintf("; %.0f%% of the difference is in %s", 100*p, top.Region.Label())
	default:
		var names []string
		for i := range d.ByRegion[:min(3, len(d.ByRegion))] {
			g := &d.ByRegion[i]
			names = append(names, fmt.Sprintf("%s %s", signedAmountOf(g.Pages*float64(page), "bytes"), g.Region.Label()))
		}
		return "; no region has half of the difference: " + strings.Join(names, ", ")
	}
	if c := d.change(top.Region, top.Pages); c != "" {
		s += ", " + c
	}
	if d.TracedTotal == nil || d.TracedTotal.Pages == 0 {
		return s
	}
	sums := map[string]float64{}
	best := ""
	for i := range d.ByFunction {
		f := &d.ByFunction[i]
		if f.Function == "" || f.Region != top.Region {
			continue
		}
		sums[f.Function] += f.Pages
		if v := sums[f.Function] / total; v > sums[best]/total || best == "" {
			best = f.Function
		}
	}
	switch p := sums[best] / d.TracedTotal.Pages; {
	case best == "":
	case p >= nearlyShare:
		s += " written by " + best
	case p >= mostShare:
		s += fmt.Sprintf(" of which %s wrote %.0f%%", best, 100*p)
	}
	return s
}

// change says what the writes of a region's difference changed: "identical pages".
func (d *EventDifference) change(region RegionKind, pages float64) string {
	for i := range d.ByRegionChange {
		c := &d.ByRegionChange[i]
		if c.Region != region || c.Pages/pages < mostShare {
			continue
		}
		s := "pages of which the contents were not compared"
		switch c.Change {
		case changeIdentical:
			s = "identical pages"
		case "one_word":
			s = "pages with one word changed"
		case "few_words":
			s = "pages with few words changed"
		case "many_words":
			s = "pages with many words changed"
		case "rewritten":
			s = "rewritten pages"
		}
		if c.Pages/pages < nearlyShare {
			return "mostly " + s
		}
		return s
	}
	return ""
}

func signedAmountOf(v float64, unit string) string {
	if v < 0 {
		return "−" + amountOf(-v, unit)
	}
	return "+" + amountOf(v, unit)
}
