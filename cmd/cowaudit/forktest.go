package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"cowaudit/ebpf"
	"cowaudit/forktest"
	"cowaudit/report"
)

func forktestCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:  "forktest",
		Usage: "load, fork, and count what a worker's first major GC copies",
		Description: `Starts a Ruby (or a Python, or a program that speaks docs/protocol.md), has it load an application, settle and fork, and
compares each worker with its parent before and after a null event, the first major GC and the second. Without --app
and --preload the application is callcache-cold: 20,000 methods of 20 call sites that are never called. There are other
scenarios, some with events and metrics of their own: --list-scenarios tells what each is for and which figures are usual.
Under sudo the application runs as the user who called it.
Example: cowaudit forktest --ruby 'chroot /srv/ruby3.3 ruby3.3' --app config/environment.rb
Example: cowaudit forktest --app app.rb --settle-hook 'App.warm' --event '100.times { App.request }'
Needs: root, or CAP_SYS_ADMIN and CAP_SYS_PTRACE in the host's user namespace.`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "ruby", Aliases: []string{"subject"}, Usage: "the `COMMAND` to test, in words as for a shell", DefaultText: "ruby"},
			&cli.GenericFlag{Name: "env", Usage: "add `K=V` to its environment; may be repeated", Value: &repeated{}},
			&cli.StringFlag{Name: "user", Usage: "run it as `NAME`", DefaultText: "who called sudo, else as this process"},
			choiceFlag("runtime", "of the command", "auto", "ruby", "python", "script"),
			&cli.StringFlag{Name: "app", Usage: "load `FILE`, a program"},
			&cli.StringFlag{Name: "preload", Usage: "evaluate `EXPR` after it", DefaultText: ""},
			&cli.StringFlag{Name: "scenario", Usage: "the built-in application `NAME`", DefaultText: "callcache-cold; for Python tracked-objects"},
			&cli.BoolFlag{Name: "list-scenarios", Usage: "list them, with what they measure, and end"},
			&cli.StringFlag{Name: "settle-hook", Usage: "evaluate `EXPR` in the parent before its collections", DefaultText: ""},
			&cli.StringFlag{Name: "event", Usage: "evaluate `EXPR` in each worker, after the null event, as the event app_event", DefaultText: ""},
			&cli.IntFlag{Name: "methods", Usage: "of callcache-cold, callcache-warm and inline-cache", Value: forktest.DefaultMethods},
			&cli.IntFlag{Name: "call-sites", Usage: "of each of its methods", Value: forktest.DefaultCallSites},
			&cli.StringFlag{Name: "settle", Usage: "collect `N` times before the fork, or until-quiet; 0 as a server that does not", Value: "until-quiet", DefaultText: "until-quiet"},
			&cli.BoolFlag{Name: "warmup", Usage: "and run Process.warmup (3.3), in Python gc.freeze, before it"},
			&cli.IntFlag{Name: "workers", Usage: "to fork", Value: forktest.DefaultWorkers},
			&cli.IntFlag{Name: "runs", Usage: "each with a fresh process; the interval needs 6", Value: forktest.DefaultRuns},
			&cli.DurationFlag{Name: "timeout", Usage: "for each answer of the application", Value: forktest.DefaultTimeout},
			&cli.BoolFlag{Name: "trace", Usage: "trace the page faults too: who copied, and three counts that must agree"},
			&cli.BoolFlag{Name: "stacks", Usage: "with --trace: take the stack of each write"},
			&cli.BoolFlag{Name: "lines", Usage: "with --trace: give source lines where there is debug information"},
			choiceFlag("gc-provider", "with --trace: how the GC phase is learnt", ebpf.CollectorChoices()...),
			&cli.BoolFlag{Name: "verbose", Usage: "show the application's output on standard error"},
			&cli.BoolFlag{Name: "every-run", Usage: "list the runs too"},
			&cli.BoolFlag{Name: "all", Usage: "list every row: fold none into [N others]"},
		}, outputFlags()...),
		Action: func(c *cli.Context) error { return runForktest(a, c) },
	}
}

func runForktest(a *application, c *cli.Context) error {
	if c.NArg() > 0 {
		return usageErrorf("forktest: %s is one argument too many: the Ruby is named with --ruby %s", shellWord(c.Args().First()), shellWord(strings.Join(c.Args().Slice(), " ")))
	}
	if c.Bool("list-scenarios") {
		return listScenarios(a.stdout)
	}
	config, err := forktestConfig(a, c)
	if err != nil {
		return err
	}
	out, err := a.openOutput(c)
	if err != nil {
		return err
	}
	line := newProgressLine(a.stderr)
	config.Progress = line.show
	r, err := forktest.Run(c.Context, config)
	line.clear()
	if err != nil {
		return forktestError(a, c, err)
	}
	details := report.Options{Color: out.Color(), Width: out.Width(), Runs: c.Bool("every-run")}
	if c.Bool("all") {
		details.Top = -1
	}
	return out.writeResult(r, details)
}

