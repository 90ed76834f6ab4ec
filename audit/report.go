package audit

import "cowaudit/pagemap"

// SchemaVersion is the version of every JSON result. Names are added, never renamed or removed, within one version.
const SchemaVersion = 1

// Kinds of results, the value of "kind" at the top of the JSON.
const (
	KindAudit    = "audit"
	KindDiff     = "diff"
	KindForktest = "forktest"
	KindFamilies = "families"
	KindDoctor   = "doctor"
	KindTrace    = "trace"
	KindCompare  = "compare"
	KindGate     = "gate"
)

// Basis says how copied pages are known.
type Basis string

// Bases.
const (
	BasisSingle   Basis = "single_capture" // a copied page may have been given up and filled anew instead
	BasisBaseline Basis = "baseline"       // there is a capture from before the writes
	BasisTrace    Basis = "trace"
)

// Pages counts pages by word. The words from Shared to Unknown (Dropped excepted) are disjoint and sum to Held.
type Pages struct {
	Shared    int64 `json:"shared"`
	Copied    int64 `json:"copied"`
	New       int64 `json:"new"`
	Kept      int64 `json:"kept"`     // inherited; the reference gave its page up since
	Unshared  int64 `json:"unshared"` // of a process without a reference: no other member of the family has it
	File      int64 `json:"file"`
	Merged    int64 `json:"merged"`
	Zero      int64 `json:"zero"`
	Swapped   int64 `json:"swapped"`
	Unstable  int64 `json:"unstable"`
	Unknown   int64 `json:"unknown"`
	Held      int64 `json:"held"`       // resident or in swap: the sum of the words above
	Dropped   int64 `json:"dropped"`    // the reference holds a page, the process gave it up: not held
	NotForked int64 `json:"not_forked"` // the reference holds a page that fork left out (MADV_DONTFORK, MADV_WIPEONFORK): not held

	// Cuts across the words.
	Private              int64 `json:"private"`                // anonymous, and no other process maps the frame
	SharedWithSiblings   int64 `json:"shared_with_siblings"`   // not shared with the reference, but with another member of the family
	Moved                int64 `json:"moved"`                  // of shared: the reference has the frame at another address
	NewFromFile          int64 `json:"new_from_file"`          // of new: first written page of a private file mapping
	InSwap               int64 `json:"in_swap"`                // of held: in a swap slot
	HugeTLB              int64 `json:"hugetlb"`                // of held: in hugetlb pages, which RSS leaves out
	Guard                int64 `json:"guard"`                  // guard regions: no page, not held
	ReferenceOnly        int64 `json:"reference_only"`         // the reference allocated it since the fork (anon-exclusive there): not held
	CopiedByWorker       int64 `json:"copied_by_worker"`       // of copied
	CopiedByReference    int64 `json:"copied_by_reference"`    // of copied
	CopiedByBoth         int64 `json:"copied_by_both"`         // of copied
	CopiedByUndetermined int64 `json:"copied_by_undetermined"` // of copied
}

// Change says what the writes changed on copied pages, by the number of 8-byte words that differ.
type Change struct {
	Identical   int64 `json:"identical"`    // no byte
	OneWord     int64 `json:"one_word"`     // 1
	FewWords    int64 `json:"few_words"`    // 2 to 8
	ManyWords   int64 `json:"many_words"`   // 9 to 64
	Rewritten   int64 `json:"rewritten"`    // more
	NotCompared int64 `json:"not_compared"` // contents were not asked for, or could not be read
}

// Report is the result of audit: one family at one moment.
type Report struct {
	SchemaVersion int               `json:"schema_version"`
	Kind          string            `json:"kind"`
	Version       string            `json:"cowaudit_version"`
	Capture       Capture           `json:"capture"`
	Range         *Range            `json:"range,omitempty"`
	Family        []Process         `json:"family"`
	Totals        Totals            `json:"totals"`
	Findings      []Finding         `json:"findings"`
	Warnings      []pagemap.Warning `json:"warnings"`
}

