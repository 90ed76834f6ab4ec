package symbols

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"cowaudit/pagemap"

	"golang.org/x/sys/unix"
)

// maxVDSO bounds the image of the vDSO; it is two pages as a rule.
const maxVDSO = 1 << 20

var (
	errOtherFile = errors.New("the file under that path is not shown to be the mapped one")
	errCannot    = errors.New("the mapped file cannot be opened (CAP_SYS_ADMIN, or CAP_CHECKPOINT_RESTORE since 5.9)")
)

func (r *Resolver) pageSize() uint64 { return uint64(os.Getpagesize()) }

func (s *Space) proc(elem ...string) string {
	return s.r.options.FS.Path(append([]string{strconv.Itoa(int(s.pid))}, elem...)...)
}

// mapFile is the link to the mapped file (fs/proc/base.c, map_files_d_iops): by the exact range, without leading zeros.
func (s *Space) mapFile(m *pagemap.Mapping) string {
	return s.proc("map_files", fmt.Sprintf("%x-%x", uint64(m.Start), uint64(m.End)))
}

// file opens the file of a mapping. name is its path without the kernel's " (deleted)", and gone says that it had that.
func (s *Space) file(m *pagemap.Mapping, list []pagemap.Mapping) (mod *module, name string, gone bool, err error) {
	name, gone = strings.CutSuffix(m.Path, deleted)
	mod, id, err := s.byMapFile(m, list, name)
	if err == nil {
		if gone { // unless a file's name ends so
			for _, p := range s.places(m.Path) {
				if p.root.is(p.path, id) {
					return mod, m.Path, false, nil
				}
			}
		}
		return mod, name, gone, nil
	}
	refused := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
	if gone || !refused && !errors.Is(err, unix.ENOENT) { // ENOENT: the mapping has changed since maps was read
		return nil, name, gone, err
	}
	if refused {
		err = errCannot
	}
	for _, p := range s.places(name) {
		f, st, openErr := s.r.openIn(p.root, p.path, true)
		if openErr != nil {
			continue
		}
		sameFile := st.Ino == m.Inode && unix.Major(st.Dev) == m.Major && unix.Minor(st.Dev) == m.Minor
		mod, acceptErr := s.accept(f, &st, sameFile, m, list, name)
		if acceptErr == nil {
			return mod, name, false, nil
		}
		err = errors.Join(err, acceptErr)
	}
	return nil, name, gone, err
}

// places gives where a path of maps may lead.
func (s *Space) places(name string) (in []place) {
	if s.roots == nil {
		if t, err := s.r.root(s.pid); err == nil {
			s.roots = append(s.roots, t)
		}
		if h, err := s.r.host(); err == nil {
			s.roots = appendNew(s.roots, h)
		}
	}
	for _, t := range s.roots {
		for _, p := range t.inside(name) {
			in = append(in, place{t, p})
		}
	}
	return in
}

// byMapFile opens the file through map_files.
func (s *Space) byMapFile(m *pagemap.Mapping, list []pagemap.Mapping, name string) (*module, fileID, error) {
	var st unix.Stat_t
	link := s.mapFile(m)
	if err := unix.Stat(link, &st); err != nil {
		return nil, fileID{}, fmt.Errorf("stat %s: %w", link, err)
	}
	id := fileID{st.Dev, st.Ino}
	s.r.mu.Lock()
	have := s.r.modules[id]
	s.r.mu.Unlock()
	if have != nil && st.Ino == m.Inode {
		return have, id, nil
	}
	f, err := openRegular(link, &st)
	if err != nil {
		return nil, id, err
	}
	mod, err := s.accept(f, &st, st.Ino == m.Inode, m, list, name)
	return mod, id, err
}

