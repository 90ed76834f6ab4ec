// Package audit draws conclusions from the facts of package pagemap. It is pure: no files, no clock, no printing.
//
// # Words
//
// Counts are of base pages. A process is judged against its reference: the process it was forked from, or the one named
// by the user. Of one page of a process:
//
//	shared    private mapping, anonymous page, the same frame as the reference at the same address, or the same swap
//	          slot; a frame that the reference has in its swap cache counts as its slot. Also (moved): the frame that the
//	          reference has at the address from which the process moved its mapping (mremap).
//	copied    private mapping; both hold an anonymous page, and not the same
//	new       the process holds an anonymous page where the reference holds none: allocated since the fork
//	kept      inherited and unwritten; the reference gave its page up since
//	unshared  of a process without a reference only: an anonymous page that no other member of the family has
//	file      a page of a file mapping or of shared memory: shared through the file, not by fork
//	merged    one frame for many by KSM: shared by content, not by fork
//	zero      the kernel's zero page, small or huge: costs nothing, saves nothing
//	swapped   in swap, and not in the same slot as the reference's
//	unstable  kept changing while it was read
//	unknown   cannot be told here
//
// These are disjoint and sum to the pages held. Not held, and counted beside them:
//
//	dropped         the reference holds a page, the process does not (any more)
//	reference_only  the same, and the reference wrote it since its own last fork while nobody shares it: its own since
//	not_forked      the reference holds a page that fork left out (MADV_DONTFORK) or emptied (MADV_WIPEONFORK)
//	guard           a guard region
//
// From one capture alone (basis single_capture) a page that was given up and filled anew at the same address looks like
// a copied one. [Diff] compares two captures (basis baseline).
//
// # Who copied
//
// With two captures: the side whose frame changed. From one capture: PG_anon_exclusive, see [copiedBy]; "undetermined" is
// a count of its own.
//
// # Across an event
//
// Copied across an event is what was shared with the reference before it and is copied after it. It is never "the frame
// number changed": migration changes frames, for both sides at once.
//
// # Explained
//
// Page tables show that a page was copied, the fault trace of package ebpf who copied it: two instruments that know nothing
// of each other. A copied page is explained when the trace has a copy of the page at that address, in the address space of the
// side that copied it, between the two captures ([Attribute]). Nothing is explained by number, by likelihood or by a
// neighbour: what does not fit on either side is listed with its reason. The kernel's own count of copies (wpcopy_count) is
// the third instrument; [Counts] leads from one to the next without a gap, and calls a gap unaccounted.
//
// # Laws
//
// [Check], [CheckDiff], [CheckForktest] and [CheckTrace] hold every result against its conservation laws before it leaves the package; a breach is an
// error, never a number.
package audit
