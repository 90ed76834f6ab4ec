package forktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// compareFakes compares the fake subject with itself; pages says what a run of a side copies in the collections, by how often
// that side was captured.
func compareFakes(ctx context.Context, t *testing.T, c CompareConfig, pages func(side string, run int) int64) (*audit.CompareReport, error) {
	t.Helper()
	of := map[pagemap.PID]string{}
	runs := map[string]int{}
	captures := map[pagemap.PID]int{} // of a parent: the second is the one after the null event
	side := func(name string) Observer {
		return observerFunc(func(parent pagemap.PID, workers []pagemap.PID) (*pagemap.Snapshot, error) {
			if of[parent] == "" {
				of[parent] = name
				runs[name]++
			}
			captures[parent]++
			s := &pagemap.Snapshot{}
			for _, pid := range append([]pagemap.PID{parent}, workers...) {
				s.Fam.Processes = append(s.Fam.Processes, pagemap.Process{Identity: pagemap.Identity{PID: pid}})
			}
			return s, nil
		})
	}
	if c.A.Observer == nil {
		c.A.Observer, c.B.Observer = side("A"), side("B")
	}
	return compare(ctx, c, func(_, after *pagemap.Snapshot, _ audit.Options, _ bool) (*audit.DiffReport, *audit.CopiedPages, error) {
		ps := after.Fam.Processes
		name := of[ps[0].PID]
		n := pages(name, runs[name])
		if captures[ps[0].PID] == 2 {
			n = 3
		}
		c := audit.Copied{SharedBefore: 20_000, StillShared: 20_000 - n, CopiedPages: n, CopiedBytes: pagemap.Bytes(4096 * n),
			CopiedByWorker: n, Change: audit.Change{Identical: n}}
		return &audit.DiffReport{After: audit.Capture{PageSize: 4096, FramesVisible: true}, Family: []audit.ProcessDiff{{PID: ps[1].PID,
			ReferencePID: ps[0].PID, State: pagemap.StateAudited, Copied: c, Regions: []audit.RegionDiff{{Kind: audit.RegionBrkHeap, Copied: c}}}}}, nil, nil
	})
}

type observerFunc func(parent pagemap.PID, workers []pagemap.PID) (*pagemap.Snapshot, error)

func (observerFunc) Check(context.Context) error { return nil }

func (f observerFunc) Capture(_ context.Context, parent pagemap.PID, workers []pagemap.PID) (*pagemap.Snapshot, error) {
	return f(parent, workers)
}

func compareConfig(t *testing.T, wrong string) CompareConfig {
	t.Helper()
	return CompareConfig{A: fakeConfig(t, ""), B: fakeConfig(t, wrong)}
}

func TestCompareInterleaves(t *testing.T) {
	c := compareConfig(t, "")
	var order []string
	c.Progress = func(p CompareProgress) {
		if p.Phase == "starting" {
			order = append(order, fmt.Sprintf("%d%s", p.Round, p.Side))
		}
	}
	saved := 0
	c.Save = func(r *audit.CompareReport) error {
		saved++
		if !r.Rounds.Ended && r.Rounds.Done != saved {
			t.Errorf("save %d has %d rounds", saved, r.Rounds.Done)
		}
		return nil
	}
	r, err := compareFakes(context.Background(), t, c, func(side string, _ int) int64 { return map[string]int64{"A": 7663, "B": 130}[side] })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0A", "0B", "1A", "1B", "2B", "2A", "3A", "3B", "4B", "4A", "5A", "5B"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if r.Verdict != audit.VerdictBetter || r.Rounds.Done != 5 || !r.Rounds.Ended || len(r.A.Runs) != 5 || len(r.B.Runs) != 5 || saved != 6 {
		t.Errorf("%s after %+v, %d and %d runs, saved %d times", r.Verdict, r.Rounds, len(r.A.Runs), len(r.B.Runs), saved)
	}
	if !strings.HasPrefix(r.Conclusion, "B copies 29.4 MiB less in the ") || !strings.Contains(r.Conclusion, "the whole difference is in the brk heap, identical pages") {
		t.Errorf("conclusion %q", r.Conclusion)
	}
}

