package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// page is a page of this process for the probes to look at: anonymous, private, of base size.
type page struct{ b []byte }

// newPage gives a page that was written, and so is present.
func newPage() (*page, error) {
	p, err := mapPage()
	if err == nil {
		p.b[0] = 1
	}
	return p, err
}

// mapPage gives a page that was never touched.
func mapPage() (*page, error) {
	b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map a page: %w", err)
	}
	// EINVAL: a kernel without huge pages, where nothing has to be said.
	if err := unix.Madvise(b, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(fmt.Errorf("set a page apart from huge pages: %w", err), unix.Munmap(b))
	}
	return &page{b}, nil
}

func (p *page) unmap() {
	// It cannot fail: the mapping is our own and whole.
	_ = unix.Munmap(p.b)
}

func (p *page) address() uintptr { return uintptr(unsafe.Pointer(&p.b[0])) }

// entry reads the page's entry in /proc/self/pagemap.
func (p *page) entry() (pagemap.Entry, error) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	w, err := readWord(f, int64(p.address())/int64(len(p.b)))
	return pagemap.Entry(w), err
}

// readWord reads the i-th word of a file of 8-byte words.
func readWord(f *os.File, i int64) (uint64, error) {
	var b [8]byte
	if _, err := f.ReadAt(b[:], i*8); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

// ptr is a string's address for a system call.
func ptr(b *byte) unsafe.Pointer { return unsafe.Pointer(b) }
