package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"cowaudit/pagemap"
)

func snapshotCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:      "snapshot",
		Usage:     "keep the page tables of a family in a file, for diff and show",
		ArgsUsage: "PID...",
		Description: `The file holds frame numbers, names of mappings and command lines, never contents of memory.
Example: cowaudit snapshot -o before.cow 4242
Needs: root, or CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_DAC_OVERRIDE in the host's user namespace.`,
		Flags:  append(familyFlags(), fileFlags()...),
		Action: func(c *cli.Context) error { return runSnapshot(a, c) },
	}
}

func runSnapshot(a *application, c *cli.Context) error {
	pids, err := parsePIDs(c)
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		return usageErrorf("snapshot: no PID: \"cowaudit audit\" lists the forking families")
	}
	out, err := a.openOutput(c)
	if err != nil {
		return err
	}
	if out.Terminal() {
		return usageErrorf("snapshot: a snapshot is no text for a terminal: give -o FILE before the PID")
	}
	capture, err := openFamily(c, pids, nil, true)
	if err != nil {
		return err
	}
	s, err := record(c, capture)
	if err := errors.Join(err, closeCapture(capture)); err != nil {
		return err
	}
	for _, w := range s.Fam.Warnings {
		fmt.Fprintf(a.stderr, "cowaudit: warning: %s: %s\n", oneLine(w.Text), oneLine(w.Remedy))
	}
	return out.Write(func(w io.Writer) error { return pagemap.WriteSnapshot(w, s) })
}

// record takes the snapshot; one that would be of no use is an error.
func record(c *cli.Context, capture *pagemap.Capture) (*pagemap.Snapshot, error) {
	if err := notMeasured(c, capture.Family()); err != nil {
		return nil, err
	}
	s, err := pagemap.Record(capture)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return s, notMeasured(c, &s.Fam) // all may have ended meanwhile
}