// scatter spreads runs evenly over 600 pages around 7,600: too much for eight rounds to tell 1% from nothing.
func scatter(_ string, run int) int64 { return 7300 + int64(run*7919%600) }

func TestCompareGoesOnWhileItCanTell(t *testing.T) {
	c := compareConfig(t, "")
	c.MaxRounds = 9
	r, err := compareFakes(context.Background(), t, c, scatter)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != audit.VerdictInconclusive || r.Rounds.Done != 9 && r.Rounds.Done != 8 || r.Rounds.Looks != 2 {
		t.Errorf("%s after %+v", r.Verdict, r.Rounds)
	}
	c = compareConfig(t, "")
	c.Rounds = 3
	if r, err = compareFakes(context.Background(), t, c, scatter); err != nil || r.Rounds.Done != 3 || r.Rounds.Looks != 1 || r.Verdict != audit.VerdictInconclusive {
		t.Errorf("three rounds were asked for: %+v, %v", r, err)
	}
}

func TestCompareResumes(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	c := compareConfig(t, "")
	c.Progress = func(p CompareProgress) {
		if p.Round == 3 && p.Side == "B" && p.Phase != "starting" {
			cancel()
		}
	}
	pages := func(side string, _ int) int64 { return map[string]int64{"A": 7663, "B": 7816}[side] }
	part, err := compareFakes(ctx, t, c, pages)
	if !errors.Is(err, context.Canceled) || part == nil || part.Rounds.Done != 2 || part.Rounds.Ended || len(part.A.Runs) != 2 || len(part.B.Runs) != 2 {
		t.Fatalf("interrupted in round 3: %v, %+v", err, part)
	}
	c.Progress, c.Resume = nil, part
	r, err := compareFakes(context.Background(), t, c, pages)
	if err != nil {
		t.Fatal(err)
	}
	if r.Rounds.Done != 5 || len(r.A.Runs) != 5 || !r.Rounds.Ended || r.Verdict != audit.VerdictWorse {
		t.Errorf("resumed: %s after %+v with %d runs", r.Verdict, r.Rounds, len(r.A.Runs))
	}
	var seq []int
	for i := range r.A.Runs {
		seq = append(seq, r.A.Runs[i].Seq)
	}
	if !slices.Equal(seq, []int{1, 2, 3, 4, 5}) {
		t.Errorf("runs %v", seq)
	}
	c.B.Subject += " other"
	var config *ConfigError
	if _, err := compareFakes(context.Background(), t, c, pages); !errors.As(err, &config) || !strings.Contains(err.Error(), "resume: B was") {
		t.Errorf("resumed with another subject: %v", err)
	}
}

func TestCompareNamesTheSideThatFails(t *testing.T) {
	r, err := compareFakes(context.Background(), t, compareConfig(t, "nogc"), func(string, int) int64 { return 1 })
	if err == nil || !strings.HasPrefix(err.Error(), "B: warm-up run: ") || r != nil {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestLooks(t *testing.T) {
	for _, c := range []struct {
		fixed, least, most int
		want               []int
		counted            int
	}{{0, 0, 20, []int{5, 8, 12, 18, 20}, 4}, {0, 0, 5, []int{5}, 1}, {3, 0, 20, []int{3}, 1}, {0, 6, 20, []int{8, 12, 18, 20}, 4}, {0, 0, 2, []int{2}, 1}} {
		got := looksFor(c.fixed, c.least, c.most)
		if !slices.Equal(got, c.want) || counted(got) != c.counted {
			t.Errorf("%d rounds fixed, %d to %d: looks after %v, of which %d count; want %v and %d", c.fixed, c.least, c.most, got, counted(got), c.want, c.counted)
		}
	}
}
