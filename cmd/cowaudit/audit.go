package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

func auditCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:      "audit",
		Usage:     "say who shares what right now, in a process and all that it forked",
		ArgsUsage: "[PID...]",
		Description: `Counts each page of each process as shared with the process it was forked from, copied, new or another word, and says
where the copied ones lie and what the writes changed. Nothing is stopped. Without a PID it lists the forking families.
Example: cowaudit audit $(pgrep -o puma)
Needs: root, or CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_DAC_OVERRIDE in the host's user namespace; the list needs nothing.`,
		Flags:  append(append(append(familyFlags(), rangeFlag(), checkFlag()), detailFlags()...), outputFlags()...),
		Action: func(c *cli.Context) error { return runAudit(a, c) },
	}
}

func runAudit(a *application, c *cli.Context) error {
	pids, err := parsePIDs(c)
	if err != nil {
		return err
	}
	rng, err := parseRange(c, pageSize())
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		for _, name := range []string{"reference", "range", "alone", "mappings", "check"} {
			if c.IsSet(name) {
				return usageErrorf("audit: --%s without a PID: \"cowaudit audit\" alone lists the forking families", name)
			}
		}
	}
	out, err := a.openOutput(c)
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		return listFamilies(c, out)
	}
	capture, err := openFamily(c, pids, rng, true)
	if err != nil {
		return err
	}
	r, err := audit.Share(capture, audit.Options{Version: version(), Range: rng})
	if err := errors.Join(err, closeCapture(capture)); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := out.writeResult(r, out.details(c)); err != nil {
		return err
	}
	return notMeasured(c, capture.Family())
}

func closeCapture(c *pagemap.Capture) error {
	if err := c.Close(); err != nil {
		return fmt.Errorf("close the capture: %w", err)
	}
	return nil
}

func listFamilies(c *cli.Context, out *output) error {
	found, err := pagemap.FS("").Families()
	if err != nil {
		return fmt.Errorf("list the forking families: %w", err)
	}
	return out.writeResult(audit.NewFamiliesReport(found, version()), out.details(c))
}
