package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"cowaudit/report"
)

// verdictFormats are the formats of a command whose result has a verdict.
func verdictFormats() []string { return append([]string{"text", "json"}, report.VerdictFormats...) }

// detailFlags are the options that say how much of a result text shows.
func detailFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "mappings", Usage: "list mappings too, not only kinds of regions"},
		&cli.BoolFlag{Name: "all", Usage: "list every row: fold none into [N others]"},
	}
}

// details gives what the options of detailFlags, and the output, say about text.
func (o *output) details(c *cli.Context) report.Options {
	r := report.Options{Color: o.Color(), Width: o.Width(), Mappings: c.Bool("mappings"), Runs: c.Bool("every-run"), Explain: c.Bool("explain")}
	if c.Bool("all") {
		r.Top = -1
	}
	return r
}

// writeResult writes a result in the format that was asked for.
func (o *output) writeResult(v any, r report.Options) error {
	return o.Write(func(w io.Writer) error {
		switch o.Format() {
		case "json":
			return report.JSON(w, v)
		case "text":
			return report.Text(w, v, r)
		case "pprof":
			return report.Pprof(w, v)
		case "folded":
			return report.Folded(w, v)
		case report.FormatMarkdown:
			return report.Markdown(w, v)
		case report.FormatJUnit:
			return report.JUnit(w, v)
		case report.FormatGitHub:
			return report.GitHub(w, v)
		case report.FormatGitLab:
			return report.GitLab(w, v)
		}
		return fmt.Errorf("write %T: no format %q", v, o.Format())
	})
}

// refuseFormat keeps a result from a format that it does not have.
func (o *output) refuseFormat(c *cli.Context, v any) error {
	var err error
	switch {
	case slices.Contains(report.ProfileFormats, o.Format()):
		err = report.HasProfile(v)
	case slices.Contains(report.VerdictFormats, o.Format()):
		err = report.HasVerdict(v)
	}
	if err != nil {
		return usageErrorf("%s: --format %s: %w", c.Command.Name, o.Format(), err)
	}
	return nil
}

// refuseBinary keeps a terminal from a format that is no text.
func (o *output) refuseBinary(c *cli.Context) error {
	if o.Format() == "pprof" && o.Terminal() {
		return usageErrorf("%s: pprof is binary, and standard output is a terminal: write it to a file: -o %s.pb.gz", c.Command.Name, c.Command.Name)
	}
	return nil
}
