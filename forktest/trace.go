package forktest

import (
	"errors"
	"fmt"
	"time"

	"cowaudit/audit"
	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// TraceConfig asks for the fault tracer beside the page tables: each event then says who made its copies
// ([audit.Attribution]). It needs what [ebpf.Start] needs.
type TraceConfig struct {
	Stacks    bool   // take the user stack of each copy too
	Lines     bool   // source lines where there is DWARF
	Collector string // how the GC phase is learnt: see ebpf.Options
}

// tracer is [ebpf.Tracer], or a test's.
type tracer interface {
	Add(pids ...pagemap.PID) error
	Now() time.Duration
	Stop() (*ebpf.Trace, error) // a second time: nil, and no error
}

// tracing is the tracer of one run. It is attached to the parent before the fork, so that what attaching writes (the
// breakpoints of GC probes) is written before there is a worker to share it with, and follows the workers; what it copies
// all the same, the null event shows.
type tracing struct {
	tracer
	kernel  copyCounter
	stacks  bool
	pending []pendingEvent
}

// moment is a time on the trace's clock, with what the kernel has counted for each worker by then.
type moment struct {
	at     time.Duration
	copies []kernelCopies
}

// traced is a snapshot with the moments between which it was taken.
type traced struct {
	*pagemap.Snapshot
	begin, end moment
}

// pendingEvent is an event that waits for the end of the trace, which has the names.
type pendingEvent struct {
	event    int // of the run
	pages    *audit.CopiedPages
	from, to time.Duration
	copies   kernelCopies
}

func startTracer(o ebpf.Options) (tracer, error) {
	t, err := ebpf.Start(o)
	if err != nil {
		return nil, err // and no tracer that is not nil
	}
	return t, nil
}

// checkTracer makes sure that faults can be traced before anything is started.
func (p *plan) checkTracer() error {
	if p.Trace == nil {
		return nil
	}
	t, err := p.startTracing()
	if err != nil {
		return err
	}
	if _, err := t.Stop(); err != nil {
		return fmt.Errorf("take the fault tracer off again: %w", err)
	}
	return nil
}

func (p *plan) startTracing() (tracer, error) {
	t, err := p.newTracer(ebpf.Options{Faults: true, Stacks: p.Trace.Stacks, Lines: p.Trace.Lines, Collector: p.Trace.Collector})
	if err != nil {
		return nil, fmt.Errorf("trace the page faults: %w; without --trace the page tables alone are measured", err)
	}
	return t, nil
}

// attach starts to trace the parent of a run.
func (e *experiment) attach(t *trial) error {
	if e.Trace == nil {
		return nil
	}
	t.enter("attaching the fault tracer")
	tr, err := e.startTracing()
	if err != nil {
		return err
	}
	t.tracing = &tracing{tracer: tr, kernel: e.kernel, stacks: e.Trace.Stacks}
	if err := tr.Add(t.parent.pid); err != nil {
		return fmt.Errorf("%s: %w", runName(t.seq), err)
	}
	return nil
}

// stopTracing takes the tracer off at the end of a run, however that came.
func (t *trial) stopTracing() error {
	if t.tracing == nil {
		return nil
	}
	if _, err := t.tracing.Stop(); err != nil {
		return fmt.Errorf("%s: take the fault tracer off: %w", runName(t.seq), err)
	}
	return nil
}

// moment gives the time and the kernel's counts; nothing where there is no tracer.
func (t *trial) moment() moment {
	if t.tracing == nil {
		return moment{}
	}
	m := moment{at: t.tracing.Now()}
	for _, w := range t.workers {
		m.copies = append(m.copies, t.tracing.kernel.copies(w.pid))
	}
	return m
}

// pend keeps a worker's event until the trace is complete.
func (t *trial) pend(event, worker int, pages *audit.CopiedPages, before, after *traced) {
	if t.tracing == nil {
		return
	}
	t.tracing.pending = append(t.tracing.pending, pendingEvent{
		event: event, pages: pages, from: before.begin.at, to: after.end.at,
		copies: before.begin.copies[worker].until(after.end.copies[worker]),
	})
}

// attribute ends the trace and says of each event of the run who made its copies.
func (e *experiment) attribute(t *trial, run *audit.Run) error {
	if t.tracing == nil {
		return nil
	}
	t.enter("reading the trace")
	trace, err := t.tracing.Stop()
	if err != nil {
		return fmt.Errorf("%s: end the trace: %w", runName(t.seq), err)
	}
	if trace == nil {
		return fmt.Errorf("run %d: %w", t.seq, errors.New("the tracer has ended before the run"))
	}
	for _, p := range t.tracing.pending {
		ev := &run.Events[p.event]
		a, err := audit.Attribute(p.pages, trace, audit.AttributeOptions{From: p.from, To: p.to, PID: ev.PID})
		if err != nil {
			return fmt.Errorf("run %d, %s: who made the copies: %w", t.seq, ev.Name, err)
		}
		if p.copies.why != "" {
			a.Counts.NoKernel(p.copies.why)
		} else {
			a.Counts.Kernel(p.copies.n)
		}
		if !t.tracing.stacks {
			a.Profile = nil // the functions say as much
		}
		ev.Attribution = a
	}
	run.Warnings = addWarnings(run.Warnings, audit.TraceWarnings(trace))
	e.report.Tracer = audit.NewTracer(trace, t.workers[0].pid, t.tracing.stacks, e.report.Tracer)
	return nil
}
