package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"cowaudit/audit"
	"cowaudit/pagemap"
	"cowaudit/report"
)

// familyFlags are the options of the commands that capture a family.
func familyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "reference", Usage: "judge all processes against `PID`, not each against its parent"},
		&cli.BoolFlag{Name: "alone", Usage: "leave out the descendants of the processes given"},
		&cli.BoolFlag{Name: "contents", Usage: "compare what differing pages hold, in memory; --contents=false saves the time", Value: true},
	}
}

func rangeFlag() cli.Flag {
	return &cli.StringFlag{Name: "range", Usage: "only addresses `START-END`, as in /proc/PID/maps, END excluded"}
}

// maxPID is the largest that Linux gives (include/linux/threads.h, PID_MAX_LIMIT).
const maxPID = 1 << 22

// parsePIDs reads the arguments of a command as PIDs; each is kept once.
func parsePIDs(c *cli.Context) ([]pagemap.PID, error) {
	var pids []pagemap.PID
	for _, arg := range c.Args().Slice() {
		n, err := strconv.ParseUint(arg, 10, 32)
		if err != nil || n == 0 || n > maxPID {
			return nil, usageErrorf("%s: %s is not a PID: \"cowaudit audit\" without one lists the forking families", c.Command.Name, shellWord(arg))
		}
		if pid := pagemap.PID(n); !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	if c.IsSet("reference") && (c.Int("reference") < 1 || c.Int("reference") > maxPID) {
		return nil, usageErrorf("%s: --reference %d is not a PID", c.Command.Name, c.Int("reference"))
	}
	return pids, nil
}

// parseRange reads --range; nil where it is not given. The addresses are hexadecimal, as maps prints them.
func parseRange(c *cli.Context, page pagemap.Bytes) (*audit.Range, error) {
	s := c.String("range")
	if !c.IsSet("range") {
		return nil, nil
	}
	bad := func(why string) error {
		return usageErrorf("%s: --range %s: %s: write two addresses like 7f1200000000-7f1240000000", c.Command.Name, shellWord(s), why)
	}
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		return nil, bad("no range")
	}
	start, err := parseAddr(first)
	if err != nil {
		return nil, bad(fmt.Sprintf("%q is no address", first))
	}
	end, err := parseAddr(last)
	if err != nil {
		return nil, bad(fmt.Sprintf("%q is no address", last))
	}
	switch {
	case start >= end:
		return nil, bad("the end does not lie behind the start")
	case start%pagemap.Addr(page) != 0, end%pagemap.Addr(page) != 0:
		return nil, bad(fmt.Sprintf("not the start of a page (page size %d)", page))
	}
	return &audit.Range{Start: start, End: end}, nil
}

func parseAddr(s string) (pagemap.Addr, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(s), "0x"), 16, 64)
	return pagemap.Addr(n), err
}

// openFamily describes and opens the processes that the command line names. The capture must be closed.
func openFamily(c *cli.Context, pids []pagemap.PID, rng *audit.Range, rollup bool) (*pagemap.Capture, error) {
	fs := pagemap.FS("")
	procs, warnings, err := fs.Family(pids, pagemap.FamilyOptions{Reference: pagemap.PID(c.Int("reference")), Alone: c.Bool("alone")})
	if errors.Is(err, pagemap.ErrGone) {
		return nil, withRemedy(err, "\"cowaudit audit\" without a PID lists the forking families")
	}
	if err != nil {
		return nil, err
	}
	o := pagemap.Options{Contents: c.Bool("contents"), Rollup: rollup && rng == nil && wantsRollup(c, fs, procs)}
	if rng != nil {
		o.Start, o.End = rng.Start, rng.End
	}
	capture, err := pagemap.NewCapture(c.Context, fs, procs, o)
	if err != nil {
		return nil, err
	}
	if o.Contents && refusedContents(capture.Family()) {
		// Contents need more than pages do (PTRACE_MODE_ATTACH): better the pages alone than nothing.
		if err := capture.Close(); err != nil {
			return nil, fmt.Errorf("close the capture: %w", err)
		}
		o.Contents = false
		if capture, err = pagemap.NewCapture(c.Context, fs, procs, o); err != nil {
			return nil, err
		}
		if capture.Family().Facts.FramesVisible {
			warnings = append(warnings, pagemap.Warning{Code: "contents_refused",
				Text:   "the memory of a process may not be read, so what the writes changed is not known",
				Remedy: "run as root, or with CAP_SYS_PTRACE"})
		}
	}
	f := capture.Family()
	f.Warnings = append(warnings, f.Warnings...)
	return capture, nil
}

// checkFlag says when ledgers are held against smaps_rollup.
func checkFlag() cli.Flag {
	return choiceFlag("check", "against smaps_rollup", "auto", "always", "never")
}

// maxAutoRollup is the resident memory of a family up to which smaps_rollup is read without being asked for. Reading it walks
// all page tables again, three times as slowly as the audit, with the mmap_lock of one process held all the while.
const maxAutoRollup pagemap.Bytes = 4 << 30

func wantsRollup(c *cli.Context, fs pagemap.FS, procs []pagemap.Process) bool {
	switch c.String("check") {
	case "always":
		return true
	case "never":
		return false
	}
	var sum pagemap.Bytes
	for i := range procs {
		if s, err := fs.Status(procs[i].PID); err == nil {
			sum += s.VmRSS
		}
	}
	return sum <= maxAutoRollup
}

// refusedContents reports whether a process could not be opened that might be without reading contents.
func refusedContents(f *pagemap.Family) bool {
	return slices.ContainsFunc(f.Processes, func(p pagemap.Process) bool { return p.State == pagemap.StateUnreadable })
}

// notMeasured is the error of a capture that cannot be used: frame numbers are hidden, or nobody could be read. The command
// prints what it has all the same.
func notMeasured(c *cli.Context, f *pagemap.Family) error {
	var first *pagemap.Process
	for i := range f.Processes {
		p := &f.Processes[i]
		if p.State == pagemap.StateAudited {
			if !f.Facts.FramesVisible {
				return fmt.Errorf("%s: %w", c.Command.Name, pagemap.ErrNoPFN)
			}
			return nil
		}
		if first == nil {
			first = p
		}
	}
	if first == nil {
		return fmt.Errorf("%s: the family has no process", c.Command.Name)
	}
	err := fmt.Errorf("%s: process %d: %s", c.Command.Name, first.PID, report.StateReason(first.State, first.SharesMM))
	if n := len(f.Processes); n > 1 {
		err = fmt.Errorf("%s: none of %d processes could be audited: process %d: %s", c.Command.Name, n, first.PID, report.StateReason(first.State, first.SharesMM))
	}
	if first.State == pagemap.StateUnreadable {
		return withRemedy(err, "run as root (sudo)")
	}
	return withRemedy(err, "give the PID of a running program")
}

func pageSize() pagemap.Bytes { return pagemap.Bytes(os.Getpagesize()) }
