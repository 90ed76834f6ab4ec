package child

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxRegions is the number of regions that a Memory can have.
const MaxRegions = 4

// Memory is the regions that the master and its workers act on: mapped outside of Go's heap, at the same addresses in all
// of them.
type Memory struct {
	Page    uintptr // bytes
	Regions [MaxRegions]unsafe.Pointer
}

// Order is one thing to be done: to pages First, First+Stride, … of a region. It goes over a pipe as it is.
type Order struct {
	Op     uint64
	Region uint64
	First  uint64
	Stride uint64
	Pages  uint64
	// Words is how many of the page's 8-byte words are written with the complement of what the master filled in; the rest
	// are written with what it filled in.
	Words uint64
}

// Operations of an order.
const (
	OpWrite uint64 = iota + 1 // write every word of each page
	OpRead                    // read one word of each page
	OpDrop                    // give each page up: MADV_DONTNEED
)

// Answer says how an order went.
type Answer struct {
	Errno uint64
	Sum   uint64 // of OpRead: the words read, added up
}

// Do carries an order out. The order's pages must exist.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func (m *Memory) Do(o *Order, a *Answer) {
	a.Errno, a.Sum = 0, 0
	for i := uint64(0); i < o.Pages && a.Errno == 0; i++ {
		n := o.First + i*o.Stride
		p := unsafe.Add(m.Regions[o.Region%MaxRegions], uintptr(n)*m.Page)
		switch o.Op {
		case OpWrite:
			for k := uint64(0); k < uint64(m.Page)/8; k++ {
				v := Content(o.Region, n, k)
				if k < o.Words {
					v = ^v
				}
				*(*uint64)(unsafe.Add(p, k*8)) = v
			}
		case OpRead:
			a.Sum += *(*uint64)(p)
		case OpDrop:
			a.Errno = uint64(-sys(unix.SYS_MADVISE, uintptr(p), m.Page, unix.MADV_DONTNEED))
		default:
			a.Errno = uint64(unix.EINVAL)
		}
	}
}

// Content is what the master fills word k of a page with: different in every word, so that no two pages are alike and
// nothing merges them (splitmix64).
//
//go:nosplit
//go:norace
func Content(region, page, k uint64) uint64 {
	z := (region<<56 ^ page<<16 ^ k) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