// forktestConfig reads the options. A number that was given is taken as it is: 0 is no default then.
func forktestConfig(a *application, c *cli.Context) (forktest.Config, error) {
	settle, err := forktest.ParseSettle(c.String("settle"))
	if err != nil {
		return forktest.Config{}, usageErrorf("--%w", err)
	}
	config := forktest.Config{
		Version: version(), Subject: c.String("ruby"), Env: c.Generic("env").(*repeated).values, User: c.String("user"),
		Runtime: forktest.Runtime(c.String("runtime")), Scenario: c.String("scenario"), App: c.String("app"), Preload: c.String("preload"),
		SettleHook: c.String("settle-hook"), Event: c.String("event"),
		Settle: settle, Warmup: c.Bool("warmup"), Timeout: c.Duration("timeout"),
	}
	for _, n := range []struct {
		name string
		to   *int
	}{{"methods", &config.Methods}, {"call-sites", &config.CallSites}, {"workers", &config.Workers}, {"runs", &config.Runs}} {
		if !c.IsSet(n.name) {
			continue
		}
		if *n.to = c.Int(n.name); *n.to < 1 {
			return config, usageErrorf("--%s %d: at least 1", n.name, *n.to)
		}
	}
	if config.Timeout <= 0 {
		return config, usageErrorf("--timeout %s: more than nothing", config.Timeout)
	}
	for _, name := range []string{"ruby", "app", "preload", "scenario", "user", "settle-hook", "event"} {
		if c.IsSet(name) && strings.TrimSpace(c.String(name)) == "" {
			return config, usageErrorf("--%s: a value that is not empty", name)
		}
	}
	if c.Bool("verbose") {
		config.Output = a.stderr
	}
	for _, name := range []string{"stacks", "lines", "gc-provider"} {
		if c.IsSet(name) && !c.Bool("trace") {
			return config, usageErrorf("--%s: only together with --trace", name)
		}
	}
	if c.Bool("trace") {
		config.Trace = &forktest.TraceConfig{Stacks: c.Bool("stacks"), Lines: c.Bool("lines"), Collector: c.String("gc-provider")}
	}
	return config, nil
}

// forktestError gives an error its exit code, and shows what the application wrote last, unless that was shown already.
func forktestError(a *application, c *cli.Context, err error) error {
	var config *forktest.ConfigError
	if errors.As(err, &config) {
		return usageErrorf("forktest: %w", err)
	}
	showLastOutput(a, c, err)
	return fmt.Errorf("forktest: %w", err)
}

// showLastOutput shows what the application wrote last before a failure, unless that was shown already.
func showLastOutput(a *application, c *cli.Context, err error) {
	var failure *forktest.Failure
	if !errors.As(err, &failure) || len(failure.Output) == 0 || c.Bool("verbose") {
		return
	}
	fmt.Fprintln(a.stderr, "The application's last output:")
	for _, line := range failure.Output {
		fmt.Fprintln(a.stderr, "  | "+line)
	}
}

// repeated is an option that may come several times. (A slice flag would take a value with commas apart.)
type repeated struct{ values []string }

func (r *repeated) Set(v string) error {
	r.values = append(r.values, v)
	return nil
}

func (r *repeated) String() string { return strings.Join(r.values, " ") }

// progressLine keeps one line on a terminal up to date, and writes nothing elsewhere.
type progressLine struct {
	w     io.Writer // nil: no terminal
	start time.Time
	first int // what was done at the start
}

func newProgressLine(w io.Writer) *progressLine {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &progressLine{}
	}
	return &progressLine{w: f, start: time.Now()}
}

func (l *progressLine) show(p forktest.Progress) {
	if l.w == nil {
		return
	}
	text := fmt.Sprintf("run %d of %d: %s", p.Run, p.Runs, p.Phase)
	// What the first run takes tells of the others.
	if p.Run > 1 && p.Done > 0 {
		left := time.Since(l.start) * time.Duration(p.Total-p.Done) / time.Duration(p.Done)
		text += fmt.Sprintf(" (%s left)", max(left, time.Second).Round(time.Second))
	}
	fmt.Fprint(l.w, "\r\x1b[K"+text)
}

func (l *progressLine) clear() {
	if l.w != nil {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}
