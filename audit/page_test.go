package audit

import (
	"testing"

	"cowaudit/pagemap"
)

const (
	present = pagemap.Entry(1) << 63
	swap    = pagemap.Entry(1) << 62
	file    = pagemap.Entry(1) << 61
	excl    = pagemap.Entry(1) << 56
	ae      = pagemap.KFlagAnon | pagemap.KFlagAnonExclusive
	plain   = pagemap.KFlagAnon
	unread  = pagemap.FlagsUnread
	thp     = pagemap.KFlagAnon | pagemap.KFlagTHP | pagemap.KFlagCompoundTail
)

func sd(e pagemap.Entry, f pagemap.KFlags) side {
	return side{e: e, flags: f, count: pagemap.CountUnread}
}

func TestAnonWord(t *testing.T) {
	c := &classifier{zero: []pagemap.PFN{9}, visible: true}
	for _, tc := range []struct {
		name     string
		e, r     side
		children bool
		sibling  bool
		want     counter
	}{
		{"same frame", sd(present|5, unread), sd(present|5, unread), false, false, cShared},
		{"same slot", sd(swap|64, unread), sd(swap|64, unread), false, false, cShared},
		{"other frame", sd(present|excl|5, ae), sd(present|excl|6, plain), false, false, cCopied},
		{"merged by KSM, same frame", sd(present|5, pagemap.KFlagKSM), sd(present|5, pagemap.KFlagKSM), false, false, cMerged},
		{"copied out of KSM", sd(present|excl|5, ae), sd(present|6, pagemap.KFlagKSM), false, false, cCopied},
		{"first written where the reference has nothing", sd(present|excl|5, ae), sd(0, unread), false, false, cNew},
		{"first written where the reference has the zero page", sd(present|excl|5, ae), sd(present|9, unread), false, false, cNew},
		{"first written where the reference has the file's page", sd(present|excl|5, ae), sd(present|file|6, unread), false, false, cNew},
		{"inherited, given up by the reference", sd(present|excl|5, plain), sd(0, unread), false, false, cKept},
		{"inherited, a sibling has it", sd(present|5, unread), sd(0, unread), true, true, cKept},
		{"own page shared with own children", sd(present|5, unread), sd(0, unread), true, false, cNew},
		{"own page of a process that forked, its child has copied it", sd(present|excl|5, plain), sd(0, unread), true, false, cNew},
		{"flags hidden", sd(present|excl|5, unread), sd(0, unread), false, false, cNew},
		{"other slots", sd(swap|64, unread), sd(swap|96, unread), false, false, cSwapped},
		{"in swap, nothing at the reference", sd(swap|64, unread), sd(0, unread), false, false, cSwapped},
		{"came back from the reference's slot, only read", sd(present|5, plain|pagemap.KFlagSwapCache), sd(swap|64, unread), false, false, cShared},
		{"came back and was written", sd(present|excl|5, ae), sd(swap|64, unread), false, false, cCopied},
		{"came back, flags hidden", sd(present|excl|5, unread), sd(swap|64, unread), false, false, cUnknown},
		{"in swap, the reference's came back, only read", sd(swap|64, unread), sd(present|5, plain|pagemap.KFlagSwapCache), false, false, cShared},
		{"in swap, the reference wrote", sd(swap|64, unread), sd(present|excl|5, ae), false, false, cSwapped},
	} {
		if got := c.anonWord(tc.e, tc.r, tc.children, func() bool { return tc.sibling }, noOther); got != tc.want {
			t.Errorf("%s: counter %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestCopiedBy(t *testing.T) {
	for _, tc := range []struct {
		name string
		e, r side
		want counter
	}{
		{"the worker wrote", sd(present|excl|5, ae), sd(present|excl|6, plain), cByWorker},
		{"the worker wrote, others still share the original", sd(present|excl|5, ae), sd(present|6, unread), cByWorker},
		{"the reference wrote", sd(present|excl|5, plain), sd(present|excl|6, ae), cByReference},
		{"the reference wrote, siblings still share the original", sd(present|5, unread), sd(present|excl|6, ae), cByReference},
		{"both wrote", sd(present|excl|5, ae), sd(present|excl|6, ae), cByUndetermined},
		{"flags hidden", sd(present|excl|5, unread), sd(present|excl|6, unread), cByUndetermined},
		{"original is part of a huge page, copy is not", sd(present|excl|5, ae), sd(present|excl|6, thp), cByWorker},
		{"worker holds the huge page", sd(present|excl|5, thp), sd(present|excl|6, ae), cByReference},
		{"both are parts of huge pages", sd(present|excl|5, thp), sd(present|excl|6, thp), cByUndetermined},
		{"the reference's is in swap", sd(present|excl|5, ae), sd(swap|64, unread), cByWorker},
	} {
		if got := copiedBy(tc.e, tc.r, false, no, no); got != tc.want {
			t.Errorf("%s: counter %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestCopiedByOlderSibling(t *testing.T) {
	yes := func() bool { return true }
	if got := copiedBy(sd(present|excl|5, unread), sd(present|6, unread), true, no, yes); got != cByWorker {
		t.Errorf("an older sibling shares the reference's page: counter %d, want the worker", got)
	}
}

func TestChangeOf(t *testing.T) {
	for _, tc := range []struct {
		words int16
		want  counter
	}{{0, cIdentical}, {1, cOneWord}, {2, cFewWords}, {8, cFewWords}, {9, cManyWords}, {64, cManyWords}, {65, cRewritten}, {512, cRewritten}, {-1, cNotCompared}} {
		if got := changeOf(tc.words, true); got != tc.want {
			t.Errorf("%d words: counter %d, want %d", tc.words, got, tc.want)
		}
	}
	if changeOf(0, false) != cNotCompared {
		t.Error("what was not compared must not count as identical")
	}
}
