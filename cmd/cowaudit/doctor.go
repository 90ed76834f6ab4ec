package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"cowaudit/audit"
	"cowaudit/internal/host"
	"cowaudit/pagemap"
	"cowaudit/report"
)

func doctorCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "say what this host can measure, and what helps where it cannot",
		Description: `Tries each thing that a measurement uses, on memory and processes of its own. "?" is what could not be told.
The exit code is 0 when shared and copied pages can be told, 3 when not.
Example: sudo cowaudit doctor
Needs: no privilege; it says what it lacks.`,
		Flags:  outputFlags(),
		Action: func(c *cli.Context) error { return runDoctor(a, c) },
	}
}

func runDoctor(a *application, c *cli.Context) error {
	if c.NArg() > 0 {
		return usageErrorf("doctor: takes no argument, and was given %q", c.Args().First())
	}
	out, err := a.openOutput(c)
	if err != nil {
		return err
	}
	facts, err := host.Look()
	if errors.Is(err, host.ErrNoProc) {
		return withRemedy(fmt.Errorf("doctor: %w", err), "mount -t proc proc /proc")
	}
	if err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	facts.Rows = append(append(facts.Rows, copiesRow()), traceRows()...)
	r := doctorReport(facts, time.Now())
	if err := out.writeResult(r, report.Options{Color: out.Color(), Width: out.Width()}); err != nil {
		return err
	}
	if !r.Measurable {
		for _, row := range r.Rows {
			if row.Name == audit.DoctorFrames {
				return withRemedy(fmt.Errorf("doctor: shared and copied pages cannot be told here: %w", pagemap.ErrNoPFN), row.Remedy)
			}
		}
	}
	return nil
}

// doctorReport makes a result of what the probes found.
func doctorReport(f *host.Facts, now time.Time) *audit.DoctorReport {
	states := map[host.State]audit.Ability{host.Yes: audit.AbilityYes, host.No: audit.AbilityNo, host.Unknown: audit.AbilityUnknown}
	r := audit.DoctorReport{
		Version: version(), Host: f.Name, Kernel: f.Kernel, Machine: f.Machine, PageSize: f.PageSize, TimeUnixNano: now.UnixNano(),
	}
	for _, row := range f.Rows {
		r.Rows = append(r.Rows, audit.DoctorRow{
			Name: row.Name, Group: row.Group, State: states[row.State], Detail: row.Detail, Remedy: row.Remedy, SinceKernel: row.Since,
		})
	}
	return audit.NewDoctorReport(r)
}
