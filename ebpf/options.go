package ebpf

import (
	"time"

	"cowaudit/pagemap"
)

// Options say what a Tracer does. The zero value counts faults in the kernel, without stacks, and follows children.
type Options struct {
	FS pagemap.FS // whose /proc; the zero value is the host's

	// Faults asks for each fault as a record of its own, with its address and time: Trace.Faults. Without it the kernel
	// keeps counts only (a page's address is not among them), for servers that fault all day.
	Faults bool
	// Stacks asks for the user stack of each write fault.
	Stacks bool
	// Lines asks for source lines where there is DWARF.
	Lines bool
	// NoFollow leaves children out that are forked during the trace.
	NoFollow bool
	// Collector chooses how the GC phase is learnt: "auto" or "", "flag", "symbols", "usdt", "none".
	Collector string
	// Variant forces a way to attach: "tp_btf", "raw_tracepoint", "tracepoint"; "": the first that the kernel takes.
	Variant string
	// Interval is how often the kernel's buffers are read; 0: 20 ms.
	Interval time.Duration
	// RingBytes is the size of the ring buffer, a power of two; 0: 16 MiB.
	RingBytes int
	// DebugDirs are searched for separate debug files; nil: /usr/lib/debug.
	DebugDirs []string

	// For tests.
	noSymbols  bool          // as where the kernel hides its symbols
	emptyEvery time.Duration // how often the kernel's counts are emptied
}
