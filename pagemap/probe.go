package pagemap

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// ScanSupported reports whether this kernel has the PAGEMAP_SCAN ioctl (6.7), by trying it on a page of this process. An
// error says that it could not be told.
func ScanSupported() (bool, error) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return false, err
	}
	defer f.Close()
	size := os.Getpagesize()
	page, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		return false, fmt.Errorf("map a page: %w", err)
	}
	page[0] = 1
	start := Addr(uintptr(unsafe.Pointer(&page[0])))
	at, found, err := nextPopulated(int(f.Fd()), start, start+Addr(size))
	if e := syscall.Munmap(page); e != nil {
		return false, fmt.Errorf("unmap a page: %w", e)
	}
	switch {
	case errors.Is(err, ErrNotSupported):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("scan a page of this process: %w", err)
	case !found || at != start:
		return false, errors.New("scan a page of this process: a page just written is not found")
	}
	return true, nil
}
