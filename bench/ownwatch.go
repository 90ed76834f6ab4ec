package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// Bars of the fault tracer, as ratios to no tracer.
const (
	barAggregate = 1.15
	barFaults    = 1.25
	barStacks    = 1.50
)

// elsewhere is the watcher that does not watch the process.
const elsewhere = "cowaudit attached, another process traced"

// ownWatchers are cowaudit's tracer with its default buffers, in this process as in the product: a goroutine reads the
// kernel's buffers meanwhile. The copying process looks like Ruby in a major collection; with Collector "none" that is not
// looked at.
func ownWatchers() []watcher {
	of := func(name string, bar float64, o ebpf.Options) watcher {
		return watcher{name: name, bar: bar, own: true, attach: func(_ context.Context, _ *tools, pid, pages int) (watching, error) {
			return startOwn(o, pid, pages)
		}}
	}
	return []watcher{
		of("cowaudit, counts: region, instruction, kind, GC phase", barAggregate, ebpf.Options{}),
		of("cowaudit, counts, without the GC phase", 0, ebpf.Options{Collector: "none"}),
		of("cowaudit, every fault, with all of that", barFaults, ebpf.Options{Faults: true}),
		of("cowaudit, every fault, without the GC phase", 0, ebpf.Options{Faults: true, Collector: "none"}),
		of("cowaudit, counts with stacks", barStacks, ebpf.Options{Stacks: true}),
		of("cowaudit, every fault with stacks", barStacks, ebpf.Options{Faults: true, Stacks: true}),
		{name: "cowaudit trace PID, the command", bar: barAggregate, own: true, attach: startCommand},
		{name: elsewhere, own: true, attach: startElsewhere},
	}
}

// ownTracer is a tracer in this process.
type ownTracer struct {
	tracer *ebpf.Tracer
	o      ebpf.Options
	pid    int
	pages  int
	before time.Duration // CPU time of this process
	trace  *ebpf.Trace
	cpu    time.Duration
	idle   *exec.Cmd // what is traced in place of the process
}

func startOwn(o ebpf.Options, pid, pages int) (_ *ownTracer, err error) {
	runtime.GC() // the garbage of the one before is not this one's
	w := &ownTracer{o: o, pid: pid, pages: pages, before: cpuTime()}
	if w.tracer, err = ebpf.Start(o); err != nil {
		return nil, err
	}
	if err := w.tracer.Add(pagemap.PID(pid)); err != nil {
		return nil, errors.Join(err, w.tracer.Close())
	}
	want := "flag"
	if o.Collector == "none" {
		want = "none"
	}
	if p := w.tracer.Collector(pagemap.PID(pid)); p.Name != want {
		return nil, errors.Join(fmt.Errorf("the GC phase is known by %q, not by %q: %s", p.Name, want, p.Why), w.tracer.Close())
	}
	return w, nil
}

// startElsewhere traces a process that does nothing.
func startElsewhere(ctx context.Context, _ *tools, _, pages int) (watching, error) {
	idle, err := startIdle(ctx)
	if err != nil {
		return nil, err
	}
	w, err := startOwn(ebpf.Options{Collector: "none"}, idle.Process.Pid, pages)
	if err != nil {
		return nil, errors.Join(err, stopIdle(idle))
	}
	w.idle = idle
	return w, nil
}

// startIdle starts a process that waits for the end of its input, which is that of this process.
func startIdle(ctx context.Context) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, "cat")
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start an idle process: %w", err)
	}
	return cmd, nil
}

func stopIdle(cmd *exec.Cmd) error {
	err := cmd.Process.Kill()
	_ = cmd.Wait() // killed
	return err
}

func (w *ownTracer) detach(context.Context) (err error) {
	w.trace, err = w.tracer.Stop()
	w.cpu = cpuTime() - w.before
	if w.idle != nil {
		err = errors.Join(err, stopIdle(w.idle))
	}
	return err
}

