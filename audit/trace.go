package audit

import "cowaudit/pagemap"

// TraceReport is the result of trace: what became of the page faults of some processes and their children, by process,
// region, function, stack and GC phase. Every table (processes, by_region, by_function, by_stack, by_phase) counts each
// fault once and sums to InTables. InTables, LeftOut and what was lost sum to Faults: [CheckTrace].
type TraceReport struct {
	SchemaVersion int           `json:"schema_version"`
	Kind          string        `json:"kind"`
	Version       string        `json:"cowaudit_version"`
	Trace         TraceFacts    `json:"trace"`
	Faults        FaultTotals   `json:"faults"`    // of the whole trace
	InTables      FaultCounts   `json:"in_tables"` // what the tables sum to
	LeftOut       FaultCounts   `json:"left_out"`  // outside of a collection, where only collections were asked for
	Processes     []Traced      `json:"processes"`
	ByRegion      []RegionRow   `json:"by_region"`
	ByFunction    []FunctionRow `json:"by_function"`
	ByStack       []StackRow    `json:"by_stack"` // empty unless Trace.Stacks
	ByPhase       []PhaseRow    `json:"by_phase"`
	GC            []Collection  `json:"gc"`
	Profile
	Findings []Finding         `json:"findings"`
	Warnings []pagemap.Warning `json:"warnings"`
	Lost     LostParts         `json:"lost"`
}

// TraceFacts says how and when the faults were gathered.
type TraceFacts struct {
	Host         string        `json:"host"`
	Kernel       string        `json:"kernel"`
	TimeUnixNano int64         `json:"time_unix_ns"` // when it began
	DurationNano int64         `json:"duration_ns"`
	PageSize     pagemap.Bytes `json:"page_size_bytes"`
	Variant      string        `json:"variant"`         // how the programs were attached: "tp_btf", "raw_tracepoint", "tracepoint"
	SeesQuiet    bool          `json:"sees_quiet_ones"` // copies that the kernel makes without a fault are among them
	Each         bool          `json:"each_fault"`      // each fault was recorded with its time and address, not only counted
	Stacks       bool          `json:"stacks"`
	OnlyGC       bool          `json:"only_gc"` // the tables have only faults during a collection
}

// FaultCounts counts faults by what became of them, and pages for those by which pages become the process' own. A fault is
// in exactly one of the counts from Copied to Other. [ebpf.Kind] says what each means.
type FaultCounts struct {
	Copied  int64 `json:"copied"`
	Reused  int64 `json:"reused"`
	Zero    int64 `json:"zero"`
	File    int64 `json:"file"`
	New     int64 `json:"new"`
	Read    int64 `json:"read"` // in the totals of the whole trace alone
	Shared  int64 `json:"shared"`
	Swapped int64 `json:"swapped"`
	HugeTLB int64 `json:"hugetlb"`
	Unknown int64 `json:"unknown"`
	Other   int64 `json:"other"`

	CopiedPages int64         `json:"copied_pages"` // base pages: a fault can copy a larger folio
	CopiedBytes pagemap.Bytes `json:"copied_bytes"`
	NewPages    int64         `json:"new_pages"`

	// Cuts across the words: parts of Copied, in faults.
	KernelMode   int64 `json:"copied_kernel_mode"`   // a system call wrote (read(2) into a shared buffer)
	WithoutFault int64 `json:"copied_without_fault"` // the kernel wrote through pages it had looked up: the address is not known
	FromSwap     int64 `json:"copied_from_swap"`     // the page came back from swap first
}

// FaultTotals are the faults of a whole trace. The cuts of copied are of those in the tables only.
type FaultTotals struct {
	FaultCounts
	Lost int64 `json:"lost"` // of the counts above: counted, and missing from the tables
}

// Traced is one address space: a process from its fork or exec (or the start of the trace) to its next exec or its end.
type Traced struct {
	PID        pagemap.PID `json:"pid"`
	StartTicks uint64      `json:"start_ticks"` // 0: it ended before that could be read
	ParentPID  pagemap.PID `json:"parent_pid"`  // 0: not traced
	Command    string      `json:"command"`
	Cause      string      `json:"cause"`              // "start" (there before the trace), "fork", "exec", "unknown"
	BeganNano  int64       `json:"began_ns"`           // since the trace began
	EndedNano  int64       `json:"ended_ns,omitempty"` // missing: still there at the end
	Collector  Collector   `json:"collector"`
	FaultCounts
}

// Collector says how the phase of a process' garbage collector was known.
type Collector struct {
	Name    string `json:"name"` // "flag", "symbols", "usdt"; "none": the phase is unknown, Why says why
	Runtime string `json:"runtime,omitempty"`
	Version string `json:"version,omitempty"`
	Module  string `json:"module,omitempty"`
	Probes  int    `json:"probes"` // breakpoints set in the process; each copies a page of its program's text
	Why     string `json:"why,omitempty"`
}

// RegionRow counts faults by what the memory is for; Path only for mappings of files.
type RegionRow struct {
	Region RegionKind `json:"region"`
	Path   string     `json:"path,omitempty"`
	FaultCounts
}

