package gc

import "errors"

// ErrNotYet: the runtime is there and has not built its collector's state yet. Ask again later.
var ErrNotYet = errors.New("the runtime has not started yet")

// Provider is the way in which the phase is learnt.
type Provider uint8

// Providers. The zero value, given to [Find], asks for the best one.
const (
	ProviderUnknown Provider = iota
	ProviderFlag             // the collector's own state word, read at each event; nothing is attached
	ProviderSymbols          // uprobes on functions of the collector, found by their symbols
	ProviderUSDT             // uprobes on USDT notes
	ProviderNone             // no way was found: Plan.Why says why
)

// String gives the word for reports.
func (p Provider) String() string { return nameOf(p, providerNames[:]) }

var providerNames = [...]string{"unknown", "flag", "symbols", "usdt", "none"}

// Event is what a probe says when it fires.
type Event uint8

// Events. GCBegin to GCEnd is time that the mutator stands still for the collector; marking and sweeping are parts of it.
const (
	EventUnknown Event = iota
	GCBegin
	GCEnd
	MarkBegin
	MarkEnd
	SweepBegin
	SweepEnd
)

// String gives the word for reports.
func (e Event) String() string { return nameOf(e, eventNames[:]) }

var eventNames = [...]string{"unknown", "gc begin", "gc end", "mark begin", "mark end", "sweep begin", "sweep end"}

func nameOf[T ~uint8](v T, names []string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return names[0]
}

// ArgKind says where an argument is.
type ArgKind uint8

// Kinds of arguments.
const (
	ArgNone     ArgKind = iota
	ArgRegister         // in a register
	ArgMemory           // in memory of the process, at a register plus Offset
	ArgConstant         // Value, known beforehand
)

// Register is the index of an 8-byte word in struct pt_regs of x86-64 (arch/x86/include/asm/ptrace.h).
type Register uint8

// Registers, in the order of pt_regs.
const (
	R15 Register = iota
	R14
	R13
	R12
	BP
	BX
	R11
	R10
	R9
	R8
	AX
	CX
	DX
	SI
	DI
	OrigAX
	IP
	CS
	Flags
	SP
	SS
)

// Arg says where a probe finds its argument when it fires.
type Arg struct {
	Kind     ArgKind
	Register Register
	Offset   int64 // bytes, with ArgMemory
	Size     uint8 // bytes: 1, 2, 4, 8
	Shift    uint8 // bits to the right, in the register (8 for ah)
	Signed   bool
	Value    int64 // with ArgConstant
}

// Rule says when the argument means a major collection.
type Rule uint8

// Rules.
const (
	RuleNone    Rule = iota // the argument does not tell
	RuleAtLeast             // major: the argument is at least Operand
	RuleHasBits             // major: the argument has one of the bits of Operand
)

// Probe is a place for a uprobe in Plan.File.
type Probe struct {
	Event     Event
	Name      string // of the function or the note
	Offset    uint64 // in the file, bytes
	Return    bool   // a uretprobe: fires when the function returns
	Semaphore uint64 // offset in the file of the note's semaphore (perf_event_attr.config2, ref_ctr_offset); 0: none
	Arg       Arg
	Rule      Rule
	Operand   uint64
}

// Bits is a condition on a word: it holds where word&Mask == Want.
type Bits struct{ Mask, Want uint64 }

// Holds reports whether word meets the condition. The zero Bits is a condition that always does.
func (b Bits) Holds(word uint64) bool { return word&b.Mask == b.Want }

// Flag is where the collector keeps its state. Addresses are of the process and of all that are forked from it.
type Flag struct {
	Addr   uint64 // of the state word
	Size   uint8  // of the word, bytes
	During Bits   // a collection is under way: the other conditions mean nothing without it
	// Minor: a minor one; else a major one. Nil: cannot be told here.
	Minor *Bits
	// Unsettled: between the beginning of a collection and its marking, and after its sweeping, Minor still is what it was
	// the last time. Where this holds neither minor nor major may be said. Nil where Minor is.
	Unsettled                     *Bits
	Marking, Sweeping, Compacting *Bits // nil: cannot be told here
	// Count is the address of the number of collections begun, MajorCount of the number of major ones, of CountSize bytes
	// each; 0: not known. Ruby raises both shortly after During begins to hold. CPython raises MajorCount at the end.
	Count, MajorCount uint64
	CountSize         uint8
}

// Plan is how the phase of one process can be learnt.
type Plan struct {
	Provider Provider
	Runtime  string // "ruby", "python"; empty where neither was found
	Version  string // "3.3.8"; empty where it could not be told
	Module   string // the file with the collector, as maps shows it
	BuildID  string // hexadecimal; empty where it has none
	File     string // a path that opens the very file while the process runs
	Bias     uint64 // what is added to addresses of the file to get those of the process
	Probes   []Probe
	Flag     *Flag
	Why      string // how it was found, or why not and what helps
}
