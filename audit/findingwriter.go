package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// agreed is how much of the copied pages a trace should explain.
const agreed = 0.99

// writer is what a sentence names: a function in one phase, in the process itself or in its reference.
type writer struct {
	name, path  string
	phase       GCPhase
	byReference bool
}

// writerSum is what a writer's rows sum to.
type writerSum struct {
	pages   int64
	change  Change
	regions map[string]int64
}

// FindingsForAttribution says who made the copies. what names the pages in the sentence ("copied pages"); across is added to
// it (" (in 5 workers)").
func FindingsForAttribution(a *Attribution, what, across string) []Finding {
	all := a.ExplainedPages + sumReasons(a.Unexplained)
	if all < minPages {
		return nil
	}
	var out []Finding
	sums := map[writer]*writerSum{}
	for i := range a.Functions {
		r := &a.Functions[i]
		w := sumAt(sums, writer{r.Name, r.Path, r.Phase, r.ByReference})
		if w.regions == nil {
			w.regions = map[string]int64{}
		}
		w.pages += r.Pages
		w.change.Add(&r.Change)
		w.regions[strings.TrimPrefix(r.Region.Label(), "the ")] += r.Pages
	}
	if g, ok := largestWriter(sums); ok {
		w := sums[g]
		of := fmt.Sprintf("%s of %s %s%s", number(w.pages), number(all), what, across)
		if share(w.pages, all) >= quarter {
			out = append(out, finding("writer", "%s: %s.", of, strings.Join(w.words(g), ", ")))
		} else {
			out = append(out, finding("writers_spread", "No function made a quarter of the copies; the most, %s: %s.", of, strings.Join(w.words(g), ", ")))
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

func largestWriter(sums map[writer]*writerSum) (best writer, ok bool) {
	all := make([]writer, 0, len(sums))
	for g := range sums {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b writer) int {
		return cmp.Or(cmp.Compare(sums[b].pages, sums[a].pages), cmp.Compare(a.name, b.name), cmp.Compare(a.path, b.path), cmp.Compare(a.phase, b.phase), cmpBool(a.byReference, b.byReference))
	})
	if len(all) == 0 {
		return best, false
	}
	return all[0], true
}

// words gives the parts of the sentence: "rb_iseq_mark_and_move", "during a major GC", "brk heap", "identical"; of the last
// two those that hold for nine tenths of the pages.
func (w *writerSum) words(of writer) []string {
	out := []string{of.name}
	if of.byReference {
		out = append(out, "in the master")
	}
	out = append(out, of.phase.during())
	known, c := w.change.Compared(), &w.change
	changes := map[string]int64{}
	if 2*known >= c.sum() {
		changes = map[string]int64{"identical": c.Identical, "one word changed": c.OneWord, "few words changed": c.FewWords, "many words changed": c.ManyWords, "rewritten": c.Rewritten}
	}
	for _, m := range []map[string]int64{w.regions, changes} {
		if name := nearlyAll(m); name != "" {
			out = append(out, name)
		}
	}
	return out
}