// FunctionRow counts faults by the function that wrote: in kernel mode the one that made the system call.
type FunctionRow struct {
	Name    string `json:"name"` // what to print: the function, or module+0xoffset where no symbol covers the address
	Module  string `json:"module"`
	Path    string `json:"path"`
	BuildID string `json:"build_id,omitempty"`
	File    string `json:"source_file,omitempty"` // source of the instruction with the most copies, where there is DWARF
	Line    int    `json:"source_line,omitempty"`
	FaultCounts
	CopiedByPhase PhaseCounts `json:"copied_pages_by_phase"`
}

// PhaseCounts are copied pages by GC phase.
type PhaseCounts struct {
	None    int64 `json:"none"`
	Minor   int64 `json:"minor"`
	Major   int64 `json:"major"`
	GC      int64 `json:"gc"`
	Unknown int64 `json:"unknown"`
}

// StackRow counts faults by the chain of calls. Frames are names to print, innermost first; none: the stack could not be taken.
type StackRow struct {
	Frames []string `json:"frames"`
	Cut    bool     `json:"cut"` // it does not reach the start of the thread
	FaultCounts
}

// PhaseRow counts faults by what the collector was doing.
type PhaseRow struct {
	Phase GCPhase `json:"phase"`
	Step  GCStep  `json:"step"`
	FaultCounts
}

// Collection is one garbage collection of one process, as far as faults were seen during it.
type Collection struct {
	PID         pagemap.PID `json:"pid"`
	Seq         uint32      `json:"seq"`  // as the runtime counts, where its counter can be read; 0: not numbered
	Kind        GCPhase     `json:"kind"` // minor, major; gc: which is not told
	Faults      int64       `json:"faults"`
	Copies      int64       `json:"copied"`
	CopiedPages int64       `json:"copied_pages"`
	// FirstNano and LastNano are the times of the first and the last fault in it, since the trace began; missing where
	// faults were only counted.
	FirstNano *int64 `json:"first_fault_ns,omitempty"`
	LastNano  *int64 `json:"last_fault_ns,omitempty"`
}

// GCPhase is what a garbage collector was doing, in the words of the JSON.
type GCPhase string

// GC phases.
const (
	GCUnknown GCPhase = "unknown" // cannot be told for this process
	GCNone    GCPhase = "none"    // no collection
	GCMinor   GCPhase = "minor"
	GCMajor   GCPhase = "major"
	GCSome    GCPhase = "gc" // a collection; which kind is not told
)

// During reports a collection, of whatever kind.
func (p GCPhase) During() bool { return p == GCMinor || p == GCMajor || p == GCSome }

// Label names a phase in a sentence or a table.
func (p GCPhase) Label() string {
	switch p {
	case GCNone:
		return "outside GC"
	case GCMinor:
		return "minor GC"
	case GCMajor:
		return "major GC"
	case GCSome:
		return "GC"
	}
	return "GC phase unknown"
}

// GCStep is the part of a collection.
type GCStep string

// Parts of a collection.
const (
	StepUnknown    GCStep = "unknown"
	StepNone       GCStep = "none"
	StepMarking    GCStep = "marking"
	StepSweeping   GCStep = "sweeping"
	StepCompacting GCStep = "compacting"
)

// LostParts is what is missing from a trace, by reason. All zero: nothing.
type LostParts struct {
	Records int64 `json:"records"` // faults and other records for which the ring buffer had no room
	Counts  int64 `json:"counts"`  // faults for which the table of counts had no room
	Threads int64 `json:"threads"` // threads that could not be followed
	Spaces  int64 `json:"spaces"`  // processes whose collector could not be followed
	Stacks  int64 `json:"stacks"`  // stacks that could not be taken
	Regions int64 `json:"regions"` // faults whose mapping could not be looked up
	Phases  int64 `json:"phases"`  // faults at which the collector's state could not be read
	Missed  int64 `json:"missed"`  // runs of the programs that the kernel skipped
}

// Profile has the copies with their full key, for pprof and folded stacks. Frames and Stacks are tables that the samples
// index.
type Profile struct {
	Samples []Sample       `json:"samples"`
	Stacks  []ProfileStack `json:"stacks"`
	Frames  []ProfileFrame `json:"frames"`
}

// Sample is a number of copies that agree in everything below.
type Sample struct {
	PID         pagemap.PID `json:"pid"`
	Region      RegionKind  `json:"region"`
	Phase       GCPhase     `json:"phase"`
	Step        GCStep      `json:"step"`
	Stack       int         `json:"stack"` // index into Stacks
	KernelMode  bool        `json:"kernel_mode,omitempty"`
	Copies      int64       `json:"copies"` // faults; in an attribution, pages
	CopiedPages int64       `json:"copied_pages"`
	// Identical is how many of the copied pages still hold what the reference's hold; nil: not compared (a trace alone
	// cannot know).
	Identical *int64 `json:"identical_pages,omitempty"`
}

// ProfileStack is a chain of calls, innermost first, as indices into Profile.Frames. Where stacks were not taken it is the
// writing instruction alone.
type ProfileStack struct {
	Frames []int `json:"frames"`
	Cut    bool  `json:"cut,omitempty"`
}

// ProfileFrame is a place in a program's code.
type ProfileFrame struct {
	Name     string `json:"name"`
	Function string `json:"function,omitempty"` // "": no symbol covers the address
	Module   string `json:"module,omitempty"`
	Path     string `json:"path,omitempty"`
	BuildID  string `json:"build_id,omitempty"`
	Offset   uint64 `json:"offset"` // link-time address in the module
	Addr     uint64 `json:"address"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
}
