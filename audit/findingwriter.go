package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Findings about who wrote:
//
//	writer          the function that wrote most of the copied pages, when, where, and what that changed
//	writers_spread  no function wrote a quarter of them
//	unexplained     the trace has no copy of a hundredth or more of the copied pages

// agreed is how much of the copied pages a trace should explain.
const agreed = 0.99

// writerGroup is what a sentence names: a function in one phase and one kind of region.
type writerGroup struct {
	name, path  string
	phase       GCPhase
	region      RegionKind
	byReference bool
}

// FindingsForAttribution says who made the copies. what names the pages in the sentence ("copied pages"); across is added to
// it (" (in 5 workers)").
func FindingsForAttribution(a *Attribution, what, across string) []Finding {
	all := a.ExplainedPages + sumReasons(a.Unexplained)
	if all < minPages {
		return nil
	}
	var out []Finding
	pages, changes := map[writerGroup]int64{}, map[writerGroup]*Change{}
	for i := range a.Functions {
		r := &a.Functions[i]
		g := writerGroup{r.Name, r.Path, r.Phase, r.Region, r.ByReference}
		pages[g] += r.Pages
		sumAt(changes, g).Add(&r.Change)
	}
	if g, ok := largestGroup(pages); ok {
		of := fmt.Sprintf("%s of %s %s%s", number(pages[g]), number(all), what, across)
		if share(pages[g], all) >= quarter {
			out = append(out, finding("writer", "%s: %s.", of, strings.Join(g.words(changes[g]), ", ")))
		} else {
			out = append(out, finding("writers_spread", "No function made a quarter of the copies; the most, %s: %s.", of, strings.Join(g.words(changes[g]), ", ")))
		}
	}
	if share(a.ExplainedPages, all) < agreed {
		var why []string
		for i := range a.Unexplained[:min(3, len(a.Unexplained))] {
			why = append(why, fmt.Sprintf("%s %s", number(a.Unexplained[i].Pages), a.Unexplained[i].Text))
		}
		out = append(out, finding("unexplained", "The trace explains %s of %s %s%s. The others: %s.",
			number(a.ExplainedPages), number(all), what, across, strings.Join(why, "; ")))
	}
	return out
}

func largestGroup(pages map[writerGroup]int64) (best writerGroup, ok bool) {
	groups := make([]writerGroup, 0, len(pages))
	for g := range pages {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b writerGroup) int {
		return cmp.Or(cmp.Compare(pages[b], pages[a]), cmp.Compare(a.name, b.name), cmp.Compare(a.path, b.path), cmp.Compare(a.phase, b.phase),
			cmp.Compare(a.region, b.region), cmpBool(a.byReference, b.byReference))
	})
	if len(groups) == 0 {
		return best, false
	}
	return groups[0], true
}

// words gives the parts of the sentence: "rb_iseq_mark_and_move", "during a major GC", "brk heap", "identical".
func (g writerGroup) words(c *Change) []string {
	out := []string{g.name}
	if g.byReference {
		out = append(out, "in the master")
	}
	out = append(out, g.phase.during(), strings.TrimPrefix(g.region.Label(), "the "))
	known := c.Compared()
	if 2*known < c.sum() {
		return out
	}
	for _, w := range []struct {
		pages int64
		word  string
	}{{c.Identical, "identical"}, {c.OneWord, "one word changed"}, {c.FewWords, "few words changed"}, {c.ManyWords, "many words changed"}, {c.Rewritten, "rewritten"}} {
		if 10*w.pages >= 9*known && w.pages > 0 {
			out = append(out, w.word)
		}
	}
	return out
}
