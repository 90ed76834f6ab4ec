package pagemap

import "fmt"

// Addr is a virtual address in the address space of one process, in bytes.
type Addr uint64

// PFN is a page frame number: the index of a frame of physical memory, in units of the system's page size.
type PFN uint64

// PID is a process id as the /proc that is read shows it (the pid namespace of that mount).
type PID int

// Bytes is an amount of memory. It is signed so that it can carry differences.
type Bytes int64

// Entry is one raw 64-bit word of /proc/PID/pagemap, stored as read and interpreted when used
// (Documentation/admin-guide/mm/pagemap.rst; fs/proc/task_mmu.c, pte_to_pagemap_entry).
//
// The low 55 bits mean a frame number in a present page and a swap slot in a swapped one: ask [Entry.Frame] or
// [Entry.Slot], each of which says whether its reading applies. Both read as 0 without CAP_SYS_ADMIN in the initial
// user namespace (since 4.2).
type Entry uint64

// Bits of an Entry (fs/proc/task_mmu.c, PM_*).
const (
	entryFrameMask Entry = 1<<55 - 1
	entrySoftDirty Entry = 1 << 55 // 3.11
	entryExclusive Entry = 1 << 56 // 4.2
	entryUffdWP    Entry = 1 << 57 // 5.13
	entryGuard     Entry = 1 << 58 // 6.15
	entryFile      Entry = 1 << 61 // 3.5: page cache, shared memory or the huge zero page
	entrySwap      Entry = 1 << 62
	entryPresent   Entry = 1 << 63
)

// sameMask leaves out the bits that may differ between two readings of one page although it is the same page.
const sameMask = ^(entrySoftDirty | entryExclusive | entryUffdWP)

// Swap types from specialSwapType on are not swap devices but markers (include/linux/swap.h: MAX_SWAPFILES is
// 32 less those for device memory, migration, poison and PTE markers; 32-4-3-1-1 = 23 where all are configured).
// The PTE marker (5.19) is the topmost in every configuration.
const (
	specialSwapType = 23
	markerSwapType  = 31
)

// SwapSlot names a place in swap: the device's type in the low 5 bits and the offset above, as pagemap gives it.
type SwapSlot uint64

// Held reports whether the process holds a page here: present, or in a swap slot, or just being migrated.
func (e Entry) Held() bool {
	return e&entryPresent != 0 || (e&entrySwap != 0 && !e.Marker())
}

// Present reports whether a frame is mapped (bit 63).
func (e Entry) Present() bool { return e&entryPresent != 0 }

// File reports bit 61: the page belongs to the page cache or to shared memory (or is the huge zero page).
func (e Entry) File() bool { return e&entryFile != 0 }

// Exclusive reports bit 56: the kernel counts one mapping of this page in all the system. It needs no privilege. For a
// page inside a PMD-mapped huge page it speaks of the head page and is unreliable (fs/proc/task_mmu.c,
// pagemap_pmd_range_thp, since the 2025 rework).
func (e Entry) Exclusive() bool { return e&entryExclusive != 0 }

// Guard reports a guard region (MADV_GUARD_INSTALL, 6.13; bit 58 since 6.15), which carries the swap bit and is not swapped.
func (e Entry) Guard() bool { return e&entryGuard != 0 && e&entryPresent == 0 }

// Marker reports a page table entry that holds no page: a guard region, a userfaultfd or a poison marker.
func (e Entry) Marker() bool {
	return e&entryPresent == 0 && (e&entryGuard != 0 || (e&entrySwap != 0 && e&entryFrameMask != 0 && e.swapType() == markerSwapType))
}

// Transient reports an entry that is neither a page nor a swap slot for the moment, above all a page under migration. It
// settles by itself and must be read again.
func (e Entry) Transient() bool {
	if e&entryPresent != 0 || e&entrySwap == 0 || e&entryGuard != 0 {
		return false
	}
	t := e.swapType()
	return t >= specialSwapType && t < markerSwapType
}

// Frame gives the frame number of a present page. ok is false when no page is present and when the kernel hides the
// number (it then reads 0; frame 0 itself is never mapped by a process).
func (e Entry) Frame() (pfn PFN, ok bool) {
	f := e & entryFrameMask
	return PFN(f), e&entryPresent != 0 && f != 0
}

// Hidden reports a present page whose frame number the kernel does not show to the reader.
func (e Entry) Hidden() bool { return e&entryPresent != 0 && e&entryFrameMask == 0 }

// Slot gives the swap slot of a page that is in swap. ok is false for any other entry, for markers and for pages under
// migration, and where the kernel hides the slot (a slot of type 0 and offset 0 holds the swap header, never a page).
func (e Entry) Slot() (slot SwapSlot, ok bool) {
	if !e.InSwap() {
		return 0, false
	}
	return SwapSlot(e & entryFrameMask), e&entryFrameMask != 0
}

// InSwap reports a page that is in a swap slot.
func (e Entry) InSwap() bool {
	return e&entryPresent == 0 && e&entrySwap != 0 && e&entryGuard == 0 &&
		(e&entryFrameMask == 0 || e.swapType() < specialSwapType)
}

// SamePage reports whether two entries name the same frame or the same swap slot. Hidden numbers are never the same.
func (e Entry) SamePage(o Entry) bool {
	return (e^o)&sameMask == 0 && e&entryFrameMask != 0 && e.Held()
}

func (e Entry) swapType() uint64 { return uint64(e) & 31 }

func (e Entry) String() string {
	switch {
	case e.Hidden():
		return "present, frame hidden"
	case e.Present():
		f, _ := e.Frame()
		return fmt.Sprintf("frame %#x", uint64(f))
	case e.Marker():
		return "marker"
	case e.Transient():
		return "migrating"
	case e.InSwap():
		s, _ := e.Slot()
		return fmt.Sprintf("swap %d:%#x", uint64(s)&31, uint64(s)>>5)
	}
	return "none"
}
