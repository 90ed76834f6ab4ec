package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"cowaudit/audit"
	"cowaudit/forktest"
	"cowaudit/internal/demoserver"
	"cowaudit/pagemap"
	"cowaudit/report"
)

func demoCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "measure a built-in server that knows its answer, then a Ruby's first major GC",
		Description: `Starts a small forking server whose every page is known, counts its pages from outside and holds the counts against
what the server did; any difference is an error. Then it runs the fork test on the Ruby found, if one is.
Example: cowaudit demo
Needs: root, or CAP_SYS_ADMIN and CAP_DAC_OVERRIDE in the host's user namespace.`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "ruby", Usage: "run the fork test on `SUBJECT`, a command that starts a Ruby", Value: "ruby", DefaultText: "ruby"},
			&cli.BoolFlag{Name: "no-ruby", Usage: "leave the fork test out", DisableDefaultText: true},
			&cli.IntFlag{Name: "runs", Usage: "runs of the fork test", Value: 2},
		}, outputFlags()...),
		Action: func(c *cli.Context) error { return runDemo(a, c) },
	}
}

// demoServerName is the hidden command by which demo starts this program again.
const demoServerName = "demo-server"

func demoServerCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:   demoServerName,
		Usage:  "the server of demo",
		Hidden: true,
		Action: func(*cli.Context) error { return demoserver.Serve(a.stdin, a.stdout) },
	}
}

// demoReport is the result of demo in JSON.
type demoReport struct {
	SchemaVersion int                   `json:"schema_version"`
	Kind          string                `json:"kind"`
	Version       string                `json:"cowaudit_version"`
	Agrees        bool                  `json:"agrees"` // all rows are ok
	Truth         []demoRow             `json:"truth"`
	Audit         *audit.Report         `json:"audit"`
	Forktest      *audit.ForktestReport `json:"forktest,omitempty"`
	Warnings      []pagemap.Warning     `json:"warnings"`
}

// demoRow holds one count against what it must be.
type demoRow struct {
	Process  string      `json:"process"`
	PID      pagemap.PID `json:"pid"`
	Region   string      `json:"region"`
	Word     string      `json:"word"` // as in the ledger of audit
	Truth    int64       `json:"truth_pages"`
	Measured int64       `json:"measured_pages"`
	OK       bool        `json:"ok"`
}

const kindDemo = "demo"

