package audit

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/pagemap"
)

const (
	page  = 4096
	start = pagemap.Addr(pagemap.WindowPages * page * 8)
)

// made is a family of a master (PID 10) and workers (11, 12, …) with one private mapping of one window, by hand.
func made(workers int, fill func(who, k int) (pagemap.Entry, pagemap.KFlags)) *pagemap.Snapshot {
	s := &pagemap.Snapshot{Fam: pagemap.Family{Facts: pagemap.Facts{PageSize: page, FramesVisible: true, FlagsVisible: true, PageMapcount: true, ZeroFrames: []pagemap.PFN{9}}}}
	w := pagemap.Window{Start: start}
	for who := range workers + 1 {
		p := pagemap.Process{Identity: pagemap.Identity{PID: pagemap.PID(10 + who), Start: uint64(who)}, State: pagemap.StateAudited,
			Mappings: []pagemap.Mapping{{Start: start, End: start + pagemap.WindowPages*page, Perms: "rw-p", Path: "[heap]"}}}
		row := pagemap.Row{Entries: make([]pagemap.Entry, pagemap.WindowPages), Flags: make([]pagemap.KFlags, pagemap.WindowPages)}
		for k := range row.Entries {
			row.Entries[k], row.Flags[k] = fill(who, k)
		}
		if who > 0 {
			p.PPID, p.Reference, p.Basis = 10, 10, pagemap.ReferenceParent
		}
		s.Fam.Processes = append(s.Fam.Processes, p)
		w.Rows = append(w.Rows, row)
	}
	s.Windows = []pagemap.Window{w}
	return s
}

