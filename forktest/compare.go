package forktest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// Defaults and limits of a CompareConfig.
const (
	DefaultMaxRounds = 20
	maxRounds        = 200
)

// CompareConfig says which two subjects to compare.
type CompareConfig struct {
	A, B Config // Runs, Trace and Progress are not used

	// Rounds fixes their number; 0: as many as it takes for the verdict, up to MaxRounds.
	Rounds    int
	MinRounds int // no verdict before; 0: as soon as there is one
	MaxRounds int // 0: DefaultMaxRounds
	// Trace, where not nil, has one more round traced at the end where something differs, for who wrote. It counts in no
	// statistic: the tracer is not in the way of what is judged.
	Trace *TraceConfig
	// TraceIfPossible makes a warning of a failure of that round.
	TraceIfPossible bool
	// TraceRounds has every round traced instead, for what is judged by function.
	TraceRounds bool
	// Resume is an earlier result of the same comparison that did not come to its end.
	Resume *audit.CompareReport

	Save     func(*audit.CompareReport) error // called after every round with the result so far
	Progress func(CompareProgress)            // called when something begins, from the goroutine of Compare
}

// CompareProgress is what a comparison is about to do.
type CompareProgress struct {
	Round, Rounds int    // 0: the warm-up; Rounds is how many there will be at most
	Side          string // "A", "B"
	Phase         string // in words: "loading the application"
	Done, Total   int    // sides of rounds; Total is the most
	Traced        bool   // the round that is traced
}

// comparison is a comparison under way.
type comparison struct {
	CompareConfig
	a, b   *experiment
	diff   differ
	rounds audit.Rounds
	looks  []int
	now    CompareProgress
	result *audit.CompareReport
}

// Compare measures two subjects in interleaved rounds, A B, B A, and so on, after one round of each that does not count. It
// ends when every metric is judged, when more rounds would not change that, or at the limit.
//
// The errors are those of [Run], and *audit.UnlikeError. With an error comes the result of the rounds that were complete, if
// there were any: it can be resumed.
func Compare(ctx context.Context, c CompareConfig) (*audit.CompareReport, error) {
	return compare(ctx, c, diffPages)
}

func compare(ctx context.Context, c CompareConfig, diff differ) (*audit.CompareReport, error) {
	m := &comparison{CompareConfig: c, diff: diff}
	if err := m.prepare(ctx); err != nil {
		return nil, err
	}
	err := m.run(ctx)
	if err == nil {
		err = m.traceRound(ctx)
	}
	for _, e := range []*experiment{m.b, m.a} {
		err = errors.Join(err, e.closeKernel())
	}
	return m.result, err
}

// prepare refuses what cannot be done, before anything is started.
func (m *comparison) prepare(ctx context.Context) error {
	if m.MaxRounds == 0 {
		m.MaxRounds = DefaultMaxRounds
	}
	for _, n := range []int{m.Rounds, m.MinRounds, m.MaxRounds} {
		if n < 0 || n > maxRounds {
			return configErrorf("%d rounds: from 1 to %d", n, maxRounds)
		}
	}
	m.looks = looksFor(m.Rounds, m.MinRounds, max(m.MinRounds, m.MaxRounds))
	m.rounds = audit.Rounds{Limit: m.looks[len(m.looks)-1], Warmup: 1, Looks: counted(m.looks)}
	for _, s := range []struct {
		side   string
		config *Config
		to     **experiment
	}{{"A", &m.A, &m.a}, {"B", &m.B, &m.b}} {
		s.config.Runs, s.config.Trace, s.config.Progress = 1, nil, nil
		if m.TraceRounds {
			s.config.Trace = m.Trace
		}
		p, err := newPlan(*s.config)
		if err != nil {
			return fmt.Errorf("%s: %w", s.side, err)
		}
		if err := p.Observer.Check(ctx); err != nil {
			return err
		}
		if err := p.checkTracer(); err != nil {
			return err
		}
		if _, err := lookPath(p.argv[0], lookup(p.env, "PATH")); err != nil {
			return fmt.Errorf("%s: %w", s.side, err)
		}
		side := s.side
		p.Progress = func(g Progress) { m.progress(side, g.Phase) }
		*s.to = newExperiment(p, m.diff)
	}
	if m.Resume != nil {
		if err := m.resume(); err != nil {
			return err
		}
	}
	m.a.openKernel()
	m.b.openKernel()
	return nil
}

