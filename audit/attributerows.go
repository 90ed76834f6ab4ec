package audit

import (
	"cmp"
	"slices"

	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// rowKey is what the pages of an AttributionRow have in common.
type rowKey struct {
	functionKey
	phaseKey
	region              RegionKind
	kernel, byReference bool
}

type rowSum struct {
	pages  int64
	change Change
	lines  map[sourceLine]int64
}

// attributionRows gathers copied pages by writer.
type attributionRows map[rowKey]*rowSum

func (r attributionRows) add(x *traceIndex, f *ebpf.Fault, p *copiedPage, byReference bool) {
	fr := x.frame(f.Frame)
	s := sumAt(r, rowKey{
		functionKey{frameName(fr), fr.Module, fr.Path, fr.BuildID}, phaseKey{gcPhase(f.GC.Phase), gcStep(f.GC.Step)},
		p.region, f.Detail&ebpf.DetailKernel != 0, byReference,
	})
	s.pages++
	s.change.count(p.change)
	s.line(fr.File, fr.Line, 1)
}

func (s *rowSum) line(file string, line int, n int64) {
	if file == "" {
		return
	}
	if s.lines == nil {
		s.lines = map[sourceLine]int64{}
	}
	s.lines[sourceLine{file, line}] += n
}

// list puts the rows in order, the most pages first.
func (r attributionRows) list(page pagemap.Bytes) []AttributionRow {
	out := []AttributionRow{}
	for k, s := range r {
		row := AttributionRow{
			Name: k.name, Module: k.module, Path: k.path, BuildID: k.buildID, Phase: k.phase, Step: k.step, Region: k.region,
			KernelMode: k.kernel, ByReference: k.byReference, Pages: s.pages, Bytes: pagemap.Bytes(s.pages) * page, Change: s.change,
		}
		row.File, row.Line = mostOf(s.lines)
		out = append(out, row)
	}
	SortAttribution(out)
	return out
}

// SortAttribution puts the row with the most pages first.
func SortAttribution(rows []AttributionRow) {
	slices.SortFunc(rows, func(a, b AttributionRow) int {
		return cmp.Or(cmp.Compare(b.Pages, a.Pages), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Module, b.Module),
			cmp.Compare(a.BuildID, b.BuildID), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Region, b.Region),
			cmpBool(a.KernelMode, b.KernelMode), cmpBool(a.ByReference, b.ByReference))
	})
}

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// addRows sums lists of rows up. The line of a sum is that of its largest row.
func addRows(lists ...[]AttributionRow) []AttributionRow {
	sums := attributionRows{}
	page := pagemap.Bytes(0)
	for _, list := range lists {
		for i := range list {
			r := &list[i]
			s := sumAt(sums, rowKey{
				functionKey{r.Name, r.Module, r.Path, r.BuildID}, phaseKey{r.Phase, r.Step}, r.Region, r.KernelMode, r.ByReference,
			})
			s.pages += r.Pages
			s.change.Add(&r.Change)
			s.line(r.File, r.Line, r.Pages)
			if r.Pages > 0 {
				page = r.Bytes / pagemap.Bytes(r.Pages)
			}
		}
	}
	return sums.list(page)
}

func pageSize(a *attributor) pagemap.Bytes { return pagemap.Bytes(a.page) }
