package report

import (
	"fmt"
	"strings"
	"time"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// forktest writes a fork test: what was tested and how, what each event copied, where, and what the writes changed.
func (p *text) forktest(r *audit.ForktestReport) {
	p.page = r.Capture.PageSize
	p.subject(&r.Subject, &r.Scenario)
	if r.Tracer != nil {
		p.tracer(r.Tracer)
	}
	p.findings(r.Findings)
	if !r.Capture.FramesVisible {
		p.remedy(r.Warnings, "frames_hidden")
	}
	p.events(r)
	p.metrics(r)
	if main := r.Summary.Main(); main != nil {
		if n := measured(r, main.Name); n > 0 {
			title := "WHERE the " + printable(audit.EventLabel(main.Name)) + " copied"
			if n > 1 {
				title += fmt.Sprintf(", mean of %d workers", n)
			}
			p.eventRegions(main.Regions, n, title)
			p.eventChange(&main.Change, n)
		}
		p.writers(r, main.Name)
	}
	if p.o.Runs {
		p.runs(r)
	}
	p.footnotes()
	var warnings []pagemap.Warning
	warnings = append(warnings, except(r.Warnings, "frames_hidden")...)
	for i := range r.Runs {
		for _, w := range r.Runs[i].Warnings {
			if !hasWarning(warnings, w) {
				warnings = append(warnings, w)
			}
		}
	}
	p.warnings(warnings)
	p.capture(&r.Capture, r.Version)
}

// measured counts the workers, over all runs, in which an event was measured; the regions of a summary are sums over them.
func measured(r *audit.ForktestReport, event string) (n int64) {
	for i := range r.Runs {
		for k := range r.Runs[i].Events {
			if r.Runs[i].Events[k].Name == event {
				n++
			}
		}
	}
	return n
}

func hasWarning(list []pagemap.Warning, w pagemap.Warning) bool {
	for i := range list {
		if list[i].Code == w.Code && list[i].Text == w.Text {
			return true
		}
	}
	return false
}

// subject writes what was tested: the runtime's own words, the command, the scenario and how the parent was settled.
func (p *text) subject(s *audit.Subject, c *audit.Scenario) {
	head := "fork test of " + printable(s.Name)
	if s.Version != "" && s.Version != s.Name {
		head += ": " + printable(s.Version)
	}
	p.wrap(styleBold, "", "  ", head)
	if s.Command != "" && s.Command != s.Name {
		p.plain(styleNone, cut("command: "+printable(s.Command), p.o.Width))
	}
	var words []string
	if s.Executable != "" {
		words = append(words, "runs "+printable(s.Executable))
	}
	if s.Allocator != "" {
		words = append(words, printable(s.Allocator)+" malloc")
	}
	scenario := printable(c.Name)
	if c.App != "" {
		scenario += " " + printable(c.App)
	}
	if c.Methods > 0 {
		scenario += fmt.Sprintf(" (%s methods, %s call sites)", Count(int64(c.Methods)), Count(int64(c.CallSites)))
	}
	words = append(words, "scenario "+scenario, plural(c.Workers, "worker", "workers")+" a run", settled(c))
	if c.Warmup {
		words = append(words, "warmed up before the fork")
	} else {
		words = append(words, "no warm-up")
	}
	p.wrap(styleNone, "", "  ", strings.Join(words, "; "))
}

func settled(c *audit.Scenario) string {
	n := plural(c.SettleRuns, "collection", "collections")
	switch {
	case c.SettleRuns == 0:
		return "not settled before the fork"
	case c.SettleLimit == "":
		return "settled by " + n
	}
	return fmt.Sprintf("settled %s by %s", settleWords(c.SettleLimit), n)
}

// settleWords writes what was asked for: "until quiet", or a number, which says nothing beyond the collections run.
func settleWords(limit string) string {
	if strings.Trim(limit, "0123456789") == "" {
		return "as asked (" + limit + ")"
	}
	return printable(limit)
}

// events writes the table of events with medians over runs and workers.
func (p *text) events(r *audit.ForktestReport) {
	list := r.Summary.Events
	if len(list) == 0 {
		return
	}
	visible := r.Capture.FramesVisible
	if !visible {
		p.unknown(noteHidden)
	}
	n, confidence, same := list[0].N, list[0].CopiedBytes.Confidence, true
	for i := range list {
		same = same && list[i].N == n && list[i].CopiedBytes.Confidence == confidence
	}
	between, what := "from..to", fmt.Sprintf("medians of %d runs", n)
	switch {
	case n == 1 && same:
		what = "of 1 run"
	case same && confidence > 0:
		between += p.note(fmt.Sprintf("%.0f%% confidence interval of the median.", 100*confidence))
	default:
		between += p.note("The smallest and the largest of the runs: too few for a confidence interval (6 are enough).")
	}
	p.section("EVENTS, %s; %% is of what was shared", what)
	p.table(func(bool) *grid {
		g := &grid{lines: make([]line, len(list))}
		b := gridBuilder{p: p, g: g}
		// Each amount has its own unit: the noise floor is some KiB, what matters beside it some MiB.
		add := func(c column, f func(*audit.EventSummary) string) {
			b.texts(c, len(list), func(i int) string {
				if !visible {
					return "?"
				}
				return f(&list[i])
			})
		}
		b.texts(column{head: "event", left: true}, len(list), func(i int) string { return p.eventName(list[i].Name) })
		if !same {
			b.texts(column{head: "runs"}, len(list), func(i int) string { return Count(int64(list[i].N)) })
		}
		add(column{over: "shared", head: "before"}, func(e *audit.EventSummary) string { return Size(e.SharedBefore.Median) })
		add(column{head: "copied"}, func(e *audit.EventSummary) string { return Size(e.CopiedBytes.Median) })
		if n > 1 || !same {
			add(column{head: between}, func(e *audit.EventSummary) string { return SizeRange(e.CopiedBytes.Low, e.CopiedBytes.High) })
		}
		add(column{head: "%"}, func(e *audit.EventSummary) string {
			return Percent(int64(e.CopiedBytes.Median), int64(e.SharedBefore.Median))
		})
		add(column{over: "of it", head: "identical", drop: 1}, func(e *audit.EventSummary) string {
			return Percent(e.Change.Identical, e.Change.Compared())
		})
		add(column{head: "new", drop: 2}, func(e *audit.EventSummary) string { return Size(e.NewBytes.Median) })
		return g
	})
}

func (p *text) eventName(name string) string {
	if name == audit.EventNull {
		return "null (noise floor)"
	}
	return printable(audit.EventLabel(name))
}

// runs lists each event of each run and worker.
func (p *text) runs(r *audit.ForktestReport) {
	type row struct {
		run int
		e   *audit.Event
	}
	var rows []row
	var amounts []pagemap.Bytes
	for i := range r.Runs {
		for k := range r.Runs[i].Events {
			e := &r.Runs[i].Events[k]
			rows = append(rows, row{r.Runs[i].Seq, e})
			amounts = append(amounts, p.bytes(e.SharedBefore))
		}
	}
	if len(rows) == 0 {
		return
	}
	scale := CommonScale(amounts...)
	p.section("RUNS, in %s", scale.Unit())
	p.table(func(narrow bool) *grid {
		g := &grid{lines: make([]line, len(rows))}
		b := gridBuilder{p: p, g: g, scale: scale, narrow: narrow}
		amount := func(c column, f func(*audit.Event) int64) {
			b.pages(c, len(rows), func(i int) (int64, bool) { return f(rows[i].e), r.Capture.FramesVisible })
		}
		b.texts(column{head: "run"}, len(rows), func(i int) string { return fmt.Sprint(rows[i].run) })
		b.texts(column{head: "worker", drop: 3}, len(rows), func(i int) string { return fmt.Sprint(rows[i].e.Worker) })
		b.texts(column{head: "PID", drop: 4}, len(rows), func(i int) string { return fmt.Sprint(rows[i].e.PID) })
		b.texts(column{head: "event", left: true}, len(rows), func(i int) string { return printable(audit.EventLabel(rows[i].e.Name)) })
		amount(column{over: "shared", head: "before"}, func(e *audit.Event) int64 { return e.SharedBefore })
		amount(column{head: "copied"}, func(e *audit.Event) int64 { return e.CopiedPages })
		amount(column{over: "by", head: "master", drop: 2}, func(e *audit.Event) int64 { return e.CopiedByReference })
		b.texts(column{over: "of it", head: "identical"}, len(rows), func(i int) string {
			return Percent(rows[i].e.Change.Identical, rows[i].e.Change.Compared())
		})
		amount(column{head: "new", drop: 1}, func(e *audit.Event) int64 { return e.NewPages })
		b.texts(column{head: "time"}, len(rows), func(i int) string { return Duration(time.Duration(rows[i].e.DurationNano)) })
		return g
	})
}
