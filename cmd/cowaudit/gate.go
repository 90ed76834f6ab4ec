package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"cowaudit/audit"
	"cowaudit/pagemap"
	"cowaudit/report"
)

// gateRuns is how many runs the gate measures where neither --rounds nor the file says: enough for a median's interval.
const gateRuns = 6

func gateCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:      "gate",
		Usage:     "hold a fork test, or a comparison, against the limits in a file",
		ArgsUsage: "[A] B",
		Description: `B is a subject of the file, a Ruby command, or a result saved with --format json; a saved comparison has both sides.
A, or --baseline, is what an increase is measured against. docs/gate.md describes the file and the verdicts.
Exit code: 0 passed, 1 failed, 3 inconclusive.
Example: cowaudit gate --baseline ruby3.1.baseline ruby3.4
Needs: no privilege for saved results, else what forktest needs.`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "file", Usage: "read the rules from `FILE`", Value: gateFileName, DefaultText: gateFileName},
			&cli.BoolFlag{Name: "explain", Usage: "print what decided each rule"},
			&cli.StringFlag{Name: "baseline", Usage: "A is what `FILE` holds"},
			&cli.StringFlag{Name: "save-baseline", Usage: "measure B, save it as `FILE`, and judge nothing"},
			&cli.BoolFlag{Name: "allow-other-environment", Usage: "take a baseline of another kernel or size, and name it"},
			&cli.IntFlag{Name: "rounds", Usage: "runs of each scenario", DefaultText: "rounds.min of the file, else 6"},
		}, outputFlags(verdictFormats()...)...),
		Action: func(c *cli.Context) error { return runGate(a, c) },
	}
}

func runGate(a *application, c *cli.Context) error {
	if err := checkGateArguments(c); err != nil {
		return err
	}
	in, err := openInput(c, c.String("file"))
	if err != nil {
		return err
	}
	rules, err := readGateFile(c.String("file"), in)
	if err := errors.Join(err, in.Close()); err != nil {
		return err
	}
	if c.IsSet("save-baseline") {
		return saveBaseline(a, c, rules)
	}
	out, err := a.openOutput(c)
	if err != nil {
		return err
	}
	comparisons, warnings, err := gateComparisons(a, c, rules)
	if err != nil {
		return err
	}
	g := audit.Gate(rules.rules, rules.excuses, comparisons, time.Now().UTC().Format(time.DateOnly))
	g.Version, g.File = version(), rules.name
	g.Warnings = append(g.Warnings, warnings...)
	err = out.writeResult(g, report.Options{Color: out.Color(), Width: out.Width(), Explain: c.Bool("explain")})
	switch {
	case err != nil:
		return err
	case g.Verdict == audit.GateFail:
		return &codedError{exitGateFailed, errors.New("gate: failed")}
	case g.Verdict != audit.GatePass:
		return withRemedy(errors.New("gate: inconclusive"), "--explain shows what is missing")
	}
	return nil
}

func checkGateArguments(c *cli.Context) error {
	n := c.NArg()
	switch {
	case n < 1 || n > 2:
		return usageErrorf("gate: %d subjects given: give B, or A and B", n)
	case c.IsSet("baseline") && c.IsSet("save-baseline"):
		return usageErrorf("gate: --baseline and --save-baseline: give one of them")
	case n == 2 && (c.IsSet("baseline") || c.IsSet("save-baseline")):
		return usageErrorf("gate: two subjects and a baseline: give one subject")
	case c.IsSet("rounds") && c.Int("rounds") < 1:
		return usageErrorf("--rounds %d: at least 1", c.Int("rounds"))
	case c.Bool("allow-other-environment") && !c.IsSet("baseline"):
		return usageErrorf("--allow-other-environment: only together with --baseline")
	}
	return nil
}

func saveBaseline(a *application, c *cli.Context, rules *gateRules) error {
	f, err := a.openBaseline(c)
	if err != nil {
		return err
	}
	v, err := gateResults(a, c, rules, c.Args().First())
	if err != nil {
		return err
	}
	b := &baseline{SchemaVersion: audit.SchemaVersion, Kind: kindBaseline, Version: version(), Results: v.tests}
	if len(b.Results) == 0 {
		return usageErrorf("gate: --save-baseline: %s is a comparison: give one subject", c.Args().First())
	}
	if err := b.save(f); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stderr, "Saved %s: scenarios measured: %d.\n", f.name, len(b.Results))
	return err
}

// gateInput is what one argument stands for.
type gateInput struct {
	tests      []*audit.ForktestReport
	comparison *audit.CompareReport
}

