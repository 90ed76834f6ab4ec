package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"cowaudit/audit"
	"cowaudit/forktest"
	"cowaudit/report"
)

// compareRuns is how many runs are made of a subject that is held against a saved result: enough for an interval.
const compareRuns = 10

func compareCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:      "compare",
		Usage:     "say whether B copies more than A, by how much, how surely, and where",
		ArgsUsage: "A B",
		Description: `A and B are commands in one word each, as for forktest --ruby, or results that forktest saved with --format json. Both run in
interleaved rounds (A B, B A, …) after one that does not count, until every metric is told or --max-rounds is reached.
Verdicts: better or worse where the difference is larger than what matters (1% of copied pages, 5% of other metrics, 64 KiB)
and its interval leaves out 0; same where the whole interval is within what matters; else inconclusive.
Example: cowaudit compare ruby 'chroot /srv/ruby3.3 ruby3.3'
Example: cowaudit compare --env-b LD_PRELOAD=libjemalloc.so.2 --scenario fragmentation ruby ruby
Needs: what forktest needs; for saved results no privilege.
Exit code: 0 there is a verdict, also worse; 3 inconclusive, or interrupted. ("cowaudit gate" fails on what is worse.)`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "scenario", Usage: "the built-in application `NAME` (forktest --list-scenarios)", DefaultText: "callcache-cold; for Python tracked-objects"},
			&cli.StringFlag{Name: "app", Usage: "load `FILE`, a program, instead"},
			&cli.StringFlag{Name: "preload", Usage: "evaluate `EXPR` after it", DefaultText: ""},
			&cli.StringFlag{Name: "settle-hook", Usage: "evaluate `EXPR` in the parents before their collections", DefaultText: ""},
			&cli.StringFlag{Name: "event", Usage: "evaluate `EXPR` in each worker, as the event app_event", DefaultText: ""},
			&cli.GenericFlag{Name: "env", Usage: "add `K=V` to the environment of both; may be repeated", Value: &repeated{}},
			&cli.GenericFlag{Name: "env-a", Usage: "add `K=V` to that of A", Value: &repeated{}},
			&cli.GenericFlag{Name: "env-b", Usage: "add `K=V` to that of B", Value: &repeated{}},
			&cli.IntFlag{Name: "rounds", Usage: "do just `N`", DefaultText: "as many as the verdicts take"},
			&cli.IntFlag{Name: "max-rounds", Usage: "do no more than `N`", Value: forktest.DefaultMaxRounds},
			&cli.StringFlag{Name: "resume", Usage: "go on with the interrupted comparison in `FILE`"},
			choiceFlag("trace", "one more round, for who wrote, where something differs", "auto", "always", "never"),
			&cli.StringFlag{Name: "user", Usage: "run both as `NAME`", DefaultText: "who called sudo, else as this process"},
			choiceFlag("runtime", "of the commands", "auto", "ruby", "python", "script"),
			&cli.IntFlag{Name: "methods", Usage: "of callcache-cold and its like", Value: forktest.DefaultMethods},
			&cli.IntFlag{Name: "call-sites", Usage: "of each of its methods", Value: forktest.DefaultCallSites},
			&cli.StringFlag{Name: "settle", Usage: "collect `N` times before the fork, or until-quiet", Value: "until-quiet", DefaultText: "until-quiet"},
			&cli.BoolFlag{Name: "warmup", Usage: "and run Process.warmup (3.3), in Python gc.freeze, before it"},
			&cli.IntFlag{Name: "workers", Usage: "to fork", Value: forktest.DefaultWorkers},
			&cli.DurationFlag{Name: "timeout", Usage: "for each answer of the application", Value: forktest.DefaultTimeout},
			&cli.BoolFlag{Name: "verbose", Usage: "show the applications' output on standard error"},
			&cli.BoolFlag{Name: "all", Usage: "list every row: fold none into [N others]"},
		}, outputFlags(verdictFormats()...)...),
		Action: func(c *cli.Context) error { return runCompare(a, c) },
	}
}

