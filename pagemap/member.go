package pagemap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// member is one process of a capture, opened for reading. The pagemap descriptor is bound to the address space it was
// opened on: after exec or exit it reads nothing, so it can never show another process' pages.
type member struct {
	index    int // in Family.Processes
	pid      PID
	fd       int // pagemap
	mem      *os.File
	kernel   []Mapping // all of them, ascending, as the kernel has them
	maps     []Mapping // those to read
	shapes   []Mapping // kernel, with shapes
	parts    []ShapePart
	ref      int   // index of the reference among the members, -1: none
	children []int // members whose reference this is
	older    []int // some members forked from the same parent before this one
	ksm      bool  // may hold pages merged by KSM
	gone     atomic.Bool
}

func (m *member) close() {
	if m.fd >= 0 {
		unix.Close(m.fd)
		m.fd = -1
	}
	if m.mem != nil {
		m.mem.Close()
		m.mem = nil
	}
}

// openMember opens a process and makes sure that it is still the one that p describes.
func openMember(f FS, p *Process, o Options) (*member, error) {
	pid := strconv.Itoa(int(p.PID))
	fd, err := openRead(f.Path(pid, "pagemap"))
	if err != nil {
		return nil, procError(err)
	}
	m := &member{pid: p.PID, fd: fd, ref: -1}
	ok := false
	defer func() {
		if !ok {
			m.close()
		}
	}()
	if err := m.readMaps(f); err != nil {
		return nil, err
	}
	// The descriptor came first: if the start time still fits, it is bound to the process described, and not to another
	// one that got its PID.
	st, err := f.Stat(p.PID)
	if err != nil {
		return nil, err
	}
	if st.Start != p.Start {
		return nil, ErrGone
	}
	if o.Contents {
		if _, err := m.memory(f); err != nil {
			return nil, err
		}
	}
	m.ksm = mayHoldKSM(f, pid)
	ok = true
	return m, nil
}

func (m *member) readMaps(f FS) error {
	maps, err := f.Maps(m.pid)
	if err != nil {
		return err
	}
	m.kernel, m.maps = maps, maps
	return nil
}

// procError gives the errors of files below /proc/PID their meaning.
func procError(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		return fmt.Errorf("%w (%w)", ErrGone, err)
	case errors.Is(err, fs.ErrPermission):
		return err
	}
	return err
}

// mayHoldKSM reports whether the process may hold pages merged by KSM: by its own count (ksm_merging_pages, 5.19), else
// by whether the machine has any.
func mayHoldKSM(f FS, pid string) bool {
	for _, path := range []string{f.Path(pid, "ksm_merging_pages"), "/sys/kernel/mm/ksm/pages_sharing"} {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		return err != nil || n > 0
	}
	return false
}

// mapped gives the part of [lo, hi) from the first mapped to the last mapped address in it.
func (m *member) mapped(lo, hi Addr) (first, end Addr, ok bool) {
	i := mappingAt(m.maps, lo)
	if i == len(m.maps) || m.maps[i].Start >= hi {
		return 0, 0, false
	}
	j := i + sort.Search(len(m.maps)-i, func(k int) bool { return m.maps[i+k].Start >= hi }) - 1
	return max(lo, m.maps[i].Start), min(hi, m.maps[j].End), true
}

// read fills dst with the entries from address at on. A process that ended or exec'd is ErrGone.
func (m *member) read(dst []Entry, at Addr, page Bytes) error {
	n, err := preadWords(m.fd, dst, uint64(at)/uint64(page))
	switch {
	case err != nil:
		return fmt.Errorf("read pagemap of %d at %#x: %w", m.pid, uint64(at), err)
	case n == 0:
		m.gone.Store(true)
		return ErrGone
	}
	clear(dst[n:]) // beyond the end of user space
	return nil
}

// mappingAt gives the index of the first mapping that ends after addr.
func mappingAt(maps []Mapping, addr Addr) int {
	return sort.Search(len(maps), func(i int) bool { return maps[i].End > addr })
}

// memory opens the process' memory for reading (PTRACE_MODE_ATTACH; fs/proc/base.c, mem_open). Like the pagemap it is
// bound to the address space. Reading it gets pages without pinning them, so it breaks no sharing.
func (m *member) memory(f FS) (*os.File, error) {
	if m.mem == nil {
		mem, err := os.Open(f.Path(strconv.Itoa(int(m.pid)), "mem"))
		if err != nil {
			return nil, procError(err)
		}
		m.mem = mem
	}
	return m.mem, nil
}
