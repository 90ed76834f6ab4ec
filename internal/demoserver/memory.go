package demoserver

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"cowaudit/internal/demoserver/child"
)

// newMemory maps the regions with an inaccessible page before and after each, so that the kernel joins none with its
// neighbour (mm/vma.c, vma_merge_new_range). Huge pages are declined: a page is to be a page.
func newMemory(shapes []shape) (*child.Memory, []uintptr, error) {
	m := &child.Memory{Page: uintptr(os.Getpagesize())}
	if len(shapes) > child.MaxRegions {
		return nil, nil, fmt.Errorf("map %d regions: at most %d", len(shapes), child.MaxRegions)
	}
	total := m.Page
	for _, s := range shapes {
		total += (uintptr(s.pages) + 1) * m.Page
	}
	base, err := unix.MmapPtr(-1, 0, nil, total, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil, fmt.Errorf("reserve %d bytes of addresses: %w", total, err)
	}
	starts := make([]uintptr, len(shapes))
	at := unsafe.Add(base, m.Page)
	for i, s := range shapes {
		size := uintptr(s.pages) * m.Page
		kind := unix.MAP_PRIVATE
		if s.shared {
			kind = unix.MAP_SHARED
		}
		p, err := unix.MmapPtr(-1, 0, at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_FIXED|unix.MAP_ANONYMOUS|kind)
		if err != nil {
			return nil, nil, fmt.Errorf("map region %s of %d bytes: %w", s.name, size, err)
		}
		for _, advice := range []int{unix.MADV_NOHUGEPAGE, unix.MADV_UNMERGEABLE} {
			err := unix.Madvise(unsafe.Slice((*byte)(p), size), advice)
			if err != nil && err != unix.EINVAL { // EINVAL: a kernel without huge pages, or without KSM
				return nil, nil, fmt.Errorf("madvise region %s: %w", s.name, err)
			}
		}
		m.Regions[i], starts[i] = p, uintptr(p)
		at = unsafe.Add(p, size+m.Page)
	}
	return m, starts, nil
}
