// Package report renders results: pure functions from a result to a writer, one file for each format and result.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// Options of Text.
type Options struct {
	Color    bool
	Width    int  // columns of the terminal; 0: 80
	Mappings bool // list mappings, not only kinds of regions
	Runs     bool // list the runs of a fork test
	Explain  bool // show the samples behind each verdict of a gate
	// Top is the number of rows after which a table folds the rest into [N others]; 0: 20, negative: all.
	Top int
}

// Text writes a result for people: *audit.Report, *audit.DiffReport, *audit.ForktestReport, *audit.TraceReport,
// *audit.FamiliesReport, *audit.DoctorReport, *audit.CompareReport or *audit.GateReport.
func Text(w io.Writer, v any, o Options) error {
	p := newText(o)
	switch r := v.(type) {
	case *audit.Report:
		p.audit(r)
	case *audit.DiffReport:
		p.diff(r)
	case *audit.ForktestReport:
		p.forktest(r)
	case *audit.TraceReport:
		p.trace(r)
	case *audit.FamiliesReport:
		p.families(r)
	case *audit.DoctorReport:
		p.doctor(r)
	case *audit.CompareReport:
		p.compare(r)
	case *audit.GateReport:
		p.gate(r)
	default:
		return fmt.Errorf("write %T as text: not a result", v)
	}
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("write text: %w", err)
	}
	return nil
}

// text builds the text of one result.
type text struct {
	b     strings.Builder
	o     Options
	paint painter
	page  pagemap.Bytes
	notes []string // footnotes, in order of their marks
	marks []string // what a "?" stands for
}

const defaultTop = 20

func newText(o Options) *text {
	if o.Width <= 0 {
		o.Width = 80
	}
	if o.Top == 0 {
		o.Top = defaultTop
	}
	return &text{o: o, paint: newPainter(o.Color)}
}

func (p *text) bytes(pages int64) pagemap.Bytes { return pagesToBytes(pages, p.page) }

// size writes so many pages as an amount of memory.
func (p *text) size(pages int64) string { return Size(p.bytes(pages)) }

// top bounds a number of rows.
func (p *text) top(n int) int {
	if p.o.Top < 0 || n <= p.o.Top+1 { // one row is not worth folding
		return n
	}
	return p.o.Top
}

// plain writes one line as it is.
func (p *text) plain(s style, line string) {
	p.b.WriteString(p.paint.paint(s, line) + "\n")
}

func (p *text) blank() { p.b.WriteByte('\n') }

// section writes a heading.
func (p *text) section(format string, a ...any) {
	p.blank()
	p.wrap(styleBold, "", "", fmt.Sprintf(format, a...))
}

// maxProse is the width in which sentences are set where the terminal is wider: longer lines are hard to read.
const maxProse = 100

// wrap writes words over as many lines as they need; first and rest are what the lines start with.
func (p *text) wrap(s style, first, rest, words string) {
	limit := min(p.o.Width, maxProse)
	line, used := first, false
	for _, word := range strings.Fields(words) {
		if used && width(line)+1+width(word) > limit {
			p.plain(s, line)
			line, used = rest, false
		}
		if used {
			line += " "
		}
		line += word
		used = true
	}
	p.plain(s, line)
}

// cut shortens a printable text to the width, with an ellipsis in place of its end.
func cut(s string, limit int) string {
	if width(s) <= limit {
		return s
	}
	for _, n := range runeStarts(s) {
		if width(s[:n]) < limit {
			return s[:n] + "…"
		}
	}
	return "…"
}

// runeStarts gives where the runes of s start, the last first.
func runeStarts(s string) []int {
	var at []int
	for i := range s {
		at = append(at, i)
	}
	for i, j := 0, len(at)-1; i < j; i, j = i+1, j-1 {
		at[i], at[j] = at[j], at[i]
	}
	return at
}

// note makes a footnote and gives its mark. The same text has one mark.
func (p *text) note(s string) string {
	for i, n := range p.notes {
		if n == s {
			return mark(i)
		}
	}
	p.notes = append(p.notes, s)
	return mark(len(p.notes) - 1)
}

func mark(i int) string {
	marks := []string{"¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"}
	if i < len(marks) {
		return marks[i]
	}
	return fmt.Sprintf("(%d)", i+1)
}

// footnotes writes the footnotes gathered so far.
func (p *text) footnotes() {
	if len(p.notes)+len(p.marks) > 0 {
		p.blank()
	}
	for _, m := range p.marks {
		p.wrap(styleNone, "? ", "  ", m)
	}
	for i, n := range p.notes {
		p.wrap(styleNone, mark(i)+" ", "  ", n)
	}
	p.notes, p.marks = nil, nil
}

// unknown says once what a "?" in a table stands for.
func (p *text) unknown(why string) {
	if !slices.Contains(p.marks, why) {
		p.marks = append(p.marks, why)
	}
}

// table writes a grid that is built once with decimals and, where that is too wide, once without; then columns that may
// be dropped go, and a line says so.
func (p *text) table(build func(narrow bool) *grid) {
	g := build(false)
	if _, w := g.widths(1); w > p.o.Width {
		g = build(true)
	}
	dropped := g.fit(p.o.Width)
	p.b.WriteString(g.render(p.paint, "", p.o.Width))
	if len(dropped) > 0 {
		p.wrap(styleNone, "", "", fmt.Sprintf("Not shown in %d columns: %s.", p.o.Width, strings.Join(dropped, ", ")))
	}
}

// findings writes the sentences that say what stands out.
func (p *text) findings(f []audit.Finding) {
	if len(f) == 0 {
		return
	}
	p.blank()
	for i := range f {
		s := styleAlert
		switch f[i].Code {
		case "nothing_stands_out", "second_gc_quiet", "copied":
			s = styleGood
		}
		p.wrap(s, "* ", "  ", printable(f[i].Text))
	}
}

// sentence makes one of a text that has neither capital nor full stop.
func sentence(s string) string {
	s = printable(s)
	if r, n := utf8.DecodeRuneInString(s); n > 0 && !strings.HasPrefix(s, "cowaudit ") {
		s = string(unicode.ToUpper(r)) + s[n:]
	}
	return strings.TrimSuffix(s, ".") + "."
}

// warnings writes what a reader must know, each with what to do about it.
func (p *text) warnings(list []pagemap.Warning) {
	if len(list) == 0 {
		return
	}
	p.section("WARNINGS")
	n := p.top(len(list))
	for i := range list[:n] {
		w := &list[i]
		p.wrap(styleAlert, "! ", "  ", sentence(w.Text))
		if w.Remedy != "" {
			p.wrap(styleNone, "  → ", "    ", sentence(w.Remedy))
		}
	}
	if n < len(list) {
		p.plain(styleNone, fmt.Sprintf("[%d others: --all lists them]", len(list)-n))
	}
}