// Capture says how and when the pages were read.
type Capture struct {
	Basis         Basis         `json:"basis"`
	Host          string        `json:"host"`
	Kernel        string        `json:"kernel"`
	TimeUnixNano  int64         `json:"time_unix_ns"`
	DurationNano  int64         `json:"duration_ns"`
	PageSize      pagemap.Bytes `json:"page_size_bytes"`
	FramesVisible bool          `json:"frames_visible"`
	FlagsVisible  bool          `json:"flags_visible"`
	PageMapcount  bool          `json:"page_mapcount"`
	Contents      bool          `json:"contents_compared"`
	UnstablePages int64         `json:"unstable_pages"`
	EntriesRead   int64         `json:"entries_read"`
}

// Range is a part of the address space, end excluded.
type Range struct {
	Start pagemap.Addr `json:"start"`
	End   pagemap.Addr `json:"end"`
}

// Process is one member of the family with its ledger.
type Process struct {
	PID            pagemap.PID            `json:"pid"`
	StartTicks     uint64                 `json:"start_ticks"`
	ParentPID      pagemap.PID            `json:"parent_pid"`
	ReferencePID   pagemap.PID            `json:"reference_pid"`
	ReferenceBasis pagemap.ReferenceBasis `json:"reference_basis,omitempty"`
	NSPIDs         []pagemap.PID          `json:"ns_pids,omitempty"`
	State          pagemap.State          `json:"state"`
	SharesMM       pagemap.PID            `json:"shares_mm_with_pid,omitempty"`
	Comm           string                 `json:"comm"`
	Command        string                 `json:"command"`
	RSS            pagemap.Bytes          `json:"rss_bytes"` // resident as the kernel counts it: without zero pages and hugetlb
	Pages          Pages                  `json:"pages"`
	Change         *Change                `json:"change,omitempty"`
	Regions        []Region               `json:"regions"`
	Mappings       []Mapping              `json:"mappings"`
	Rollup         *RollupCheck           `json:"smaps_rollup,omitempty"`
}

// RollupCheck holds the ledger against the kernel's own smaps_rollup, in pages.
type RollupCheck struct {
	RSSPages       int64 `json:"rss_pages"`        // the kernel's
	LedgerRSSPages int64 `json:"ledger_rss_pages"` // ours, counted by the kernel's rules
	SwapPages      int64 `json:"swap_pages"`
	LedgerSwap     int64 `json:"ledger_swap_pages"`
	Agrees         bool  `json:"agrees"`
}

// Region sums the mappings of one kind.
type Region struct {
	Kind     RegionKind `json:"kind"`
	Mappings int        `json:"mappings"`
	Pages    Pages      `json:"pages"`
	Change   *Change    `json:"change,omitempty"`
}

// Mapping is the ledger of one mapping. Gone marks one that only the reference has.
type Mapping struct {
	Start  pagemap.Addr `json:"start"`
	End    pagemap.Addr `json:"end"`
	Perms  string       `json:"perms"`
	Path   string       `json:"path"`
	Region RegionKind   `json:"region"`
	Gone   bool         `json:"gone,omitempty"`
	Pages  Pages        `json:"pages"`
	Change *Change      `json:"change,omitempty"`
}

// RegionKind says what a mapping is for.
type RegionKind string

// Region kinds.
const (
	RegionBrkHeap     RegionKind = "brk_heap"
	RegionMallocArena RegionKind = "malloc_arena"
	RegionMallocLarge RegionKind = "malloc_large"
	RegionRubyHeap    RegionKind = "ruby_object_heap"
	RegionStack       RegionKind = "stack"
	RegionThreadStack RegionKind = "thread_stack"
	RegionLibraryData RegionKind = "library_data"
	RegionJIT         RegionKind = "jit_code"
	RegionFile        RegionKind = "file"
	RegionSharedMem   RegionKind = "shared_memory"
	RegionOther       RegionKind = "other"
	RegionUnknown     RegionKind = "unknown" // of a trace only: the mapping was gone before it could be looked up
)

