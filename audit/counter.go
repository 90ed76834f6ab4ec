package audit

// counter names one count of a cell. The words come first, in the order of Pages.
type counter int

const (
	cShared counter = iota
	cCopied
	cNew
	cKept
	cUnshared
	cFile
	cMerged
	cZero
	cSwapped
	cUnstable
	cUnknown
	cDropped // from here on: not words of held pages
	cNotForked
	cReferenceOnly
	cGuard
	cPrivate
	cSiblings
	cMoved
	cNewFromFile
	cInSwap
	cHugeTLB
	cByWorker
	cByReference
	cByBoth
	cByUndetermined
	cElsewhere // new or kept, and mapped by somebody who does not have it at this address
	cResident  // as the kernel counts RSS: present, neither the zero page nor hugetlb
	cIdentical
	cOneWord
	cFewWords
	cManyWords
	cRewritten
	cNotCompared
	nCounters
)

// cell is the ledger of one mapping of one process, or a sum of such.
type cell [nCounters]int64

func (c *cell) add(o *cell) {
	for i := range c {
		c[i] += o[i]
	}
}

func (c *cell) held() int64 {
	n := int64(0)
	for _, v := range c[:cDropped] {
		n += v
	}
	return n
}

func (c *cell) empty() bool { return *c == cell{} }

func (c *cell) pages() Pages {
	return Pages{
		Shared: c[cShared], Copied: c[cCopied], New: c[cNew], Kept: c[cKept], Unshared: c[cUnshared], File: c[cFile],
		Merged: c[cMerged], Zero: c[cZero], Swapped: c[cSwapped], Unstable: c[cUnstable], Unknown: c[cUnknown],
		Held: c.held(), Dropped: c[cDropped], NotForked: c[cNotForked], Private: c[cPrivate],
		SharedWithSiblings: c[cSiblings], Moved: c[cMoved], NewFromFile: c[cNewFromFile], InSwap: c[cInSwap],
		HugeTLB: c[cHugeTLB], Guard: c[cGuard], ReferenceOnly: c[cReferenceOnly], CopiedByWorker: c[cByWorker],
		CopiedByReference: c[cByReference], CopiedByBoth: c[cByBoth], CopiedByUndetermined: c[cByUndetermined],
	}
}

// change gives what the writes changed on the cell's copied pages.
func (c *cell) change() *Change {
	return &Change{
		Identical: c[cIdentical], OneWord: c[cOneWord], FewWords: c[cFewWords], ManyWords: c[cManyWords],
		Rewritten: c[cRewritten], NotCompared: c[cNotCompared],
	}
}

// changeOf gives the counter for a number of differing words; known is false where nothing was compared.
func changeOf(words int16, known bool) counter {
	switch {
	case !known || words < 0:
		return cNotCompared
	case words == 0:
		return cIdentical
	case words == 1:
		return cOneWord
	case words <= 8:
		return cFewWords
	case words <= 64:
		return cManyWords
	}
	return cRewritten
}
