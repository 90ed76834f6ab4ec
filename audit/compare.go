package audit

import "cowaudit/pagemap"

// CompareReport is the result of compare: one scenario, measured with two subjects in interleaved rounds.
type CompareReport struct {
	SchemaVersion int      `json:"schema_version"`
	Kind          string   `json:"kind"`
	Version       string   `json:"cowaudit_version"`
	A             Side     `json:"a"`
	B             Side     `json:"b"`
	Scenario      Scenario `json:"scenario"`
	Rounds        Rounds   `json:"rounds"`
	// Verdict is that of all rows together: "worse" where any row is, else "inconclusive", "better" and "same" in that order.
	Verdict Verdict `json:"verdict"`
	// Conclusion says in one sentence what the rows come to, and where the difference lies.
	Conclusion string       `json:"conclusion"`
	Rows       []CompareRow `json:"rows"`
	// Differences say where each event's difference lies, in the order of the events.
	Differences []EventDifference `json:"differences"`
	// SameBuild: both subjects are the same build with the same environment, whatever their names.
	SameBuild bool `json:"same_build"`
	// Unlike lists what else differs between the two sides than what was to be compared.
	Unlike   []Unlike          `json:"unlike"`
	Findings []Finding         `json:"findings"`
	Warnings []pagemap.Warning `json:"warnings"`
}

// Side is one of two subjects: what it was and what it gave.
type Side struct {
	Subject     Subject      `json:"subject"`
	Scenario    Scenario     `json:"scenario"`
	Environment *Environment `json:"environment,omitempty"`
	Capture     Capture      `json:"capture"` // of its last run
	Summary                  // events
	Runs        []Run        `json:"runs"`
	// Tracer and Traced are those of the round that was traced, which is none of Runs and counts in no statistic; missing: none was.
	Tracer *Tracer `json:"tracer,omitempty"`
	Traced []Run   `json:"traced_runs,omitempty"`
}

// Rounds says how the rounds went. In one round each side has one run: A B, then B A, and so on.
type Rounds struct {
	Done   int  `json:"done"`
	Limit  int  `json:"limit"`
	Warmup int  `json:"warmup"` // before the first that counts
	Looks  int  `json:"looks"`  // how often the verdict could have ended the comparison: what is significant allows for it
	Ended  bool `json:"ended"`  // false: interrupted, and can be resumed
}

// Verdict is what a comparison says of B against A.
type Verdict string

// Verdicts.
const (
	VerdictSame         Verdict = "same"         // the whole interval of the difference is within what matters
	VerdictBetter       Verdict = "better"       // the difference is larger than what matters, its interval leaves out 0, and B is better
	VerdictWorse        Verdict = "worse"        // the same, and B is worse
	VerdictInconclusive Verdict = "inconclusive" // neither: the interval is too wide, or there are too few rounds for one
)

// CompareRow is one metric of one event on both sides.
type CompareRow struct {
	Event  string   `json:"event"`
	Metric string   `json:"metric"` // "copied_bytes", "new_bytes", or a metric of the scenario
	Unit   string   `json:"unit"`
	Better Better   `json:"better"` // "": shown, and judged by nobody: Verdict is "" then
	A      Estimate `json:"a"`
	B      Estimate `json:"b"`
	// Difference is B − A, in the unit: the median of the differences of all pairs of runs (Hodges and Lehmann), and the interval.
	Difference Estimate `json:"difference"`
	// Ratio is B / A of the medians, with the interval of the pairwise ratios. 0 for all three: A has a sample that is 0.
	Ratio     float64 `json:"ratio"`
	RatioLow  float64 `json:"ratio_low"`
	RatioHigh float64 `json:"ratio_high"`
	P         float64 `json:"p"`          // of the Mann-Whitney U test; 0 for an exact one
	PAdjusted float64 `json:"p_adjusted"` // for the number of rows, as Holm does it
	// Matters is the smallest difference, in the unit, that is called one.
	Matters float64 `json:"matters"`
	Exact   bool    `json:"exact"` // neither side varied at all, over enough rounds to say so
	Verdict Verdict `json:"verdict,omitempty"`
	// MoreRounds is how many more would tell, by the width of the interval: of an inconclusive row, 0 where none would.
	MoreRounds int    `json:"more_rounds,omitempty"`
	Why        string `json:"why"` // of the verdict, in words
}

// Estimate is a median with its confidence interval, in the unit of the row.
type Estimate struct {
	Median     float64 `json:"median"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"` // in [0,1]; 0: low and high are the smallest and the largest value
	N          int     `json:"n"`
}

// EventDifference says where the difference in copied pages of one event lies, in pages for each worker: means over the runs and
// workers, since means add up. (The difference of the medians is in the rows.) Each list sums to the total.
type EventDifference struct {
	Event string `json:"event"`
	Total Delta  `json:"total"`
	// ByRegion, ByChange and ByRegionChange are of all runs; ByFunction of the traced round only, and it sums to TracedTotal.
	ByRegion       []Delta `json:"by_region"`
	ByChange       []Delta `json:"by_change"`
	ByRegionChange []Delta `json:"by_region_and_change"`
	ByFunction     []Delta `json:"by_function,omitempty"`
	TracedTotal    *Delta  `json:"traced_total,omitempty"`
}

// Delta is a number of copied pages on both sides, for each worker.
type Delta struct {
	Region   RegionKind `json:"region,omitempty"`
	Change   string     `json:"change,omitempty"` // a field of [Change], as JSON names it
	Function string     `json:"function,omitempty"`
	Module   string     `json:"module,omitempty"`
	Phase    GCPhase    `json:"phase,omitempty"`
	Step     GCStep     `json:"step,omitempty"`
	A        float64    `json:"a_pages"`
	B        float64    `json:"b_pages"`
	// Pages is B − A.
	Pages float64 `json:"difference_pages"`
	// Identical is how many more identical pages B has: of the difference, those that the write did not change.
	Identical float64 `json:"difference_identical_pages"`
}

// Unlike is something that differs between the two sides and was not to be compared.
type Unlike struct {
	What    string `json:"what"` // "kernel", "transparent_huge_pages", …
	A       string `json:"a"`
	B       string `json:"b"`
	Refused bool   `json:"refused"` // the numbers cannot be compared: [Compare] gives an [UnlikeError]
}
