package forktest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// Run does a fork test: it starts the subject afresh for each run, has the application loaded, settled and forked, and
// captures the pages before and after each event in the workers. Nothing that it started is left when it returns.
//
// The errors: *ConfigError for what cannot be done as it stands, before anything is started; *Failure for a run that did not
// come to its end; the context's.
func Run(ctx context.Context, c Config) (*audit.ForktestReport, error) {
	p, err := newPlan(c)
	if err != nil {
		return nil, err
	}
	if err := p.Observer.Check(ctx); err != nil {
		return nil, err
	}
	if err := p.checkTracer(); err != nil {
		return nil, err
	}
	return p.run(ctx, diffPages)
}

// differ is audit.DiffPages, or a test's; pages are wanted where the faults are traced.
type differ func(before, after *pagemap.Snapshot, o audit.Options, pages bool) (*audit.DiffReport, *audit.CopiedPages, error)

func diffPages(before, after *pagemap.Snapshot, o audit.Options, pages bool) (*audit.DiffReport, *audit.CopiedPages, error) {
	if pages {
		return audit.DiffPages(before, after, o)
	}
	r, err := audit.Diff(before, after, o)
	return r, nil, err
}

// experiment collects what the runs give.
type experiment struct {
	*plan
	diff   differ
	report *audit.ForktestReport
	phases int // of one run
	done   int
	known  bool // the report has the subject, of an earlier run
	loud   bool // a run did not become quiet: said once
	kernel copyCounter
}

func (p *plan) run(ctx context.Context, diff differ) (report *audit.ForktestReport, err error) {
	e := newExperiment(p, diff)
	e.openKernel()
	defer func() {
		if cerr := e.closeKernel(); cerr != nil {
			report, err = nil, errors.Join(err, cerr)
		}
	}()
	for seq := 1; seq <= p.Runs; seq++ {
		if err := e.one(ctx, seq); err != nil {
			return nil, err
		}
	}
	if err := e.finish(); err != nil {
		return nil, err
	}
	return e.report, nil
}

// openKernel has the kernel count copies beside the tracer: for tasks only that are forked after it was told to.
func (e *experiment) openKernel() {
	if e.Trace != nil {
		e.kernel = e.newCounter()
	}
}

// closeKernel ends that. Where several are open they are closed in the reverse order, since each puts back what it found.
func (e *experiment) closeKernel() error {
	if e.kernel == nil {
		return nil
	}
	return e.kernel.close()
}

func newExperiment(p *plan, diff differ) *experiment {
	return &experiment{plan: p, diff: diff, phases: 5, report: &audit.ForktestReport{
		SchemaVersion: audit.SchemaVersion, Kind: audit.KindForktest, Version: p.Version,
		Subject: audit.Subject{Name: p.Subject, Command: p.name(), Env: p.Env},
		Scenario: audit.Scenario{Name: p.Scenario, App: p.App, AppSHA256: p.appHash(), Methods: p.Methods, CallSites: p.Methods * p.CallSites,
			SettleLimit: p.Settle.String(), Warmup: p.Warmup, Workers: p.Workers},
		Environment: environment(),
		Runs:        []audit.Run{}, Warnings: []pagemap.Warning{},
	}}
}

// finish draws the conclusions from the runs.
func (e *experiment) finish() error {
	r := e.report
	r.Summary = audit.Summarize(r.Runs, r.Capture.PageSize)
	r.Findings = audit.FindingsForForktest(r)
	return audit.CheckForktest(r)
}

