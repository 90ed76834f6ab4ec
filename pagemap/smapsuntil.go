package pagemap

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// smapsUntil reads /proc/PID/smaps as far as the mapping that holds address last. The kernel walks the page tables of a
// mapping when its lines are read, so what lies behind costs nothing.
func (f FS) smapsUntil(pid PID, last Addr) ([]SmapsEntry, error) {
	h, err := os.Open(f.file(pid, "smaps"))
	if err != nil {
		return nil, readError(pid, "smaps", err)
	}
	defer h.Close()
	// The kernel fills what is asked for with as many mappings as fit in (fs/seq_file.c, seq_read_iter); a mapping takes
	// some 800 bytes, so small reads keep it from walking the next one.
	r := bufio.NewReaderSize(h, 512)
	if last == ^Addr(0) {
		r = bufio.NewReaderSize(h, 1<<16)
	}
	var text []byte
	for head := true; ; {
		line, err := r.ReadSlice('\n')
		if start, ok := mappingStart(line); head && ok && start > last {
			break
		}
		head = err == nil // a line longer than the buffer comes in pieces
		text = append(text, line...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, readError(pid, "smaps", err)
		}
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("read smaps of %d: %w", pid, ErrNoMM)
	}
	list, err := parseSmaps(text)
	if err != nil {
		return nil, fmt.Errorf("read smaps of %d: %w", pid, err)
	}
	return list, nil
}

// mappingStart gives the address with which a line begins that begins a mapping: "7f10a0000000-7f10a0021000 rw-p".
func mappingStart(line []byte) (Addr, bool) {
	i := bytes.IndexByte(line, '-')
	if i <= 0 || i > 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(line[:i]), 16, 64)
	return Addr(n), err == nil
}
