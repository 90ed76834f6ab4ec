package oracle

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"cowaudit/audit"
	"cowaudit/ebpf"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// The fault tracer against programs whose truth is known, and against the page tables as they are read here.

// traceOf is a trace while it is taken.
type traceOf struct {
	*ebpf.Tracer
	t *testing.T
}

// trace starts a tracer and adds processes. It is stopped at the end of the test at the latest.
func trace(t *testing.T, o ebpf.Options, pids ...pagemap.PID) *traceOf {
	t.Helper()
	testkit.Require(t, "trace")
	tracer, err := ebpf.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tracer.Close() })
	tr := &traceOf{tracer, t}
	tr.add(pids...)
	return tr
}

// add adds processes. One that has ended is no longer there to be added.
func (tr *traceOf) add(pids ...pagemap.PID) {
	tr.t.Helper()
	if err := tr.Add(pids...); err != nil && !errors.Is(err, pagemap.ErrGone) {
		tr.t.Fatal(err)
	}
}

// end stops the tracer and gives what it saw, of which nothing may be missing.
func (tr *traceOf) end() *ebpf.Trace {
	tr.t.Helper()
	out := tr.stop()
	if out.Lost.Any() {
		tr.t.Errorf("lost: %+v", out.Lost)
	}
	return out
}

// stop is end where something may be lost; it must be counted then.
func (tr *traceOf) stop() *ebpf.Trace {
	tr.t.Helper()
	out, err := tr.Stop()
	if err != nil {
		tr.t.Fatal(err)
	}
	conservedTrace(tr.t, out)
	return out
}

// conservedTrace holds a trace against its own laws: the counts, and the records where there are any, sum to the totals
// less what was lost on the way.
func conservedTrace(t *testing.T, tr *ebpf.Trace) {
	t.Helper()
	var counts, records [ebpf.NKinds]ebpf.Tally
	var lost int64
	spaces, regions := map[ebpf.SpaceID]bool{}, map[ebpf.RegionID]bool{0: true}
	for i := range tr.Spaces {
		spaces[tr.Spaces[i].ID] = true
	}
	for i := range tr.Regions {
		regions[tr.Regions[i].ID] = true
	}
	for i := range tr.Counts {
		c := &tr.Counts[i]
		counts[c.Kind].Faults += c.Faults
		counts[c.Kind].Pages += c.Pages
		if int(c.Frame) >= len(tr.Frames) || int(c.Stack) >= len(tr.Stacks) || !spaces[c.Space] || !regions[c.Region] {
			t.Errorf("a count names what is not there: %+v", *c)
		}
	}
	for i := range tr.Faults {
		records[tr.Faults[i].Kind].Faults++
		records[tr.Faults[i].Kind].Pages += tr.Faults[i].Pages()
	}
	for k := ebpf.Kind(0); k < ebpf.NKinds; k++ {
		if k == ebpf.KindRead { // in the totals alone
			continue
		}
		if counts[k].Faults > tr.Totals[k].Faults || len(tr.Faults) > 0 && records[k] != counts[k] {
			t.Errorf("%s: records %+v, counts %+v, totals %+v", k, records[k], counts[k], tr.Totals[k])
		}
		lost += tr.Totals[k].Faults - counts[k].Faults
	}
	if lost > tr.Lost.Faults() || lost < 0 || tr.Lost.Faults() == 0 && lost != 0 {
		t.Errorf("%d faults are in the totals alone, %d are said to be lost", lost, tr.Lost.Faults())
	}
}

// spacesOf are the address spaces that a process had.
func spacesOf(tr *ebpf.Trace, pid pagemap.PID) (ids []ebpf.SpaceID) {
	for i := range tr.Spaces {
		if tr.Spaces[i].Process.PID == pid {
			ids = append(ids, tr.Spaces[i].ID)
		}
	}
	return ids
}

// during is a part of a trace; the zero value is all of it.
type during struct{ from, to time.Duration }

func (d during) has(f *ebpf.Fault) bool { return d.to == 0 || f.Time >= d.from && f.Time <= d.to }