// gateResults reads an argument that is a saved result, and measures one that is a subject.
func gateResults(a *application, c *cli.Context, rules *gateRules, name string) (gateInput, error) {
	if rules.subject(name) {
		tests, err := gateMeasure(a, c, rules, name)
		return gateInput{tests: tests}, err
	}
	f, err := openInput(c, name)
	if err != nil {
		return gateInput{}, err
	}
	defer f.Close() // read only: nothing is lost
	v, err := report.Load(bufio.NewReader(f))
	if err != nil {
		return gateInput{}, withRemedy(fmt.Errorf("gate: %s: %w", name, err), "give what forktest or compare wrote with --format json")
	}
	switch r := v.(type) {
	case *audit.ForktestReport:
		return gateInput{tests: []*audit.ForktestReport{r}}, nil
	case *audit.CompareReport:
		return gateInput{comparison: r}, nil
	}
	return gateInput{}, usageErrorf("gate: %s: is no fork test and no comparison", name)
}

// savedResult tells a saved result from a command: it is a file that begins as JSON does, or a name that ends so.
func savedResult(name string) bool {
	if strings.HasSuffix(name, ".json") {
		return true
	}
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close() // read only: nothing is lost
	b := make([]byte, 1)
	n, _ := f.Read(b) // an empty file, or a folder, is none
	return n == 1 && b[0] == '{'
}

// wantsFunctions reports a rule or an excuse that needs to know who wrote.
func (g *gateRules) wantsFunctions() bool {
	return slices.ContainsFunc(g.rules, func(r audit.Rule) bool { return r.Function != "" }) ||
		slices.ContainsFunc(g.excuses, func(e audit.Excuse) bool { return e.Function != "" })
}

// gateComparisons gives what the rules are held against: a comparison for each scenario, with an empty A where there is none.
func gateComparisons(a *application, c *cli.Context, rules *gateRules) (out []audit.CompareReport, warnings []pagemap.Warning, err error) {
	var before []*audit.ForktestReport
	switch {
	case c.IsSet("baseline"):
		b, err := loadBaseline(c, c.String("baseline"))
		if err != nil {
			return nil, nil, err
		}
		before = b.Results
	case c.NArg() == 2 && rules.subject(c.Args().Get(0)) && rules.subject(c.Args().Get(1)):
		out, err = gateRounds(a, c, rules)
		return out, nil, err
	case c.NArg() == 2:
		in, err := gateResults(a, c, rules, c.Args().First())
		if err != nil {
			return nil, nil, err
		}
		before = in.tests
	}
	in, err := gateResults(a, c, rules, c.Args().Get(c.NArg()-1))
	if err != nil {
		return nil, nil, err
	}
	if in.comparison != nil {
		if c.NArg() == 2 || c.IsSet("baseline") {
			return nil, nil, usageErrorf("gate: a saved comparison has both sides: give it alone")
		}
		return []audit.CompareReport{*in.comparison}, nil, nil
	}
	for _, test := range in.tests {
		old := (&baseline{Results: before}).find(test.Scenario.Name)
		if old == nil && len(before) > 0 {
			return nil, nil, withRemedy(fmt.Errorf("gate: A has no result of the scenario %s", test.Scenario.Name), "measure A with the same scenarios")
		}
		one, w, err := gatePair(c, old, test)
		if err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, w...)
		out = append(out, one)
	}
	return out, warnings, nil
}

// gatePair compares a fork test with the one before; old is nil where there is none, and A is empty then.
func gatePair(c *cli.Context, old, test *audit.ForktestReport) (audit.CompareReport, []pagemap.Warning, error) {
	bare := audit.CompareReport{SchemaVersion: audit.SchemaVersion, Kind: audit.KindCompare, Version: version(), B: audit.NewSide(test), Scenario: test.Scenario}
	if old == nil {
		return bare, nil, nil
	}
	var warnings []pagemap.Warning
	differs := environmentDiffers(old, test)
	for _, u := range differs {
		text := fmt.Sprintf("A and B differ beside the subject: %s is %q in A and %q in B", u.What, u.A, u.B)
		if !c.Bool("allow-other-environment") {
			return bare, nil, withRemedy(errors.New("gate: "+text), "measure A again here, or give --baseline with --allow-other-environment")
		}
		warnings = append(warnings, pagemap.Warning{Code: "other_environment", Text: text, Remedy: "measure the baseline again here"})
	}
	r, err := audit.Compare(audit.NewSide(old), audit.NewSide(test), audit.CompareOptions{Version: version()})
	var refused *audit.UnlikeError
	switch {
	case errors.As(err, &refused) && len(differs) > 0 && old.Subject.Runtime == test.Subject.Runtime:
		// Allowed, and named: the rules are judged, and there are no rows.
		bare.A, bare.Unlike = audit.NewSide(old), differs
		return bare, warnings, nil
	case err != nil:
		return bare, nil, withRemedy(fmt.Errorf("gate: %w", err), "measure A again here")
	}
	return *r, warnings, nil
}
