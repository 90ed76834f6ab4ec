package audit

import (
	"cmp"
	"fmt"
	"slices"

	"cowaudit/pagemap"
)

// captureOf says how and when the pages were read.
func captureOf(f *pagemap.Facts, basis Basis) Capture {
	return Capture{
		Basis: basis, Host: f.Host, Kernel: f.Kernel, TimeUnixNano: f.TimeUnixNano, DurationNano: f.DurationNano,
		PageSize: f.PageSize, FramesVisible: f.FramesVisible, FlagsVisible: f.FlagsVisible, PageMapcount: f.PageMapcount,
		Contents: f.Contents, EntriesRead: f.EntriesRead,
	}
}

// report turns the cells into the result.
func (l *ledger) report(o Options) *Report {
	r := &Report{
		SchemaVersion: SchemaVersion, Kind: KindAudit, Version: o.Version, Capture: captureOf(&l.fam.Facts, BasisSingle),
		Range: o.Range, Family: []Process{}, Findings: []Finding{}, Warnings: slices.Clone(l.fam.Warnings),
	}
	var total cell
	for i := range l.fam.Processes {
		p, sum := l.reportProcess(i)
		if l.audited[i] {
			r.Totals.Processes++
			r.Totals.RSS += p.RSS
			total.add(sum)
			if n := sum[cElsewhere]; n > 0 {
				r.Warnings = append(r.Warnings, pagemap.Warning{Code: "mapped_elsewhere", PID: p.PID,
					Text:   fmt.Sprintf("%d pages counted as new in process %d are mapped by another process at another address, or by one outside the family", n, p.PID),
					Remedy: elsewhereRemedy(o.Range != nil)})
			}
		}
		r.Family = append(r.Family, p)
	}
	r.Totals.Pages = total.pages()
	if l.fam.Facts.FramesVisible && !l.partial {
		anon := total.held() - total[cFile] - total[cZero] - total[cUnstable] - total[cUnknown]
		r.Totals.Frames = &Frames{DistinctAnon: l.distinctAnon, DistinctFile: l.distinctFile, SavedByFork: anon - l.distinctAnon}
	}
	r.Capture.UnstablePages = total[cUnstable]
	if l.fam.Facts.Contents {
		r.Totals.Change = total.change()
	}
	r.Warnings = append(r.Warnings, captureWarnings(&l.fam.Facts, total[cUnstable])...)
	if r.Warnings == nil {
		r.Warnings = []pagemap.Warning{}
	}
	return r
}

func elsewhereRemedy(ranged bool) string {
	if ranged {
		return "moved pages are recognised when the whole address space is audited: leave out --range"
	}
	return "add the processes that share them to the audit, or trace them"
}

// captureWarnings says what the circumstances of a capture keep from being known.
func captureWarnings(f *pagemap.Facts, unstable int64) (w []pagemap.Warning) {
	if !f.FramesVisible {
		w = append(w, pagemap.Warning{Code: "frames_hidden",
			Text:   "the kernel hides frame numbers from this user, so nothing says which pages are shared with the reference; only how many are mapped nowhere else is known",
			Remedy: "run as root, or with CAP_SYS_ADMIN in the initial user namespace (in a container: --privileged and the host's user namespace)"})
	} else if !f.FlagsVisible {
		w = append(w, pagemap.Warning{Code: "flags_hidden",
			Text:   "/proc/kpageflags may not be read: which side made a copy, and pages merged by KSM, cannot be told",
			Remedy: "run as uid 0 or with CAP_DAC_OVERRIDE"})
	}
	if !f.PageMapcount {
		w = append(w, pagemap.Warning{Code: "no_page_mapcount",
			Text:   "this kernel keeps no count for each page (CONFIG_NO_PAGE_MAPCOUNT): \"private\" is an estimate for huge pages",
			Remedy: "read shared and copied, which do not depend on it"})
	}
	if unstable > 0 {
		w = append(w, pagemap.Warning{Code: "unstable",
			Text:   fmt.Sprintf("%d pages changed each time they were read", unstable),
			Remedy: "run again when the processes are quieter"})
	}
	return w
}

