package main

import (
	"context"
	"time"
)

// watcher is something that watches a process' page faults.
type watcher struct {
	name    string
	bar     float64 // at most so many times as long as with no tracer; 0: not held against a bar
	own     bool    // cowaudit's
	program string  // that must be installed; "": none
	// attach returns when every fault of the process from then on is seen. The process waits meanwhile.
	attach func(ctx context.Context, t *tools, pid, pages int) (watching, error)
}

// watching is a watcher that is attached.
type watching interface {
	// detach ends the watching, while the process is still there.
	detach(ctx context.Context) error
	// result says what was seen. It is asked when the process is gone and its memory in use again.
	result(ctx context.Context) (seen, error)
}

// unknown stands for a number that cannot be told.
const unknown = -1

// seen is what a watcher has of a process that copied pages.
type seen struct {
	faults int64         // in its result; unknown; with nothing to see, 0
	lost   int64         // that it says it has lost; unknown
	why    string        // of what is lost, or unknown
	cpu    time.Duration // that the watcher itself took, from its start to its end
	hung   bool          // it did not end when it was asked to
}

// watchers are held against no tracer, cowaudit's first.
func watchers() []watcher { return append(ownWatchers(), rivals()...) }
