package main

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"cowaudit/audit"
	"cowaudit/forktest"
)

// subject reports an argument that is to be measured: a name of the file, or a command, and no saved result.
func (g *gateRules) subject(name string) bool {
	_, named := g.file.Subjects[name]
	return named || !savedResult(name)
}

// scenarios gives those of the file, or the one that "" stands for.
func (g *gateRules) scenarios() []string {
	if len(g.file.Scenarios) == 0 {
		return []string{""}
	}
	return g.file.Scenarios
}

// config says how to measure a subject.
func (g *gateRules) config(name string) forktest.Config {
	f := &g.file
	c := forktest.Config{
		Version: version(), Subject: name, Workers: f.Workers, App: f.App, Preload: f.Preload, SettleHook: f.SettleHook, Event: f.Event,
		User: f.User, Warmup: f.Warmup, Timeout: g.timeout,
	}
	if f.App != "" && !filepath.IsAbs(f.App) {
		c.App = filepath.Join(filepath.Dir(g.name), f.App)
	}
	if s, ok := f.Subjects[name]; ok {
		c.Subject, c.Env = s.Ruby, s.Env
	}
	return c
}

// gateMeasure runs the fork test of each scenario of the file on one subject.
func gateMeasure(a *application, c *cli.Context, rules *gateRules, name string) ([]*audit.ForktestReport, error) {
	config := rules.config(name)
	config.Runs = gateRuns
	if rules.file.Rounds.Min > 0 {
		config.Runs = rules.file.Rounds.Min
	}
	if c.IsSet("rounds") {
		config.Runs = c.Int("rounds")
	}
	if rules.wantsFunctions() {
		config.Trace = &forktest.TraceConfig{}
	}
	var out []*audit.ForktestReport
	for _, s := range rules.scenarios() {
		config.Scenario = s
		line := newProgressLine(a.stderr)
		config.Progress = line.show
		r, err := forktest.Run(c.Context, config)
		line.clear()
		if err != nil {
			return nil, forktestError(a, c, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// gateRounds compares two subjects in interleaved rounds, in each scenario of the file. Where no rule needs the functions of
// every run, they are learnt from one more round, for the cause.
func gateRounds(a *application, c *cli.Context, rules *gateRules) ([]audit.CompareReport, error) {
	config := forktest.CompareConfig{
		A: rules.config(c.Args().Get(0)), B: rules.config(c.Args().Get(1)), Rounds: c.Int("rounds"),
		MinRounds: max(rules.file.Rounds.Min, gateRuns), MaxRounds: rules.file.Rounds.Max,
		Trace: &forktest.TraceConfig{}, TraceRounds: rules.wantsFunctions(), TraceIfPossible: true,
	}
	var out []audit.CompareReport
	for _, s := range rules.scenarios() {
		config.A.Scenario, config.B.Scenario = s, s
		line := newProgressLine(a.stderr)
		config.Progress = line.compare
		r, err := forktest.Compare(c.Context, config)
		line.clear()
		if err != nil {
			return nil, fmt.Errorf("gate: %w", compareError(a, c, err))
		}
		out = append(out, *r)
	}
	return out, nil
}
