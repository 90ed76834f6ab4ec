package report

import "cowaudit/pagemap"

// gridBuilder adds columns to a grid whose lines are there already. All amounts have one unit; each column has its own
// number of decimals.
type gridBuilder struct {
	p      *text
	g      *grid
	scale  Scale
	narrow bool
}

func (b *gridBuilder) texts(c column, n int, f func(i int) string) {
	b.g.columns = append(b.g.columns, c)
	for i := range n {
		b.g.lines[i].cells = append(b.g.lines[i].cells, f(i))
	}
}

// amounts adds a column of memory; f gives an amount, or a text to stand in its place.
func (b *gridBuilder) amounts(c column, n int, f func(i int) (pagemap.Bytes, string)) {
	var all []pagemap.Bytes
	for i := range n {
		a, _ := f(i)
		all = append(all, a)
	}
	s := b.scale.For(all...)
	if b.narrow {
		s = s.Narrow(all...)
	}
	b.texts(c, n, func(i int) string {
		a, instead := f(i)
		if instead != "" {
			return instead
		}
		return s.amount(a)
	})
}

// pages adds a column of memory counted in pages; what is not known becomes "?".
func (b *gridBuilder) pages(c column, n int, f func(i int) (pages int64, known bool)) {
	b.amounts(c, n, func(i int) (pagemap.Bytes, string) {
		pages, known := f(i)
		if !known {
			return 0, "?"
		}
		return b.p.bytes(pages), ""
	})
}

// amount writes an exact nothing as a bare 0.
func (s Scale) amount(b pagemap.Bytes) string {
	if b == 0 {
		return "0"
	}
	return s.Format(b)
}

// names adds a last column "what".
func (b *gridBuilder) names(n int, name func(i int) string) { b.namesUnder("what", n, name) }

// namesUnder adds a last column of names that are never cut: one that does not fit goes under its row.
func (b *gridBuilder) namesUnder(head string, n int, name func(i int) string) {
	b.namesOr(head, n, func(i int) (string, string) { return name(i), name(i) })
}

// namesOr does the same with names of which there is a shorter one too, for where the long one does not fit.
func (b *gridBuilder) namesOr(head string, n int, name func(i int) (long, short string)) {
	_, w := b.g.widths(1)
	fits := func(s string) bool { return w+1+width(s) <= b.p.o.Width }
	in := make([]string, n)
	for i := range n {
		switch long, short := name(i); {
		case fits(long):
			in[i] = long
		case fits(short):
			in[i] = short
		default:
			b.g.lines[i].below = long
		}
	}
	b.texts(column{head: head, left: true}, n, func(i int) string { return in[i] })
}
