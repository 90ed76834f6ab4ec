package forktest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/ebpf"
	"cowaudit/ebpf/taskstats"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

const (
	windowAt = pagemap.Addr(pagemap.WindowPages * 4096 * 8)
	entry    = pagemap.Entry(1 << 63) // present
	single   = pagemap.Entry(1 << 56) // mapped once
)

// pageObserver shows a parent and a worker that share 100 pages; with each capture the worker has copied 7 more of them.
type pageObserver struct{ captures [][]pagemap.PID }

func (o *pageObserver) Check(context.Context) error { return nil }

func (o *pageObserver) Capture(_ context.Context, parent pagemap.PID, workers []pagemap.PID) (*pagemap.Snapshot, error) {
	pids := append([]pagemap.PID{parent}, workers...)
	o.captures = append(o.captures, pids)
	nth := 0
	for _, c := range o.captures {
		if slices.Equal(c, pids) {
			nth++
		}
	}
	s := &pagemap.Snapshot{Fam: pagemap.Family{Facts: pagemap.Facts{PageSize: 4096, FramesVisible: true, FlagsVisible: true, PageMapcount: true}}}
	w := pagemap.Window{Start: windowAt}
	for who, pid := range pids {
		p := pagemap.Process{Identity: pagemap.Identity{PID: pid, Start: 1}, State: pagemap.StateAudited,
			Mappings: []pagemap.Mapping{{Start: windowAt, End: windowAt + 100*4096, Perms: "rw-p", Path: "[heap]"}}}
		row := pagemap.Row{Entries: make([]pagemap.Entry, pagemap.WindowPages), Flags: make([]pagemap.KFlags, pagemap.WindowPages)}
		for k := range row.Entries {
			switch row.Flags[k] = pagemap.FlagsUnread; {
			case k >= 100:
			case who > 0 && k < 7*nth:
				row.Entries[k], row.Flags[k] = entry|single|pagemap.Entry(9000+k), pagemap.KFlagAnon|pagemap.KFlagAnonExclusive
			default:
				row.Entries[k] = entry | pagemap.Entry(1000+k)
			}
		}
		if who > 0 {
			p.PPID, p.Reference, p.Basis = parent, parent, pagemap.ReferenceParent
		}
		s.Fam.Processes = append(s.Fam.Processes, p)
		w.Rows = append(w.Rows, row)
	}
	s.Windows = []pagemap.Window{w}
	return s, nil
}

// fakeTracer saw every copy that a pageObserver shows but the last of each event, one a tick of its clock.
type fakeTracer struct {
	o      *pageObserver
	now    time.Duration
	added  []pagemap.PID
	stops  int
	refuse error
}

func (f *fakeTracer) Add(pids ...pagemap.PID) error {
	f.added = append(f.added, pids...)
	return f.refuse
}

// Now is called before and after each capture: the 7 pages of an event lie between the end of one and the start of the next.
func (f *fakeTracer) Now() time.Duration {
	f.now += 100
	return f.now
}

func (f *fakeTracer) Stop() (*ebpf.Trace, error) {
	if f.stops++; f.stops > 1 {
		return nil, nil
	}
	if len(f.o.captures) == 0 {
		return &ebpf.Trace{}, nil
	}
	pids := f.o.captures[len(f.o.captures)-1]
	t := &ebpf.Trace{PageSize: 4096, Variant: "fake", Frames: []ebpf.Frame{{}, {Name: "writer"}}, Lost: ebpf.Lost{Phases: 3}}
	for i, pid := range pids {
		t.Spaces = append(t.Spaces, ebpf.Space{ID: ebpf.SpaceID(i + 1), Process: pagemap.Identity{PID: pid, Start: 1}, Provider: ebpf.Provider{Name: "flag"}})
	}
	for k := 7; k < 28; k++ {
		if k%7 == 6 {
			continue
		}
		t.Faults = append(t.Faults, ebpf.Fault{Time: time.Duration(200*(k/7) + 50), Addr: windowAt + pagemap.Addr(k)*4096, Space: 2, Frame: 1, Kind: ebpf.KindCopied,
			GC: ebpf.GC{Phase: ebpf.PhaseMajor, Step: ebpf.StepMarking}})
	}
	t.Totals[ebpf.KindCopied] = ebpf.Tally{Faults: 18, Pages: 18}
	t.Counts = []ebpf.Count{{Space: 2, Frame: 1, Kind: ebpf.KindCopied, Faults: 18, Pages: 18}}
	return t, nil
}

// fakeCounter counts 7 copies from one reading to the next but one.
type fakeCounter struct {
	n      int64
	closed int
	err    error
}

func (f *fakeCounter) copies(pagemap.PID) kernelCopies {
	f.n++
	return kernelCopies{n: (f.n - 1) / 2 * 7}
}

func (f *fakeCounter) close() error {
	f.closed++
	return f.err
}

