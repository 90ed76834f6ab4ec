package oracle

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// Random histories of a family, held against the page tables at each of their stages: what no table of expectations
// thinks of.

type history struct {
	rnd        *rand.Rand
	procs      []string
	statements []string
}

// region names and sizes; T is a huge page, F a private file mapping.
var historyRegions = []struct {
	name  string
	pages int
}{{"A", 331}, {"B", 127}, {"F", 97}, {"T", 512}}

func (h *history) say(format string, args ...any) {
	h.statements = append(h.statements, fmt.Sprintf(format, args...))
}

// step does one thing in one process. Nothing here may kill it: what is mapped stays mapped and writable.
func (h *history) step() {
	who := h.procs[h.rnd.IntN(len(h.procs))]
	r := historyRegions[h.rnd.IntN(len(historyRegions))]
	from := h.rnd.IntN(r.pages)
	to := from + 1 + h.rnd.IntN(min(40, r.pages-from))
	switch k := h.rnd.IntN(20); {
	case k < 9:
		h.say("%s: write %s %d %d %d", who, r.name, from, to, h.rnd.IntN(1000))
	case k < 12:
		h.say("%s: read %s %d %d", who, r.name, from, to)
	case k < 15:
		h.say("%s: drop %s %d %d", who, r.name, from, to)
	case k < 17:
		h.say("%s: advise %s %d %d populate_write", who, r.name, from, to)
	case len(h.procs) < 7:
		child := fmt.Sprintf("p%d", len(h.procs))
		h.say("%s: fork %s", who, child)
		h.procs = append(h.procs, child)
		h.say("stage %s-forked", child)
	default:
		h.say("%s: words %s %d %d 0", who, r.name, from, to) // stores what is there
	}
}

func randomHistory(seed uint64) []string {
	h := &history{rnd: rand.New(rand.NewPCG(seed, 1)), procs: []string{"m"}}
	h.say("anon A 331")
	h.say("write A 0 331 1")
	h.say("anon B 127")
	h.say("file F 97")
	h.say("read F 0 97")
	h.say("write F 0 23 1")
	h.say("thp T 1")
	h.say("write T 0 512 1")
	h.say("fork p1")
	h.procs = append(h.procs, "p1")
	h.say("stage p1-forked")
	for s := range 6 {
		for range 12 {
			h.step()
		}
		h.say("stage s%d", s)
	}
	return h.statements
}

func TestRandomHistories(t *testing.T) {
	requireFrames(t)
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			statements := randomHistory(seed)
			s := pages(t, statements...)
			var last *pagemap.Snapshot
			var tables map[pagemap.PID]table
			atFork := map[pagemap.PID][2]table{} // of each process and its reference, right after the fork
			raw := newTableReader(t)
			for {
				st, ok := s.next()
				if !ok {
					break
				}
				snap := snapshot(t, pagemap.Options{}, st.pids...)
				now := map[pagemap.PID]table{}
				for _, pid := range st.pids {
					now[pid] = raw.read(t, pid, nil)
				}
				r := share(t, snap, nil)
				live := share(t, open(t, pagemap.Options{NoScan: true, Contents: true}, pagemap.FamilyOptions{Alone: true}, st.pids...), nil)
				for i := range r.Family {
					p := &r.Family[i]
					checkHistory(t, st.name, p, &live.Family[i])
					if p.ReferencePID != 0 {
						for _, d := range raw.compare(now[p.ReferencePID], now[p.PID]).agrees(p.Pages) {
							t.Errorf("%s: process %d: %s", st.name, p.PID, d)
						}
						if _, old := atFork[p.PID]; !old {
							atFork[p.PID] = [2]table{now[p.PID], now[p.ReferencePID]}
						}
						own := process(t, share(t, snap, &workloadMemory), p.PID).Pages
						checkWho(t, raw, fmt.Sprintf("%s: process %d", st.name, p.PID), own, atFork[p.PID], now[p.PID], now[p.ReferencePID])
					}
				}
				if last != nil {
					d := diff(t, last, snap, nil)
					for i := range d.Family {
						p := &d.Family[i]
						if _, known := tables[p.PID]; !known {
							continue
						}
						for _, x := range raw.since(tables[p.ReferencePID], tables[p.PID], now[p.ReferencePID], now[p.PID]).agrees(p.Copied) {
							t.Errorf("%s: process %d, diff: %s", st.name, p.PID, x)
						}
					}
				}
				last, tables = snap, now
			}
			s.finish()
			if t.Failed() {
				t.Logf("statements: %q", statements)
			}
		})
	}
}

// workloadMemory is where the workload has its regions: outside of it the processes write for themselves.
var workloadMemory = audit.Range{Start: 0x100000000000, End: 0x200000000000}

// checkWho holds what one capture says of who copied against what really happened: a side is named for no more pages than
// there are on which its frame is another one than at the fork. One thing cannot be seen in a single capture, and
// docs/method.md says so: the reference copied, forked again, and the worker, left alone, wrote in place.
func checkWho(t *testing.T, raw *tableReader, what string, p audit.Pages, fork [2]table, now, ref table) {
	t.Helper()
	var worker, reference int64
	for page, e := range now.entries {
		f := ref.entries[page]
		if at := pagemap.Addr(page) * pagemap.Addr(pageSize); at < workloadMemory.Start || at >= workloadMemory.End {
			continue
		}
		if !raw.anon(e) || !raw.anon(f) || e.frame() == f.frame() {
			continue
		}
		if fork[0].entries[page].frame() != e.frame() {
			worker++
		}
		if fork[1].entries[page].frame() != f.frame() {
			reference++
		}
	}
	if p.CopiedByWorker > worker+reference || p.CopiedByReference > reference {
		t.Errorf("%s: of %d copied pages %d are said to be by the worker, whose frames changed on %d, and %d by the reference, whose frames changed on %d",
			what, p.Copied, p.CopiedByWorker, worker, p.CopiedByReference, reference)
	}
}

// checkHistory compares a process of a snapshot with the same one captured another way, and with the kernel's counts.
func checkHistory(t *testing.T, what string, p, live *audit.Process) {
	t.Helper()
	samePages(t, fmt.Sprintf("%s: process %d, from a live capture without a scan", what, p.PID), live.Pages, p.Pages)
	if got, want := ofLedger(p), totals(rollupOf(p.PID)); got != want {
		t.Errorf("%s: process %d: ledger %v, smaps_rollup %v%s", what, p.PID, got, want, byMapping(p.PID, p))
	}
}
