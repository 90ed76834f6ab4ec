package ebpf

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"cowaudit/pagemap"
)

// Live is what a Tracer has seen so far. The totals are the kernel's, up to date but for faults that are still undecided; the
// writers are as of the last reading of its buffers, and may be two seconds older.
type Live struct {
	At      time.Duration // on the trace's clock
	Totals  [NKinds]Tally
	Lost    Lost // all but Missed
	Spaces  int  // address spaces seen so far
	Writers []Writer
}

// Writer is a function that copied pages, in all processes together.
type Writer struct {
	Frame  Frame // of its instruction with the most pages
	Copied Tally
}

// liveNames bounds how many instructions of Live get a name: the look-up reads symbol tables.
const liveNames = 64

// Live gives the state of the trace: the functions with the most copied pages, at most top of them. The error is os.ErrClosed
// after Stop.
func (t *Tracer) Live(top int) (*Live, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, os.ErrClosed
	case t.failed != nil:
		return nil, t.failed
	}
	k := t.kernel.coll
	l := &Live{At: t.clock(), Spaces: len(t.g.spaces)}
	var err error
	if l.Totals, err = totals(k.Maps["totals"]); err != nil {
		return nil, err
	}
	if err := losses(k.Maps["losses"], &l.Lost); err != nil {
		return nil, err
	}
	if top > 0 {
		l.Writers = t.g.writers(top)
	}
	return l, nil
}

// writers sums the copies by function.
func (g *gatherer) writers(top int) []Writer {
	sums := map[place]*Tally{}
	for k, n := range g.counts {
		if k.Kind != KindCopied {
			continue
		}
		at := place{k.Space, k.IP}
		s := sums[at]
		if s == nil {
			s = new(Tally)
			sums[at] = s
		}
		s.Faults += n.Faults
		s.Pages += n.Pages
	}
	places := make([]place, 0, len(sums))
	for p := range sums {
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(sums[b].Pages, sums[a].Pages), comparePlaces(a, b))
	})
	type key struct{ name, path string }
	at := map[key]int{}
	var out []Writer
	for _, p := range places[:min(len(places), liveNames)] {
		f := g.names.lookup(p.space, p.at)
		k := key{cmp.Or(f.Function, f.Name), f.Path}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, Writer{Frame: f})
		}
		out[i].Copied.Faults += sums[p].Faults
		out[i].Copied.Pages += sums[p].Pages
	}
	slices.SortStableFunc(out, func(a, b Writer) int { return cmp.Compare(b.Copied.Pages, a.Copied.Pages) })
	return out[:min(len(out), top)]
}

// Running reports whether a traced process still runs: one that was added, or, where forks are followed, any that came of
// those. What a process has forked is known before its end is.
func (t *Tracer) Running() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false, os.ErrClosed
	}
	for {
		known := len(t.g.spaces)
		if t.g.anyRuns() {
			return true, nil
		}
		// All are gone: the records of what they forked are in the buffer by now.
		if err := t.flush(); err != nil {
			return false, fmt.Errorf("does a traced process run: %w", err)
		}
		if len(t.g.spaces) == known {
			return false, nil
		}
	}
}

func (g *gatherer) anyRuns() bool {
	for _, s := range g.spaces {
		if s.Ended == 0 && g.runs(s) {
			return true
		}
	}
	return false
}

// runs reports that a space's process is there and has threads. A process whose first thread has ended, and others not, runs.
func (g *gatherer) runs(s *space) bool {
	st, err := g.t.o.FS.Stat(s.Process.PID)
	switch {
	case errors.Is(err, pagemap.ErrGone):
		return false
	case err != nil:
		return true // cannot be told; the user ends the trace
	case s.Process.Start != 0 && st.Start != s.Process.Start:
		return false
	}
	return !st.Zombie() || st.NumThreads > 1
}
