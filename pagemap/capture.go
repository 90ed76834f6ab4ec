package pagemap

import (
	"context"
	"errors"
)

// Options of a capture.
type Options struct {
	// Start and End bound the addresses read; both 0: all.
	Start, End Addr
	// Contents compares the contents of differing pages, in memory (needs PTRACE_MODE_ATTACH on each process).
	Contents bool
	// Rollup reads smaps_rollup of each process right after its pages.
	Rollup bool
	// Threads is the number of reading goroutines; 0: one for each processor, at most 4.
	Threads int
	// NoScan leaves PAGEMAP_SCAN unused, as on kernels before 6.7.
	NoScan bool
}

// Capture reads the pages of a family; it is a [Source].
type Capture struct{}

// NewCapture opens the processes of a family, as [FS.Family] describes them, for reading.
func NewCapture(ctx context.Context, fs FS, procs []Process, o Options) (*Capture, error) {
	return nil, errors.New("under construction")
}

// Close closes every descriptor.
func (c *Capture) Close() error { return nil }

// Family implements Source.
func (c *Capture) Family() *Family { return nil }

// Walk implements Source.
func (c *Capture) Walk(newVisitor func() Visitor) error { return nil }