// one does one run.
func (e *experiment) one(ctx context.Context, seq int) (err error) {
	t, err := e.begin(seq, func(phase string) { e.progress(seq, phase) })
	if err != nil {
		return err
	}
	defer func() {
		if end := t.end(); end != nil {
			err = errors.Join(err, end)
		}
	}()
	if err := t.hello(ctx); err != nil {
		return err
	}
	if err := t.load(ctx); err != nil {
		return err
	}
	if err := t.define(ctx); err != nil {
		return err
	}
	settled, quiet, err := t.settle(ctx)
	if err != nil {
		return err
	}
	if err := t.warmUp(ctx); err != nil {
		return err
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := e.attach(t); err != nil {
		return err
	}
	if err := t.fork(ctx); err != nil {
		return err
	}
	if err := e.describe(t, settled, quiet); err != nil {
		return err
	}
	if err := e.events(ctx, t); err != nil {
		return err
	}
	t.leave()
	return nil
}

func (e *experiment) progress(run int, phase string) {
	e.done++
	if e.Progress == nil {
		return
	}
	if run == 1 {
		e.phases = max(e.phases, e.done) // how many there are shows in the first run
	}
	total := max(e.phases*e.Runs, e.done)
	e.Progress(Progress{Run: run, Runs: e.Runs, Phase: phase, Done: e.done - 1, Total: total})
}

// describe keeps what the subject says and shows of itself, and refuses one that is not the same in every run.
func (e *experiment) describe(t *trial, settled int, quiet bool) error {
	s := &e.report.Subject
	exe, malloc := look("", t.parent.pid)
	library, build := runtimeLibrary("", t.parent.pid, exe)
	now := audit.Subject{Name: s.Name, Command: s.Command, Env: s.Env, Version: t.version, Runtime: t.runtime, Executable: exe, Allocator: malloc,
		Library: library, BuildID: build}
	if e.known && !reflect.DeepEqual(now, *s) {
		return t.fail("give the path of the program itself", "the subject is not the one of the runs before: %s and not %s", identity(&now), identity(s))
	}
	*s, e.known = now, true
	e.report.Scenario.SettleRuns = max(e.report.Scenario.SettleRuns, settled)
	if !quiet && !e.Settle.Fixed && !e.loud {
		e.loud = true
		e.report.Warnings = append(e.report.Warnings, pagemap.Warning{Code: "not_settled",
			Text:   fmt.Sprintf("the parent still changed after %d collections: the first collection in a worker also pays for what was not settled", settled),
			Remedy: "give a number of collections (--settle N), or find what keeps allocating in the parent"})
	}
	return nil
}

// events does the events and captures before the first and after each.
func (e *experiment) events(ctx context.Context, t *trial) error {
	run := audit.Run{Seq: t.seq, Events: []audit.Event{}}
	before, err := e.capture(ctx, t)
	if err != nil {
		return err
	}
	for _, name := range t.events {
		t.enter("running the event " + name)
		stats, err := t.happen(ctx, name)
		if err != nil {
			return err
		}
		after, err := e.capture(ctx, t)
		if err != nil {
			return err
		}
		d, pages, err := e.diff(before.Snapshot, after.Snapshot, audit.Options{Version: e.Version}, t.tracing != nil)
		if err != nil {
			return fmt.Errorf("%s: compare the captures around %s: %w", runName(t.seq), name, err)
		}
		e.report.Capture = d.After
		for i, w := range t.workers {
			ev, err := t.judge(d, w, name, stats[i])
			if err != nil {
				return err
			}
			t.pend(len(run.Events), i, pages, before, after)
			run.Events = append(run.Events, ev)
			run.Warnings = append(run.Warnings, collected(w, name, stats[i])...)
			w.last = stats[i]
		}
		run.Warnings = addWarnings(run.Warnings, d.Warnings)
		before = after
	}
	if err := e.attribute(t, &run); err != nil {
		return err
	}
	e.report.Runs = append(e.report.Runs, run)
	return nil
}

func (e *experiment) capture(ctx context.Context, t *trial) (*traced, error) {
	pids := make([]pagemap.PID, len(t.workers))
	for i, w := range t.workers {
		pids[i] = w.pid
	}
	begin := t.moment()
	s, err := e.Observer.Capture(ctx, t.parent.pid, pids)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", runName(t.seq), err)
	}
	return &traced{s, begin, t.moment()}, nil
}

// judge takes a worker's part of a diff, and refuses one that has no meaning.
func (t *trial) judge(d *audit.DiffReport, w *worker, name string, stats map[string]int64) (audit.Event, error) {
	i := slices.IndexFunc(d.Family, func(p audit.ProcessDiff) bool { return p.PID == w.pid })
	if i < 0 {
		return audit.Event{}, t.fail("", "worker %d (process %d) could not be compared with its parent across %s", w.number, w.pid, name)
	}
	p := &d.Family[i]
	if p.State != pagemap.StateAudited || p.ReferencePID != t.parent.pid {
		return audit.Event{}, t.fail("", "worker %d (process %d) is %s after %s, judged against process %d: its pages say nothing", w.number, w.pid, p.State, name, p.ReferencePID)
	}
	if key, ok := collections(name, stats); ok && w.last != nil && stats[key] <= w.last[key] {
		return audit.Event{}, t.fail("", "worker %d did not collect in %s: %s is still %d", w.number, name, key, stats[key])
	}
	ev := audit.Event{Name: name, Worker: w.number, PID: w.pid, Copied: p.Copied, Regions: p.Regions, DurationNano: stats["duration_ns"]}
	ev.Stats = runtimeStats(stats)
	var err error
	ev.Metrics, err = t.metrics(w, name, stats)
	return ev, err
}

// collections gives the count that an event which is a full collection must raise, if the harness tells it.
func collections(name string, stats map[string]int64) (key string, ok bool) {
	switch {
	case strings.HasSuffix(name, "_major_gc"):
		key = "major_gc_count"
	case strings.HasSuffix(name, "_collection"):
		key = "full_collections"
	}
	_, ok = stats[key]
	return key, ok
}

// collected warns of a collection that ran where none was ordered.
func collected(w *worker, name string, stats map[string]int64) []pagemap.Warning {
	if name != audit.EventNull || w.last == nil {
		return nil
	}
	for _, key := range []string{"count", "full_collections"} {
		if stats[key] > w.last[key] {
			return []pagemap.Warning{{Code: "collected_in_null_event", PID: w.pid,
				Text:   fmt.Sprintf("worker %d collected by itself during the null event: the noise floor is too high", w.number),
				Remedy: "find what allocates in the worker: a thread that the application starts after the fork, perhaps"}}
		}
	}
	return nil
}

// addWarnings adds those that are not there yet.
func addWarnings(list, more []pagemap.Warning) []pagemap.Warning {
	for _, w := range more {
		if !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	return list
}