// looksFor gives after how many rounds the rows are judged. The first of them can be decided only by metrics that do not vary;
// there are few others, since each makes every interval wider.
func looksFor(fixed, least, most int) []int {
	if fixed > 0 {
		return []int{fixed}
	}
	var out []int
	for n, step := exactLook, 3; n < most; n += step {
		if n >= least {
			out = append(out, n)
		}
		if n >= 8 {
			step = max(4, n/2)
		}
	}
	return append(out, most)
}

// exactLook is the number of rounds up to which a look needs no allowance: only what does not vary is decided there.
const exactLook = 5

// fairRounds is from how many rounds on it is believed that more would not tell.
const fairRounds = 12

func counted(looks []int) (n int) {
	for _, l := range looks {
		if l > exactLook || len(looks) == 1 {
			n++
		}
	}
	return max(n, 1)
}

// resume takes over the rounds of an earlier result.
func (m *comparison) resume() error {
	r := m.Resume
	for _, s := range []struct {
		side string
		old  *audit.Side
		e    *experiment
	}{{"A", &r.A, m.a}, {"B", &r.B, m.b}} {
		now := s.e.report
		switch {
		case s.old.Subject.Name != now.Subject.Name || !slices.Equal(s.old.Subject.Env, now.Subject.Env):
			return configErrorf("resume: %s was %q with the environment %q, and is %q with %q now", s.side, s.old.Subject.Name, s.old.Subject.Env, now.Subject.Name, now.Subject.Env)
		case !sameScenario(&s.old.Scenario, &now.Scenario):
			return configErrorf("resume: the scenario of %s was another one, or had other sizes: %s", s.side, s.old.Scenario.Name)
		case s.old.Environment != nil && !reflect.DeepEqual(s.old.Environment, now.Environment):
			return configErrorf("resume: the machine is another one or set otherwise: %+v, and now %+v", *s.old.Environment, *now.Environment)
		case len(s.old.Runs) < r.Rounds.Done:
			return configErrorf("resume: %s has %d runs, and %d rounds are said to be done", s.side, len(s.old.Runs), r.Rounds.Done)
		}
		env := now.Subject.Env
		now.Subject, now.Capture, now.Runs = s.old.Subject, s.old.Capture, slices.Clone(s.old.Runs[:r.Rounds.Done])
		now.Subject.Env = env // [] in a file, nil here
		now.Scenario.SettleRuns = s.old.Scenario.SettleRuns
		s.e.known = true
	}
	m.rounds.Done = r.Rounds.Done
	m.rounds.Looks = max(m.rounds.Looks, r.Rounds.Looks)
	return nil
}

func sameScenario(a, b *audit.Scenario) bool {
	x, y := *a, *b
	x.SettleRuns, y.SettleRuns = 0, 0
	return reflect.DeepEqual(x, y)
}

func (m *comparison) run(ctx context.Context) error {
	if m.rounds.Done > 0 {
		if err := m.judge(); err != nil {
			return err
		}
	}
	if m.decided() {
		return m.end()
	}
	if err := m.warmUp(ctx); err != nil {
		return err
	}
	for m.rounds.Done < m.rounds.Limit {
		if err := m.round(ctx); err != nil {
			return err
		}
		if m.Save != nil {
			if err := m.Save(m.result); err != nil {
				return err
			}
		}
		if m.decided() {
			break
		}
	}
	return m.end()
}

func (m *comparison) end() error {
	m.rounds.Ended = true
	if err := m.judge(); err != nil {
		return err
	}
	if m.Save != nil {
		return m.Save(m.result)
	}
	return nil
}

// warmUp has each side run once: files come into the page cache, and a subject that fails does so at once.
func (m *comparison) warmUp(ctx context.Context) error {
	for _, e := range []*experiment{m.a, m.b} {
		n := len(e.report.Runs)
		m.now = CompareProgress{Rounds: m.rounds.Limit}
		if err := m.side(ctx, e, 0); err != nil {
			return err
		}
		e.report.Runs = e.report.Runs[:n]
	}
	return nil
}

