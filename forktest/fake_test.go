package forktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// fakeSubject speaks the protocol and needs nothing but a shell. Its workers count a collection in each event that is
// called one. What $1 says goes wrong.
const fakeSubject = `#!/bin/sh
wrong=$1
exec 4<&0
say() { printf '%s\n' "$*" >&4; }
case $wrong in
version) echo x >>"$COUNT"; v=$(wc -l <"$COUNT") ;;
*) v=1 ;;
esac
say "hello protocol=1 runtime=fake version=fake%20$v orders=$ORDERS events=${EVENTS-null,first_major_gc,second_major_gc}"
serve() {
	count=3
	while read -r word name; do
		[ "$word" = quit ] && exit
		name=${name#name=}
		case $name in
		null) [ "$wrong" = nullgc ] && count=$((count + 1)) ;;
		*) [ "$wrong" = nogc ] || count=$((count + 1)) ;;
		esac
		say "done event=$name worker=$1 duration_ns=7 count=$count major_gc_count=$count"
	done
}
while read -r word args; do
	case $word in
	settle) [ "$wrong" = restless ] && q=0 || q=1; say "settled collections=5 quiet=$q" ;;
	fork)
		i=1
		while [ $i -le ${args#workers=} ]; do
			mkfifo "$DIR/orders"
			exec 5<>"$DIR/orders"
			rm "$DIR/orders"
			serve $i <&5 &
			say "worker number=$i pid=$! orders=5"
			i=$((i + 1))
		done
		say ready ;;
	quit) exit ;;
	esac
done
`

// fakeConfig gives a Config for the fake subject, with the one worker that its shell can manage.
func fakeConfig(t *testing.T, wrong string, env ...string) Config {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "subject")
	if err := os.WriteFile(path, []byte(fakeSubject), 0o755); err != nil {
		t.Fatal(err)
	}
	return Config{
		Version: "test", Subject: joinWords([]string{path, wrong}), Runtime: RuntimeScript, Runs: 2, Timeout: time.Minute,
		Env: append([]string{"DIR=" + dir, "COUNT=" + filepath.Join(dir, "count"), "ORDERS=settle"}, env...),
	}
}

// fakeObserver counts its captures, and tells who was captured.
type fakeObserver struct {
	refuse   error
	captures [][]pagemap.PID
	fail     int // the capture that fails, from 1 on
}

func (f *fakeObserver) Check(context.Context) error { return f.refuse }

func (f *fakeObserver) Capture(_ context.Context, parent pagemap.PID, workers []pagemap.PID) (*pagemap.Snapshot, error) {
	pids := append([]pagemap.PID{parent}, workers...)
	f.captures = append(f.captures, pids)
	if len(f.captures) == f.fail {
		return nil, errors.New("no such luck")
	}
	s := &pagemap.Snapshot{}
	for _, pid := range pids {
		s.Fam.Processes = append(s.Fam.Processes, pagemap.Process{Identity: pagemap.Identity{PID: pid, Start: uint64(len(f.captures))}})
	}
	return s, nil
}

// fakeDiff finds that every worker copied as many pages as the later capture's number, of 100.
func fakeDiff(change func(*audit.DiffReport)) differ {
	return func(before, after *pagemap.Snapshot, o audit.Options, _ bool) (*audit.DiffReport, *audit.CopiedPages, error) {
		ps := after.Fam.Processes
		if n := before.Fam.Processes[0].Start + 1; n != ps[0].Start {
			return nil, nil, fmt.Errorf("capture %d is compared with capture %d", n-1, ps[0].Start)
		}
		d := &audit.DiffReport{Version: o.Version, After: audit.Capture{PageSize: 4096, FramesVisible: true, Kernel: fmt.Sprint(ps[0].Start)}}
		for _, p := range ps[1:] {
			n := int64(p.Start)
			c := audit.Copied{SharedBefore: 100, StillShared: 100 - n, CopiedPages: n, CopiedBytes: pagemap.Bytes(4096 * n),
				CopiedByWorker: n, Change: audit.Change{OneWord: n}}
			d.Family = append(d.Family, audit.ProcessDiff{PID: p.PID, ReferencePID: ps[0].PID, State: pagemap.StateAudited, Copied: c,
				Regions: []audit.RegionDiff{{Kind: audit.RegionBrkHeap, Copied: c}}})
		}
		d.Warnings = []pagemap.Warning{{Code: "some", Text: "the same each time"}}
		if change != nil {
			change(d)
		}
		return d, nil, nil
	}
}

