package report

import (
	"fmt"
	"math"
	"strings"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// changeWords name what a write changed, by the field of audit.Change as JSON names it.
var changeWords = map[string]string{
	"identical": "identical", "one_word": "1 word changed", "few_words": "2 to 8 words", "many_words": "9 to 64 words",
	"rewritten": "rewritten", "not_compared": "not compared",
}

// difference says where the difference of one event lies: by region and change, and by function where it was traced.
func (p *text) difference(d *audit.EventDifference) {
	event := printable(audit.EventLabel(d.Event))
	list := d.ByRegionChange
	if len(list) > 0 {
		p.deltas("WHERE the difference in the "+event+" lies", "region, what the writes changed", list, &d.Total, deltaRegion)
	}
	if d.TracedTotal != nil && len(d.ByFunction) > 0 {
		p.deltas("WHO wrote in the "+event+", in the traced round", "function, phase, region", d.ByFunction, d.TracedTotal, deltaFunction)
	}
}

func deltaRegion(d *audit.Delta) string {
	change := changeWords[d.Change]
	if change == "" {
		change = printable(d.Change)
	}
	return regionName(d.Region) + ", " + change
}

func deltaFunction(d *audit.Delta) string {
	if d.Function == "" {
		return "[not explained by the trace]"
	}
	words := []string{printable(d.Function), printable(d.Phase.Label()), regionName(d.Region)}
	return strings.Join(words, ", ")
}

// deltas writes rows of pages as amounts for each worker; what is folded and the total are rows too, and all sum.
func (p *text) deltas(title, head string, list []audit.Delta, total *audit.Delta, name func(*audit.Delta) string) {
	shown := list[:p.top(len(list))]
	rows := append([]audit.Delta{}, shown...)
	names := make([]string, 0, len(list)+2)
	for i := range shown {
		names = append(names, name(&shown[i]))
	}
	if n := len(list) - len(shown); n > 0 {
		var rest audit.Delta
		for _, d := range list[len(shown):] {
			rest.A, rest.B, rest.Pages, rest.Identical = rest.A+d.A, rest.B+d.B, rest.Pages+d.Pages, rest.Identical+d.Identical
		}
		rows, names = append(rows, rest), append(names, others(n))
	}
	rows, names = append(rows, *total), append(names, "TOTAL")
	var amounts []pagemap.Bytes
	for i := range rows {
		amounts = append(amounts, roundBytes(p.deltaBytes(rows[i].A)), roundBytes(p.deltaBytes(rows[i].B)))
	}
	scale := CommonScale(amounts...)
	p.section("%s, in %s for each worker (means)", title, scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		g.lines[len(rows)-1].style = styleBold
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		add := func(c column, f func(*audit.Delta) float64) {
			b.amounts(c, len(rows), func(i int) (pagemap.Bytes, string) { return roundBytes(p.deltaBytes(f(&rows[i]))), "" })
		}
		add(column{head: "A"}, func(d *audit.Delta) float64 { return d.A })
		add(column{head: "B"}, func(d *audit.Delta) float64 { return d.B })
		b.texts(column{head: "B - A"}, len(rows), func(i int) string {
			v := roundBytes(p.deltaBytes(rows[i].Pages))
			if v > 0 {
				return "+" + scale.For(amounts...).amount(v)
			}
			return scale.For(amounts...).amount(v)
		})
		b.texts(column{head: "share", drop: 1}, len(rows), func(i int) string { return deltaShare(rows[i].Pages, total.Pages) })
		b.namesUnder(head, len(rows), func(i int) string { return names[i] })
		return g
	})
}

// deltaShare is a row's share of the whole difference, which is negative for a row that goes the other way; "-" of none. 0% is
// never written of something, nor 100% of what is not all.
func deltaShare(part, whole float64) string {
	if whole == 0 || part == 0 {
		return "-"
	}
	share := 100 * part / whole
	switch {
	case math.Abs(share) < 0.5 && share > 0:
		return "<1%"
	case math.Abs(share) < 0.5:
		return ">-1%"
	case math.Round(share) == 100 && part != whole:
		return fmt.Sprintf("%.1f%%", share)
	}
	return fmt.Sprintf("%.0f%%", share)
}
