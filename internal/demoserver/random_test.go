package demoserver

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/internal/demoserver/child"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// words are the counts that a single capture can give whatever happened: by whom a page was copied, and new against kept,
// are not to be told in every history.
type words struct {
	Shared, Copied, NewOrKept, Unshared, File, Zero, Held, Absent, Private, Siblings int64

	Identical, OneWord, FewWords, ManyWords, Rewritten int64
}

// TestRandomHistories holds the ledger against the model after random writes, reads, frees and forks.
func TestRandomHistories(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "kpageflags", "kpagecount")
	histories := 60
	if testing.Short() {
		histories = 8
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for seed := range histories {
		history(t, uint64(seed))
		if t.Failed() {
			return
		}
	}
}

func history(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	sh := []shape{{name: "a", pages: 1 + rnd.IntN(2500)}, {name: "s", pages: 1 + rnd.IntN(60), shared: true}, {name: "b", pages: 1 + rnd.IntN(300)}}
	s, err := newServer(sh)
	if err != nil {
		t.Fatal(err)
	}
	defer s.unmap(t)
	defer func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}()
	for range 10 + rnd.IntN(40) {
		if len(s.procs) < 6 && rnd.IntN(5) == 0 {
			if err := s.fork(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := s.do(rnd.IntN(len(s.procs)), randomOrder(rnd, sh)); err != nil {
			t.Fatal(err)
		}
	}
	r := shareOf(t, s)
	for i := range s.procs {
		for k := range sh {
			if d := cmp.Diff(modelWords(s.model, i, k), auditWords(t, r, s, i, k)); d != "" {
				t.Errorf("seed %d: process %d of %d, region %s of %d pages: -model +audit:\n%s", seed, i, len(s.procs), sh[k].name, sh[k].pages, d)
			}
		}
	}
}

func randomOrder(rnd *rand.Rand, sh []shape) child.Order {
	op := []uint64{child.OpWrite, child.OpWrite, child.OpWrite, child.OpRead, child.OpDrop}[rnd.IntN(5)]
	k := rnd.IntN(len(sh))
	n := sh[k].pages
	if sh[k].shared {
		// Giving up shared memory leaves it in the other processes; touching it maps all of it.
		return order(op, uint64(k), 0, 1, uint64(n), 512)
	}
	first, stride := rnd.IntN(n), 1+rnd.IntN(5)
	pages := 1 + rnd.IntN((n-first-1)/stride+1)
	return order(op, uint64(k), uint64(first), uint64(stride), uint64(pages), []uint64{0, 1, 2, 8, 9, 64, 65, 512}[rnd.IntN(8)])
}

func shareOf(t *testing.T, s *server) *audit.Report {
	t.Helper()
	fs := pagemap.FS("")
	var pids []pagemap.PID
	for _, p := range s.procs {
		pids = append(pids, pagemap.PID(p.pid))
	}
	procs, _, err := fs.Family(pids, pagemap.FamilyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := pagemap.Options{Contents: true, Start: pagemap.Addr(s.starts[0]), End: pagemap.Addr(s.end())}
	c, err := pagemap.NewCapture(context.Background(), fs, procs, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := audit.Share(c, audit.Options{Range: &audit.Range{Start: o.Start, End: o.End}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func auditWords(t *testing.T, r *audit.Report, s *server, proc, region int) words {
	t.Helper()
	var p audit.Pages
	var c audit.Change
	found := false
	for i := range r.Family {
		if r.Family[i].PID != pagemap.PID(s.procs[proc].pid) || r.Family[i].State != pagemap.StateAudited {
			continue
		}
		found = true
		for _, m := range r.Family[i].Mappings {
			start := pagemap.Addr(s.starts[region])
			if m.Start >= start && m.End <= start+pagemap.Addr(s.model.shapes[region].pages*os.Getpagesize()) {
				p.Add(&m.Pages)
				if m.Change != nil {
					c.Add(m.Change)
				}
			}
		}
	}
	if !found {
		t.Fatalf("process %d is not in the audit", s.procs[proc].pid)
	}
	return words{Shared: p.Shared, Copied: p.Copied, NewOrKept: p.New + p.Kept, Unshared: p.Unshared, File: p.File, Zero: p.Zero,
		Held: p.Held, Absent: p.Dropped + p.ReferenceOnly, Private: p.Private, Siblings: p.SharedWithSiblings,
		Identical: c.Identical, OneWord: c.OneWord, FewWords: c.FewWords, ManyWords: c.ManyWords, Rewritten: c.Rewritten}
}

// modelWords counts the model's pages. It looks only at what the processes have now, not at how they came to it.
func modelWords(m *model, proc, region int) words {
	var w words
	var c Counts
	for i, own := range m.procs[proc].regions[region] {
		ref := m.procs[0].regions[region][i]
		mine, theirs := own.frame >= frameFirst, ref.frame >= frameFirst
		many := mine && m.refs[own.frame] > 1
		switch {
		case own.frame == frameFile:
			w.File++
		case own.frame == frameZero:
			w.Zero++
		case proc == 0 && many:
			w.Shared++
		case proc == 0 && mine:
			w.Unshared++
		case proc == 0:
		case mine && own.frame == ref.frame:
			w.Shared++
		case mine && theirs:
			w.Copied++
			c.change(own, ref)
		case mine:
			w.NewOrKept++
		case theirs:
			w.Absent++
		}
		if mine && !many {
			w.Private++
		}
		if many && proc != 0 && own.frame != ref.frame {
			w.Siblings++
		}
	}
	w.Identical, w.OneWord, w.FewWords, w.ManyWords, w.Rewritten = c.Identical, c.OneWord, c.FewWords, c.ManyWords, c.Rewritten
	w.Held = w.Shared + w.Copied + w.NewOrKept + w.Unshared + w.File + w.Zero
	return w
}