// Totals are the family's, each frame counted once where several members share it at the same address.
type Totals struct {
	Processes int           `json:"processes"` // audited
	RSS       pagemap.Bytes `json:"rss_bytes"` // sum over the processes: counts shared pages again and again
	Pages     Pages         `json:"pages"`     // sum over the processes
	// Frames counts memory once. It is null where a process ended or exec'd while it was read: what it shared with others
	// cannot be taken out again.
	Frames *Frames `json:"frames"`
	Change *Change `json:"change,omitempty"`
}

// Frames are the frames that hold a family's pages, each counted once where several members have it at the same address.
type Frames struct {
	DistinctAnon int64 `json:"distinct_anon_pages"`
	DistinctFile int64 `json:"distinct_file_pages"`
	SavedByFork  int64 `json:"saved_by_fork_pages"` // anonymous pages held, less the distinct ones
}

// Finding is one thing that stands out, as a sentence.
type Finding struct {
	Code string      `json:"code"`
	PID  pagemap.PID `json:"pid,omitempty"`
	Text string      `json:"text"`
}

// DiffReport is the result of diff: the pages of one family copied between two captures.
type DiffReport struct {
	SchemaVersion int               `json:"schema_version"`
	Kind          string            `json:"kind"`
	Version       string            `json:"cowaudit_version"`
	Before        Capture           `json:"before"`
	After         Capture           `json:"capture"`
	Range         *Range            `json:"range,omitempty"`
	Family        []ProcessDiff     `json:"family"`
	Totals        Copied            `json:"totals"`
	Findings      []Finding         `json:"findings"`
	Warnings      []pagemap.Warning `json:"warnings"`
}

// Copied is what happened across an event to the pages that a process shared with its reference before it. The counts
// from CopiedPages to UnknownPages and StillShared sum to SharedBefore.
type Copied struct {
	SharedBefore  int64 `json:"shared_before_pages"`
	StillShared   int64 `json:"still_shared_pages"`
	CopiedPages   int64 `json:"copied_pages"`
	DroppedPages  int64 `json:"dropped_pages"`  // given up by the process
	KeptPages     int64 `json:"kept_pages"`     // given up by the reference
	ReplacedPages int64 `json:"replaced_pages"` // now the file's, merged by KSM or the zero page
	UnknownPages  int64 `json:"unknown_pages"`  // unstable, or its frame could not be told

	CopiedBytes          pagemap.Bytes `json:"copied_bytes"`
	CopiedByWorker       int64         `json:"copied_by_worker_pages"`
	CopiedByReference    int64         `json:"copied_by_reference_pages"`
	CopiedByBoth         int64         `json:"copied_by_both_pages"`
	CopiedByUndetermined int64         `json:"copied_by_undetermined_pages"`
	InChangedMappings    int64         `json:"copied_in_changed_mappings_pages"` // of copied: may have been replaced rather than copied
	NewPages             int64         `json:"new_pages"`                        // held now, not before, and not shared
	NewFromFile          int64         `json:"new_from_file_pages"`              // of new: was the file's page before
	FreedPages           int64         `json:"freed_pages"`                      // held before and not shared, not held now
	Change               Change        `json:"change"`
}

// ProcessDiff is one process' part of a DiffReport.
type ProcessDiff struct {
	PID          pagemap.PID   `json:"pid"`
	ReferencePID pagemap.PID   `json:"reference_pid"`
	State        pagemap.State `json:"state"`
	Comm         string        `json:"comm"`
	Copied
	Regions  []RegionDiff  `json:"regions"`
	Mappings []MappingDiff `json:"mappings"`
}

// RegionDiff sums the mappings of one kind.
type RegionDiff struct {
	Kind RegionKind `json:"kind"`
	Copied
}

// MappingDiff is one mapping's part, as it was mapped at the end (or, where Gone, at the start).
type MappingDiff struct {
	Start  pagemap.Addr `json:"start"`
	End    pagemap.Addr `json:"end"`
	Perms  string       `json:"perms"`
	Path   string       `json:"path"`
	Region RegionKind   `json:"region"`
	Gone   bool         `json:"gone,omitempty"`
	Copied
}
