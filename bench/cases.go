package main

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// family is what the benchmark server is made of.
type family struct {
	mib, workers, permille, mappings, sparseGiB int
	huge                                        bool
}

func (f family) args() []string {
	huge := 0
	if f.huge {
		huge = 1
	}
	var a []string
	for _, n := range []int{f.mib, f.workers, f.permille, max(f.mappings, 1), f.sparseGiB, huge} {
		a = append(a, fmt.Sprint(n))
	}
	return a
}

// needMiB is the memory that the family takes: pages, page tables, something for the programs that read.
func (f family) needMiB() int64 {
	pages := f.mib + f.mib*f.workers*f.permille/1000
	tables := f.mib * (f.workers + 1) / 512
	return int64(pages + tables + 512)
}

func (f family) String() string {
	s := fmt.Sprintf("a master and %d workers of %s each", f.workers, size(f.mib))
	if f.workers == 1 {
		s = fmt.Sprintf("a master and a worker of %s each", size(f.mib))
	}
	if f.permille > 0 {
		s += fmt.Sprintf(", each worker wrote %g%% of the pages since", float64(f.permille)/10)
	}
	if f.mappings > 1 {
		s += fmt.Sprintf(", %d mappings", f.mappings)
	}
	if f.sparseGiB > 0 {
		s += fmt.Sprintf(", %s reserved", size(f.sparseGiB*1024))
	}
	if f.huge {
		s += ", in huge pages"
	}
	return s
}

func size(mib int) string {
	switch {
	case mib >= 1<<20:
		return fmt.Sprintf("%.3g TiB", float64(mib)/(1<<20))
	case mib >= 1<<10:
		return fmt.Sprintf("%.3g GiB", float64(mib)/(1<<10))
	}
	return fmt.Sprintf("%d MiB", mib)
}

// group is one table of the result.
type group struct {
	name  string // for the command line
	title string
	rows  []row
	// programs has a line for each program on one family; else there is one for each family.
	programs bool
	bars     bool // held against the bars
	rounds   int  // at most; 0: as asked
	// A group about the fault tracer has this and none of the above but a name. rounds is 0 where no number was asked for.
	faults func(ctx context.Context, t *tools, rounds int, out, progress io.Writer) error
	// asked for by its whole name alone.
	hidden bool
}

// row is one family and the programs that read it.
type row struct {
	label    string
	fam      family
	programs []string
	// like is the family without a reservation, which must cost the same; it runs at the same time.
	like *family
}

// Names of programs.
const (
	unit          = "unit: C, pread of all pagemaps, one thread"
	auditPages    = "cowaudit audit --contents=false --check never"
	auditContents = "cowaudit audit, contents compared"
	auditLike     = "the same without the reservation"
	rollups       = "C, smaps_rollup of all"
	smem          = "smem -P"
	pmap          = "pmap -X"
)

func groups() []group {
	headline := family{mib: 1741, workers: 26, permille: 100} // 1.7 GiB
	untouched, huge := headline, headline
	untouched.permille, huge.permille, huge.huge = 0, 0, true
	contents := family{mib: 1741, workers: 2, permille: 100}
	return []group{
		{name: "headline", programs: true, bars: true, rows: []row{
			{label: headline.String(), fam: headline, programs: []string{unit, auditPages, rollups, smem, pmap}}}},
		{name: "untouched", programs: true, bars: true, rows: []row{{label: untouched.String(), fam: untouched, programs: []string{unit, auditPages}}}},
		{name: "huge", programs: true, rows: []row{{label: huge.String(), fam: huge, programs: []string{unit, auditPages}}}},
		{name: "contents", programs: true, rounds: 3, rows: []row{
			{label: contents.String(), fam: contents, programs: []string{unit, auditPages, auditContents}}}},
		series("size", "By size: one worker, a tenth written", []int{256, 1024, 4096, 12288}, size,
			func(n int) family { return family{mib: n, workers: 1, permille: 100} }),
		series("workers", "By workers: 512 MiB each, a tenth written", []int{1, 4, 16, 64}, plain,
			func(n int) family { return family{mib: 512, workers: n, permille: 100} }),
		series("mappings", "By mappings: 4 workers of 512 MiB, a tenth written", []int{10, 1000, 10000, 60000}, plain,
			func(n int) family { return family{mib: 512, workers: 4, permille: 100, mappings: n} }),
		sparse(),
		{name: "trace", faults: faultGroup(watchers)},
		{name: "trace-busy", faults: func(ctx context.Context, t *tools, rounds int, out, progress io.Writer) error {
			res, err := t.measureBusy(ctx, storm{workers: 4, rounds: 120, pages: 200}, max(rounds, leastPairs), progress)
			if err == nil {
				res.write(out)
			}
			return err
		}},
		{name: "trace-own", hidden: true, faults: faultGroup(ownWatchers)},
		{name: "trace-quick", hidden: true, faults: faultGroup(func() []watcher {
			return slices.DeleteFunc(ownWatchers(), func(w watcher) bool { return w.bar == 0 || w.program != "" })
		})},
	}
}

// faultRounds and leastPairs are the rounds of the groups about the fault tracer where none are asked for.
const (
	faultRounds = 5
	leastPairs  = 41
)

// faultGroup measures some watchers.
func faultGroup(list func() []watcher) func(context.Context, *tools, int, io.Writer, io.Writer) error {
	return func(ctx context.Context, t *tools, rounds int, out, progress io.Writer) error {
		if rounds == 0 {
			rounds = faultRounds
		}
		res, err := t.measureFaults(ctx, list(), copiedPages, rounds, progress)
		if err == nil {
			res.write(out, rounds)
		}
		return err
	}
}

func plain(n int) string { return fmt.Sprint(n) }

func series(name, title string, values []int, label func(int) string, of func(int) family) group {
	g := group{name: name, title: title}
	for _, n := range values {
		programs := []string{unit, auditPages}
		if name == "mappings" {
			programs = append(programs, rollups)
		}
		g.rows = append(g.rows, row{label: label(n), fam: of(n), programs: programs})
	}
	return g
}

// sparse compares a family with a reservation of 1 TiB, 16 pages of it touched, with one without. The unit reads every entry
// of the reservation, which takes minutes, and is left out.
func sparse() group {
	without := family{mib: 512, workers: 4, permille: 100}
	with := without
	with.sparseGiB = 1024
	return group{name: "sparse", programs: true, rows: []row{
		{label: with.String(), fam: with, like: &without, programs: []string{auditLike, auditPages}}}}
}
