package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

func diffCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "count the pages copied between two snapshots of a family",
		ArgsUsage: "BEFORE AFTER",
		Description: `Copied is what a process shared with its reference in BEFORE and does not share, but hold, in AFTER. Processes are
paired by PID and start time.
Example: cowaudit diff before.cow after.cow
Needs: no privilege.`,
		Flags:  append(append([]cli.Flag{rangeFlag()}, detailFlags()...), outputFlags()...),
		Action: func(c *cli.Context) error { return runDiff(a, c) },
	}
}

func runDiff(a *application, c *cli.Context) error {
	if c.NArg() != 2 {
		return usageErrorf("diff: %d files given: give two snapshots, the earlier one first", c.NArg())
	}
	names := c.Args().Slice()
	if names[0] == "-" && names[1] == "-" {
		return usageErrorf("diff: standard input holds one snapshot: give a file for the other")
	}
	out, err := a.openOutput(c)
	if err != nil {
		return err
	}
	before, err := readSnapshot(c, names[0])
	if err != nil {
		return err
	}
	after, err := readSnapshot(c, names[1])
	if err != nil {
		return err
	}
	rng, err := parseRange(c, before.Fam.Facts.PageSize)
	if err != nil {
		return err
	}
	if err := comparable(names, &before.Fam, &after.Fam); err != nil {
		return err
	}
	r, err := audit.Diff(before, after, audit.Options{Version: version(), Range: rng})
	if err != nil {
		return fmt.Errorf("diff %s %s: %w", names[0], names[1], err)
	}
	return out.writeResult(r, out.details(c))
}

// comparable refuses snapshots of which one cannot be the continuation of the other, although PIDs and start times might
// match by chance.
func comparable(names []string, before, after *pagemap.Family) error {
	b, a := &before.Facts, &after.Facts
	switch {
	case b.Host != a.Host:
		return withRemedy(fmt.Errorf("diff: %s is of host %s, %s of host %s", names[0], b.Host, names[1], a.Host), "take both of one family")
	case b.Kernel != a.Kernel:
		return withRemedy(fmt.Errorf("diff: %s was taken on kernel %s, %s on kernel %s", names[0], b.Kernel, names[1], a.Kernel), "take both with no restart between them")
	case !slices.ContainsFunc(before.Processes, func(p pagemap.Process) bool { _, ok := after.Process(p.Identity); return ok }):
		return withRemedy(fmt.Errorf("diff %s %s: %w", names[0], names[1], audit.ErrUnrelated), "take both of one family, with no restart between them")
	case b.TimeUnixNano > a.TimeUnixNano:
		return usageErrorf("diff: %s was taken %s after %s: give the earlier one first", names[0],
			time.Duration(b.TimeUnixNano-a.TimeUnixNano).Round(time.Millisecond), names[1])
	}
	return nil
}

// openInput opens a file that the command line names; - is standard input.
func openInput(c *cli.Context, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(c.App.Reader), nil
	}
	f, err := os.Open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, usageErrorf("%s: %s: no such file", c.Command.Name, name)
		}
		return nil, usageErrorf("%s: %w", c.Command.Name, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		f.Close()
		return nil, usageErrorf("%s: %s: is a folder: give a file", c.Command.Name, name)
	}
	return f, nil
}

// readSnapshot reads a snapshot file.
func readSnapshot(c *cli.Context, name string) (*pagemap.Snapshot, error) {
	f, err := openInput(c, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing is lost
	s, err := pagemap.ReadSnapshot(f)
	if errors.Is(err, pagemap.ErrFormat) {
		return nil, withRemedy(fmt.Errorf("%s: %s: %w", c.Command.Name, name, err), "give a file that \"cowaudit snapshot\" wrote")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.Command.Name, name, err)
	}
	return s, nil
}
