package symbols

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"cowaudit/pagemap"
)

var errPanic = errors.New("unreadable")

// module is one file that code is mapped from, or the vDSO. What is in it is read when it is first asked for.
type module struct {
	r    *Resolver
	path string      // of the first mapping that was met; for problems
	in   []place     // where that file lies, for what is found relative to it
	file *os.File    // nil for the vDSO
	data io.ReaderAt // the file, or the vDSO's image
	vdso bool

	head  sync.Once
	elf   *elf.File
	build buildID
	err   error // no ELF file, or not readable

	buildText string

	symbols sync.Once
	table   *table

	debugged  sync.Once
	debug     *elf.File // the separate debug file; nil: none
	debugFrom Source

	lined sync.Once
	lines *lines

	mu    sync.Mutex
	names map[int32]string // demangled, by symbol
}

// place is a path in a root.
type place struct {
	root *root
	path string
}

// open reads the file's headers.
func (m *module) open() error {
	m.head.Do(func() {
		m.elf, m.err = readELF(m.data)
		if m.err != nil {
			m.r.problem(m.path, m.err)
			return
		}
		m.build = readBuildID(m.elf)
		m.buildText = m.build.String()
	})
	return m.err
}

// readELF reads the headers of an ELF file.
func readELF(r io.ReaderAt) (f *elf.File, err error) {
	err = guard(func() error {
		f, err = elf.NewFile(r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pagemap.ErrFormat, err)
	}
	return f, nil
}

// address gives the link-time address of an offset in the file that is mapped as code (elf(5), Elf64_Phdr). The kernel maps
// whole pages (fs/binfmt_elf.c, elf_map; glibc's _dl_map_segments likewise), so the page of a segment's start or end may
// show what is not the segment's. Where segments disagree on the address, there is none.
func (m *module) address(off, pageSize uint64) (uint64, bool) {
	if m.open() != nil {
		return 0, false
	}
	var addr uint64
	for _, rule := range []func(p *elf.Prog) bool{
		func(p *elf.Prog) bool { return p.Flags&elf.PF_X != 0 && off >= p.Off && off-p.Off < p.Filesz },
		func(p *elf.Prog) bool {
			lo := p.Off - p.Off%pageSize
			// The end of the last page, written so that it cannot overflow.
			return p.Flags&elf.PF_X != 0 && off >= lo && (off-lo)/pageSize < (p.Off-lo+p.Filesz+pageSize-1)/pageSize && p.Filesz < 1<<62
		},
		func(p *elf.Prog) bool { return p.Flags&elf.PF_X == 0 && off >= p.Off && off-p.Off < p.Filesz },
	} {
		found := 0
		for _, p := range m.elf.Progs {
			if p.Type != elf.PT_LOAD || !rule(p) {
				continue
			}
			a := off - p.Off + p.Vaddr
			if found > 0 && a != addr {
				return 0, false
			}
			addr = a
			found++
		}
		if found > 0 {
			return addr, true
		}
	}
	return 0, false
}

// load reads the symbols, from all places that have some.
func (m *module) load() *table {
	m.symbols.Do(func() {
		if m.open() != nil {
			return
		}
		t := &table{}
		// Whether local functions came with it: a table without them has been stripped of them.
		add := func(f *elf.File, typ elf.SectionType, from Source) bool {
			n := len(t.syms)
			if err := guard(func() error { return t.add(f, typ, from) }); err != nil {
				m.r.problem(m.path, fmt.Errorf("%v: %w", from, err))
			}
			return slices.ContainsFunc(t.syms[n:], func(s symbol) bool { return elf.SymBind(s.bind) == elf.STB_LOCAL })
		}
		if m.vdso {
			whole := add(m.elf, elf.SHT_SYMTAB, SourceVDSO)
			add(m.elf, elf.SHT_DYNSYM, SourceVDSO)
			t.finish(whole)
			m.table = t
			return
		}
		whole := add(m.elf, elf.SHT_SYMTAB, SourceSymtab)
		if !whole {
			if d, from := m.debugFile(); d != nil {
				whole = add(d, elf.SHT_SYMTAB, from)
			}
		}
		if !whole {
			mini, err := miniDebug(m.elf)
			if err != nil {
				m.r.problem(m.path, fmt.Errorf(".gnu_debugdata: %w", err))
			}
			if mini != nil {
				whole = add(mini, elf.SHT_SYMTAB, SourceMini)
			}
		}
		add(m.elf, elf.SHT_DYNSYM, SourceDynsym)
		t.finish(whole)
		m.table = t
	})
	return m.table
}

// name fills in what covers a link-time address.
func (m *module) name(f *Frame) {
	t := m.load()
	if i := t.at(f.Offset); i >= 0 {
		s := &t.syms[i]
		f.Function, f.From = m.readable(t, i), t.parts[s.part].from
		f.FunctionOffset, f.Size, f.Sizeless = f.Offset-s.value, s.end-s.value, s.sizeless
	}
	if m.r.options.Lines && !m.vdso {
		f.File, f.Line = m.line(f.Offset)
	}
}

// readable demangles each name once.
func (m *module) readable(t *table, i int32) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.names[i]
	if !ok {
		n = readable(string(t.raw(&t.syms[i])))
		if m.names == nil {
			m.names = map[int32]string{}
		}
		m.names[i] = n
	}
	return n
}