func runFake(t *testing.T, c Config, change func(*audit.DiffReport)) (*audit.ForktestReport, error) {
	t.Helper()
	p, err := newPlan(c)
	if err != nil {
		t.Fatal(err)
	}
	return p.run(context.Background(), fakeDiff(change))
}

func TestRunWithFakes(t *testing.T) {
	o := &fakeObserver{}
	c := fakeConfig(t, "")
	c.Observer = o
	var phases []string
	c.Progress = func(p Progress) { phases = append(phases, fmt.Sprintf("%d/%d %s", p.Run, p.Runs, p.Phase)) }
	r, err := runFake(t, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.captures) != 8 { // one before each run's first event, and one after each
		t.Fatalf("%d captures: %v", len(o.captures), o.captures)
	}
	for run := range 2 {
		for i, pids := range o.captures[4*run : 4*run+4] {
			if !slices.Equal(pids, o.captures[4*run]) || len(pids) != 2 {
				t.Errorf("run %d, capture %d of %v, and of %v before", run+1, i, pids, o.captures[4*run])
			}
		}
	}
	event := func(seq int, name string, n int64, worker int) audit.Event {
		cp := audit.Copied{SharedBefore: 100, StillShared: 100 - n, CopiedPages: n, CopiedBytes: pagemap.Bytes(4096 * n), CopiedByWorker: n, Change: audit.Change{OneWord: n}}
		count := map[string]int64{"null": 3, "first_major_gc": 4, "second_major_gc": 5}[name]
		return audit.Event{Name: name, Worker: worker, PID: o.captures[4*(seq-1)][1], Copied: cp, DurationNano: 7,
			Regions: []audit.RegionDiff{{Kind: audit.RegionBrkHeap, Copied: cp}}, Stats: map[string]int64{"count": count, "major_gc_count": count}}
	}
	warnings := []pagemap.Warning{{Code: "some", Text: "the same each time"}}
	want := []audit.Run{
		{Seq: 1, Events: []audit.Event{event(1, "null", 2, 1), event(1, "first_major_gc", 3, 1), event(1, "second_major_gc", 4, 1)}, Warnings: warnings},
		{Seq: 2, Events: []audit.Event{event(2, "null", 6, 1), event(2, "first_major_gc", 7, 1), event(2, "second_major_gc", 8, 1)}, Warnings: warnings},
	}
	if diff := cmp.Diff(want, r.Runs); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	exe, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	command, _ := SplitWords(c.Subject)
	if r.Subject.Executable != exe || r.Subject.Version != "fake 1" || r.Subject.Runtime != "fake" || r.Subject.Name != c.Subject || r.Subject.Command != joinWords(command) {
		t.Errorf("subject %+v", r.Subject)
	}
	wantScenario := audit.Scenario{Name: "script", SettleRuns: 5, SettleLimit: "until quiet", Workers: 1}
	if diff := cmp.Diff(wantScenario, r.Scenario); diff != "" {
		t.Errorf("scenario (-want +got):\n%s", diff)
	}
	if r.Kind != "forktest" || r.SchemaVersion != 1 || r.Version != "test" || r.Capture.Kernel != "8" || len(r.Warnings) != 0 || len(r.Findings) == 0 {
		t.Errorf("report %+v", r)
	}
	s := r.Summary.Event("first_major_gc")
	if s == nil || s.N != 2 || s.CopiedBytes != (audit.Interval{Median: 5 * 4096, Low: 3 * 4096, High: 7 * 4096}) {
		t.Errorf("summary %+v", s)
	}
	wantPhases := []string{"starting", "settling", "forking", "running the event null", "running the event first_major_gc", "running the event second_major_gc"}
	for i, p := range append(wantPhases, wantPhases...) {
		if want := fmt.Sprintf("%d/2 %s", 1+i/6, p); i >= len(phases) || phases[i] != want {
			t.Fatalf("phase %d is not %q: %q", i, want, phases)
		}
	}
}