func TestShareFamily(t *testing.T) {
	// 1,024 pages: 0..99 copied by worker 11; 100..149 copied by the master (both workers keep the original); 150..159
	// zero; 1000..1023 nothing; the rest shared by all.
	s := made(2, func(who, k int) (pagemap.Entry, pagemap.KFlags) {
		shared := present | pagemap.Entry(1000+k)
		switch {
		case k >= 1000:
			return 0, unread
		case k < 100 && who == 1:
			return present | excl | pagemap.Entry(5000+k), ae
		case k >= 100 && k < 150 && who == 0:
			return present | excl | pagemap.Entry(6000+k), ae
		case k >= 150 && k < 160:
			return present | 9, unread
		}
		return shared, unread
	})
	r, err := Share(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Pages{
		{Shared: 1000 - 50 - 10, Unshared: 50, Zero: 10, Held: 1000, Private: 50},
		{Shared: 1000 - 100 - 50 - 10, Copied: 150, Zero: 10, Held: 1000, Private: 100, CopiedByWorker: 100, CopiedByReference: 50, SharedWithSiblings: 50},
		{Shared: 1000 - 50 - 10, Copied: 50, Zero: 10, Held: 1000, CopiedByReference: 50, SharedWithSiblings: 50},
	}
	for i, w := range want {
		if d := cmp.Diff(w, r.Family[i].Pages); d != "" {
			t.Errorf("process %d (-want +got):\n%s", r.Family[i].PID, d)
		}
	}
	// Frames: 990 of the master, 100 copies of the worker, 50 originals that the workers keep.
	if d := cmp.Diff(&Frames{DistinctAnon: 990 + 100 + 50, SavedByFork: 3*990 - 1140}, r.Totals.Frames); d != "" {
		t.Errorf("frames (-want +got):\n%s", d)
	}
}

// naive judges a page without any of the short cuts of the ledger: it is the oracle for TestStridesAgree.
func naive(l *ledger, i, k int) counter {
	s, r := l.side(i, k), l.refSide(i, k)
	if !s.e.Held() {
		return nCounters
	}
	return l.word(i, &l.fam.Processes[i].Mappings[0], k, s, r)
}

// Counting whole strides must give what counting page by page gives, whatever the pages are.
func TestStridesAgree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	kinds := []func(k int) (pagemap.Entry, pagemap.KFlags){
		func(k int) (pagemap.Entry, pagemap.KFlags) { return present | pagemap.Entry(1000+k), unread },
		func(k int) (pagemap.Entry, pagemap.KFlags) { return present | 9, unread },
		func(k int) (pagemap.Entry, pagemap.KFlags) { return swap | pagemap.Entry(32*(k+1)), unread },
		func(k int) (pagemap.Entry, pagemap.KFlags) { return 0x440000000000009f, unread },
		func(k int) (pagemap.Entry, pagemap.KFlags) {
			return present | file | pagemap.Entry(70000+k), pagemap.KFlagZeroPage
		},
		func(k int) (pagemap.Entry, pagemap.KFlags) { return 0, unread },
	}
	for round := range 50 {
		of := make([]int, pagemap.WindowPages)
		differs := make([]bool, pagemap.WindowPages)
		for k := range of {
			if k > 0 && rnd.IntN(40) > 0 {
				of[k] = of[k-1]
			} else {
				of[k] = rnd.IntN(len(kinds))
			}
			differs[k] = rnd.IntN(round*4+2) == 0
		}
		s := made(2, func(who, k int) (pagemap.Entry, pagemap.KFlags) {
			if who == 2 && differs[k] {
				return present | excl | pagemap.Entry(90000+k), ae
			}
			return kinds[of[k]](k)
		})
		r, err := Share(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := newLedger(newFamily(&s.Fam, nil))
		l.w = &s.Windows[0]
		for i := 1; i <= 2; i++ {
			var c cell
			for k := range pagemap.WindowPages {
				if w := naive(l, i, k); w < nCounters {
					c[w]++
				}
			}
			got := r.Family[i].Pages
			want := c.pages()
			was, is := want.all(), got.all()
			for j := range 11 { // the words
				if *is[j] != *was[j] {
					t.Fatalf("round %d, process %d, word %d: %d, page by page %d", round, i, j, *is[j], *was[j])
				}
			}
		}
	}
}

func TestCheckFindsBreaches(t *testing.T) {
	good := func() *Report {
		s := made(1, func(who, k int) (pagemap.Entry, pagemap.KFlags) {
			if who == 1 && k < 7 {
				return present | excl | pagemap.Entry(5000+k), ae
			}
			return present | pagemap.Entry(1000+k), unread
		})
		s.Fam.Facts.Contents = true
		r, err := Share(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if err := Check(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Report){
		"a word":            func(r *Report) { r.Family[1].Pages.Shared++ },
		"held":              func(r *Report) { r.Family[1].Pages.Held-- },
		"a side":            func(r *Report) { r.Family[1].Pages.CopiedByWorker-- },
		"a mapping":         func(r *Report) { r.Family[1].Mappings[0].Pages.Guard++ },
		"a mapping missing": func(r *Report) { r.Family[1].Mappings = nil },
		"a region":          func(r *Report) { r.Family[1].Regions[0].Pages.Dropped++ },
		"what was compared": func(r *Report) { r.Family[1].Change.Identical++ },
		"the total":         func(r *Report) { r.Totals.Pages.Private++ },
		"a negative count":  func(r *Report) { r.Family[0].Pages.Guard = -1; r.Family[0].Mappings[0].Pages.Guard = -1 },
		"distinct frames":   func(r *Report) { r.Totals.Frames.SavedByFork = -1 },
	} {
		r := good()
		spoil(r)
		if err := Check(r); !errors.Is(err, ErrConservation) {
			t.Errorf("%s spoilt: %v, want ErrConservation", name, err)
		}
	}
}

// A frame that moved for both sides at once is no copy; who copied is told by whose frame changed.
func TestDiffSides(t *testing.T) {
	before := made(1, func(who, k int) (pagemap.Entry, pagemap.KFlags) { return present | pagemap.Entry(1000+k), unread })
	after := made(1, func(who, k int) (pagemap.Entry, pagemap.KFlags) {
		shared := present | pagemap.Entry(1000+k)
		mine := present | excl | pagemap.Entry(5000+2*k+who)
		switch {
		case k < 11: // migrated
			return present | pagemap.Entry(2000+k), unread
		case k < 11+13: // copied by the worker
			if who == 1 {
				return mine, ae
			}
			return shared | excl, plain
		case k < 11+13+17: // by the master
			if who == 0 {
				return mine, ae
			}
			return shared | excl, plain
		case k < 11+13+17+19: // copied by the worker, the master's original migrated
			if who == 1 {
				return mine, ae
			}
			return mine, plain
		case k < 11+13+17+19+23: // both
			return mine, ae
		case k < 11+13+17+19+23+29: // dropped by the worker
			if who == 1 {
				return 0, unread
			}
		case k < 11+13+17+19+23+29+31: // given up by the master
			if who == 0 {
				return 0, unread
			}
			return shared | excl, plain
		}
		return shared, unread
	})
	r, err := Diff(before, after, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Family[0].Copied
	want := Copied{SharedBefore: 1024, StillShared: 1024 - 13 - 17 - 19 - 23 - 29 - 31, CopiedPages: 13 + 17 + 19 + 23, DroppedPages: 29, KeptPages: 31,
		CopiedBytes: 72 * page, CopiedByWorker: 13 + 19, CopiedByReference: 17, CopiedByBoth: 23, Change: Change{NotCompared: 72}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if r.Family[0].Regions[0].Kind != RegionBrkHeap {
		t.Errorf("region %q", r.Family[0].Regions[0].Kind)
	}
}

// A process that ended during the event is never "0 copied": what it shared is unknown.
func TestDiffExited(t *testing.T) {
	before := made(1, func(who, k int) (pagemap.Entry, pagemap.KFlags) { return present | pagemap.Entry(1000+k), unread })
	after := made(0, func(who, k int) (pagemap.Entry, pagemap.KFlags) { return present | pagemap.Entry(1000+k), unread })
	r, err := Diff(before, after, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Family[0].Copied; c.UnknownPages != 1024 || c.SharedBefore != 1024 || r.Family[0].State != pagemap.StateGone {
		t.Errorf("%+v, state %s", c, r.Family[0].State)
	}
	if len(r.Warnings) != 1 || r.Warnings[0].Code != "exited" {
		t.Errorf("warnings %+v", r.Warnings)
	}
	// And one that was forked in between has nothing to be compared with: that is said, too.
	r, err = Diff(after, before, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Family[0].State != pagemap.StateForkedSince || len(r.Warnings) != 1 || r.Warnings[0].Code != "no_baseline" {
		t.Errorf("forked since: state %s, warnings %+v", r.Family[0].State, r.Warnings)
	}
	other := made(1, func(int, int) (pagemap.Entry, pagemap.KFlags) { return 0, unread })
	other.Fam.Processes[1].Start = 77
	other.Fam.Processes[0].Start = 76
	lonely := made(0, func(int, int) (pagemap.Entry, pagemap.KFlags) { return 0, unread })
	if _, err := Diff(before, other, Options{}); !errors.Is(err, ErrUnrelated) {
		t.Errorf("another family: %v, want ErrUnrelated", err)
	}
	if _, err := Diff(lonely, lonely, Options{}); !errors.Is(err, ErrUnrelated) {
		t.Errorf("a family without workers: %v, want ErrUnrelated", err)
	}
}
