package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// barBusy is what processes that are not traced may take longer.
const barBusy = 1.01

// storm is a fixed amount of work of many processes: src/storm.c.
type storm struct{ workers, rounds, pages int }

// stormRun is what one took.
type stormRun struct {
	wall, cpu time.Duration
	faults    int64
}

// busyResult has, for each round, a run with the tracer and the ones before and after it.
type busyResult struct {
	storm  storm
	rounds [][3]stormRun // without, with, without
}

func (t *tools) runStorm(ctx context.Context, s storm) (r stormRun, err error) {
	cmd := exec.CommandContext(ctx, t.storm, strconv.Itoa(s.workers), strconv.Itoa(s.rounds), strconv.Itoa(s.pages))
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("the busy machine: %w", err)
	}
	var wall, cpu int64
	if _, err := fmt.Sscan(string(out), &wall, &cpu, &r.faults); err != nil {
		return r, fmt.Errorf("the busy machine said %q: %w", out, err)
	}
	// Each child copies, touches anew before exec, and touches after it.
	if least := int64(3 * s.workers * s.rounds * s.pages); r.faults < least {
		return r, fmt.Errorf("the busy machine: %d faults, at least %d expected", r.faults, least)
	}
	r.wall, r.cpu = time.Duration(wall), time.Duration(cpu)
	return r, nil
}

// measureBusy runs the work with and without a tracer that traces an idle process.
func (t *tools) measureBusy(ctx context.Context, s storm, rounds int, progress io.Writer) (*busyResult, error) {
	res := &busyResult{storm: s}
	idle, err := startIdle(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stopIdle(idle) }() // it did nothing
	if _, err := t.runStorm(ctx, s); err != nil {
		return nil, err
	}
	before, err := t.runStorm(ctx, s)
	if err != nil {
		return nil, err
	}
	for round := range rounds {
		with, err := t.stormTraced(ctx, s, pagemap.PID(idle.Process.Pid))
		if err != nil {
			return nil, err
		}
		after, err := t.runStorm(ctx, s)
		if err != nil {
			return nil, err
		}
		res.rounds = append(res.rounds, [3]stormRun{before, with, after})
		fmt.Fprintf(progress, "busy machine, round %d of %d: wall %.4f, CPU %.4f\n", round+1, rounds, with.against(before, after, stormWall), with.against(before, after, stormCPU))
		before = after
	}
	return res, nil
}

func (t *tools) stormTraced(ctx context.Context, s storm, idle pagemap.PID) (r stormRun, err error) {
	tracer, err := ebpf.Start(ebpf.Options{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, tracer.Close()) }()
	if err := tracer.Add(idle); err != nil {
		return r, err
	}
	return t.runStorm(ctx, s)
}

func stormWall(r stormRun) time.Duration { return r.wall }
func stormCPU(r stormRun) time.Duration  { return r.cpu }

// against is the ratio to the mean of two others.
func (r stormRun) against(a, b stormRun, of func(stormRun) time.Duration) float64 {
	return 2 * float64(of(r)) / float64(max(of(a)+of(b), 1))
}

func (r *busyResult) write(w io.Writer) {
	var all []stormRun
	for _, x := range r.rounds {
		all = append(all, x[1])
	}
	ms := func(of func(stormRun) time.Duration) float64 {
		var v []float64
		for _, x := range all {
			v = append(v, of(x).Seconds()*1000)
		}
		return spreadOf(v).mid
	}
	faults := int64(0)
	if len(all) > 0 {
		faults = all[0].faults
	}
	fmt.Fprintf(w, `
### What all other processes pay

%d processes fork %d children each, and each child copies %d pages, touches %d new ones, calls exec and touches %d more: %d
faults, %d processes. That is all they do, so it is the worst case. %d runs with cowaudit attached that traces an idle process,
each between two without; ratios to the mean of these two: median and its 95%% interval.

| | × with cowaudit | × without, against the one before it | ms | asked |
|---|--:|--:|--:|---|
`, r.storm.workers, r.storm.rounds, r.storm.pages, r.storm.pages, r.storm.pages, faults, r.storm.workers*r.storm.rounds, len(all))
	for _, m := range []struct {
		name string
		of   func(stormRun) time.Duration
	}{{"wall time", stormWall}, {"CPU time of the processes", stormCPU}} {
		var with, without []float64
		for _, x := range r.rounds {
			with = append(with, x[1].against(x[0], x[2], m.of))
			without = append(without, x[2].against(x[0], x[0], m.of))
		}
		fmt.Fprintf(w, "| %s | %s | %s | %.0f | %s |\n", m.name, intervalText(with), intervalText(without), ms(m.of), busyVerdict(with))
	}
}

func intervalText(v []float64) string {
	s, ok := intervalOf(v)
	if !ok {
		return fmt.Sprintf("%.4f (%.4f-%.4f, all)", s.mid, s.low, s.high)
	}
	return fmt.Sprintf("%.4f (%.4f-%.4f)", s.mid, s.low, s.high)
}

// busyVerdict holds the whole interval against the bar: a median alone shows little where noise is as large as the bar.
func busyVerdict(v []float64) string {
	s, ok := intervalOf(v)
	verdict := "not shown: the interval reaches over it"
	switch {
	case !ok:
		verdict = "not shown: too few runs"
	case s.high < barBusy:
		verdict = "met"
	case s.low >= barBusy:
		verdict = "MISSED"
	}
	return fmt.Sprintf("less than %.2f: %s", barBusy, verdict)
}
