package audit

import "cowaudit/pagemap"

// side is one process' half of a page: what its page table, the flags and its mapping say.
type side struct {
	e     pagemap.Entry
	flags pagemap.KFlags // FlagsUnread where they were not needed
	count int32          // kpagecount, CountUnread where it was not needed
}

// classifier decides the word of one page. It holds what is the same for a whole family.
type classifier struct {
	zero    []pagemap.PFN // one, or few where the zero page has colours
	visible bool          // frame numbers can be seen
}

// isZero reports the small zero page; the huge one carries the file bit and is told by its mapping.
func (c *classifier) isZero(e pagemap.Entry) bool {
	pfn, ok := e.Frame()
	for _, z := range c.zero {
		if ok && pfn == z {
			return true
		}
	}
	return false
}

// anon reports a page that fork shares: present and anonymous, or in swap.
func (c *classifier) anon(e pagemap.Entry) bool {
	if e.Present() {
		return !e.File() && !c.isZero(e)
	}
	return e.InSwap()
}

func isKSM(s side) bool { return s.flags.Known() && s.flags&pagemap.KFlagKSM != 0 }

// exclusive reports that the kernel counts one mapping of a present page in the whole system.
func (s side) exclusive() bool {
	if s.count != pagemap.CountUnread {
		return s.count == 1
	}
	return s.e.Exclusive()
}

// wrote is what PG_anon_exclusive says of a present anonymous page: since the last fork of this process it wrote to it
// (or was alone to begin with). A frame mapped more than once is never anon-exclusive. ok is false where it cannot be
// told: the flags could not be read, or the page is part of a larger folio.
func (s side) wrote() (yes, ok bool) {
	if !s.exclusive() {
		return false, true
	}
	return s.flags.AnonExclusive()
}

// large reports a page of a folio of more than one page.
func (s side) large() bool {
	return s.flags.Known() && s.flags.Compound() && s.flags&pagemap.KFlagHuge == 0
}

// inCache reports a present page that is still in the swap cache and was not written since it came back: a process whose
// entry is the swap slot has the same memory (mm/memory.c, do_swap_page: a page with one owner comes back anon-exclusive).
func (s side) inCache() (yes, ok bool) {
	if !s.flags.Known() || s.flags&pagemap.KFlagNoPage != 0 {
		return false, false
	}
	if s.flags&pagemap.KFlagSwapCache == 0 {
		return false, true
	}
	wrote, ok := s.wrote()
	return ok && !wrote, ok
}

// anonWord judges an anonymous page e of a private mapping against the reference's page r at the same address.
// siblingHas reports whether another process that has the same reference holds the frame at this address; otherSlot whether
// a page in the swap cache may belong to another slot than the one given, since a third process has such a slot or shares
// the page.
func (c *classifier) anonWord(e, r side, hasChildren bool, siblingHas func() bool, otherSlot func(slot, cached pagemap.Entry) bool) counter {
	switch {
	case isKSM(e):
		return cMerged
	case e.e.SamePage(r.e):
		return cShared
	case e.e.InSwap() && r.e.InSwap():
		return cSwapped
	case e.e.InSwap() && c.anon(r.e):
		return pick(r.inCache, func() bool { return otherSlot(e.e, r.e) }, cShared, cSwapped)
	case e.e.InSwap():
		return cSwapped
	case r.e.InSwap():
		return pick(e.inCache, func() bool { return otherSlot(r.e, e.e) }, cShared, cCopied)
	case c.anon(r.e):
		return cCopied
	}
	// The reference holds no anonymous page here. A page that nobody wrote since it was shared is inherited; only a
	// process that forked itself may have shared a page of its own.
	wrote, ok := e.wrote()
	switch {
	case ok && wrote:
		return cNew
	case !e.exclusive() && siblingHas():
		return cKept
	case !ok || hasChildren || !e.exclusive():
		return cNew
	}
	return cKept
}

// no is for pages of which nothing but two processes is looked at.
func no() bool { return false }

// noOther is for pages of which only two processes are looked at.
func noOther(_, _ pagemap.Entry) bool { return false }

func pick(inCache func() (yes, ok bool), doubt func() bool, yes, no counter) counter {
	switch y, ok := inCache(); {
	case !ok, y && doubt():
		return cUnknown
	case y:
		return yes
	}
	return no
}

// copiedBy says which side of a copied page made the copy, from one capture alone: the page that a process wrote since
// its fork is anon-exclusive (or was made so by reuse, when no sharer was left), the original left behind is not. A fork
// takes the flag off all pages of the process that forks, so of a process that forked itself it says nothing when it is
// clear.
//
//   - a sibling that was forked before the worker shares the reference's page: the worker copied, whatever the flags.
//   - a sibling has the worker's page: it is the original, so the reference made the copy.
//   - the worker's is not exclusive, and it never forked: the worker never wrote it, so the reference did.
//   - the worker's is, the reference's is not: the worker wrote; the reference did not write since its own last fork.
//   - both are: both wrote, and who came first is not to be seen.
//   - one is part of a larger folio and the other is not: a write's copy is a single page (mm/memory.c, wp_page_copy, since
//     5.8), so a single page that was written is the copy. Where it was not, the larger folio may be a collapse
//     (mm/khugepaged.c), which copies too.
//
// forked says that the worker forked; siblingHas that a process forked from the same reference has the worker's frame at
// this address; olderShares that one forked before the worker has the reference's.
func copiedBy(e, r side, forked bool, siblingHas, olderShares func() bool) counter {
	if olderShares() {
		return cByWorker
	}
	ew, eok := e.wrote()
	if r.e.InSwap() {
		if eok && ew {
			return cByWorker
		}
		return cByUndetermined
	}
	rw, rok := r.wrote()
	switch {
	case e.large() != r.large() && e.flags.Known() && r.flags.Known():
		switch {
		case e.large() && rok && rw:
			return cByReference
		case r.large() && eok && ew:
			return cByWorker
		}
		return cByUndetermined
	case !e.exclusive() && siblingHas():
		return cByReference
	case eok && !ew && !forked:
		return cByReference
	case eok && ew && rok && !rw:
		return cByWorker
	}
	return cByUndetermined
}
