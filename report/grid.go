package report

import (
	"strings"

	"github.com/rivo/uniseg"
)

// width is the number of terminal columns that printable text takes. (The widths of go-pretty depend on the locale, and its
// colours on a package variable, so tables are laid out here.)
func width(s string) int { return uniseg.StringWidth(s) }

// column is one column of a grid.
type column struct {
	over string // a first line of the head
	head string
	left bool // aligned to the left; numbers are to the right
	// drop, where not 0, lets the column be left out when the grid is too wide, the highest first.
	drop int
}

// line is one row of a grid.
type line struct {
	cells []string
	style style
	// below is written under the row, indented, whatever its width: a path that must not be cut.
	below string
	// prose lets below be broken at its blanks.
	prose bool
}

// grid is a table: a head, rows, and no frame.
type grid struct {
	columns []column
	lines   []line
}

func (g *grid) add(cells ...string) { g.lines = append(g.lines, line{cells: cells}) }

func (g *grid) addStyled(s style, cells ...string) {
	g.lines = append(g.lines, line{cells: cells, style: s})
}

// widths gives the width of each column and of the whole with the given gap.
func (g *grid) widths(gap int) (columns []int, total int) {
	columns = make([]int, len(g.columns))
	for i := range g.columns {
		columns[i] = max(width(g.columns[i].over), width(g.columns[i].head))
		for _, l := range g.lines {
			columns[i] = max(columns[i], width(l.cells[i]))
		}
		total += columns[i] + gap
	}
	return columns, total - gap
}

// fit leaves out columns until the grid is not wider than limit, and says which.
func (g *grid) fit(limit int) (dropped []string) {
	for {
		if _, w := g.widths(1); w <= limit {
			return dropped
		}
		victim := -1
		for i, c := range g.columns {
			if c.drop > 0 && (victim < 0 || c.drop > g.columns[victim].drop) {
				victim = i
			}
		}
		if victim < 0 {
			return dropped
		}
		dropped = append(dropped, strings.TrimSpace(g.columns[victim].over+" "+g.columns[victim].head))
		g.columns = append(g.columns[:victim:victim], g.columns[victim+1:]...)
		for k := range g.lines {
			c := g.lines[k].cells
			g.lines[k].cells = append(c[:victim:victim], c[victim+1:]...)
		}
	}
}

// render writes the grid, with two blanks between columns where they fit and one where not.
func (g *grid) render(p painter, indent string, limit int) string {
	var b strings.Builder
	gap := "  "
	widths, w := g.widths(len(gap))
	if w > limit-len(indent) {
		gap = " "
		widths, _ = g.widths(len(gap))
	}
	heads, overs := make([]string, len(g.columns)), make([]string, len(g.columns))
	for i, c := range g.columns {
		heads[i], overs[i] = c.head, c.over
	}
	write := func(cells []string, s style) {
		var row strings.Builder
		for i, c := range cells {
			if i > 0 {
				row.WriteString(gap)
			}
			pad := strings.Repeat(" ", widths[i]-width(c))
			if g.columns[i].left {
				row.WriteString(c + pad)
			} else {
				row.WriteString(pad + c)
			}
		}
		b.WriteString(indent + p.paint(s, strings.TrimRight(row.String(), " ")) + "\n")
	}
	for _, h := range [][]string{overs, heads} {
		if strings.Join(h, "") != "" {
			write(h, styleBold)
		}
	}
	for _, l := range g.lines {
		write(l.cells, l.style)
		if l.below == "" {
			continue
		}
		rows := []string{l.below}
		if l.prose {
			rows = broken(l.below, limit-width(indent)-2)
		}
		for _, r := range rows {
			b.WriteString(indent + "  " + r + "\n")
		}
	}
	return b.String()
}

// broken breaks prose at its blanks into lines of the width.
func broken(words string, limit int) (lines []string) {
	at := ""
	for _, w := range strings.Fields(words) {
		switch {
		case at == "":
			at = w
		case width(at)+1+width(w) <= limit:
			at += " " + w
		default:
			lines = append(lines, at)
			at = w
		}
	}
	return append(lines, at)
}
