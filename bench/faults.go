package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// copiedPages are what the copying process' child writes: 1 GiB where a page has 4 KiB.
const copiedPages = 262144

// faultRun is what one run of the copying process gave.
type faultRun struct {
	took cost
	near cost // mean of the runs without a watcher right before and after
	seen seen
}

// watched is a watcher and what its rounds gave.
type watched struct {
	watcher
	runs    []faultRun
	missing string // why there are none, or no more
}

// faultResult is what the fault tracer costs the process that it traces.
type faultResult struct {
	pages int
	none  []faultRun // each beside the one before it: nothing but noise
	all   []*watched
}

// measureFaults runs all watchers in turn, round after round, each between two runs without one. The first round warms up,
// and shows what works here: its times are thrown away.
func (t *tools) measureFaults(ctx context.Context, list []watcher, pages, rounds int, progress io.Writer) (res *faultResult, err error) {
	res = &faultResult{pages: pages}
	need, have := int64(3*pages)*4/1024+1024, int64(0)
	if have, err = availableMiB(); err != nil {
		return nil, err
	}
	if have < need {
		return nil, fmt.Errorf("needs %s of memory, %s are available", size(int(need)), size(int(have)))
	}
	c, err := t.startCopies(ctx, pages)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, w := range list {
		k := &watched{watcher: w}
		if w.program != "" && lookPath(w.program) == "" {
			k.missing = w.program + " is not installed"
		}
		res.all = append(res.all, k)
	}
	for round := range rounds + 1 {
		before, err := t.copyOnce(ctx, c, nil)
		if err != nil {
			return nil, err
		}
		for i := range res.all {
			// Another one is first in each round.
			k := res.all[(i+round)%len(res.all)]
			if k.missing != "" {
				continue
			}
			start := time.Now()
			got, err := t.copyOnce(ctx, c, &k.watcher)
			var failed *watchError
			switch {
			case errors.As(err, &failed) && !k.own:
				k.missing = "failed: " + failed.Error()
			case err != nil:
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
			after, err := t.copyOnce(ctx, c, nil)
			if err != nil {
				return nil, err
			}
			got.near = cost{(before.took.wall + after.took.wall) / 2, (before.took.cpu + after.took.cpu) / 2}
			after.near = before.took
			fmt.Fprintf(progress, "round %d of %d, %s: %.0f ns a page, × %.2f, × %.2f of CPU time; %s in all\n", round, rounds, k.name,
				perPage(got.took.wall, pages), got.wallRatio(), got.cpuRatio(), time.Since(start).Round(time.Millisecond))
			if round > 0 {
				res.none = append(res.none, after)
			}
			if round > 0 && k.missing == "" {
				k.runs = append(k.runs, got)
			}
			before = after
		}
	}
	return res, nil
}

// watchError says that a watcher did not work; the process that it watched did.
type watchError struct{ error }

func (e *watchError) Unwrap() error { return e.error }

// copyOnce has a new child copy all pages. nil: nobody watches.
func (t *tools) copyOnce(ctx context.Context, c *copying, w *watcher) (r faultRun, err error) {
	pid, err := c.fork()
	if err != nil {
		return r, err
	}
	var at watching
	var failed error
	if w != nil {
		at, failed = w.attach(ctx, t, pid, c.pages)
	}
	if r.took, err = c.write(); err != nil {
		return r, err
	}
	if w != nil && failed == nil {
		failed = at.detach(ctx)
	}
	if err := c.end(); err != nil {
		return r, err
	}
	if w != nil && failed == nil {
		r.seen, failed = at.result(ctx)
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if failed != nil {
		return r, &watchError{failed}
	}
	return r, nil
}

func perPage(d time.Duration, pages int) float64 { return float64(d.Nanoseconds()) / float64(pages) }

func (r *faultRun) wallRatio() float64 { return float64(r.took.wall) / float64(max(r.near.wall, 1)) }
func (r *faultRun) cpuRatio() float64  { return float64(r.took.cpu) / float64(max(r.near.cpu, 1)) }

// lost is how many of the copies are not in the result, by its own account or by what is in it; unknown.
func (r *faultRun) lost(pages int) int64 {
	if r.seen.faults == unknown || r.seen.lost == unknown {
		return unknown
	}
	return max(r.seen.lost, int64(pages)-r.seen.faults)
}
