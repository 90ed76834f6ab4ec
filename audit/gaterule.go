package audit

// LimitKind says what a limit of a rule is held against.
type LimitKind string

// Kinds of limits.
const (
	LimitMax             LimitKind = "max"                  // B alone, in the unit of the metric
	LimitMaxBytes        LimitKind = "max_bytes"            // B alone, for a metric in bytes
	LimitIncreaseBytes   LimitKind = "max_increase_bytes"   // B − A, in bytes
	LimitIncreasePercent LimitKind = "max_increase_percent" // (B / A − 1) · 100
)

// Defaults of a Rule.
const (
	DefaultRuleEvent  = "first_major_gc"
	DefaultRuleMetric = "copied_bytes"
)

// Rule is one rule of a gate. Each of its limits is checked by itself.
type Rule struct {
	Name     string
	Scenario string     // "": each scenario that was measured
	Event    string     // "": DefaultRuleEvent
	Metric   string     // "": DefaultRuleMetric
	Region   RegionKind // "": all of them. For copied_bytes and new_bytes only
	Function string     // "": all of them. For copied_bytes only, and it needs the tracer
	Limits   []Limit
}

// Limit is the largest value that passes, in the unit of its kind.
type Limit struct {
	Kind  LimitKind
	Value float64
}

// increase reports a limit on B over A, rather than on B alone.
func (l Limit) increase() bool {
	return l.Kind == LimitIncreaseBytes || l.Kind == LimitIncreasePercent
}

// Excuse is a known cause, whose copied pages a gate takes off. It has a function or a region, not both.
type Excuse struct {
	Function string
	Region   RegionKind
	Reason   string
	Expires  string // the last day on which it holds, YYYY-MM-DD
}

// expired compares days as they are written: YYYY-MM-DD sorts as the days do.
func (e Excuse) expired(today string) bool { return today > e.Expires }

func (r Rule) withDefaults() Rule {
	if r.Event == "" {
		r.Event = DefaultRuleEvent
	}
	if r.Metric == "" {
		r.Metric = DefaultRuleMetric
	}
	return r
}

// RegionKinds lists the kinds of regions that a copied page can be in.
func RegionKinds() []RegionKind {
	return []RegionKind{
		RegionBrkHeap, RegionMallocArena, RegionMallocLarge, RegionRubyHeap, RegionStack, RegionThreadStack,
		RegionLibraryData, RegionJIT, RegionFile, RegionSharedMem, RegionOther,
	}
}
