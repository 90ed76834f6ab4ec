package forktest

import (
	"context"
	"fmt"
	"os"

	"cowaudit/pagemap"
)

// Observer looks at the pages of a parent and its workers. [Pages] is the one that looks at the real ones.
type Observer interface {
	// Check says whether it will be able to, before anything is started.
	Check(ctx context.Context) error
	// Capture takes a snapshot in which each worker's reference is the parent.
	Capture(ctx context.Context, parent pagemap.PID, workers []pagemap.PID) (*pagemap.Snapshot, error)
}

// Pages captures page tables and compares contents. It needs CAP_SYS_ADMIN in the initial user namespace for the frame
// numbers, and PTRACE_MODE_ATTACH on the processes for their contents.
type Pages struct{ FS pagemap.FS }

// Check implements Observer: it looks at this process' own pages.
func (p Pages) Check(ctx context.Context) error {
	c, err := p.open(ctx, []pagemap.PID{pagemap.PID(os.Getpid())}, pagemap.FamilyOptions{Alone: true}, pagemap.Options{})
	if err != nil {
		return fmt.Errorf("look at the own pages: %w", err)
	}
	defer c.Close()
	if !c.Family().Facts.FramesVisible {
		return fmt.Errorf("a fork test compares frame numbers: %w", pagemap.ErrNoPFN)
	}
	return nil
}

// Capture implements Observer.
func (p Pages) Capture(ctx context.Context, parent pagemap.PID, workers []pagemap.PID) (*pagemap.Snapshot, error) {
	pids := append([]pagemap.PID{parent}, workers...)
	c, err := p.open(ctx, pids, pagemap.FamilyOptions{Alone: true, Reference: parent}, pagemap.Options{Contents: true})
	if err != nil {
		return nil, fmt.Errorf("capture process %d and its %d workers: %w", parent, len(workers), err)
	}
	defer c.Close()
	s, err := pagemap.Record(c)
	if err != nil {
		return nil, fmt.Errorf("capture process %d and its %d workers: %w", parent, len(workers), err)
	}
	return s, nil
}

func (p Pages) open(ctx context.Context, pids []pagemap.PID, fo pagemap.FamilyOptions, o pagemap.Options) (*pagemap.Capture, error) {
	procs, warnings, err := p.FS.Family(pids, fo)
	if err != nil {
		return nil, err
	}
	c, err := pagemap.NewCapture(ctx, p.FS, procs, o)
	if err != nil {
		return nil, err
	}
	fam := c.Family()
	fam.Warnings = append(warnings, fam.Warnings...)
	return c, nil
}
