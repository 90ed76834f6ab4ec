package forktest

import (
	"errors"
	"fmt"

	"cowaudit/ebpf/taskstats"
	"cowaudit/pagemap"
)

// kernelCopies is the kernel's own count of a process' copy-on-write copies at one moment, or of those between two; or why
// it is not known.
type kernelCopies struct {
	n      int64
	counts *taskstats.Counts // of a reading
	why    string
}

// until gives how far the count rose.
func (c kernelCopies) until(later kernelCopies) kernelCopies {
	switch {
	case c.why != "":
		return c
	case later.why != "":
		return later
	case c.counts == nil || later.counts == nil:
		return kernelCopies{n: later.n - c.n}
	}
	n, why := later.counts.Since(c.counts)
	return kernelCopies{n: int64(n), why: why}
}

// copyCounter reads wpcopy_count, or says why it cannot.
type copyCounter interface {
	copies(pid pagemap.PID) kernelCopies
	close() error
}

// noCounter knows nothing.
type noCounter struct{ why string }

func (c noCounter) copies(pagemap.PID) kernelCopies { return kernelCopies{why: c.why} }

func (noCounter) close() error { return nil }

// kernelCounter asks taskstats, with delay accounting switched on.
type kernelCounter struct {
	client  *taskstats.Client
	restore func() error
}

// openCounter switches the kernel's counting on, for tasks that are forked from now on, until the counter is closed. Where
// that cannot be had the counter says why; the other two counts stand without it.
func openCounter() copyCounter {
	client, err := taskstats.Open()
	if err != nil {
		return noCounter{err.Error()}
	}
	restore, err := taskstats.SwitchOn()
	if err != nil {
		return noCounter{errors.Join(err, client.Close()).Error()}
	}
	return &kernelCounter{client, restore}
}

func (c *kernelCounter) copies(pid pagemap.PID) kernelCopies {
	n, err := c.client.Process(pid)
	if err != nil {
		return kernelCopies{why: err.Error()}
	}
	return kernelCopies{counts: &n}
}

func (c *kernelCounter) close() error {
	err := c.restore()
	if err != nil {
		err = fmt.Errorf("put delay accounting back: %w", err)
	}
	return errors.Join(err, c.client.Close())
}
