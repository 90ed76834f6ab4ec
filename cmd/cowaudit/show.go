package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"cowaudit/audit"
	"cowaudit/pagemap"
	"cowaudit/report"
)

func showCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show a saved result, or a snapshot, in any format",
		ArgsUsage: "FILE",
		Description: `FILE is what a command wrote with --format json, or a snapshot, which is then audited. A comparison and the result of a gate
have markdown, junit, github and gitlab; what was traced has pprof and folded.
Example: cowaudit show --mappings before.cow
Needs: no privilege.`,
		Flags: append(append(detailFlags(),
			&cli.BoolFlag{Name: "every-run", Usage: "list the runs of a fork test too"},
			&cli.BoolFlag{Name: "explain", Usage: "show the samples behind each verdict of a gate too"},
		), outputFlags(append(verdictFormats(), report.ProfileFormats...)...)...),
		Action: func(c *cli.Context) error { return runShow(a, c) },
	}
}

func runShow(a *application, c *cli.Context) error {
	if c.NArg() != 1 {
		return usageErrorf("show: %d files given: give one, a saved result or a snapshot", c.NArg())
	}
	out, err := a.openOutput(c)
	if err != nil {
		return err
	}
	if err := out.refuseBinary(c); err != nil {
		return err
	}
	v, err := readResult(c, c.Args().First())
	if err != nil {
		return err
	}
	if err := out.refuseFormat(c, v); err != nil {
		return err
	}
	return out.writeResult(v, out.details(c))
}

// snapshotMagic is how a snapshot file starts (docs/format.md).
var snapshotMagic = []byte("COWSNAP")

// readResult reads a saved result, or audits a snapshot.
func readResult(c *cli.Context, name string) (any, error) {
	f, err := openInput(c, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing is lost
	r := bufio.NewReaderSize(f, 1<<16)
	head, _ := r.Peek(len(snapshotMagic)) // a shorter file is no snapshot; an error comes back with the next read
	var v any
	if bytes.Equal(head, snapshotMagic) {
		v, err = auditSnapshot(r)
	} else {
		v, err = report.Load(r)
	}
	if errors.Is(err, pagemap.ErrFormat) {
		return nil, withRemedy(fmt.Errorf("show: %s: %w", name, err), "give a file that a command wrote with --format json, or that \"cowaudit snapshot\" wrote")
	}
	if err != nil {
		return nil, fmt.Errorf("show: %s: %w", name, err)
	}
	return v, nil
}

func auditSnapshot(r *bufio.Reader) (*audit.Report, error) {
	s, err := pagemap.ReadSnapshot(r)
	if err != nil {
		return nil, err
	}
	return audit.Share(s, audit.Options{Version: version()})
}