func runCompare(a *application, c *cli.Context) error {
	if c.NArg() != 2 {
		return usageErrorf("compare: two subjects, and not %d: give A and B, each in one word ('chroot DIR ruby3.3')", c.NArg())
	}
	for _, name := range []string{"rounds", "max-rounds"} {
		if c.IsSet(name) && c.Int(name) < 1 {
			return usageErrorf("--%s %d: at least 1", name, c.Int(name))
		}
	}
	base, err := forktestConfig(a, c)
	if err != nil {
		return err
	}
	sides, saved, err := compareSides(c, base)
	if err != nil {
		return err
	}
	var earlier *audit.CompareReport
	if c.IsSet("resume") {
		if saved {
			return usageErrorf("--resume: saved results have no rounds to go on with")
		}
		if earlier, err = loadComparison(c, c.String("resume")); err != nil {
			return err
		}
		// What it goes on with it may replace.
		if sameFile(c.String("resume"), c.String("o")) {
			if err := c.Set("force", "true"); err != nil {
				return err
			}
		}
	}
	out, err := a.openOutput(c)
	if err != nil {
		return err
	}
	var r *audit.CompareReport
	if saved {
		r, err = compareSaved(a, c, sides)
	} else {
		r, err = compareMeasured(a, c, sides, earlier, out)
	}
	var lost *notSavedError
	switch {
	case errors.As(err, &lost):
		return lost.say()
	case err != nil && r == nil:
		return fmt.Errorf("compare: %w", err)
	}
	details := report.Options{Color: out.Color(), Width: out.Width()}
	if c.Bool("all") {
		details.Top = -1
	}
	if werr := out.writeResult(r, details); werr != nil {
		return errors.Join(err, werr)
	}
	switch {
	case err != nil && c.IsSet("o") && out.Format() == "json":
		return withRemedy(fmt.Errorf("compare: %w", err), "go on with --resume "+shellWord(c.String("o")))
	case err != nil:
		return withRemedy(fmt.Errorf("compare: %w", err), "with --format json -o FILE it can be resumed")
	case r.Verdict == audit.VerdictInconclusive:
		return withRemedy(errors.New("compare: inconclusive"), "give it more rounds with --max-rounds, or find what makes the runs differ")
	}
	return nil
}

// compareSide is one argument: a saved result, or what to run.
type compareSide struct {
	saved  *audit.ForktestReport
	config forktest.Config
}