func runDemo(a *application, c *cli.Context) error {
	if c.NArg() > 0 {
		return usageErrorf("demo: it takes no arguments, and was given %s", shellWord(c.Args().First()))
	}
	if c.Int("runs") < 1 {
		return usageErrorf("demo: --runs %d: 1 or more", c.Int("runs"))
	}
	out, err := a.openOutput(c)
	if err != nil {
		return err
	}
	d := &demo{c: c, out: out, stderr: a.stderr, r: &demoReport{
		SchemaVersion: audit.SchemaVersion, Kind: kindDemo, Version: version(), Warnings: []pagemap.Warning{},
	}}
	if err := d.server(c.Context); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	err = d.ruby(c.Context)
	if out.Format() == "json" {
		err = errors.Join(err, out.writeResult(d.r, report.Options{}))
	}
	if !d.r.Agrees {
		err = errors.Join(errors.New("a count differs from what the server did"), err)
	}
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

type demo struct {
	c      *cli.Context
	out    *output
	stderr io.Writer
	r      *demoReport
	text   strings.Builder
}

// show writes another part of the text: standard output gets it at once, a file all that there is so far.
func (d *demo) show(part func(w io.Writer) error) error {
	if d.out.Format() != "text" {
		return nil
	}
	var b strings.Builder
	if err := part(&b); err != nil {
		return err
	}
	d.text.WriteString(b.String())
	return d.out.Write(func(w io.Writer) error {
		s := b.String()
		if d.out.file != nil {
			s = d.text.String()
		}
		_, err := io.WriteString(w, s)
		return err
	})
}

func (d *demo) details() report.Options {
	return report.Options{Color: d.out.Color(), Width: d.out.Width()}
}

// server measures the built-in server and ends it.
func (d *demo) server(ctx context.Context) (err error) {
	s, err := demoserver.Start(ctx, "/proc/self/exe", "cowaudit", demoServerName)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if d.r.Audit, err = measureDemo(ctx, s.Truth.Processes[0].PID); err != nil {
		return err
	}
	if d.r.Truth, err = compareDemo(&s.Truth, d.r.Audit); err != nil {
		return err
	}
	d.r.Agrees = true
	for i := range d.r.Truth {
		d.r.Agrees = d.r.Agrees && d.r.Truth[i].OK
	}
	if err := d.show(func(w io.Writer) error { return writeTruth(w, &s.Truth, d.r.Truth) }); err != nil {
		return err
	}
	return d.show(func(w io.Writer) error {
		fmt.Fprint(w, "\nThe same server as \"cowaudit audit\" shows it, with all that its runtime holds:\n\n")
		return report.Text(w, d.r.Audit, d.details())
	})
}

func measureDemo(ctx context.Context, master pagemap.PID) (*audit.Report, error) {
	fs := pagemap.FS("")
	procs, warnings, err := fs.Family([]pagemap.PID{master}, pagemap.FamilyOptions{})
	if err != nil {
		return nil, err
	}
	c, err := pagemap.NewCapture(ctx, fs, procs, pagemap.Options{Contents: true, Rollup: true})
	if err != nil {
		return nil, err
	}
	f := c.Family()
	f.Warnings = append(warnings, f.Warnings...)
	var r *audit.Report
	switch {
	case refusedContents(f):
		err = withRemedy(errors.New("the memory of the server may not be read"), "run it as root (sudo)")
	case !f.Facts.FramesVisible:
		err = pagemap.ErrNoPFN
	default:
		r, err = audit.Share(c, audit.Options{Version: version()})
	}
	return r, errors.Join(err, closeCapture(c))
}

// demoWords are the counts that are compared. A word that the server never causes must be counted 0.
var demoWords = []struct {
	name     string
	truth    func(*demoserver.Counts) int64
	measured func(*audit.Pages, *audit.Change) int64
	text     string // in the table; "" where it is shown only if it differs
}{
	{"shared", func(t *demoserver.Counts) int64 { return t.Shared }, func(p *audit.Pages, _ *audit.Change) int64 { return p.Shared }, "shared"},
	{"copied", func(t *demoserver.Counts) int64 { return t.Copied }, func(p *audit.Pages, _ *audit.Change) int64 { return p.Copied }, "copied"},
	{"copied_by_worker", func(t *demoserver.Counts) int64 { return t.CopiedByWorker }, func(p *audit.Pages, _ *audit.Change) int64 { return p.CopiedByWorker }, "  by the worker"},
	{"copied_by_reference", func(t *demoserver.Counts) int64 { return t.CopiedByReference }, func(p *audit.Pages, _ *audit.Change) int64 { return p.CopiedByReference }, "  by the master"},
	{"copied_by_both", func(t *demoserver.Counts) int64 { return t.CopiedByBoth }, func(p *audit.Pages, _ *audit.Change) int64 { return p.CopiedByBoth }, ""},
	{"copied_by_undetermined", none, func(p *audit.Pages, _ *audit.Change) int64 { return p.CopiedByUndetermined }, ""},
	{"identical", func(t *demoserver.Counts) int64 { return t.Identical }, func(_ *audit.Pages, c *audit.Change) int64 { return c.Identical }, "  nothing changed"},
	{"one_word", func(t *demoserver.Counts) int64 { return t.OneWord }, func(_ *audit.Pages, c *audit.Change) int64 { return c.OneWord }, "  one word changed"},
	{"few_words", func(t *demoserver.Counts) int64 { return t.FewWords }, func(_ *audit.Pages, c *audit.Change) int64 { return c.FewWords }, ""},
	{"many_words", func(t *demoserver.Counts) int64 { return t.ManyWords }, func(_ *audit.Pages, c *audit.Change) int64 { return c.ManyWords }, ""},
	{"rewritten", func(t *demoserver.Counts) int64 { return t.Rewritten }, func(_ *audit.Pages, c *audit.Change) int64 { return c.Rewritten }, "  rewritten"},
	{"not_compared", none, func(_ *audit.Pages, c *audit.Change) int64 { return c.NotCompared }, ""},
	{"new", func(t *demoserver.Counts) int64 { return t.New }, func(p *audit.Pages, _ *audit.Change) int64 { return p.New }, "new"},
	{"kept", func(t *demoserver.Counts) int64 { return t.Kept }, func(p *audit.Pages, _ *audit.Change) int64 { return p.Kept }, "kept"},
	{"unshared", func(t *demoserver.Counts) int64 { return t.Unshared }, func(p *audit.Pages, _ *audit.Change) int64 { return p.Unshared }, "unshared"},
	{"file", func(t *demoserver.Counts) int64 { return t.File }, func(p *audit.Pages, _ *audit.Change) int64 { return p.File }, "shared memory"},
	{"merged", none, func(p *audit.Pages, _ *audit.Change) int64 { return p.Merged }, ""},
	{"zero", func(t *demoserver.Counts) int64 { return t.Zero }, func(p *audit.Pages, _ *audit.Change) int64 { return p.Zero }, "zero page"},
	{"swapped", none, func(p *audit.Pages, _ *audit.Change) int64 { return p.Swapped }, ""},
	{"unstable", none, func(p *audit.Pages, _ *audit.Change) int64 { return p.Unstable }, ""},
	{"unknown", none, func(p *audit.Pages, _ *audit.Change) int64 { return p.Unknown }, ""},
	{"held", func(t *demoserver.Counts) int64 { return t.Held }, func(p *audit.Pages, _ *audit.Change) int64 { return p.Held }, "held, all of these"},
	{"dropped", func(t *demoserver.Counts) int64 { return t.Dropped }, func(p *audit.Pages, _ *audit.Change) int64 { return p.Dropped }, "dropped"},
	{"reference_only", func(t *demoserver.Counts) int64 { return t.ReferenceOnly }, func(p *audit.Pages, _ *audit.Change) int64 { return p.ReferenceOnly }, ""},
	{"not_forked", none, func(p *audit.Pages, _ *audit.Change) int64 { return p.NotForked }, ""},
	{"private", func(t *demoserver.Counts) int64 { return t.Private }, func(p *audit.Pages, _ *audit.Change) int64 { return p.Private }, "private"},
}

func none(*demoserver.Counts) int64 { return 0 }

// compareDemo holds the ledger of each region of each process against the truth.
func compareDemo(t *demoserver.Truth, r *audit.Report) ([]demoRow, error) {
	if t.PageSize != r.Capture.PageSize {
		return nil, fmt.Errorf("the server counts pages of %d bytes, the audit of %d", t.PageSize, r.Capture.PageSize)
	}
	var rows []demoRow
	for i := range t.Processes {
		p := &t.Processes[i]
		m, err := memberOf(r, p.PID)
		if err != nil {
			return nil, err
		}
		for k, region := range t.Regions {
			pages, change := inRegion(m, region)
			for _, w := range demoWords {
				row := demoRow{Process: p.Name, PID: p.PID, Region: region.Name, Word: w.name,
					Truth: w.truth(&p.Regions[k]), Measured: w.measured(&pages, &change)}
				row.OK = row.Truth == row.Measured
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

func memberOf(r *audit.Report, pid pagemap.PID) (*audit.Process, error) {
	for i := range r.Family {
		if p := &r.Family[i]; p.PID == pid && p.State == pagemap.StateAudited {
			return p, nil
		}
	}
	return nil, fmt.Errorf("process %d of the server is not in the audit", pid)
}

// inRegion sums the mappings that lie in a region.
func inRegion(p *audit.Process, r demoserver.Region) (pages audit.Pages, change audit.Change) {
	for i := range p.Mappings {
		m := &p.Mappings[i]
		if m.Start < r.Start || m.End > r.End {
			continue
		}
		pages.Add(&m.Pages)
		if m.Change != nil {
			change.Add(m.Change)
		}
	}
	return pages, change
}

// writeTruth writes what the server did and what was measured of it.
func writeTruth(w io.Writer, t *demoserver.Truth, rows []demoRow) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A built-in server forked %d workers. Since then\n\n", len(t.Processes)-1)
	for _, p := range t.Processes {
		for i, did := range p.Did {
			name := p.Name
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(&b, "  %-10s%s\n", name, did)
		}
	}
	fmt.Fprintf(&b, "\nand all hold still. Counted from outside, in pages of %s:\n\n", report.Size(t.PageSize))
	writeTruthTable(&b, t, rows)
	wrong := 0
	for i := range rows {
		if !rows[i].OK {
			wrong++
		}
	}
	if wrong == 0 {
		fmt.Fprintf(&b, "\nAll %d counts (%d words, %d processes, %d mappings in each) equal the truth.\n",
			len(rows), len(demoWords), len(t.Processes), len(t.Regions))
	} else {
		fmt.Fprintf(&b, "\n%d of %d counts DIFFER from the truth:\n", wrong, len(rows))
		for _, r := range rows {
			if !r.OK {
				fmt.Fprintf(&b, "  %s (%d), %s: %s: measured %s, truth %s\n", r.Process, r.PID, r.Region, r.Word, report.Count(r.Measured), report.Count(r.Truth))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeTruthTable has a row for each word that occurs, over the regions.
func writeTruthTable(b *strings.Builder, t *demoserver.Truth, rows []demoRow) {
	type sums struct{ measured, truth []int64 }
	byWord := map[string]*sums{}
	index := map[pagemap.PID]int{}
	for i, p := range t.Processes {
		index[p.PID] = i
	}
	for _, r := range rows {
		s := byWord[r.Word]
		if s == nil {
			s = &sums{make([]int64, len(index)), make([]int64, len(index))}
			byWord[r.Word] = s
		}
		s.measured[index[r.PID]] += r.Measured
		s.truth[index[r.PID]] += r.Truth
	}
	fmt.Fprintf(b, "%-20s%*s%*s\n", "", 6*len(index)+1, "measured", 6*len(index)+3, "truth")
	var heads strings.Builder
	for i := range t.Processes {
		if i == 0 {
			heads.WriteString("master")
		} else {
			fmt.Fprintf(&heads, "%6s", fmt.Sprintf("w%d", i))
		}
	}
	fmt.Fprintf(b, "%-20s %s   %s\n", "pages", heads.String(), heads.String())
	for _, w := range demoWords {
		s := byWord[w.name]
		line, any, ok := "", false, "ok"
		for _, side := range [][]int64{s.measured, s.truth} {
			for _, n := range side {
				line += fmt.Sprintf("%6s", report.Count(n))
				any = any || n != 0
			}
			line += "   "
		}
		for i := range s.measured {
			if s.measured[i] != s.truth[i] {
				ok = "WRONG"
			}
		}
		text := w.text
		if text == "" {
			text = w.name
		}
		if any && (w.text != "" || ok != "ok") {
			fmt.Fprintf(b, "%-20s %s%s\n", text, strings.TrimSuffix(line, " "), ok)
		}
	}
}

// ruby runs the fork test where there is a Ruby.
func (d *demo) ruby(ctx context.Context) error {
	if d.c.Bool("no-ruby") {
		return nil
	}
	subject := d.c.String("ruby")
	if _, err := exec.LookPath("ruby"); err != nil && !d.c.IsSet("ruby") {
		return d.noRuby()
	}
	if err := d.show(func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "\nNow a real one: what does a worker's first major GC copy, on %q?\n\n", subject)
		return err
	}); err != nil {
		return err
	}
	r, err := forktest.Run(ctx, forktest.Config{Version: version(), Subject: subject, Runtime: forktest.RuntimeRuby,
		Runs: d.c.Int("runs"), Progress: d.progress})
	d.progress(forktest.Progress{})
	var config *forktest.ConfigError
	if errors.As(err, &config) {
		return usageErrorf("fork test: %w", err)
	}
	if err != nil {
		return fmt.Errorf("fork test: %w", err)
	}
	d.r.Forktest = r
	return d.show(func(w io.Writer) error { return report.Text(w, r, d.details()) })
}

func (d *demo) noRuby() error {
	const text, remedy = "No Ruby was found in PATH, so the fork test was left out", "install one (Debian, Ubuntu: apt-get install ruby), or name it with --ruby"
	d.r.Warnings = append(d.r.Warnings, pagemap.Warning{Code: "no_ruby", Text: text, Remedy: remedy})
	return d.show(func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "\n%s:\n%s.\n", text, remedy)
		return err
	})
}

// progress keeps one line on a terminal; no phase clears it.
func (d *demo) progress(p forktest.Progress) {
	f, ok := d.stderr.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return
	}
	line := ""
	if p.Phase != "" {
		line = fmt.Sprintf("run %d of %d: %s", p.Run, p.Runs, p.Phase)
	}
	fmt.Fprintf(f, "\r\x1b[K%s", line)
}