func tracedPlan(t *testing.T, o *pageObserver, counter copyCounter) (*plan, *[]*fakeTracer) {
	t.Helper()
	c := fakeConfig(t, "")
	c.Observer, c.Trace = o, &TraceConfig{}
	p, err := newPlan(c)
	if err != nil {
		t.Fatal(err)
	}
	var tracers []*fakeTracer
	p.newTracer = func(opt ebpf.Options) (tracer, error) {
		if !opt.Faults || opt.Stacks || opt.NoFollow {
			t.Errorf("options %+v", opt)
		}
		tracers = append(tracers, &fakeTracer{o: o})
		return tracers[len(tracers)-1], nil
	}
	p.newCounter = func() copyCounter { return counter }
	return p, &tracers
}

func TestTraceWithFakes(t *testing.T) {
	o, counter := &pageObserver{}, &fakeCounter{}
	p, tracers := tracedPlan(t, o, counter)
	r, err := p.run(context.Background(), diffPages)
	if err != nil {
		t.Fatal(err)
	}
	if len(*tracers) != 2 || counter.closed != 1 {
		t.Fatalf("%d tracers, counter closed %d times", len(*tracers), counter.closed)
	}
	for i, tr := range *tracers {
		if parent := o.captures[4*i][0]; !slices.Equal(tr.added, []pagemap.PID{parent}) || tr.stops != 2 {
			t.Errorf("run %d: added %v, not the parent %d; stopped %d times", i+1, tr.added, parent, tr.stops)
		}
	}
	want := audit.AttributionRow{Name: "writer", Phase: audit.GCMajor, Step: audit.StepMarking, Region: audit.RegionBrkHeap, Pages: 6, Bytes: 6 * 4096, Change: audit.Change{NotCompared: 6}}
	for _, run := range r.Runs {
		for _, e := range run.Events {
			a := e.Attribution
			if e.CopiedPages != 7 || a == nil || a.ExplainedPages != 6 || a.TracedCopies != 6 || a.Profile != nil {
				t.Fatalf("%s: %d copied, %+v", e.Name, e.CopiedPages, a)
			}
			if d := cmp.Diff([]audit.AttributionRow{want}, a.Functions); d != "" {
				t.Errorf("%s (-want +got):\n%s", e.Name, d)
			}
			if a.Counts.KernelWPCopy == nil || *a.Counts.KernelWPCopy != 7 || a.Counts.Traced != 6 {
				t.Errorf("%s: counts %+v", e.Name, a.Counts)
			}
		}
	}
	if s := r.Summary.Event("null"); s.Attribution == nil || s.ExplainedPages != 12 || s.Functions[0].Pages != 12 || *s.Counts.KernelWPCopy != 14 {
		t.Errorf("summary %+v", s.Attribution)
	}
	if r.Tracer == nil || r.Tracer.Variant != "fake" || r.Tracer.Lost.Phases != 6 || r.Tracer.Collector.Name != "flag" {
		t.Errorf("tracer %+v", r.Tracer)
	}
	if w := r.Runs[0].Warnings; !slices.ContainsFunc(w, func(w pagemap.Warning) bool { return w.Code == "lost_phases" }) {
		t.Errorf("warnings %+v", w)
	}
}

// However a run ends, the tracer comes off and the kernel's counting is put back.
func TestTraceEnds(t *testing.T) {
	counter := &fakeCounter{}
	p, tracers := tracedPlan(t, &pageObserver{}, counter)
	p.Observer = &fakeObserver{fail: 1}
	if _, err := p.run(context.Background(), diffPages); err == nil || err.Error() != "run 1: no such luck" {
		t.Errorf("error %v", err)
	}
	if len(*tracers) != 1 || (*tracers)[0].stops != 1 || counter.closed != 1 {
		t.Errorf("%d tracers, the first stopped %d times; counter closed %d times", len(*tracers), (*tracers)[0].stops, counter.closed)
	}
	counter = &fakeCounter{err: errors.New("stuck")}
	p, _ = tracedPlan(t, &pageObserver{}, counter)
	if r, err := p.run(context.Background(), diffPages); err == nil || r != nil || err.Error() != "stuck" {
		t.Errorf("a count that was not put back: %v, %v", r, err)
	}
}

func TestTraceRefused(t *testing.T) {
	no := errors.New("CAP_BPF is missing")
	p, _ := tracedPlan(t, &pageObserver{}, &fakeCounter{})
	p.newTracer = func(ebpf.Options) (tracer, error) { return nil, no }
	if err := p.checkTracer(); !errors.Is(err, no) || !strings.Contains(err.Error(), "without --trace the page tables alone are measured") {
		t.Errorf("error %v", err)
	}
	p.Trace = nil
	if err := p.checkTracer(); err != nil {
		t.Errorf("not asked for: %v", err)
	}
}

