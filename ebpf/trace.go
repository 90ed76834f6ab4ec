package ebpf

import (
	"time"

	"cowaudit/pagemap"
)

// Kind is what became of a page fault. The values are those of enum kind in bpf/faults.h.
type Kind uint8

// Kinds.
const (
	KindUnknown Kind = iota // could not be told; counted, never folded into another
	KindCopied              // a page shared with another process was copied
	KindReused              // nobody shared the page any more: made writable in place. Faults that found the page writable already are among them
	KindZero                // first write on the kernel's zero page
	KindFile                // a page of a private file mapping became the process' own
	KindNew                 // first touch: an anonymous page filled with zeros
	KindRead                // a read fault: no page became private
	KindShared              // a write to shared memory
	KindSwapped             // a write that brought a page in from swap
	KindHugeTLB             // a write to hugetlb memory, where copy and reuse look alike
	KindOther               // a write that took no page: migration, NUMA hint, a race, a refused write
	NKinds
)

var kindNames = [NKinds]string{"unknown", "copied", "reused", "zero", "file", "new", "read", "shared", "swapped", "hugetlb", "other"}

func (k Kind) String() string {
	if k < NKinds {
		return kindNames[k]
	}
	return kindNames[KindUnknown]
}

// Detail says more about a fault; any number of these.
type Detail uint8

// Details: enum detail in bpf/faults.h.
const (
	DetailKernel    Detail = 1 << iota // taken in kernel mode: a system call wrote
	DetailNoFault                      // no fault at all: the kernel wrote through pages that it pinned; the address is not known
	DetailFromSwap                     // the page came back from swap first
	DetailHuge                         // a folio larger than one page
	DetailNoMapping                    // the mapping of the address could not be looked up
)

// Phase is what the process' garbage collector was doing.
type Phase uint8

// Phases: enum phase in bpf/faults.h.
const (
	PhaseUnknown Phase = iota // there is no way to tell for this process
	PhaseNone                 // no collection
	PhaseMinor
	PhaseMajor
	PhaseGC // a collection; which kind is not told
	NPhases
)

var phaseNames = [NPhases]string{"unknown", "no GC", "minor GC", "major GC", "GC"}

func (p Phase) String() string {
	if p < NPhases {
		return phaseNames[p]
	}
	return phaseNames[PhaseUnknown]
}

// Step is the part of a collection.
type Step uint8

// Steps: enum step in bpf/faults.h.
const (
	StepUnknown Step = iota
	StepNone
	StepMarking
	StepSweeping
	StepCompacting
	NSteps
)

var stepNames = [NSteps]string{"unknown", "none", "marking", "sweeping", "compacting"}

func (s Step) String() string {
	if s < NSteps {
		return stepNames[s]
	}
	return stepNames[StepUnknown]
}

// GC is the state of a collector at one moment. Seq is the number of the collection: as the runtime counts them where its
// counter can be read (it survives a fork), else counted from the start of the trace by thread; 0 where neither is so.
type GC struct {
	Phase Phase
	Step  Step
	Seq   uint32
}

// SpaceID names an address space within a trace; RegionID a mapping of one; FrameID an entry of Trace.Frames; StackID an
// entry of Trace.Stacks. 0 is none.
type (
	SpaceID  uint32
	RegionID uint32
	FrameID  uint32
	StackID  uint32
)

// Cause is how an address space came up.
type Cause uint8

// Causes: enum cause in bpf/faults.h.
const (
	CauseUnknown Cause = iota
	CauseStart         // there when the trace began, or added
	CauseFork
	CauseExec
)

// Space is one address space: a process between its fork or exec and its end or next exec. Threads share it, and so do
// children with CLONE_VM.
type Space struct {
	ID       SpaceID
	Parent   SpaceID // whose copy it is, or who called exec; 0: not traced
	Cause    Cause
	Process  pagemap.Identity  // zero start time: it ended before that could be read
	Command  string            // of /proc/PID/cmdline or comm, as it was read last
	Began    time.Duration     // since Trace.Began
	Ended    time.Duration     // 0: still there at the end of the trace
	Mappings []pagemap.Mapping // of /proc/PID/maps as it was read last; nil: never
	Provider Provider
}

// Provider says how the phase of a space's collector is known.
type Provider struct {
	Name    string // "flag", "symbols", "usdt", "none"
	Runtime string // "ruby", "python"; "" where none was found
	Version string
	Module  string // the file that holds the collector
	Probes  int    // uprobes attached; each is a write to a page of the program's text, which copies it
	Why     string // how it was found, or why there is none and what would help
}

