package pagemap

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The PAGEMAP_SCAN ioctl (6.7; include/uapi/linux/fs.h, fs/proc/task_mmu.c do_pagemap_scan). It walks page tables and
// skips what is empty without a word of output, so it finds the next populated page of a terabyte reservation in
// microseconds. It gives no frame numbers and needs what opening pagemap needs.
const (
	pagemapScan = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)

	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4 // any entry that is neither empty nor present, markers too
)

type pmScanArg struct {
	size, flags, start, end, walkEnd, vec, vecLen, maxPages       uint64
	categoryInverted, categoryMask, categoryAnyofMask, returnMask uint64
}

type pageRegion struct{ start, end, categories uint64 }

// nextPopulated gives the address of the first page in [start, end) that the page tables have anything for. found is
// false when there is none. The error wraps ErrNotSupported before 6.7.
func nextPopulated(fd int, start, end Addr) (at Addr, found bool, err error) {
	var region pageRegion
	arg := pmScanArg{
		size: uint64(unsafe.Sizeof(pmScanArg{})), start: uint64(start), end: uint64(end),
		vec: uint64(uintptr(unsafe.Pointer(&region))), vecLen: 1, maxPages: 1,
		categoryAnyofMask: pageIsPresent | pageIsSwapped, returnMask: pageIsPresent | pageIsSwapped,
	}
	for {
		n, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), pagemapScan, uintptr(unsafe.Pointer(&arg)))
		switch errno {
		case 0:
			return Addr(region.start), n > 0, nil
		case syscall.EINTR, syscall.EAGAIN:
			continue
		case syscall.ENOTTY, syscall.EINVAL:
			return 0, false, errors.Join(ErrNotSupported, errno)
		case syscall.ESRCH:
			return 0, false, ErrGone
		}
		return 0, false, errno
	}
}

// scanSupported tries the ioctl on one page of the address space behind fd.
func scanSupported(fd int, at Addr, page Bytes) bool {
	_, _, err := nextPopulated(fd, at, at+Addr(page))
	return err == nil
}

// zeroFrame finds the frame of the kernel's zero page by reading a fresh page of our own (mm/memory.c,
// do_anonymous_page). 0 where frame numbers are hidden.
func zeroFrame(fs FS, page Bytes) (PFN, error) {
	mem, err := unix.Mmap(-1, 0, int(page), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(mem)
	_ = *(*byte)(unsafe.Pointer(&mem[0])) + zeroSink
	fd, err := openRead(fs.Path("self", "pagemap"))
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	zeroSink = mem[0]
	var e [1]Entry
	if _, err := preadWords(fd, e[:], uint64(uintptr(unsafe.Pointer(&mem[0])))/uint64(page)); err != nil {
		return 0, err
	}
	pfn, _ := e[0].Frame()
	return pfn, nil
}

// zeroSink keeps the compiler from dropping the read that maps the zero page.
var zeroSink byte
