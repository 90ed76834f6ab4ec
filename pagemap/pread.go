package pagemap

import (
	"fmt"
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// preadWords reads 8-byte words at the word index first into dst, and returns how many words it got. It stops early at
// the end of the file only. A partial word is an error. The call is raw: a window takes some tens of microseconds, less
// than handing the processor to another goroutine and back.
func preadWords[T ~uint64](fd int, dst []T, first uint64) (int, error) {
	got := 0
	for got < len(dst) {
		p := unsafe.Pointer(&dst[got])
		n, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(fd), uintptr(p), uintptr(len(dst)-got)*8,
			uintptr((first+uint64(got))*8), 0, 0)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno != 0:
			return got, errno
		case n == 0:
			return got, nil
		case n%8 != 0:
			return got, fmt.Errorf("%d bytes: not whole words: %w", n, io.ErrUnexpectedEOF)
		}
		got += int(n / 8)
	}
	return got, nil
}

// openRead opens a file for preadWords.
func openRead(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
