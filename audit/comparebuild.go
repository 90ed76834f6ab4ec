package audit

import "cowaudit/pagemap"

// CompareOptions say what a comparison is told beside its two sides.
type CompareOptions struct {
	Version string // of cowaudit
	// Rounds says how the runs were made; the zero value: two saved results, looked at once.
	Rounds Rounds
}

// NewSide gives a fork test as one side of a comparison. The runs are not copied.
func NewSide(r *ForktestReport) Side {
	return Side{Subject: r.Subject, Scenario: r.Scenario, Environment: r.Environment, Capture: r.Capture, Summary: r.Summary, Runs: r.Runs, Tracer: r.Tracer}
}

// Compare says whether B copies more than A, by how much, how surely, and where. It is pure: the same two sides give the same
// result.
//
// A sample is one run: the median over its workers. A row's interval is that of the median of the differences of all pairs of
// runs, which goes with the Mann-Whitney U test and assumes nothing about how the samples are distributed. It is wide enough
// for all rows and all looks together: two equal subjects are called different in less than one comparison of a hundred. A
// difference is called one where it is larger than what matters and its interval leaves out 0; none, where the whole interval is
// within what matters.
//
// The error is *UnlikeError where the two cannot be compared.
func Compare(a, b Side, o CompareOptions) (*CompareReport, error) {
	a.Summary, b.Summary = Summarize(a.Runs, a.Capture.PageSize), Summarize(b.Runs, b.Capture.PageSize)
	r := &CompareReport{
		SchemaVersion: SchemaVersion, Kind: KindCompare, Version: o.Version, A: a, B: b, Scenario: a.Scenario, Rounds: o.Rounds,
		SameBuild: sameBuild(&a.Subject, &b.Subject), Unlike: unlike(&a, &b), Findings: []Finding{}, Warnings: compareWarnings(&a, &b),
	}
	if r.Unlike == nil {
		r.Unlike = []Unlike{}
	}
	for _, u := range r.Unlike {
		if u.Refused {
			return nil, &UnlikeError{r.Unlike}
		}
	}
	if r.Rounds.Done == 0 {
		n := min(len(a.Runs), len(b.Runs))
		r.Rounds = Rounds{Done: n, Limit: n, Looks: 1, Ended: true}
	}
	r.Rows = compareRows(&r.A, &r.B, r.Rounds.Looks)
	r.Differences = differences(&r.A, &r.B)
	r.Verdict = overall(r.Rows)
	r.Conclusion = conclude(r)
	return r, nil
}

// compareWarnings gives what the runs of both sides warned of, each once.
func compareWarnings(a, b *Side) []pagemap.Warning {
	out := []pagemap.Warning{}
	seen := map[string]bool{}
	for _, s := range []*Side{a, b} {
		for i := range s.Runs {
			for _, w := range s.Runs[i].Warnings {
				if key := w.Code + w.Remedy; !seen[key] {
					seen[key] = true
					out = append(out, w)
				}
			}
		}
	}
	return out
}
