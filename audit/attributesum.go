package audit

import (
	"cmp"
	"slices"

	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// SumAttributions adds up attributions of several workers or runs. The samples are left out: they are each process' own.
func SumAttributions(list []*Attribution) *Attribution {
	out := &Attribution{}
	var rows, byNumber [][]AttributionRow
	unexplained, notCopied := map[string]*Reason{}, map[string]*Reason{}
	for _, a := range list {
		out.ExplainedPages += a.ExplainedPages
		out.TracedCopies += a.TracedCopies
		out.TracedPages += a.TracedPages
		out.RepeatedCopies += a.RepeatedCopies
		out.QuietCopies += a.QuietCopies
		out.MatchedPages += a.MatchedPages
		out.SameCopyPages += a.SameCopyPages
		rows, byNumber = append(rows, a.Functions), append(byNumber, a.ByNumber)
		addReasons(unexplained, a.Unexplained)
		addReasons(notCopied, a.TracedNotCopied)
	}
	out.Functions, out.ByNumber = addRows(rows...), addRows(byNumber...)
	out.Unexplained, out.TracedNotCopied = listReasons(unexplained), listReasons(notCopied)
	out.Counts = sumCounts(list)
	return out
}

// NewTracer says how a fork test's run was traced, and adds what was lost to what the runs before had lost; before is nil
// for the first.
func NewTracer(t *ebpf.Trace, worker pagemap.PID, stacks bool, before *Tracer) *Tracer {
	out := &Tracer{Variant: t.Variant, SeesQuiet: t.Quiet, Stacks: stacks, Collector: Collector{Name: "none"}, Lost: LostParts(t.Lost)}
	for i := range t.Spaces {
		if s := &t.Spaces[i]; s.Process.PID == worker {
			out.Collector = Collector(s.Provider)
		}
	}
	if before != nil {
		out.Lost.add(&before.Lost)
	}
	return out
}

func (l *LostParts) add(o *LostParts) {
	l.Records += o.Records
	l.Counts += o.Counts
	l.Threads += o.Threads
	l.Spaces += o.Spaces
	l.Stacks += o.Stacks
	l.Regions += o.Regions
	l.Phases += o.Phases
	l.Missed += o.Missed
}

func addReasons(m map[string]*Reason, list []Reason) {
	for _, r := range list {
		if m[r.Code] == nil {
			m[r.Code] = &Reason{Code: r.Code, Text: r.Text}
		}
		m[r.Code].Pages += r.Pages
	}
}

func listReasons(m map[string]*Reason) []Reason {
	out := []Reason{}
	for _, r := range m {
		out = append(out, *r)
	}
	sortReasons(out)
	return out
}

// sumCounts adds the three counts up; nil where one has none. The kernel's is known if every one is.
func sumCounts(list []*Attribution) *Counts {
	out := &Counts{Residue: []Residue{}}
	var kernel, explained int64
	known := true
	type key struct{ of, code string }
	sums := map[key]*Residue{}
	for _, a := range list {
		c := a.Counts
		if c == nil {
			return nil
		}
		out.PageTables += c.PageTables
		out.Traced += c.Traced
		out.Differs.Zero += c.Differs.Zero
		out.Differs.File += c.Differs.File
		out.Differs.HugeTLB += c.Differs.HugeTLB
		out.Differs.Folios += c.Differs.Folios
		explained += a.ExplainedPages
		if c.KernelWPCopy != nil {
			kernel += *c.KernelWPCopy
		} else {
			known, out.KernelWhy = false, cmp.Or(out.KernelWhy, c.KernelWhy)
		}
	}
	for _, a := range list {
		for _, r := range a.Counts.Residue {
			if r.Of == ResidueKernel && !known {
				continue
			}
			if sums[key{r.Of, r.Code}] == nil {
				sums[key{r.Of, r.Code}] = &Residue{Of: r.Of, Code: r.Code, Text: r.Text}
			}
			sums[key{r.Of, r.Code}].Pages += r.Pages
		}
	}
	if known && len(list) > 0 {
		out.KernelWPCopy = &kernel
	}
	if out.PageTables > 0 {
		p := 100 * share(explained, out.PageTables)
		out.AgreementPercent = &p
	}
	for _, r := range sums {
		if r.Pages != 0 {
			out.Residue = append(out.Residue, *r)
		}
	}
	slices.SortFunc(out.Residue, func(a, b Residue) int {
		return cmp.Or(-cmp.Compare(a.Of, b.Of), cmp.Compare(a.Code, b.Code))
	})
	return out
}
