package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"cowaudit/audit"
	"cowaudit/pagemap"
	"cowaudit/report"
)

// kindBaseline is the kind of a baseline's file.
const kindBaseline = "baseline"

// baseline is what a later gate has as its side A: one result for each scenario, whole, so that it says on which machine,
// kernel and build it was measured.
type baseline struct {
	SchemaVersion int                     `json:"schema_version"`
	Kind          string                  `json:"kind"`
	Version       string                  `json:"cowaudit_version"`
	Results       []*audit.ForktestReport `json:"results"`
}

// openBaseline prepares the file of --save-baseline, before anything is measured.
func (a *application) openBaseline(c *cli.Context) (*outputFile, error) {
	f, err := openOutputFile(c.String("save-baseline"), c.Bool("force"))
	if err != nil {
		return nil, usageErrorf("--save-baseline %s", strings.TrimPrefix(err.Error(), "-o "))
	}
	a.outputs = append(a.outputs, &output{file: f})
	return f, nil
}

// save writes a baseline whole, or leaves the file that was there.
func (b *baseline) save(f *outputFile) error {
	err := f.write(func(w io.Writer) error { return report.JSON(w, b) })
	if err != nil {
		return withRemedy(fmt.Errorf("save the baseline: %w", err), "what was in the file before is still there; free some space, or give --save-baseline another file")
	}
	return nil
}

// loadBaseline reads a baseline; each result in it is checked as a result by itself would be.
func loadBaseline(c *cli.Context, name string) (*baseline, error) {
	f, err := openInput(c, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing is lost
	var raw struct {
		SchemaVersion int               `json:"schema_version"`
		Kind          string            `json:"kind"`
		Version       string            `json:"cowaudit_version"`
		Results       []json.RawMessage `json:"results"`
	}
	bad := func(err error) error {
		return withRemedy(fmt.Errorf("gate: --baseline %s: %w", name, err), "give a file that \"cowaudit gate --save-baseline\" wrote")
	}
	if err := json.NewDecoder(f).Decode(&raw); err != nil {
		return nil, bad(fmt.Errorf("%w: %w", pagemap.ErrFormat, err))
	}
	if raw.Kind != kindBaseline || raw.SchemaVersion < 1 || raw.SchemaVersion > audit.SchemaVersion {
		return nil, bad(fmt.Errorf("%w: kind %q with schema_version %d is no baseline that this cowaudit reads", pagemap.ErrFormat, raw.Kind, raw.SchemaVersion))
	}
	b := &baseline{raw.SchemaVersion, raw.Kind, raw.Version, nil}
	for _, m := range raw.Results {
		v, err := report.Load(bytes.NewReader(m))
		if err != nil {
			return nil, bad(err)
		}
		r, ok := v.(*audit.ForktestReport)
		if !ok {
			return nil, bad(fmt.Errorf("%w: it holds a result that is no fork test", pagemap.ErrFormat))
		}
		b.Results = append(b.Results, r)
	}
	return b, nil
}

// find gives the baseline's result of a scenario.
func (b *baseline) find(scenario string) *audit.ForktestReport {
	for _, r := range b.Results {
		if r.Scenario.Name == scenario {
			return r
		}
	}
	return nil
}

// environmentDiffers lists what differs between two results beside the subject, each of which makes their counts
// incomparable. What one of both cannot tell is no difference.
func environmentDiffers(a, b *audit.ForktestReport) (out []audit.Unlike) {
	differ := func(what, x, y string) {
		if x != y && x != "" && y != "" {
			out = append(out, audit.Unlike{What: what, A: x, B: y})
		}
	}
	number := func(what string, x, y int) { differ(what, strconv.Itoa(x), strconv.Itoa(y)) }
	differ("kernel", a.Capture.Kernel, b.Capture.Kernel)
	differ("page size", strconv.FormatInt(int64(a.Capture.PageSize), 10), strconv.FormatInt(int64(b.Capture.PageSize), 10))
	if a.Environment != nil && b.Environment != nil {
		differ("machine", a.Environment.Machine, b.Environment.Machine)
		differ("transparent huge pages", a.Environment.HugePages, b.Environment.HugePages)
		differ("zero page", a.Environment.ZeroPage, b.Environment.ZeroPage)
	}
	number("methods", a.Scenario.Methods, b.Scenario.Methods)
	number("call sites", a.Scenario.CallSites, b.Scenario.CallSites)
	number("workers", a.Scenario.Workers, b.Scenario.Workers)
	differ("application", a.Scenario.AppSHA256, b.Scenario.AppSHA256)
	differ("settle", a.Scenario.SettleLimit, b.Scenario.SettleLimit)
	differ("warmup", strconv.FormatBool(a.Scenario.Warmup), strconv.FormatBool(b.Scenario.Warmup))
	return out
}