func TestKernelCopiesUntil(t *testing.T) {
	for _, tt := range []struct{ from, to, want kernelCopies }{
		{kernelCopies{n: 5}, kernelCopies{n: 18}, kernelCopies{n: 13}},
		{kernelCopies{why: "a"}, kernelCopies{n: 18}, kernelCopies{why: "a"}},
		{kernelCopies{n: 5}, kernelCopies{why: "b"}, kernelCopies{why: "b"}},
		{kernelCopies{counts: &taskstats.Counts{Identity: pagemap.Identity{PID: 3}}}, kernelCopies{counts: &taskstats.Counts{Identity: pagemap.Identity{PID: 4}}},
			kernelCopies{why: "process 4 is not process 3 of the earlier reading"}},
	} {
		if got := tt.from.until(tt.to); got != tt.want {
			t.Errorf("%+v until %+v: %+v, want %+v", tt.from, tt.to, got, tt.want)
		}
	}
}

// Page tables and tracer agree on 99% of the pages or better, in every run of every Ruby, and so does the kernel's count
// where it can be had.
func TestTraceRubies(t *testing.T) {
	testkit.Require(t, "pagemap", "rubies", "trace")
	for _, ruby := range testkit.Rubies(t) {
		t.Run(ruby.Version, func(t *testing.T) {
			r := mustRun(t, Config{Subject: ruby.Command, Runs: 3, Trace: &TraceConfig{Stacks: ruby.Version == "3.3"}})
			for _, run := range r.Runs {
				for _, e := range run.Events {
					a := e.Attribution
					if 100*a.ExplainedPages < 99*e.CopiedPages {
						t.Errorf("run %d, %s: %d of %d pages explained: %+v", run.Seq, e.Name, a.ExplainedPages, e.CopiedPages, a.Unexplained)
					}
					if 100*(a.TracedCopies-e.CopiedPages) > max(e.CopiedPages, 300) {
						t.Errorf("run %d, %s: %d copies traced for %d pages: %+v", run.Seq, e.Name, a.TracedCopies, e.CopiedPages, a.TracedNotCopied)
					}
					t.Logf("run %d, %s: %s; residue %+v", run.Seq, e.Name, a.Counts.Sentence(), a.Counts.Residue)
					if k := a.Counts.KernelWPCopy; k != nil && 100*max(*k-e.CopiedPages, e.CopiedPages-*k) > max(e.CopiedPages, 500) {
						t.Errorf("run %d, %s: %s", run.Seq, e.Name, a.Counts.Sentence())
					}
				}
				for _, w := range run.Warnings {
					t.Errorf("run %d warns: %+v", run.Seq, w)
				}
			}
			if null := event(t, r, "null"); null.CopiedBytes.High >= noise {
				t.Errorf("the null event copies up to %d bytes under the tracer", null.CopiedBytes.High)
			}
			first := event(t, r, "first_major_gc")
			during := int64(0)
			for _, f := range first.Functions {
				if f.Phase.During() {
					during += f.Pages
				}
			}
			if 10*during < 8*first.ExplainedPages {
				t.Errorf("%d of %d pages were copied during a collection: %+v", during, first.ExplainedPages, r.Tracer)
			}
			if (first.Profile != nil) || (r.Runs[0].Events[1].Profile != nil) != r.Tracer.Stacks {
				t.Errorf("a profile of the sum, or none of an event with stacks")
			}
			t.Log(r.Findings[0].Text, r.Tracer)
		})
	}
}

// The writer has its name where the library has symbols: of two builds that differ in one line, one function makes nearly
// all copies of the first major GC in the one and nearly none in the other.
func TestTraceRubyPair(t *testing.T) {
	testkit.Require(t, "pagemap", "trace", "ruby-pair")
	pair := testkit.RubyPair(t)
	for _, tt := range []struct {
		name, env string
		most      bool
	}{{"A", pair.EnvA, true}, {"B", pair.EnvB, false}} {
		t.Run(tt.name, func(t *testing.T) {
			r := mustRun(t, Config{Subject: pair.Command, Env: []string{tt.env}, Runs: 2, Trace: &TraceConfig{Lines: true}})
			for _, run := range r.Runs {
				e := &run.Events[1]
				named := int64(0)
				for _, f := range e.Functions {
					if f.Name == "rb_iseq_mark_and_move" && f.Phase == audit.GCMajor {
						named += f.Pages
					}
				}
				if tt.most && 100*named < 95*e.CopiedPages || !tt.most && 100*named > 5*max(e.CopiedPages, 100) || 100*e.ExplainedPages < 99*e.CopiedPages {
					t.Errorf("run %d: rb_iseq_mark_and_move copied %d of %d pages, %d are explained: %s", run.Seq, named, e.CopiedPages, e.ExplainedPages, e.Counts.Sentence())
				}
			}
			if f := r.Runs[0].Events[1].Functions[0]; tt.most && (f.File != "iseq.c" || f.Change.Identical < f.Pages*9/10 || f.Region != audit.RegionBrkHeap) {
				t.Errorf("the first row %+v", f)
			}
			t.Log(r.Findings[0].Text)
		})
	}
}