func (l *ledger) reportProcess(i int) (Process, *cell) {
	f := &l.fam.Processes[i]
	p := Process{
		PID: f.PID, StartTicks: f.Start, ParentPID: f.PPID, ReferencePID: f.Reference, ReferenceBasis: f.Basis, NSPIDs: f.NSPID,
		State: f.State, SharesMM: f.SharesMM, Comm: f.Comm, Command: f.Command, Regions: []Region{}, Mappings: []Mapping{},
	}
	var sum cell
	if !l.audited[i] {
		return p, &sum
	}
	rows := l.rows(i)
	for _, r := range rows {
		sum.add(r.cell)
	}
	p.Pages = sum.pages()
	p.RSS = pagemap.Bytes(sum[cResident]) * l.fam.Facts.PageSize
	withChange := l.fam.Facts.Contents && l.ref[i] >= 0
	if withChange {
		p.Change = sum.change()
	}
	for _, r := range rows {
		m := Mapping{Start: r.m.Start, End: r.m.End, Perms: r.m.Perms, Path: r.m.Path, Region: r.kind, Gone: r.gone, Pages: r.cell.pages()}
		if withChange {
			m.Change = r.cell.change()
		}
		p.Mappings = append(p.Mappings, m)
	}
	p.Regions = sumRegions(rows, withChange)
	if f.Rollup != nil && l.lo == 0 && l.hi == ^pagemap.Addr(0) {
		p.Rollup = rollupCheck(f.Rollup, &sum, l.fam.Facts.PageSize)
	}
	return p, &sum
}

// row is one mapping of a process, or one of the reference's where the process has none.
type row struct {
	m    *pagemap.Mapping
	kind RegionKind
	gone bool
	cell *cell
}

// rows gives the process' mappings that hold or lost a page, by address.
func (l *ledger) rows(i int) []row {
	var rows []row
	maps := l.fam.Processes[i].Mappings
	kinds := regionKinds(maps)
	for k, c := range l.own[i] {
		if c != nil && !c.empty() {
			rows = append(rows, row{&maps[k], kinds[k], false, c})
		}
	}
	if r := l.ref[i]; r >= 0 {
		maps := l.fam.Processes[r].Mappings
		kinds := regionKinds(maps)
		for k, c := range l.gone[i] {
			if c != nil && !c.empty() {
				rows = append(rows, row{&maps[k], kinds[k], true, c})
			}
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.m.Start, b.m.Start), cmp.Compare(a.m.End, b.m.End))
	})
	return rows
}

// sumRegions adds mappings up by kind, the largest first.
func sumRegions(rows []row, withChange bool) []Region {
	at := map[RegionKind]int{}
	var cells []cell
	out := []Region{}
	for _, r := range rows {
		k, ok := at[r.kind]
		if !ok {
			k = len(out)
			at[r.kind] = k
			out = append(out, Region{Kind: r.kind})
			cells = append(cells, cell{})
		}
		out[k].Mappings++
		cells[k].add(r.cell)
	}
	for k := range out {
		out[k].Pages = cells[k].pages()
		if withChange {
			out[k].Change = cells[k].change()
		}
	}
	slices.SortFunc(out, func(a, b Region) int {
		return cmp.Or(cmp.Compare(b.Pages.Held, a.Pages.Held), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

func rollupCheck(r *pagemap.Rollup, sum *cell, page pagemap.Bytes) *RollupCheck {
	c := &RollupCheck{
		RSSPages: int64(r.RSS / page), LedgerRSSPages: sum[cResident],
		SwapPages: int64(r.Swap / page), LedgerSwap: sum[cInSwap],
	}
	c.Agrees = c.RSSPages == c.LedgerRSSPages && c.SwapPages == c.LedgerSwap
	return c
}