// faultsOf gives the faults of a process in a range (nil: anywhere), for reading.
func faultsOf(tr *ebpf.Trace, pid pagemap.PID, rng *audit.Range, when during) (out []*ebpf.Fault) {
	ids := spacesOf(tr, pid)
	for i := range tr.Faults {
		f := &tr.Faults[i]
		if slices.Contains(ids, f.Space) && (rng == nil || f.Addr >= rng.Start && f.Addr < rng.End) && when.has(f) {
			out = append(out, f)
		}
	}
	return out
}

// kinds puts the faults of a process in a range into words, "copied 331, new 2".
func kinds(tr *ebpf.Trace, pid pagemap.PID, rng audit.Range) string {
	return kindsIn(faultsOf(tr, pid, &rng, during{}))
}

func kindsIn(faults []*ebpf.Fault) string {
	var n [ebpf.NKinds]int64
	for _, f := range faults {
		n[f.Kind]++
	}
	var out []string
	for k, n := range n {
		if n != 0 {
			out = append(out, fmt.Sprintf("%s %d", ebpf.Kind(k), n))
		}
	}
	return strings.Join(out, ", ")
}

// only leaves the faults of one kind.
func only(faults []*ebpf.Fault, kind ebpf.Kind) (out []*ebpf.Fault) {
	for _, f := range faults {
		if f.Kind == kind {
			out = append(out, f)
		}
	}
	return out
}

// share of faults, in per cent, for which something holds; 100 where there are none.
func percent(faults []*ebpf.Fault, holds func(f *ebpf.Fault) bool) float64 {
	n := 0
	for _, f := range faults {
		if holds(f) {
			n++
		}
	}
	if len(faults) == 0 {
		return 100
	}
	return 100 * float64(n) / float64(len(faults))
}

// names counts the faults by the name of their instruction's place.
func names(tr *ebpf.Trace, faults []*ebpf.Fault) map[string]int {
	out := map[string]int{}
	for _, f := range faults {
		out[tr.Frames[f.Frame].Name]++
	}
	return out
}

// most puts the largest of a count by name into words.
func most[K comparable](m map[K]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b K) int { return m[b] - m[a] })
	var out []string
	for _, k := range keys[:min(6, len(keys))] {
		out = append(out, fmt.Sprintf("%v: %d", k, m[k]))
	}
	return strings.Join(out, ", ")
}

// copiedPages are the numbers of the pages that were copied, by the trace.
func copiedPages(faults []*ebpf.Fault) map[uint64]bool {
	out := map[uint64]bool{}
	for _, f := range only(faults, ebpf.KindCopied) {
		if f.Detail&ebpf.DetailNoFault != 0 {
			continue
		}
		n := uint64(f.Pages())
		for first, i := uint64(f.Addr)/uint64(pageSize)&^(n-1), uint64(0); i < n; i++ {
			out[first+i] = true
		}
	}
	return out
}

// changedPages are the numbers of the pages whose anonymous frame is another one now, by the page tables: with nothing
// else going on (migration, collapse, a mapping given up and filled anew), the copied ones.
func (r *tableReader) changedPages(before, now table) map[uint64]bool {
	out := map[uint64]bool{}
	for page, e := range before.entries {
		if n, ok := now.entries[page]; ok && r.anon(e) && r.anon(n) && e.frame() != n.frame() {
			out[page] = true
		}
	}
	return out
}

// agreement is how many of the pages that either instrument shows as copied both show, in per cent.
func agreement(traced, tables map[uint64]bool) float64 {
	both := 0
	for p := range traced {
		if tables[p] {
			both++
		}
	}
	if either := len(traced) + len(tables) - both; either > 0 {
		return 100 * float64(both) / float64(either)
	}
	return 100
}

// differ tells what two sets of pages do not have in common.
func differ(traced, tables map[uint64]bool) string {
	less := func(a, b map[uint64]bool) (out []string) {
		for _, p := range slices.Sorted(maps.Keys(a)) {
			if !b[p] && len(out) < 8 {
				out = append(out, fmt.Sprintf("%x", p*uint64(pageSize)))
			}
		}
		return out
	}
	return fmt.Sprintf("traced %d, tables %d; traced alone %v, tables alone %v", len(traced), len(tables), less(traced, tables), less(tables, traced))
}
