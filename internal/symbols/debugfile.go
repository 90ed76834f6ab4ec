package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"

	"cowaudit/pagemap"

	"golang.org/x/sys/unix"
)

// maxDebugFile bounds a debug file that must be read to its end for its checksum.
const maxDebugFile = 8 << 30

// debugFile finds the separate debug file, once: first by build-id, then by .gnu_debuglink, in each of the roots that the
// file was met in and in ours (gdb's manual, "Debugging Information in Separate Files").
func (m *module) debugFile() (*elf.File, Source) {
	m.debugged.Do(func() {
		if m.vdso || m.open() != nil {
			return
		}
		if m.debug = m.byBuildID(); m.debug != nil {
			m.debugFrom = SourceBuildID
		} else if m.debug = m.byDebugLink(); m.debug != nil {
			m.debugFrom = SourceDebugLink
		}
	})
	return m.debug, m.debugFrom
}

func (m *module) byBuildID() *elf.File {
	id := hex.EncodeToString(m.build.id)
	if len(id) < 4 {
		return nil
	}
	for _, t := range m.searched() {
		for _, dir := range m.r.options.DebugDirs {
			if d := m.tryDebug(t, path.Join(dir, ".build-id", id[:2], id[2:]+".debug"), nil); d != nil {
				return d
			}
		}
	}
	return nil
}

// searched gives the roots of the file, then ours.
func (m *module) searched() (out []*root) {
	for _, p := range m.places() {
		out = appendNew(out, p.root)
	}
	if h, err := m.r.host(); err == nil {
		out = appendNew(out, h)
	}
	return out
}

func appendNew[T comparable](list []T, v T) []T {
	for _, have := range list {
		if have == v {
			return list
		}
	}
	return append(list, v)
}

func (m *module) byDebugLink() *elf.File {
	sec := m.elf.Section(".gnu_debuglink")
	if sec == nil || sec.Type == elf.SHT_NOBITS || sec.Size > 4096 {
		return nil
	}
	b, err := sec.Data()
	if err != nil {
		return nil
	}
	name, sum, ok := parseDebugLink(b, m.elf)
	if !ok {
		m.r.problem(m.path, fmt.Errorf("%w: .gnu_debuglink %.80q", pagemap.ErrFormat, b))
		return nil
	}
	var dirs []string
	for _, p := range m.places() {
		dirs = appendNew(dirs, path.Dir(p.path))
	}
	for _, t := range m.searched() {
		for _, dir := range dirs {
			names := []string{path.Join(dir, name), path.Join(dir, ".debug", name)}
			for _, d := range m.r.options.DebugDirs {
				names = append(names, path.Join(d, dir, name))
			}
			for _, n := range names {
				if d := m.tryDebug(t, n, &sum); d != nil {
					return d
				}
			}
		}
	}
	return nil
}

// parseDebugLink reads the section: a name, padding to a multiple of four, a CRC32.
func parseDebugLink(b []byte, f *elf.File) (name string, sum uint32, ok bool) {
	n := bytes.IndexByte(b, 0)
	if n <= 0 || bytes.IndexByte(b[:n], '/') >= 0 || string(b[:n]) == "." || string(b[:n]) == ".." {
		return "", 0, false
	}
	at := (n + 4) &^ 3
	if len(b) < at+4 {
		return "", 0, false
	}
	return string(b[:n]), f.ByteOrder.Uint32(b[at:]), true
}

// tryDebug opens a debug file if it is one, and belongs to the module. sum, if not nil, must be its CRC32.
func (m *module) tryDebug(t *root, name string, sum *uint32) *elf.File {
	f, st, err := m.r.openIn(t, name, true)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			m.r.problem(m.path, fmt.Errorf("debug file: %w", err))
		}
		return nil
	}
	d, err := m.checkDebug(f, st.Size, sum)
	if err != nil {
		m.r.problem(m.path, fmt.Errorf("debug file %s: %w", name, err))
	}
	if d == nil {
		_ = f.Close() // opened for reading
		return nil
	}
	if !m.r.keep(f) {
		return nil
	}
	return d
}

var (
	errOtherBuild = errors.New("its build-id is another")
	errOtherSum   = errors.New("its checksum is not the one in .gnu_debuglink")
	errOtherCode  = errors.New("its code lies at other addresses")
)

// checkDebug is nil, nil for the file itself: a name in .gnu_debuglink may be its own.
func (m *module) checkDebug(f *os.File, size int64, sum *uint32) (*elf.File, error) {
	if same(f, m.file) {
		return nil, nil
	}
	d, err := readELF(f)
	if err != nil {
		return nil, err
	}
	build := readBuildID(d)
	switch {
	case build.differs(m.build), sum == nil && len(build.id) == 0:
		return nil, errOtherBuild
	case d.Machine != m.elf.Machine || d.Class != m.elf.Class || !sameCode(d, m.elf):
		return nil, errOtherCode
	case sum == nil:
		return d, nil
	case size > maxDebugFile:
		return nil, fmt.Errorf("%w: %d bytes, more than %d", pagemap.ErrFormat, size, int64(maxDebugFile))
	}
	h := crc32.NewIEEE()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
		return nil, err
	}
	if h.Sum32() != *sum {
		return nil, errOtherSum
	}
	return d, nil
}

// sameCode compares where the code sections lie: prelink moves them and leaves the build-id as it is. A file without
// sections cannot be compared.
func sameCode(a, b *elf.File) bool {
	at := map[string]uint64{}
	for _, s := range codeSections(a) {
		at[s.Name] = s.Addr
	}
	for _, s := range codeSections(b) {
		if addr, ok := at[s.Name]; ok && addr != s.Addr {
			return false
		}
	}
	return true
}

func same(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}
