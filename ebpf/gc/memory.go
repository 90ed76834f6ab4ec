package gc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"cowaudit/pagemap"
)

// memory reads a process by absolute addresses.
type memory interface {
	// read fills buf, or fails.
	read(addr uint64, buf []byte) error
}

// word reads a little-endian word of 1, 2, 4 or 8 bytes.
func word(m memory, addr uint64, size int) (uint64, error) {
	var b [8]byte
	if err := m.read(addr, b[:size]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// text reads a string that ends with NUL, of at most limit bytes.
func text(m memory, addr uint64, limit int) (string, error) {
	var out []byte
	for range limit {
		c, err := word(m, addr+uint64(len(out)), 1)
		if err != nil {
			return "", err
		}
		if c == 0 {
			return string(out), nil
		}
		out = append(out, byte(c))
	}
	return "", fmt.Errorf("%w: a string longer than %d bytes", pagemap.ErrFormat, limit)
}

// processMemory is /proc/PID/mem (fs/proc/base.c, mem_rw), which needs PTRACE_MODE_ATTACH. The descriptor keeps to the
// address space that it was opened on. Pages are read without pinning, so that reading copies none (docs/decisions.md,
// /proc/PID/mem, not process_vm_readv).
type processMemory struct {
	pid  pagemap.PID
	file *os.File
}

func openMemory(fs pagemap.FS, pid pagemap.PID) (*processMemory, error) {
	f, err := os.Open(fs.Path(strconv.Itoa(int(pid)), "mem"))
	if err != nil {
		return nil, gone(fmt.Errorf("read mem of %d: %w", pid, err))
	}
	return &processMemory{pid: pid, file: f}, nil
}

func (m *processMemory) Close() error { return m.file.Close() }

func (m *processMemory) read(addr uint64, buf []byte) error {
	if addr > 1<<63-1-uint64(len(buf)) {
		return fmt.Errorf("read mem of %d at %#x: %w", m.pid, addr, syscall.EIO)
	}
	n, err := m.file.ReadAt(buf, int64(addr))
	if n == len(buf) {
		return nil
	}
	if n == 0 && errors.Is(err, io.EOF) { // mem_rw gives 0 once the address space is gone
		return fmt.Errorf("read mem of %d: %w", m.pid, pagemap.ErrGone)
	}
	return fmt.Errorf("read mem of %d at %#x: %w", m.pid, addr, err)
}

// gone makes the errors of a process that is no more an ErrGone.
func gone(err error) error {
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("%w: %w", pagemap.ErrGone, err)
	}
	return err
}