// result holds the trace against what the process did.
func (w *ownTracer) result(context.Context) (seen, error) {
	defer func() { w.trace = nil }()
	s := seen{cpu: w.cpu}
	s.lost, s.why = lostOf(&w.trace.Lost)
	var named, inGC, stacked, each int64
	for i := range w.trace.Counts {
		c := &w.trace.Counts[i]
		if sp := w.trace.SpaceByID(c.Space); c.Kind != ebpf.KindCopied || sp == nil || sp.Process.PID != pagemap.PID(w.pid) {
			continue
		}
		s.faults += c.Faults
		if c.Region != 0 && c.Frame != 0 {
			named += c.Faults
		}
		if c.GC.Phase == ebpf.PhaseMajor {
			inGC += c.Faults
		}
		if c.Stack != 0 {
			stacked += c.Faults
		}
	}
	for i := range w.trace.Faults {
		if w.trace.Faults[i].Kind == ebpf.KindCopied {
			each++
		}
	}
	if w.idle != nil {
		return s, nil
	}
	least := int64(w.pages)
	for _, c := range []struct {
		asked bool
		what  string
		got   int64
	}{
		{true, "copies", s.faults}, {true, "copies with region and instruction", named},
		{w.o.Collector != "none", "copies during a major collection", inGC},
		{w.o.Stacks, "copies with a stack", stacked}, {w.o.Faults, "copies one by one", each},
	} {
		if c.asked && c.got+s.lost < least {
			return s, fmt.Errorf("%d %s, the process made %d", c.got, c.what, least)
		}
	}
	return s, nil
}

// lostOf sums all that is missing.
func lostOf(l *ebpf.Lost) (n int64, why string) {
	var parts []string
	for _, p := range []struct {
		name string
		n    int64
	}{
		{"records", l.Records}, {"counts", l.Counts}, {"threads", l.Threads}, {"spaces", l.Spaces}, {"stacks", l.Stacks},
		{"regions", l.Regions}, {"phases", l.Phases}, {"runs", l.Missed},
	} {
		if p.n > 0 {
			n += p.n
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.name))
		}
	}
	return n, strings.Join(parts, ", ")
}

// cpuTime is what all threads of this process took.
func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic("getrusage: " + err.Error()) // it has no error that could come up here
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// ownCommand is the product itself.
type ownCommand struct {
	child
	dir string
}

func startCommand(ctx context.Context, t *tools, pid, _ int) (watching, error) {
	dir, err := os.MkdirTemp(t.dir, "trace-")
	if err != nil {
		return nil, err
	}
	ready := filepath.Join(dir, "ready")
	c, err := startChild(ctx, filepath.Join(dir, "said"), nil, t.audit, "trace", "--ready-file", ready, "--format", "json", "-o", filepath.Join(dir, "trace.json"), strconv.Itoa(pid))
	if err != nil {
		return nil, err
	}
	w := &ownCommand{child: *c, dir: dir}
	if err := w.until(ctx, func() (bool, error) { _, err := os.Stat(ready); return err == nil, nil }); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *ownCommand) detach(ctx context.Context) error { return w.interrupt(ctx) }

func (w *ownCommand) result(context.Context) (seen, error) {
	defer os.RemoveAll(w.dir)
	s := seen{faults: unknown, lost: unknown, cpu: w.cpu(), hung: w.hung}
	if w.hung {
		return s, nil
	}
	b, err := os.ReadFile(filepath.Join(w.dir, "trace.json"))
	if err != nil {
		return s, fmt.Errorf("%w: %s", err, w.said())
	}
	var r struct {
		Faults struct{ Copied, Lost int64 }
		Lost   map[string]int64
	}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&r); err != nil {
		return s, fmt.Errorf("the trace: %w", err)
	}
	s.faults, s.lost = r.Faults.Copied-r.Faults.Lost, 0
	for _, n := range r.Lost {
		s.lost += n
	}
	return s, nil
}
