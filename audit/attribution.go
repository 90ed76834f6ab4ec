package audit

import "cowaudit/pagemap"

// Attribution joins the pages that were copied, as the page tables show it, with the copies that the fault trace saw
// between the two captures.
//
//	the copied pages         = ExplainedPages + the sum of Unexplained
//	ExplainedPages           = the pages of Functions = MatchedPages + SameCopyPages
//	TracedCopies             = TracedPages + RepeatedCopies + the copies without an address
//	TracedPages              = MatchedPages + the sum of TracedNotCopied, less what has no address there
//
// checkAttribution holds every one against these laws.
type Attribution struct {
	ExplainedPages int64            `json:"explained_pages"`
	Functions      []AttributionRow `json:"functions"`
	// Unexplained are the copied pages of which the trace has no copy, by reason.
	Unexplained []Reason `json:"unexplained"`
	// ByNumber are the copies without an address that stand for as many of the unexplained pages (reason without_fault):
	// matched by number, not by address.
	ByNumber []AttributionRow `json:"matched_by_number"`

	TracedCopies   int64 `json:"traced_copies"`   // pages copied between the captures, as often as they were, in the processes judged and their references
	TracedPages    int64 `json:"traced_pages"`    // the same, each page once
	RepeatedCopies int64 `json:"repeated_copies"` // of the traced ones: a later copy of the same page stands (threads raced, or it was shared again)
	QuietCopies    int64 `json:"quiet_copies"`    // of the traced ones: without a fault, so the address is not known
	MatchedPages   int64 `json:"matched_pages"`   // traced pages that are copied pages
	SameCopyPages  int64 `json:"same_copy_pages"` // explained pages for which one copy of the reference stands that explains another worker's page too
	// TracedNotCopied are the traced pages that are no copied pages, by reason.
	TracedNotCopied []Reason `json:"traced_not_copied"`

	Counts *Counts `json:"counts,omitempty"`
	// Profile has the explained pages by stack, with what the writes changed; nil where nothing was explained.
	Profile *Profile `json:"profile,omitempty"`
}

// AttributionRow is a number of copied pages with the same writer.
type AttributionRow struct {
	Name        string        `json:"name"` // the function, or module+0xoffset where no symbol covers the address
	Module      string        `json:"module"`
	Path        string        `json:"path"`
	BuildID     string        `json:"build_id,omitempty"`
	File        string        `json:"file,omitempty"` // source of the instruction with the most pages, where there is DWARF
	Line        int           `json:"line,omitempty"`
	Phase       GCPhase       `json:"phase"`
	Step        GCStep        `json:"step"`
	Region      RegionKind    `json:"region"`
	KernelMode  bool          `json:"kernel_mode"`  // a system call of the function wrote
	ByReference bool          `json:"by_reference"` // the reference (the master) wrote, and the process kept the original
	Pages       int64         `json:"copied_pages"`
	Bytes       pagemap.Bytes `json:"copied_bytes"`
	Change      Change        `json:"change"`
}

// Reason is a number of pages for which one cause stands.
type Reason struct {
	Code  string `json:"reason"`
	Pages int64  `json:"pages"`
	Text  string `json:"text"`
}

// Why a copied page is not explained by the trace.
const (
	UnexplainedNotTraced   = "not_traced"       // its process was not traced, or not from the first capture on
	UnexplainedOutside     = "outside_window"   // copied, by the trace, before the first capture or after the second
	UnexplainedRefilled    = "refilled"         // given up and filled anew: no copy
	UnexplainedFromSwap    = "from_swap"        // came back from swap as a page of its own
	UnexplainedHugeTLB     = "hugetlb"          // a hugetlb page, where the trace cannot tell a copy from a reuse
	UnexplainedOtherwise   = "traced_otherwise" // the trace saw a write to the page, and no copy
	UnexplainedWrongSide   = "wrong_side"       // the trace saw the other side copy it
	UnexplainedCollapsed   = "collapsed"        // now part of a larger folio: khugepaged or MADV_COLLAPSE copied it
	UnexplainedWithoutAddr = "without_fault"    // as many copies without a fault were seen in its process (mlock, MADV_POPULATE_WRITE, O_DIRECT, …)
	UnexplainedLost        = "lost"             // as many copies were counted whose records were lost
	UnexplainedUnknown     = "unknown"          // a write by a process that is not traced (ptrace, process_vm_writev), or what else
)

