package audit

import "cowaudit/pagemap"

// ForktestReport is the result of forktest: runs of one subject, and their summary.
type ForktestReport struct {
	SchemaVersion int               `json:"schema_version"`
	Kind          string            `json:"kind"`
	Version       string            `json:"cowaudit_version"`
	Subject       Subject           `json:"subject"`
	Scenario      Scenario          `json:"scenario"`
	Environment   *Environment      `json:"environment,omitempty"` // missing in results of an older cowaudit
	Capture       Capture           `json:"capture"`               // of the last run
	Runs          []Run             `json:"runs"`
	Summary       Summary           `json:"summary"`
	Tracer        *Tracer           `json:"tracer,omitempty"` // missing: nothing was traced
	Findings      []Finding         `json:"findings"`
	Warnings      []pagemap.Warning `json:"warnings"`
}

// Subject is what was tested.
type Subject struct {
	Name       string `json:"name"`       // as the user gave it, or found
	Version    string `json:"version"`    // what the runtime says of itself (RUBY_DESCRIPTION)
	Command    string `json:"command"`    // the command that was run
	Runtime    string `json:"runtime"`    // "ruby", "python", or what the script said
	Executable string `json:"executable"` // /proc/PID/exe of the running process
	Allocator  string `json:"allocator"`  // "glibc", "jemalloc", … by the libraries mapped; "" when it cannot be told
	// Library is the mapped file that holds the runtime: libruby or libpython; the executable where there is none of its own.
	Library string `json:"library,omitempty"`
	// BuildID is the library's (NT_GNU_BUILD_ID, in hexadecimal), read from the very file that is mapped; "" where it has none.
	BuildID string   `json:"build_id,omitempty"`
	Env     []string `json:"env,omitempty"` // K=V, as the user added them
}

// Environment is what a machine was set to, as far as it changes what a fork test counts. "" is what cannot be told.
type Environment struct {
	Machine   string `json:"machine"`                // uname -m
	HugePages string `json:"transparent_huge_pages"` // /sys/kernel/mm/transparent_hugepage/enabled: "always", "madvise", "never"
	Random    string `json:"randomize_va_space"`     // /proc/sys/kernel/randomize_va_space: "0", "1", "2"
	// ZeroPage: a read of memory that was never written maps the kernel's zero page, "yes", or takes a page of its own, "no".
	ZeroPage string `json:"zero_page,omitempty"`
}

// Scenario is what the subject did.
type Scenario struct {
	Name        string `json:"name"` // "callcache-cold", "app"
	App         string `json:"app,omitempty"`
	AppSHA256   string `json:"app_sha256,omitempty"` // of the application's file and the preload expression, where there is one of them
	Methods     int    `json:"methods,omitempty"`
	CallSites   int    `json:"call_sites,omitempty"`
	SettleRuns  int    `json:"settle_collections"` // collections in the parent before the fork, the most over the runs
	SettleLimit string `json:"settle"`             // as asked: "until quiet", "4", "0"
	Warmup      bool   `json:"warmup"`             // Process.warmup (or gc.freeze) ran before the fork
	Workers     int    `json:"workers"`
}

// Run is one load, one fork and the events in the workers.
type Run struct {
	Seq      int               `json:"seq"`
	Events   []Event           `json:"events"`
	Warnings []pagemap.Warning `json:"warnings,omitempty"`
}

// Event is one event of one worker: the counts compare the worker with its parent before and after it.
type Event struct {
	Name   string      `json:"name"` // "null", "first_major_gc", "second_major_gc", …
	Worker int         `json:"worker"`
	PID    pagemap.PID `json:"pid"`
	Copied
	Regions      []RegionDiff     `json:"regions"`
	DurationNano int64            `json:"duration_ns"` // of the event in the worker, as the harness measured it
	Stats        map[string]int64 `json:"stats,omitempty"`
	Metrics      []Metric         `json:"metrics,omitempty"` // what the scenario measures beside the pages
	// Attribution says who made the copies: with the tracer only.
	*Attribution
}

// Metric is a number that one worker gave in one event. A comparison makes a row of each.
type Metric struct {
	Name   string  `json:"name"` // in snake_case, with its unit at the end where it has one: "peak_rss_bytes"
	Unit   string  `json:"unit"` // "bytes", "ns", "count", "ratio", …
	Value  float64 `json:"value"`
	Better Better  `json:"better"`
}

// Better says which of two values of a metric is the better one.
type Better string

// Directions of a metric. "" is neither: a difference is shown and judged by nobody.
const (
	BetterLess Better = "less"
	BetterMore Better = "more"
)

// Tracer says how the faults of the runs were traced.
type Tracer struct {
	Variant   string    `json:"variant"`         // of the last run: "tp_btf", "raw_tracepoint", "tracepoint"
	SeesQuiet bool      `json:"sees_quiet_ones"` // copies that the kernel makes without a fault are seen
	Stacks    bool      `json:"stacks"`
	Collector Collector `json:"collector"` // of the first worker in the last run
	Lost      LostParts `json:"lost"`      // over all runs
}

// Summary gives each event's median over runs and workers.
type Summary struct {
	Events []EventSummary `json:"events"`
}

// EventSummary is one event over all runs and workers.
type EventSummary struct {
	Name         string       `json:"name"`
	N            int          `json:"n"`
	SharedBefore Interval     `json:"shared_before_bytes"`
	CopiedBytes  Interval     `json:"copied_bytes"`
	NewBytes     Interval     `json:"new_bytes"`
	Change       Change       `json:"change"`  // sums over all runs
	Regions      []RegionDiff `json:"regions"` // sums over all runs
	// Attribution sums those of all runs and workers: with the tracer only.
	*Attribution
}

// Interval is a median with its 95% confidence interval where there are samples enough for one, else the range.
type Interval struct {
	Median     pagemap.Bytes `json:"median"`
	Low        pagemap.Bytes `json:"low"`
	High       pagemap.Bytes `json:"high"`
	Confidence float64       `json:"confidence"` // in [0,1]; 0: low and high are the smallest and the largest sample
}
