package symbols

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"

	"cowaudit/pagemap"

	"golang.org/x/sys/unix"
)

// Limits on a map file: about ten times what a large application's JIT compiler writes.
const (
	maxPerfMap     = 256 << 20 // bytes
	maxPerfEntries = 4 << 20
)

// perfMap is a /tmp/perf-PID.map (tools/perf/Documentation/jit-interface.txt): lines "START SIZE NAME" in hexadecimal, added
// as code is compiled. Of entries that overlap, the later is the one that is true now.
type perfMap struct {
	r     *Resolver
	path  string
	file  *os.File
	limit int64 // read no further: what a forked process' parent compiled after the fork is not in the child

	mu      sync.Mutex
	done    int64 // bytes read, up to the end of a line
	entries []perfEntry
	spans   spans
}

type perfEntry struct {
	start, end uint64
	name       string
}

// perfID tells the map files in use apart; a file that grows is another for each limit.
type perfID struct {
	fileID
	limit int64
}

// noLimit is the limit of a process' own file.
const noLimit = maxPerfMap

// perfMap opens the map file of a process, by its number in its own pid namespace, in its own root. It must belong to the
// user of the process or to root: /tmp is everybody's. nil, nil: there is none. With now, what is added to the file from now
// on is left out.
func (r *Resolver) perfMap(pid pagemap.PID, now bool) (*perfMap, error) {
	st, err := r.options.FS.Status(pid)
	if err != nil {
		return nil, err
	}
	inner := pid
	if n := len(st.NSPID); n > 0 {
		inner = st.NSPID[n-1]
	}
	t, err := r.root(pid)
	if err != nil {
		return nil, err
	}
	path := fmt.Sprintf("/tmp/perf-%d.map", inner)
	f, info, err := r.openIn(t, path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Uid != 0 && !slices.Contains(st.UID[:], info.Uid) {
		_ = f.Close() // opened for reading
		return nil, fmt.Errorf("%s: it belongs to user %d, not to that of process %d", path, info.Uid, pid)
	}
	limit := int64(noLimit)
	if now {
		limit = min(limit, info.Size)
	}
	id := perfID{fileID{info.Dev, info.Ino}, limit}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.maps[id]; m != nil {
		return m, f.Close()
	}
	if !r.keepLocked(f) {
		return nil, ErrClosed
	}
	m := &perfMap{r: r, path: path, file: f, limit: limit}
	r.maps[id] = m
	return m, nil
}

// at names an address. The file is read on where it has grown since the last time.
func (m *perfMap) at(addr uint64) (perfEntry, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.update(); err != nil {
		m.r.problem(m.path, err)
	}
	i := m.spans.at(addr)
	if i < 0 {
		return perfEntry{}, false
	}
	return m.entries[i], true
}

func (m *perfMap) update() error {
	var st unix.Stat_t
	if err := fstat(m.file, &st); err != nil {
		return err // closed: what was read is still known
	}
	if st.Size < m.done { // written anew
		m.done, m.entries, m.spans = 0, nil, spans{}
	}
	size := min(st.Size, m.limit)
	if size <= m.done {
		return nil
	}
	b := make([]byte, size-m.done)
	n, err := m.file.ReadAt(b, m.done)
	if err != nil && err != io.EOF {
		return err
	}
	end := bytes.LastIndexByte(b[:n], '\n') + 1
	if end == 0 {
		return nil // a line that is not complete yet
	}
	m.done += int64(end)
	before := len(m.entries)
	m.entries = parsePerfMap(m.entries, b[:end], maxPerfEntries)
	if len(m.entries) > before {
		m.spans = flatten(len(m.entries), func(i int32) uint64 { return m.entries[i].start }, func(i int32) uint64 { return m.entries[i].end })
	}
	if st.Size > maxPerfMap && m.limit == noLimit || len(m.entries) == maxPerfEntries {
		return fmt.Errorf("%w: only the first %d bytes and %d entries of a map file are read", pagemap.ErrFormat, maxPerfMap, maxPerfEntries)
	}
	return nil
}

// fstat is unix.Fstat of a file that may have been closed.
func fstat(f *os.File, st *unix.Stat_t) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := c.Control(func(fd uintptr) { inner = unix.Fstat(int(fd), st) }); err != nil {
		return err
	}
	return inner
}

// parsePerfMap adds the entries in whole lines, up to a number of entries. Lines that are none are left out: other programs
// write into /tmp too, and a compiler may have been stopped in the middle of a line.
func parsePerfMap(list []perfEntry, b []byte, limit int) []perfEntry {
	for line := range bytes.Lines(b) {
		if len(list) >= limit {
			break
		}
		first, rest, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte{' '})
		second, name, ok := bytes.Cut(rest, []byte{' '})
		if !ok || len(name) == 0 {
			continue
		}
		start, err := hexadecimal(first)
		if err != nil {
			continue
		}
		size, err := hexadecimal(second)
		if err != nil || size == 0 || start+size < start {
			continue
		}
		list = append(list, perfEntry{start, start + size, clean(string(name))})
	}
	return list
}

func hexadecimal(b []byte) (uint64, error) {
	return strconv.ParseUint(string(bytes.TrimPrefix(b, []byte("0x"))), 16, 64)
}
