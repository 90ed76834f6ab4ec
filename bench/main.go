// Command bench measures what reading a forking server costs, as ratios to a plain reader of the same page tables in the
// same interleaved run, and prints a table in Markdown.
//
//	go run ./bench            # all
//	go run ./bench headline   # the cases whose names begin so
//
// It needs root, gcc and a built bin/cowaudit (COWAUDIT names another), and uses smem and pmap where they are installed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fl := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := fl.Int("rounds", 7, "rounds of each case; the medians are shown")
	file := fl.String("write", "", "write the table into this file as well")
	if err := fl.Parse(args); err != nil {
		return err
	}
	tools, err := newTools(ctx)
	if err != nil {
		return err
	}
	defer tools.remove()
	out := stdout
	if *file != "" {
		f, ferr := os.Create(*file)
		if ferr != nil {
			return ferr
		}
		defer func() {
			if cerr := f.Close(); err == nil {
				err = cerr
			}
		}()
		out = io.MultiWriter(stdout, f)
	}
	if err := head(out, args); err != nil {
		return err
	}
	ran := 0
	for _, c := range cases() {
		if !wanted(c.name, fl.Args()) {
			continue
		}
		ran++
		res, err := tools.measure(ctx, c, *rounds, stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		res.write(out)
	}
	if ran == 0 {
		return fmt.Errorf("no case begins with %q", fl.Args())
	}
	return nil
}

func wanted(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return len(prefixes) == 0
}