// Why a traced page is not a copied page.
const (
	NotCopiedOtherProcess = "other_process"     // of a process that the captures do not judge
	NotCopiedEnded        = "process_ended"     // the process, or its reference, was gone at the second capture
	NotCopiedNotShared    = "not_shared_before" // not shared with the reference at the first capture: with a sibling, perhaps
	NotCopiedGivenUp      = "given_up"          // given up by either side since
	NotCopiedReplaced     = "replaced"          // merged by KSM since, or the file's or the zero page now
	NotCopiedOtherSide    = "other_side"        // a copied page, and the other side's copy stands for it
	NotCopiedStillShared  = "still_shared"      // shared with the reference all the same: shared again by a fork, or the trace is wrong
	NotCopiedMoved        = "moved"             // in a mapping that was moved
	NotCopiedOutsideRange = "outside_range"     // outside of the range of addresses that was asked for
	NotCopiedNoAddr       = "without_fault"     // without a fault, so which page it was is not known
	NotCopiedUnknown      = "unknown"           // the captures could not tell what became of the page
)

var reasonTexts = map[string]string{
	UnexplainedNotTraced:   "the process was not traced from the first capture on",
	UnexplainedOutside:     "copied before the first capture or after the second, by the trace",
	UnexplainedRefilled:    "given up and filled anew: no copy",
	UnexplainedFromSwap:    "came back from swap as a page of its own",
	UnexplainedHugeTLB:     "a hugetlb page: the trace cannot tell a copy from a reuse",
	UnexplainedOtherwise:   "the trace saw a write to the page, and no copy",
	UnexplainedWrongSide:   "the trace saw the other side copy it",
	UnexplainedCollapsed:   "now part of a huge page: khugepaged or MADV_COLLAPSE copied it",
	UnexplainedWithoutAddr: "copied without a fault (mlock, MADV_POPULATE_WRITE, O_DIRECT, …): matched by number",
	UnexplainedLost:        "as many records of copies were lost",
	NotCopiedOtherProcess:  "of a process that the captures do not judge",
	NotCopiedEnded:         "the process or its reference had ended",
	NotCopiedNotShared:     "not shared with the reference before",
	NotCopiedGivenUp:       "given up since, by one side",
	NotCopiedReplaced:      "merged by KSM, or the file's or the zero page since",
	NotCopiedOtherSide:     "both sides copied it: the other copy stands",
	NotCopiedStillShared:   "still shared with the reference",
	NotCopiedMoved:         "in a mapping that was moved",
	NotCopiedOutsideRange:  "outside of the range asked for",
}

// reasonText puts a reason into words; some codes mean another thing on either list.
func reasonText(code string, explained bool) string {
	switch {
	case code == NotCopiedNoAddr && explained:
		return "copied without a fault: which page it was is not known"
	case code == NotCopiedUnknown && explained:
		return "the captures could not tell what became of the page"
	case code == UnexplainedUnknown:
		return "unknown: a write by a process that is not traced, perhaps"
	}
	return reasonTexts[code]
}

// Counts are three counts of one thing: the pages that a process copied between two captures. They do not count quite the
// same, so Residue names what lies between them, exactly:
//
//	PageTables + the rows "traced"  = Traced
//	Traced     + the rows "kernel"  = KernelWPCopy
type Counts struct {
	PageTables int64 `json:"page_tables"` // copied pages, by the page tables
	Traced     int64 `json:"traced"`      // copies that the fault trace saw in the process, in pages
	// KernelWPCopy is how far the kernel's own wpcopy_count of the process (taskstats, 5.19) rose; nil where it cannot be
	// told, and KernelWhy says why.
	KernelWPCopy *int64 `json:"kernel_wpcopy"`
	KernelWhy    string `json:"kernel_wpcopy_why,omitempty"`
	// AgreementPercent is how many of the copied pages the trace explains, by address; nil where none was copied.
	AgreementPercent *float64  `json:"agreement_percent"`
	Residue          []Residue `json:"residue"`

	// Differs are faults of the process that the kernel counts differently: the rows "kernel" come from them.
	Differs Differs `json:"counted_differently"`
}

// Differs are faults that wpcopy_count and the trace count by another name, or in another unit.
type Differs struct {
	Zero    int64 `json:"zero_page"`    // first writes on the zero page: the kernel counts a copy
	File    int64 `json:"private_file"` // first writes to pages of a file that were mapped already: the kernel counts a copy
	HugeTLB int64 `json:"hugetlb"`      // writes to hugetlb pages: copies, perhaps
	Folios  int64 `json:"large_folios"` // pages of larger folios, beyond the one copy that the kernel counts for each
}

// Residue is a difference between two counts for one reason.
type Residue struct {
	Of    string `json:"of"` // "traced": between page tables and trace; "kernel": between trace and wpcopy_count
	Code  string `json:"reason"`
	Pages int64  `json:"pages"` // signed: what the reason adds
	Text  string `json:"text"`
}
