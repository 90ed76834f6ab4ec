package pagemap

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
)

// Maps reads /proc/PID/maps (fs/proc/task_mmu.c, show_map_vma), which needs PTRACE_MODE_READ. The result ascends and
// does not overlap.
//
// The kernel gives about one page of lines in each read, however large the buffer, and holds the address space still
// only so long: the list is consistent within such a chunk and not across chunks. Where a mapping grew over one that an
// earlier chunk had, Maps reads again, and in the end lets the later line win, which is the newer. A mapping that was
// there all the time is always in the list.
//
// Zombies and kernel threads have an empty file: [ErrNoMM]. A process that ends in the middle ends the file early and
// without an error; this is noticed and is [ErrGone].
func (f FS) Maps(pid PID) ([]Mapping, error) {
	h, err := os.Open(f.file(pid, "maps"))
	if err != nil {
		return nil, readError(pid, "maps", err)
	}
	defer h.Close()
	return readMaps(pid, h)
}

type mapsFile interface {
	io.Reader
	io.ReaderAt
	io.Seeker
}

func readMaps(pid PID, h mapsFile) ([]Mapping, error) {
	bp := mapsBuffers.Get().(*[]byte)
	defer mapsBuffers.Put(bp)
	var list []Mapping
	var err error
	for try := 0; try < 4; try++ {
		if try > 0 {
			if _, err := h.Seek(0, io.SeekStart); err != nil {
				return nil, readError(pid, "maps", err)
			}
		}
		if *bp, err = readTo(h, (*bp)[:0], -1); err != nil {
			return nil, readError(pid, "maps", err)
		}
		if len(*bp) == 0 {
			return nil, fmt.Errorf("read maps of %d: %w", pid, ErrNoMM)
		}
		if list, err = parseMaps(*bp); err != nil {
			return nil, fmt.Errorf("read maps of %d: %w", pid, err)
		}
		// The file follows the address space it was opened for. While that lives, offset 0 has a line; once it is gone it
		// stays gone, so a line now says that the reading above was not cut short.
		var probe [1]byte
		if n, _ := h.ReadAt(probe[:], 0); n == 0 {
			return nil, fmt.Errorf("read maps of %d: %w while it was read", pid, ErrGone)
		}
		if ascending(list) {
			return list, nil
		}
	}
	return laterWins(list), nil
}

var mapsBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

func ascending(list []Mapping) bool {
	for i := 1; i < len(list); i++ {
		if list[i].Start < list[i-1].End {
			return false
		}
	}
	return true
}

// laterWins makes a list ascending by cutting from each mapping what a later line claims.
func laterWins(list []Mapping) []Mapping {
	out := list[:0]
	for _, m := range list {
		for len(out) > 0 && out[len(out)-1].Start >= m.Start {
			out = out[:len(out)-1]
		}
		if n := len(out); n > 0 && out[n-1].End > m.Start {
			out[n-1].End = m.Start
		}
		out = append(out, m)
	}
	return out
}

// ParseMaps parses the lines of a maps file in the order they come. Empty input gives an empty list. A line that is not
// complete, or not a line of maps, is an error that wraps [ErrFormat] and names the line.
func ParseMaps(r io.Reader) ([]Mapping, error) {
	b, err := readTo(r, nil, -1)
	if err != nil {
		return nil, fmt.Errorf("read maps: %w", err)
	}
	list, err := parseMaps(b)
	if err != nil {
		return nil, fmt.Errorf("parse maps: %w", err)
	}
	return list, nil
}

func parseMaps(b []byte) ([]Mapping, error) {
	list := make([]Mapping, bytes.Count(b, []byte{'\n'}))
	in := interner{}
	for i := 0; len(b) > 0; i++ {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			return nil, fmt.Errorf("%w: line %d has no end: %.80q", ErrFormat, i+1, b)
		}
		if !parseMapping(&list[i], b[:end], &in) {
			return nil, fmt.Errorf("%w: line %d: %.80q", ErrFormat, i+1, b[:end])
		}
		b = b[end+1:]
	}
	return list, nil
}

// interner gives one string for equal bytes.
type interner struct {
	last string
	all  map[string]string
}

func (in *interner) get(b []byte) string {
	if string(b) == in.last {
		return in.last
	}
	s, ok := in.all[string(b)]
	if !ok {
		if in.all == nil {
			in.all = map[string]string{}
		}
		s = string(b)
		in.all[s] = s
	}
	in.last = s
	return s
}

// parseMapping parses one line without its end (fs/proc/task_mmu.c, show_vma_header_prefix):
//
//	START-END PERMS OFFSET MAJOR:MINOR INODE [blanks PATH]
//
// all in hex but the inode. The path is what is left after the blanks: the kernel puts no blank in front of a name (it
// begins with / or [ or, for an anonymous inode, with a word), escapes the newline and nothing else, and cuts nothing.
func parseMapping(m *Mapping, b []byte, in *interner) bool {
	var v uint64
	var ok bool
	if v, b, ok = hex(b, '-'); !ok {
		return false
	}
	m.Start = Addr(v)
	if v, b, ok = hex(b, ' '); !ok || Addr(v) <= m.Start {
		return false
	}
	m.End = Addr(v)
	if len(b) < 5 || b[4] != ' ' {
		return false
	}
	if m.Perms = perms(b[:4]); m.Perms == "" {
		return false
	}
	if m.Offset, b, ok = hex(b[5:], ' '); !ok {
		return false
	}
	if v, b, ok = hex(b, ':'); !ok || v > 1<<32-1 {
		return false
	}
	m.Major = uint32(v)
	if v, b, ok = hex(b, ' '); !ok || v > 1<<32-1 {
		return false
	}
	m.Minor = uint32(v)
	n := 0
	for n < len(b) && b[n] != ' ' {
		n++
	}
	if m.Inode, ok = decimal(b[:n]); !ok {
		return false
	}
	b = bytes.TrimLeft(b[n:], " ")
	if len(b) > 0 {
		m.Path = in.get(b)
	}
	return true
}

// hex parses the hex digits up to the byte end, and gives what follows that.
func hex(b []byte, end byte) (v uint64, rest []byte, ok bool) {
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c == end && i > 0:
			return v, b[i+1:], true
		default:
			return 0, nil, false
		}
		if v>>60 != 0 {
			return 0, nil, false
		}
		v = v<<4 | uint64(c)
	}
	return 0, nil, false
}

// decimal parses all of b.
func decimal(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		d := uint64(c - '0')
		if c < '0' || c > '9' || v > (1<<64-1-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, len(b) > 0
}

// permNames holds the eight permissions of private mappings, then those of shared ones, by their bits.
var permNames = [16]string{
	"---p", "--xp", "-w-p", "-wxp", "r--p", "r-xp", "rw-p", "rwxp",
	"---s", "--xs", "-w-s", "-wxs", "r--s", "r-xs", "rw-s", "rwxs",
}

func perms(b []byte) string {
	i := 0
	for n, c := range []byte("rwx") {
		switch b[n] {
		case c:
			i |= 4 >> n
		case '-':
		default:
			return ""
		}
	}
	switch b[3] {
	case 's':
		i |= 8
	case 'p':
	default:
		return ""
	}
	return permNames[i]
}
