package pagemap

import "testing"

func TestEntry(t *testing.T) {
	const f = Entry(0x1234)
	slot := func(typ, off uint64) Entry { return entrySwap | Entry(typ) | Entry(off)<<5 }
	for _, c := range []struct {
		name                                                              string
		e                                                                 Entry
		held, present, inSwap, marker, guard, transient, hidden, hasFrame bool
	}{
		{name: "nothing", e: 0},
		{name: "soft-dirty bit of an empty entry", e: entrySoftDirty},
		{name: "anonymous page", e: entryPresent | f, held: true, present: true, hasFrame: true},
		{name: "file page, mapped once", e: entryPresent | entryFile | entryExclusive | f, held: true, present: true, hasFrame: true},
		{name: "frame hidden", e: entryPresent | entryExclusive, held: true, present: true, hidden: true},
		{name: "swap slot", e: slot(0, 7), held: true, inSwap: true},
		{name: "swap slot of the 23rd device", e: slot(22, 7), held: true, inSwap: true},
		{name: "swap slot hidden", e: entrySwap, held: true, inSwap: true},
		{name: "under migration", e: slot(29, 0x55), held: true, transient: true},
		// As read on 6.18 (fs/proc/task_mmu.c, PTE marker 31 with the guard bit).
		{name: "guard", e: 0x440000000000009f, marker: true, guard: true},
		{name: "guard, 6.13: no bit of its own", e: 0x400000000000009f, marker: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, hasFrame := c.e.Frame()
			got := []bool{c.e.Held(), c.e.Present(), c.e.InSwap(), c.e.Marker(), c.e.Guard(), c.e.Transient(), c.e.Hidden(), hasFrame}
			want := []bool{c.held, c.present, c.inSwap, c.marker, c.guard, c.transient, c.hidden, c.hasFrame}
			for i, name := range []string{"held", "present", "in swap", "marker", "guard", "transient", "hidden", "frame"} {
				if got[i] != want[i] {
					t.Errorf("%s: %v, want %v", name, got[i], want[i])
				}
			}
			if n := b2i(c.e.Present()) + b2i(c.e.InSwap()) + b2i(c.e.Transient()); c.e.Held() != (n == 1) {
				t.Errorf("held is %v, and %d of present, in swap, transient", c.e.Held(), n)
			}
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestSamePage(t *testing.T) {
	page := entryPresent | 77
	for _, c := range []struct {
		name string
		a, b Entry
		want bool
	}{
		{"same frame", page, page, true},
		{"same frame, other soft-dirty, exclusive and uffd bits", page | entrySoftDirty, page | entryExclusive | entryUffdWP, true},
		{"other frame", page, entryPresent | 78, false},
		{"hidden frames", entryPresent, entryPresent, false},
		{"nothing on both sides", 0, 0, false},
		{"same slot", entrySwap | 32, entrySwap | 32, true},
		{"other slot", entrySwap | 32, entrySwap | 64, false},
		{"a slot and the frame of the same number", entrySwap | 77, page, false},
		{"guard markers", 0x440000000000009f, 0x440000000000009f, false},
	} {
		if got := c.a.SamePage(c.b); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if c.a.SamePage(c.b) != c.b.SamePage(c.a) {
			t.Errorf("%s: not symmetric", c.name)
		}
	}
}

func TestKFlagsAnonExclusive(t *testing.T) {
	for _, c := range []struct {
		name    string
		f       KFlags
		yes, ok bool
	}{
		{"not read", FlagsUnread, false, false},
		{"no such frame", KFlagNoPage, false, false},
		{"the copy", KFlagAnon | KFlagAnonExclusive, true, true},
		{"the page left behind", KFlagAnon, false, true},
		{"part of a huge page: the flag is the head's", KFlagAnon | KFlagTHP | KFlagCompoundTail | KFlagAnonExclusive, false, false},
		{"hugetlb: the flag is the page's", KFlagAnon | KFlagHuge | KFlagCompoundHead | KFlagAnonExclusive, true, true},
	} {
		if yes, ok := c.f.AnonExclusive(); yes != c.yes || ok != c.ok {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, yes, ok, c.yes, c.ok)
		}
	}
}