// round does one run of each side, the other first in every second round.
func (m *comparison) round(ctx context.Context) error {
	n := m.rounds.Done + 1
	order := []*experiment{m.a, m.b}
	if n%2 == 0 {
		slices.Reverse(order)
	}
	for i, e := range order {
		m.now = CompareProgress{Round: n, Rounds: m.rounds.Limit, Done: 2*(n-1) + i, Total: 2 * m.rounds.Limit}
		if err := m.side(ctx, e, n); err != nil {
			// A round that is half done does not count.
			for _, x := range order {
				x.report.Runs = x.report.Runs[:m.rounds.Done]
			}
			return err
		}
	}
	m.rounds.Done = n
	return m.judge()
}

func (m *comparison) side(ctx context.Context, e *experiment, seq int) error {
	if err := e.one(ctx, seq); err != nil {
		side := "A"
		if e == m.b {
			side = "B"
		}
		return fmt.Errorf("%s: %w", side, err)
	}
	return audit.CheckForktest(e.report)
}

func (m *comparison) progress(side, phase string) {
	if m.Progress == nil {
		return
	}
	p := m.now
	p.Side, p.Phase = side, phase
	m.Progress(p)
}

// judge makes the result of the rounds so far.
func (m *comparison) judge() error {
	r, err := audit.Compare(audit.NewSide(m.a.report), audit.NewSide(m.b.report), audit.CompareOptions{Version: m.A.Version, Rounds: m.rounds})
	if err != nil {
		return err
	}
	for _, e := range []*experiment{m.a, m.b} {
		r.Warnings = addWarnings(r.Warnings, e.report.Warnings)
	}
	m.result = r
	return nil
}

// decided reports whether no further round is of use. It is asked at the looks only.
func (m *comparison) decided() bool {
	if m.result == nil || m.Rounds > 0 || !slices.Contains(m.looks, m.rounds.Done) {
		return false
	}
	for i := range m.result.Rows {
		r := &m.result.Rows[i]
		if r.Verdict != audit.VerdictInconclusive {
			continue
		}
		// With few rounds the interval reaches from one extreme to the other, and says little about what more would give.
		if m.rounds.Done < fairRounds || r.MoreRounds > 0 && m.rounds.Done+r.MoreRounds <= 2*m.rounds.Limit {
			return false
		}
	}
	return true
}

// traceRound traces one more round of both sides, for who wrote.
func (m *comparison) traceRound(ctx context.Context) error {
	if m.Trace == nil || m.TraceRounds || !m.differs() || m.result.A.Traced != nil && m.result.B.Traced != nil {
		return nil
	}
	for _, s := range []struct {
		name   string
		config Config
		to     *audit.Side
	}{{"A", m.A, &m.result.A}, {"B", m.B, &m.result.B}} {
		config, name := s.config, s.name
		config.Trace, config.Runs = m.Trace, 1
		config.Progress = func(g Progress) {
			m.now = CompareProgress{Round: m.rounds.Done, Rounds: m.rounds.Done, Traced: true}
			m.progress(name, g.Phase)
		}
		r, err := Run(ctx, config)
		if err != nil && m.TraceIfPossible && ctx.Err() == nil {
			m.result.A.Traced, m.result.B.Traced, m.result.A.Tracer, m.result.B.Tracer = nil, nil, nil, nil
			m.result.Warnings = append(m.result.Warnings, pagemap.Warning{Code: "not_traced",
				Text:   fmt.Sprintf("who wrote is not known: the traced round of %s failed: %v", s.name, err),
				Remedy: "\"cowaudit doctor\" shows what can be traced here"})
			break
		}
		if err != nil {
			return fmt.Errorf("%s, traced round: %w", s.name, err)
		}
		s.to.Traced, s.to.Tracer = r.Runs, r.Tracer
	}
	again, err := audit.Compare(m.result.A, m.result.B, audit.CompareOptions{Version: m.A.Version, Rounds: m.rounds})
	if err != nil {
		return err
	}
	again.Warnings = m.result.Warnings
	m.result = again
	if m.Save != nil {
		return m.Save(m.result)
	}
	return nil
}

// differs reports whether a verdict on copied pages is there to be explained.
func (m *comparison) differs() bool {
	return slices.ContainsFunc(m.result.Rows, func(r audit.CompareRow) bool {
		return r.Verdict == audit.VerdictWorse || r.Verdict == audit.VerdictBetter
	})
}

// Interrupted reports an error of Compare after which the result so far can be shown.
func Interrupted(err error) bool { return errors.Is(err, context.Canceled) }