func TestRunJudges(t *testing.T) {
	first := func(f func(p *audit.ProcessDiff)) func(*audit.DiffReport) {
		return func(d *audit.DiffReport) { f(&d.Family[0]) }
	}
	tests := []struct {
		name, wrong string
		env         []string
		settle      Settle
		warmup      bool
		change      func(*audit.DiffReport)
		want        string // in the error
		warning     string // its code
	}{
		{name: "worker gone", change: first(func(p *audit.ProcessDiff) { p.State = pagemap.StateGone }), want: "is gone after null"},
		{name: "another reference", change: first(func(p *audit.ProcessDiff) { p.ReferencePID++ }), want: "judged against process"},
		{name: "worker missing", change: func(d *audit.DiffReport) { d.Family = nil }, want: "could not be compared with its parent across null"},
		{name: "no collection", wrong: "nogc", want: "worker 1 did not collect in first_major_gc: major_gc_count is still 3"},
		{name: "a collection in the null event", wrong: "nullgc", warning: "collected_in_null_event"},
		{name: "another subject", wrong: "version", want: "the subject is not the one of the runs before: fake 2"},
		{name: "not quiet", wrong: "restless", warning: "not_settled"},
		{name: "not quiet, and not asked to be", wrong: "restless", settle: Settle{Fixed: true, Count: 5}},
		{name: "no warmup", warmup: true, want: "has no warmup: Process.warmup came with Ruby 3.3"},
		{name: "cannot settle when asked", env: []string{"ORDERS="}, settle: Settle{Fixed: true, Count: 2}, want: "has no settle"},
		{name: "cannot settle and need not", env: []string{"ORDERS="}},
		{name: "no null event first", env: []string{"EVENTS=gc,null"}, want: "says events=gc,null: the first must be null"},
		{name: "no events", env: []string{"EVENTS="}, want: "the first must be null"},
		{name: "events of another make", env: []string{"EVENTS=null,Big"}, want: "all in small letters"},
		{name: "broken sums", change: first(func(p *audit.ProcessDiff) { p.StillShared++ }), want: "does not sum to"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := fakeConfig(t, tt.wrong, tt.env...)
			c.Observer, c.Settle, c.Warmup = &fakeObserver{}, tt.settle, tt.warmup
			r, err := runFake(t, c, tt.change)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("got %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var codes []string
			for _, w := range append(r.Runs[0].Warnings, r.Warnings...) {
				if w.Text == "" || w.Code != "some" && w.Remedy == "" {
					t.Errorf("warning without a text or a remedy: %+v", w)
				}
				codes = append(codes, w.Code)
			}
			want := []string{"some"}
			if tt.warning != "" {
				want = append(want, tt.warning)
			}
			slices.Sort(codes)
			slices.Sort(want)
			if diff := cmp.Diff(want, codes); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRunStopsWithItsObserver(t *testing.T) {
	c := fakeConfig(t, "")
	c.Observer = &fakeObserver{refuse: pagemap.ErrNoPFN}
	if _, err := Run(context.Background(), c); !errors.Is(err, pagemap.ErrNoPFN) {
		t.Errorf("refused before the start: %v", err)
	}
	o := &fakeObserver{fail: 2}
	c.Observer = o
	if _, err := runFake(t, c, nil); err == nil || err.Error() != "run 1: no such luck" || len(o.captures) != 2 {
		t.Errorf("refused at the second capture: %v, %d captures", err, len(o.captures))
	}
}