// accept makes a module of an open file if it is the mapped one: known to be the same, or by its build-id.
func (s *Space) accept(f *os.File, st *unix.Stat_t, same bool, m *pagemap.Mapping, list []pagemap.Mapping, name string) (*module, error) {
	if !same {
		if err := s.inMemory(f, m, list); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return s.r.module(f, fileID{st.Dev, st.Ino}, m.Path, s.places(name))
}

// inMemory compares a file's build-id with the bytes that the process has where the id should be. It reads
// /proc/PID/mem, which needs PTRACE_MODE_ATTACH.
func (s *Space) inMemory(f *os.File, m *pagemap.Mapping, list []pagemap.Mapping) error {
	e, err := readELF(f)
	if err != nil {
		return fmt.Errorf("%w: %w", errOtherFile, err)
	}
	want := readBuildID(e)
	if len(want.id) == 0 {
		return fmt.Errorf("%w: it has no build-id", errOtherFile)
	}
	for i := range list {
		o := &list[i]
		if o.Path != m.Path || o.Inode != m.Inode || o.Major != m.Major || o.Minor != m.Minor || o.Perms[0] != 'r' ||
			want.off < o.Offset || want.off+uint64(len(want.id)) > o.Offset+uint64(o.End-o.Start) {
			continue
		}
		have := make([]byte, len(want.id))
		if err := s.memory(have, uint64(o.Start)+want.off-o.Offset); err != nil {
			return fmt.Errorf("%w: %w", errOtherFile, err)
		}
		if !bytes.Equal(have, want.id) {
			return errOtherFile
		}
		return nil
	}
	return fmt.Errorf("%w: its build-id is not mapped", errOtherFile)
}

// memory reads the process' memory.
func (s *Space) memory(b []byte, addr uint64) error {
	h, err := os.Open(s.proc("mem"))
	if err != nil {
		return err
	}
	defer h.Close()
	if _, err := h.ReadAt(b, int64(addr)); err != nil {
		return fmt.Errorf("read memory of %d: %w", s.pid, err)
	}
	return nil
}

// image reads the vDSO.
func (s *Space) image(m *pagemap.Mapping) ([]byte, error) {
	if m.Size() > maxVDSO {
		return nil, fmt.Errorf("%w: a vDSO of %d bytes", pagemap.ErrFormat, m.Size())
	}
	b := make([]byte, m.Size())
	return b, s.memory(b, uint64(m.Start))
}

// isELF reports whether anonymous memory with a name begins with an ELF header: a program run from a memfd, not the output of
// a compiler.
func (s *Space) isELF(m *pagemap.Mapping) bool {
	var st unix.Stat_t
	link := s.mapFile(m)
	if unix.Stat(link, &st) != nil {
		return false
	}
	f, err := openRegular(link, &st)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = f.ReadAt(magic[:], 0)
	return err == nil && string(magic[:]) == "\x7fELF"
}

// maxAncestors bounds the way up to the process that compiled the code.
const maxAncestors = 16

// findJIT looks for the map files that name anonymous code: the process' own, then those of the processes that it was forked
// from, whose compiled code it inherited. The latter hold for what they had compiled by now, in the mappings that they have
// at the same addresses.
func (s *Space) findJIT() {
	var own []jitNames
	m, err := s.r.perfMap(s.pid, false)
	if err != nil {
		s.r.problem("perf map", err)
	} else if m != nil {
		own = []jitNames{{file: m}}
	}
	inherited := s.jit
	if len(inherited) > 0 && inherited[0].within == nil {
		if own == nil {
			own = inherited[:1] // removed; what it said is still true
		}
		inherited = inherited[1:]
	}
	if s.jit == nil { // the first time: what the ancestors compile from now on is not in this process
		inherited = s.inheritedJIT()
	}
	s.jit = append(slices0(own), inherited...)
}

func (s *Space) inheritedJIT() (out []jitNames) {
	st, err := s.r.options.FS.Stat(s.pid)
	for range maxAncestors {
		if err != nil || !st.Forked() || st.PPID <= 1 {
			break
		}
		child := st
		if st, err = s.r.options.FS.Stat(st.PPID); err != nil || st.Start > child.Start {
			break // the parent has ended, and somebody else adopted the child
		}
		m, err := s.r.perfMap(st.PID, true)
		if err != nil {
			s.r.problem("perf map", err)
		}
		if m == nil {
			continue
		}
		list, err := s.r.options.FS.Maps(st.PID)
		if err != nil {
			continue
		}
		within := []pagemap.Extent{}
		for i := range list {
			if l := &list[i]; l.Perms[2] == 'x' && (l.Anonymous() || strings.HasPrefix(l.Path, "/memfd:")) {
				within = append(within, l.Extent())
			}
		}
		out = append(out, jitNames{m, within})
	}
	return out
}

// slices0 makes a copy that is not nil, so that an empty result is told from none yet.
func slices0(list []jitNames) []jitNames { return append([]jitNames{}, list...) }
