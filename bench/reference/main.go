// Command reference measures several Rubies in every built-in scenario with cowaudit compare, each with the one after it, and
// prints the table of docs/reference.md with a sentence for each difference.
//
// Usage: reference [-cowaudit FILE] [-scenarios A,B] [-results FOLDER] NAME=COMMAND NAME=COMMAND...
//
// It needs what cowaudit compare needs: root. A scenario that a subject cannot run is named in the table and is no error. What
// was measured is kept in the folder, one file for each pair, and not measured again.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"cowaudit/audit"
	"cowaudit/forktest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

type subject struct{ name, command string }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("reference", flag.ContinueOnError)
	flags.SetOutput(stderr)
	program := flags.String("cowaudit", "bin/cowaudit", "the `FILE` of cowaudit")
	only := flags.String("scenarios", "", "measure `A,B,…` alone")
	results := flags.String("results", "", "keep what was measured in `FOLDER`, and go on from there")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var subjects []subject
	for _, s := range flags.Args() {
		name, command, ok := strings.Cut(s, "=")
		if !ok || name == "" || command == "" {
			return fmt.Errorf("%q: give NAME=COMMAND", s)
		}
		subjects = append(subjects, subject{name, command})
	}
	if len(subjects) < 2 {
		return errors.New("give two subjects or more, as NAME=COMMAND")
	}
	names, err := scenarioNames(*only)
	if err != nil {
		return err
	}
	folder := *results
	if folder == "" {
		if folder, err = os.MkdirTemp("", "reference"); err != nil {
			return err
		}
		defer os.RemoveAll(folder)
	} else if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	t, missing := &table{subjects: subjects}, 0
	for _, s := range names {
		for i := range subjects[1:] {
			a, b := subjects[i], subjects[i+1]
			fmt.Fprintf(stderr, "reference: %s: %s and %s\n", s, a.name, b.name)
			r, err := measure(ctx, *program, filepath.Join(folder, s+"-"+a.name+"-"+b.name+".json"), s, a, b)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			t.add(s, i, r, err)
			if err != nil {
				missing++
			}
		}
	}
	if err := t.write(stdout); err != nil || missing == 0 {
		return err
	}
	return fmt.Errorf("%d of %d comparisons were not made: the table says why", missing, len(names)*(len(subjects)-1))
}

// scenarioNames gives the built-in scenarios of Ruby, or those of them that were asked for.
func scenarioNames(only string) ([]string, error) {
	var all []string
	for _, s := range forktest.Scenarios() {
		if s.Runtime == forktest.RuntimeRuby {
			all = append(all, s.Name)
		}
	}
	if only == "" {
		return all, nil
	}
	wanted := strings.Split(only, ",")
	for _, w := range wanted {
		if !strings.Contains(" "+strings.Join(all, " ")+" ", " "+w+" ") {
			return nil, fmt.Errorf("scenario %q: there are %s", w, strings.Join(all, ", "))
		}
	}
	return wanted, nil
}

// measure runs a comparison, unless its result is there. That it is inconclusive is no error.
func measure(ctx context.Context, program, file, scenario string, a, b subject) (*audit.CompareReport, error) {
	if r, err := read(file); err == nil && r.Rounds.Ended {
		return r, nil
	}
	var said bytes.Buffer
	c := exec.CommandContext(ctx, program, "compare", "--scenario", scenario, "--format", "json", "-o", file, "--force", a.command, b.command)
	c.Stderr = &said
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // it ends what it started
	runErr := c.Run()
	r, err := read(file)
	if err != nil || !r.Rounds.Ended {
		return nil, fmt.Errorf("%w: %s", errors.Join(runErr, err), lastLine(said.String()))
	}
	return r, nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func read(file string) (*audit.CompareReport, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(audit.CompareReport)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	if r.Kind != audit.KindCompare {
		return nil, fmt.Errorf("%s: kind %q is no comparison", file, r.Kind)
	}
	return r, nil
}
