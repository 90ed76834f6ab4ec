// Command bench measures what reading a forking server costs, as ratios to a plain reader of the same page tables in the
// same interleaved run, and what the fault tracer costs, as ratios to no tracer; and prints tables in Markdown.
//
//	go run ./bench                              # all
//	go run ./bench headline sparse              # the groups whose names begin so
//	go run ./bench trace                        # what the fault tracer costs, beside other tools
//	go run ./bench trace-own                    # the same of cowaudit alone; trace-quick: what has a bar
//	go run ./bench --write docs/bench.md        # all, into a file as well
//	go run ./bench --write docs/bench.md trace  # of that file, the part about the fault tracer
//
// It needs root, gcc and a built bin/cowaudit (COWAUDIT names another), and uses smem, pmap, perf and bpftrace where they are
// installed.
// What takes more memory than is available is left out, and a line says so.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fl := flag.NewFlagSet("bench", flag.ContinueOnError)
	fl.SetOutput(stderr)
	rounds := fl.Int("rounds", 0, "rounds of each group; 0: 7, of the fault tracer 5")
	file := fl.String("write", "", "write the tables into this file as well")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if *rounds < 0 {
		return fmt.Errorf("%d rounds", *rounds)
	}
	chosen, err := choose(fl.Args())
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(chosen, func(g group) bool { return g.hidden }); i >= 0 && *file != "" {
		return fmt.Errorf("%s has no place in a document", chosen[i].name)
	}
	t, err := newTools(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.remove()) }()
	command := strings.Join(append([]string{"go run ./bench"}, args...), " ")
	// The two parts of the document: about reading, and about the fault tracer.
	var reading, faults bytes.Buffer
	for _, g := range chosen {
		part, begin := &reading, head
		if g.faults != nil {
			part, begin = &faults, faultsHead
		}
		out := io.MultiWriter(stdout, part)
		if part.Len() == 0 {
			if err := begin(out, command); err != nil {
				return err
			}
		}
		if err := g.run(ctx, t, *rounds, out, stderr); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	if *file == "" {
		return nil
	}
	return writeParts(*file, reading.String(), faults.String())
}

// readingRounds are the rounds of the groups about reading where none are asked for.
const readingRounds = 7

// run measures a group. rounds is 0 where no number was asked for.
func (g *group) run(ctx context.Context, t *tools, rounds int, out, progress io.Writer) error {
	if g.faults != nil {
		return g.faults(ctx, t, rounds, out, progress)
	}
	if rounds == 0 {
		rounds = readingRounds
	}
	if g.rounds > 0 {
		rounds = min(rounds, g.rounds)
	}
	var results []*result
	for _, r := range g.rows {
		res, err := t.measure(ctx, r, rounds, progress)
		if err != nil {
			return err
		}
		results = append(results, res)
	}
	g.write(out, results)
	return nil
}

// writeParts puts what was measured in place of the same part of a document; a part that is empty stays as it was.
func writeParts(file, reading, faults string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	oldReading, oldFaults := string(old), ""
	if i := strings.Index(oldReading, "\n"+faultsTitle+"\n"); i >= 0 {
		oldReading, oldFaults = oldReading[:i], oldReading[i:]
	}
	text := cmp.Or(reading, oldReading) + cmp.Or(faults, oldFaults)
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// choose gives the groups whose names begin with one of the prefixes; all, if there are none. A hidden one must be named whole.
func choose(prefixes []string) ([]group, error) {
	var out []group
	used := map[string]bool{}
	for _, g := range groups() {
		i := slices.IndexFunc(prefixes, func(p string) bool { return g.name == p || !g.hidden && strings.HasPrefix(g.name, p) })
		if i >= 0 {
			used[prefixes[i]] = true
		}
		if i >= 0 || len(prefixes) == 0 && !g.hidden {
			out = append(out, g)
		}
	}
	for _, p := range prefixes {
		if !used[p] {
			return nil, fmt.Errorf("no group's name begins with %q", p)
		}
	}
	return out, nil
}
