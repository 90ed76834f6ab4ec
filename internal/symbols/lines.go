package symbols

import (
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"sync"

	"cowaudit/pagemap"
)

// Limits on foreign DWARF: what a large server has, several times.
const (
	maxDWARF = 1 << 30  // bytes of all sections that are read, unpacked
	maxRows  = 16 << 20 // of the line table of one compilation unit
)

// lines finds source lines by address. Units are found by their ranges; a unit's line table is read when an address in it is
// asked for.
type lines struct {
	mu    sync.Mutex
	data  *dwarf.Data
	units []unit
	spans spans
	rows  map[dwarf.Offset]*rows
}

// unit is one range of one compilation unit.
type unit struct {
	lo, hi uint64
	off    dwarf.Offset
}

// rows is the line table of a unit, by address: from addrs[i] on it is lines[i] of files[file[i]]; line 0: none.
type rows struct {
	addrs []uint64
	file  []int32
	line  []int32
	files []string
}

// line gives the source line of a link-time address, from the DWARF of the file or of its debug file.
func (m *module) line(addr uint64) (string, int) {
	m.lined.Do(func() {
		if m.open() != nil {
			return
		}
		f := m.elf
		if !hasDWARF(f) {
			if f, _ = m.debugFile(); f == nil || !hasDWARF(f) {
				return
			}
		}
		err := guard(func() (err error) { m.lines, err = readLines(f); return err })
		if err != nil {
			m.lines = nil
			m.r.problem(m.path, fmt.Errorf("DWARF: %w", err))
		}
	})
	if m.lines == nil {
		return "", 0
	}
	file, line, err := m.lines.at(addr)
	if err != nil {
		m.r.problem(m.path, fmt.Errorf("DWARF: %w", err))
	}
	return file, line
}

func hasDWARF(f *elf.File) bool {
	for _, name := range []string{".debug_line", ".zdebug_line"} {
		if s := f.Section(name); s != nil && s.Type != elf.SHT_NOBITS && s.Size > 0 {
			return true
		}
	}
	return false
}

// readLines reads the sections that line tables need, and no others: those of variables are larger than all of these.
func readLines(f *elf.File) (*lines, error) {
	need := []string{"abbrev", "info", "line", "line_str", "str", "str_offsets", "addr", "ranges", "rnglists"}
	data := map[string][]byte{}
	var total uint64
	for _, s := range f.Sections {
		name, ok := strings.CutPrefix(s.Name, ".debug_")
		if !ok {
			name, ok = strings.CutPrefix(s.Name, ".zdebug_")
		}
		if !ok || !slices.Contains(need, name) || s.Type == elf.SHT_NOBITS {
			continue
		}
		size := s.Size
		if strings.HasPrefix(s.Name, ".zdebug_") { // the size unpacked comes in front (GNU's format, until 2.26)
			var head [12]byte
			if n, _ := s.ReaderAt.ReadAt(head[:], 0); n == len(head) && string(head[:4]) == "ZLIB" {
				size = binary.BigEndian.Uint64(head[4:])
			}
		}
		if size > maxDWARF-total {
			return nil, fmt.Errorf("%w: more than %d bytes", pagemap.ErrFormat, int64(maxDWARF))
		}
		total += size
		b, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", s.Name, err)
		}
		data[name] = b
	}
	d, err := dwarf.New(data["abbrev"], nil, nil, data["info"], data["line"], nil, data["ranges"], data["str"])
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"addr", "line_str", "str_offsets", "rnglists"} {
		if err := d.AddSection(".debug_"+name, data[name]); err != nil {
			return nil, err
		}
	}
	l := &lines{data: d, rows: map[dwarf.Offset]*rows{}}
	r := d.Reader()
	for {
		e, err := r.Next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			break
		}
		if e.Tag == dwarf.TagCompileUnit || e.Tag == dwarf.TagSkeletonUnit {
			ranges, err := d.Ranges(e)
			if err != nil {
				return nil, err
			}
			for _, p := range ranges {
				l.units = append(l.units, unit{p[0], p[1], e.Offset})
			}
		}
		r.SkipChildren()
	}
	l.spans = flatten(len(l.units), func(i int32) uint64 { return l.units[i].lo }, func(i int32) uint64 { return l.units[i].hi })
	return l, nil
}

func (l *lines) at(addr uint64) (string, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.spans.at(addr)
	if i < 0 {
		return "", 0, nil
	}
	off := l.units[i].off
	t, ok := l.rows[off]
	var err error
	if !ok {
		err = guard(func() (err error) { t, err = l.read(off); return err })
		if err != nil {
			t = &rows{}
		}
		l.rows[off] = t // also where there is none: it is not read again
	}
	k := sort.Search(len(t.addrs), func(k int) bool { return t.addrs[k] > addr })
	if k == 0 || t.line[k-1] == 0 {
		return "", 0, err
	}
	return t.files[t.file[k-1]], int(t.line[k-1]), err
}

// read reads the line table of a unit.
func (l *lines) read(off dwarf.Offset) (*rows, error) {
	r := l.data.Reader()
	r.Seek(off)
	e, err := r.Next()
	if err != nil {
		return nil, err
	}
	lr, err := l.data.LineReader(e)
	if err != nil || lr == nil {
		return &rows{}, err
	}
	type row struct {
		addr       uint64
		file, line int32
		end        bool // of a sequence: what follows belongs to no line
	}
	var list []row
	t := &rows{}
	known := map[*dwarf.LineFile]int32{}
	for {
		var e dwarf.LineEntry
		err := lr.Next(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(list) >= maxRows {
			return nil, fmt.Errorf("%w: a line table of more than %d rows", pagemap.ErrFormat, maxRows)
		}
		if e.EndSequence || e.File == nil || e.Line <= 0 || int64(e.Line) > 1<<31-1 {
			list = append(list, row{addr: e.Address, end: e.EndSequence})
			continue
		}
		n, ok := known[e.File]
		if !ok {
			n = int32(len(t.files))
			known[e.File] = n
			t.files = append(t.files, clean(e.File.Name))
		}
		list = append(list, row{addr: e.Address, file: n, line: int32(e.Line)})
	}
	// Of rows of one address the last is the one that counts; the end of a sequence gives way to the begin of another.
	slices.SortStableFunc(list, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.addr, b.addr), no(a.end, b.end))
	})
	for _, w := range list {
		if n := len(t.addrs); n > 0 && t.addrs[n-1] == w.addr {
			t.file[n-1], t.line[n-1] = w.file, w.line
			continue
		}
		t.addrs, t.file, t.line = append(t.addrs, w.addr), append(t.file, w.file), append(t.line, w.line)
	}
	return t, nil
}