// Region is a mapping in which a fault fell, as the kernel had it at that moment.
type Region struct {
	ID      RegionID
	Space   SpaceID
	Mapping pagemap.Mapping // Path and Shape where /proc/PID/maps still had the mapping when it was read
	Named   bool            // it had; else only addresses and permissions are known
}

// Frame is a place in a program's code.
type Frame struct {
	Addr           uint64 // in the process
	Module         string // file name without its folder; "" where no mapping covers the address
	Path           string
	BuildID        string
	Offset         uint64 // link-time address in the module
	Function       string // "": no symbol covers the address
	FunctionOffset uint64
	File           string // source, where there is DWARF
	Line           int
	Source         string // where the name is from: "symtab", "dynsym", "debug file", "mini-debuginfo", "perf map", …
	Name           string // what to print: the function, or module+0xoffset, never a neighbour's name
}

// Stack is a chain of calls, innermost first.
type Stack struct {
	Frames []FrameID
	Cut    bool // it does not reach the start of the thread: code without frame pointers, or too deep
}

// Fault is one fault.
type Fault struct {
	Time   time.Duration // since Trace.Began, when it was decided; of a reuse, at the latest copy before that
	Addr   pagemap.Addr  // 0: not known (DetailNoFault)
	Space  SpaceID
	Region RegionID
	Thread pagemap.PID
	Frame  FrameID // the instruction; in kernel mode that of the system call
	Stack  StackID
	GC     GC
	Kind   Kind
	Detail Detail
	Order  uint8 // the page is 1<<Order base pages
	Code   uint8 // the exception's error code, low byte
}

// Pages is the number of base pages that became the process' own, for kinds by which pages do.
func (f *Fault) Pages() int64 { return 1 << f.Order }

// Count is how often the same fault happened. Trace.Counts has each fault once: they sum to the totals less what was lost.
type Count struct {
	Space  SpaceID
	Region RegionID
	Frame  FrameID
	Stack  StackID
	GC     GC
	Kind   Kind
	Detail Detail
	Faults int64
	Pages  int64 // base pages
}

// Tally counts faults and the base pages they were about.
type Tally struct {
	Faults int64
	Pages  int64
}

// Lost is what is missing from the result, by reason. All zero: nothing.
type Lost struct {
	Records int64 // faults and other records for which the ring buffer had no room
	Counts  int64 // faults for which the table of counts had no room
	Threads int64 // threads that could not be followed
	Spaces  int64 // address spaces whose collector could not be followed
	Stacks  int64 // stacks that could not be taken
	Regions int64 // faults whose mapping could not be looked up
	Phases  int64 // faults at which the collector's state could not be read
	Missed  int64 // runs of the programs that the kernel skipped
}

// Faults is the number of faults that are in the totals and nowhere else.
func (l *Lost) Faults() int64 { return l.Records + l.Counts }

// Any reports that something is missing.
func (l *Lost) Any() bool { return *l != Lost{} }

// Trace is what a Tracer saw: facts, without conclusions.
type Trace struct {
	Began    time.Time
	Duration time.Duration
	PageSize pagemap.Bytes
	Host     string
	Kernel   string
	Variant  string // how the programs are attached: "tp_btf", "raw_tracepoint", "tracepoint"
	Quiet    bool   // copies without a fault are seen (needs the kernel's symbols)
	Totals   [NKinds]Tally
	Counts   []Count // sorted: by space, region, frame, …
	Faults   []Fault // in order of time; only where Options.Faults asked for them
	Spaces   []Space
	Regions  []Region
	Frames   []Frame // [0] is the unknown one
	Stacks   []Stack // [0] is the empty one
	Lost     Lost
	Warnings []pagemap.Warning
}

// SpaceByID gives a space; nil where there is none of that number.
func (t *Trace) SpaceByID(id SpaceID) *Space {
	for i := range t.Spaces {
		if t.Spaces[i].ID == id {
			return &t.Spaces[i]
		}
	}
	return nil
}

// RegionByID gives a region; nil where there is none of that number.
func (t *Trace) RegionByID(id RegionID) *Region {
	for i := range t.Regions {
		if t.Regions[i].ID == id {
			return &t.Regions[i]
		}
	}
	return nil
}
