package taskstats

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memInfo reads SO_MEMINFO (Linux 4.12), an array of 32-bit words, for which x/sys has no function.
func memInfo(fd int, info []uint32) error {
	size := uint32(len(info) * 4)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	if int(size) < len(info)*4 {
		return fmt.Errorf("SO_MEMINFO has %d bytes", size)
	}
	return nil
}
