package report

import "github.com/fatih/color"

// style is how a piece of text stands out, beyond what it says: meaning never rests on it.
type style int

const (
	styleNone  style = iota
	styleBold        // headings, totals
	styleDim         // circumstances
	styleAlert       // what stands out and what keeps the numbers from being right
	styleGood        // nothing stands out
)

// painter colours text that has been laid out already. Each has its own colours, switched by Options.Color alone: the
// package variable color.NoColor, which looks at the process' standard output, plays no part.
type painter [styleGood + 1]*color.Color

func newPainter(on bool) painter {
	p := painter{
		styleBold: color.New(color.Bold), styleDim: color.New(color.Faint),
		styleAlert: color.New(color.Bold, color.FgYellow), styleGood: color.New(color.FgGreen),
	}
	for _, c := range p[styleBold:] {
		if on {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
	}
	return p
}

func (p painter) paint(s style, text string) string {
	if s == styleNone || text == "" {
		return text
	}
	return p[s].Sprint(text)
}
