package audit

import "cowaudit/pagemap"

// GateReport is the result of gate: what was measured, held against rules.
type GateReport struct {
	SchemaVersion int    `json:"schema_version"`
	Kind          string `json:"kind"`
	Version       string `json:"cowaudit_version"`
	// Verdict is "fail" where any rule fails, else "inconclusive" where any is, else "pass".
	Verdict GateVerdict `json:"verdict"`
	// Conclusion says in one sentence what decided, and the cause where it is known.
	Conclusion string      `json:"conclusion"`
	File       string      `json:"file,omitempty"` // that the rules are from
	Rules      []RuleCheck `json:"rules"`
	Excuses    []Excused   `json:"excuses"` // all that the file has, also those that excused nothing and those that have expired
	// Comparisons are what the rules were held against: one for each scenario, with two subjects or with a baseline as A.
	Comparisons []CompareReport   `json:"comparisons"`
	Warnings    []pagemap.Warning `json:"warnings"`
}

// GateVerdict is what a gate says.
type GateVerdict string

// Verdicts of a gate and of its rules.
const (
	GatePass         GateVerdict = "pass"
	GateFail         GateVerdict = "fail"
	GateInconclusive GateVerdict = "inconclusive"
)

// RuleCheck is one rule with what was measured for it.
type RuleCheck struct {
	Name     string     `json:"name"`
	Scenario string     `json:"scenario"`
	Event    string     `json:"event"`
	Metric   string     `json:"metric"`
	Region   RegionKind `json:"region,omitempty"`
	Function string     `json:"function,omitempty"`
	Limit    float64    `json:"limit"`
	// LimitKind is "max_bytes" (of B alone; "max" for a metric in another unit), "max_increase_bytes" or "max_increase_percent" (of B over A).
	LimitKind string   `json:"limit_kind"`
	Unit      string   `json:"unit"`     // of Limit and Measured
	Measured  Estimate `json:"measured"` // less what is excused
	// Excused and ExcusedA are what was taken off the samples of B and of A, in bytes: only copied bytes are ever excused.
	Excused  float64     `json:"excused,omitempty"`
	ExcusedA float64     `json:"excused_a,omitempty"`
	Verdict  GateVerdict `json:"verdict"`
	Why      string      `json:"why"`
	// Cause says where the measured bytes lie, in words: region, what the writes changed, function.
	Cause string `json:"cause,omitempty"`
	// A and B are the samples, one for each run, in the unit of the metric and less what is excused; A only for an increase.
	A []float64 `json:"a_samples"`
	B []float64 `json:"b_samples"`
	// P is one-sided, of the limit: how likely samples are that lie so clearly on the estimate's side, if the truth were the limit
	// itself. The sign test for B alone, the rank test for an increase. It decides nothing; the interval does.
	P     float64 `json:"p"`
	Exact bool    `json:"exact"` // the samples do not vary, over at least three runs
	// MoreRounds is how many more would tell; 0 where none would, or none are needed.
	MoreRounds int `json:"more_rounds,omitempty"`
}

// Excused is a known cause that a file excuses.
type Excused struct {
	Function string  `json:"function,omitempty"`
	Region   string  `json:"region,omitempty"`
	Reason   string  `json:"reason"`
	Expires  string  `json:"expires"` // the last day on which it holds, YYYY-MM-DD
	Expired  bool    `json:"expired"`
	Bytes    float64 `json:"excused_bytes"`             // the most that it took off B in any rule
	BytesA   float64 `json:"excused_a_bytes,omitempty"` // the same of A
}
