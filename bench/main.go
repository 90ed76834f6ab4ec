// Command bench measures what reading a forking server costs, as ratios to a plain reader of the same page tables in the
// same interleaved run, and prints tables in Markdown.
//
//	go run ./bench                        # all
//	go run ./bench headline sparse        # the groups whose names begin so
//	go run ./bench --write docs/bench.md  # all, into a file as well
//
// It needs root, gcc and a built bin/cowaudit (COWAUDIT names another), and uses smem and pmap where they are installed.
// What takes more memory than is available is left out, and a line says so.
package main

import (
	"bytes"
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
	rounds := fl.Int("rounds", 7, "rounds of each group")
	file := fl.String("write", "", "write the tables into this file as well")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 {
		return fmt.Errorf("%d rounds: at least 1", *rounds)
	}
	chosen, err := choose(fl.Args())
	if err != nil {
		return err
	}
	t, err := newTools(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.remove()) }()
	var all bytes.Buffer
	out := io.MultiWriter(stdout, &all)
	if err := head(out, strings.Join(append([]string{"go run ./bench"}, args...), " ")); err != nil {
		return err
	}
	for _, g := range chosen {
		n := *rounds
		if g.rounds > 0 {
			n = min(n, g.rounds)
		}
		var results []*result
		for _, r := range g.rows {
			res, err := t.measure(ctx, r, n, stderr)
			if err != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
			results = append(results, res)
		}
		g.write(out, results)
	}
	if *file == "" {
		return nil
	}
	if err := os.WriteFile(*file+".new", all.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(*file+".new", *file)
}

// choose gives the groups whose names begin with one of the prefixes; all, if there are none.
func choose(prefixes []string) ([]group, error) {
	var out []group
	used := map[string]bool{}
	for _, g := range groups() {
		i := slices.IndexFunc(prefixes, func(p string) bool { return strings.HasPrefix(g.name, p) })
		if i >= 0 {
			used[prefixes[i]] = true
		}
		if i >= 0 || len(prefixes) == 0 {
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
