package pagemap

// Identity names a process for good: a PID is used again, a PID with its start time is not.
type Identity struct {
	PID   PID    `json:"pid"`
	Start uint64 `json:"start_ticks"` // clock ticks since boot: /proc/PID/stat field 22
}

// State says whether a process could be audited, and if not, why.
type State string

// States of a process in a family.
const (
	StateUnknown      State = ""
	StateAudited      State = "audited"
	StateGone         State = "gone"          // exited before or during the capture
	StateZombie       State = "zombie"        // exited, not yet waited for
	StateKernelThread State = "kernel_thread" // has no address space
	StateExeced       State = "execed"        // has its own program since the fork: nothing to compare
	StateSharedMM     State = "shared_mm"     // runs in the address space of another process (CLONE_VM, vfork)
	StateChanged      State = "changed"       // exec'd, or was replaced by another process, during the capture
	StateUnreadable   State = "unreadable"    // permission denied
	StateForkedSince  State = "forked_since"  // of a process in a diff: forked between the captures, nothing to compare
)

// ReferenceBasis says how the reference of a process was found.
type ReferenceBasis string

// Ways to find a reference.
const (
	ReferenceNone     ReferenceBasis = ""
	ReferenceParent   ReferenceBasis = "parent"   // the parent by PID
	ReferenceGiven    ReferenceBasis = "given"    // named by the user
	ReferenceInferred ReferenceBasis = "inferred" // shares more frames than the parent does, and is older
)

// Process is one member of a family and what was learned of it besides its pages.
type Process struct {
	Identity
	PPID      PID            `json:"ppid"`
	Reference PID            `json:"reference_pid"` // 0: judged against nobody (the root)
	Basis     ReferenceBasis `json:"reference_basis,omitempty"`
	State     State          `json:"state"`
	SharesMM  PID            `json:"shares_mm_with_pid,omitempty"` // with StateSharedMM
	Comm      string         `json:"comm"`
	Command   string         `json:"command"`           // arguments joined by blanks, cut at 4096 bytes
	NSPID     []PID          `json:"ns_pids,omitempty"` // in nested pid namespaces, outermost first (status, NSpid, 4.1)
	Exec      bool           `json:"execed"`            // PF_FORKNOEXEC is clear: it exec'd since it was forked
	Mappings  []Mapping      `json:"mappings"`
	// Rollup is smaps_rollup read right after the pages, nil where it was not asked for.
	Rollup *Rollup `json:"smaps_rollup,omitempty"`
}

// Rollup is /proc/PID/smaps_rollup (4.14), in bytes.
type Rollup struct {
	RSS            Bytes `json:"rss_bytes"`
	PSS            Bytes `json:"pss_bytes"`
	SharedClean    Bytes `json:"shared_clean_bytes"`
	SharedDirty    Bytes `json:"shared_dirty_bytes"`
	PrivateClean   Bytes `json:"private_clean_bytes"`
	PrivateDirty   Bytes `json:"private_dirty_bytes"`
	Anonymous      Bytes `json:"anonymous_bytes"`
	KSM            Bytes `json:"ksm_bytes"`
	AnonHugePages  Bytes `json:"anon_huge_pages_bytes"`
	SharedHugetlb  Bytes `json:"shared_hugetlb_bytes"`
	PrivateHugetlb Bytes `json:"private_hugetlb_bytes"`
	Swap           Bytes `json:"swap_bytes"`
	SwapPSS        Bytes `json:"swap_pss_bytes"`
}

// Warning is something a reader of the result must know, with what to do about it.
type Warning struct {
	Code   string `json:"code"` // snake_case, stable
	PID    PID    `json:"pid,omitempty"`
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
}

// Family is a set of processes and the facts of one capture of them.
type Family struct {
	Processes []Process `json:"processes"` // parents before children, then by start time, then by PID
	Facts     Facts     `json:"facts"`
	Warnings  []Warning `json:"warnings"`
}

// Facts are the circumstances of a capture.
type Facts struct {
	Host          string `json:"host"`
	Kernel        string `json:"kernel"`
	TimeUnixNano  int64  `json:"time_unix_ns"`
	DurationNano  int64  `json:"duration_ns"`
	PageSize      Bytes  `json:"page_size_bytes"`
	FramesVisible bool   `json:"frames_visible"`  // false: frame numbers read as 0
	FlagsVisible  bool   `json:"flags_visible"`   // kpageflags could be read
	CountsVisible bool   `json:"counts_visible"`  // kpagecount could be read
	PageMapcount  bool   `json:"page_mapcount"`   // false: CONFIG_NO_PAGE_MAPCOUNT, counts of large folios are averages
	ZeroFrames    []PFN  `json:"zero_frames"`     // frames of the kernel's zero page
	Contents      bool   `json:"contents"`        // contents of differing pages were compared
	Scan          bool   `json:"pagemap_scan"`    // PAGEMAP_SCAN was used
	EntriesRead   int64  `json:"entries_read"`    // page table entries read, repeats included
	Retries       int64  `json:"retried_entries"` // entries read again because they moved
}