func compareSides(c *cli.Context, base forktest.Config) (sides [2]compareSide, saved bool, err error) {
	for i, name := range c.Args().Slice() {
		if strings.TrimSpace(name) == "" {
			return sides, false, usageErrorf("compare: subject %d is empty: give a command or a saved result", i+1)
		}
		if savedResult(name) {
			if sides[i].saved, err = loadForktest(c, name); err != nil {
				return sides, false, err
			}
			saved = true
			continue
		}
		sides[i].config = base
		sides[i].config.Subject = name
		own := c.Generic([]string{"env-a", "env-b"}[i]).(*repeated).values
		sides[i].config.Env = append(append([]string(nil), base.Env...), own...)
	}
	return sides, saved, nil
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

func loadForktest(c *cli.Context, name string) (*audit.ForktestReport, error) {
	v, err := loadSaved(c, name)
	if err != nil {
		return nil, err
	}
	r, ok := v.(*audit.ForktestReport)
	if !ok {
		return nil, usageErrorf("compare: %s is no fork test: give what \"cowaudit forktest --format json\" wrote", name)
	}
	return r, nil
}

func loadComparison(c *cli.Context, name string) (*audit.CompareReport, error) {
	v, err := loadSaved(c, name)
	if err != nil {
		return nil, err
	}
	r, ok := v.(*audit.CompareReport)
	if !ok {
		return nil, usageErrorf("--resume: %s is no comparison: give what \"cowaudit compare --format json -o FILE\" wrote", name)
	}
	return r, nil
}

func loadSaved(c *cli.Context, name string) (any, error) {
	f, err := openInput(c, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing is lost
	v, err := report.Load(bufio.NewReader(f))
	if err != nil {
		return nil, withRemedy(fmt.Errorf("compare: %s: %w", name, err), "give what forktest or compare wrote with --format json")
	}
	return v, nil
}

// compareSaved compares where at least one side is a saved result. The other is measured now.
func compareSaved(a *application, c *cli.Context, sides [2]compareSide) (*audit.CompareReport, error) {
	for i := range sides {
		s := &sides[i]
		if s.saved != nil {
			continue
		}
		s.config.Runs = compareRuns
		if c.IsSet("rounds") {
			s.config.Runs = c.Int("rounds")
		}
		line := newProgressLine(a.stderr)
		s.config.Progress = line.show
		r, err := forktest.Run(c.Context, s.config)
		line.clear()
		if err != nil {
			return nil, compareError(a, c, err)
		}
		s.saved = r
	}
	r, err := audit.Compare(audit.NewSide(sides[0].saved), audit.NewSide(sides[1].saved), audit.CompareOptions{Version: version()})
	return r, compareError(a, c, err)
}

// compareMeasured measures both sides in rounds. Where the result goes to a file as JSON it is kept after every round.
func compareMeasured(a *application, c *cli.Context, sides [2]compareSide, earlier *audit.CompareReport, out *output) (*audit.CompareReport, error) {
	config := forktest.CompareConfig{A: sides[0].config, B: sides[1].config, Rounds: c.Int("rounds"), MaxRounds: c.Int("max-rounds"), Resume: earlier}
	if mode := c.String("trace"); mode != "never" {
		config.Trace = &forktest.TraceConfig{}
		config.TraceIfPossible = mode == "auto"
	}
	if out.file != nil && out.Format() == "json" {
		saved := 0
		config.Save = func(r *audit.CompareReport) error {
			if err := out.writeResult(r, report.Options{}); err != nil {
				return &notSavedError{err, out.file.name, saved}
			}
			saved = r.Rounds.Done
			return nil
		}
	}
	line := newProgressLine(a.stderr)
	config.Progress = line.compare
	r, err := forktest.Compare(c.Context, config)
	line.clear()
	return r, compareError(a, c, err)
}

// notSavedError is why a round was not saved, which ends a comparison: what it measures would be lost.
type notSavedError struct {
	err    error
	file   string
	rounds int // what the file holds since this start; 0: nothing of it
}

func (e *notSavedError) Error() string { return e.err.Error() }
func (e *notSavedError) Unwrap() error { return e.err }

// say tells what is left.
func (e *notSavedError) say() error {
	if e.rounds == 0 {
		return fmt.Errorf("compare: %w", e.err)
	}
	return withRemedy(fmt.Errorf("compare: %w", e.err), fmt.Sprintf("the file holds %d rounds: free some space, and go on with --resume %s", e.rounds, shellWord(e.file)))
}

func compareError(a *application, c *cli.Context, err error) error {
	var unlike *audit.UnlikeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unlike):
		return withRemedy(err, "measure both with the same scenario, sizes and machine")
	}
	var config *forktest.ConfigError
	if errors.As(err, &config) {
		return usageErrorf("%w", err)
	}
	showLastOutput(a, c, err)
	return err
}

// compare shows what a comparison is about to do, and how long it may take at most.
func (l *progressLine) compare(p forktest.CompareProgress) {
	if l.w == nil {
		return
	}
	text := fmt.Sprintf("round %d of at most %d, %s: %s", p.Round, p.Rounds, p.Side, p.Phase)
	switch {
	case p.Traced:
		text = fmt.Sprintf("traced round, %s: %s", p.Side, p.Phase)
	case p.Round == 0:
		text = fmt.Sprintf("warm-up, %s: %s", p.Side, p.Phase)
		l.first, l.start = p.Done, time.Now()
	}
	if p.Total > 0 && l.start.IsZero() {
		l.first, l.start = p.Done, time.Now()
	}
	if n := p.Done - l.first; n > 0 {
		left := time.Since(l.start) * time.Duration(p.Total-p.Done) / time.Duration(n)
		text += fmt.Sprintf(" (at most %s left)", max(left, time.Second).Round(time.Second))
	}
	fmt.Fprint(l.w, "\r\x1b[K"+text)
}
