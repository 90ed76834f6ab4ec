package symbols

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"sort"

	"cowaudit/pagemap"
)

// Limits on foreign files: a few times what the largest programs there are have.
const (
	maxSymbols = 16 << 20
	maxStrings = 512 << 20
)

// symbol is one function of a table; its name stays in the string table it came from.
type symbol struct {
	value, end uint64
	name       uint32
	part       uint8 // index in table.parts
	bind       uint8
	notype     bool
	sizeless   bool
}

// part is one of the symbol tables that make up a table.
type part struct {
	from    Source
	strings []byte
}

// table has the functions of one file.
type table struct {
	parts []part
	syms  []symbol
	spans spans
}

// add reads a symbol table of a file, which may be another file than the one the names are for.
func (t *table) add(f *elf.File, typ elf.SectionType, from Source) error {
	sec := f.SectionByType(typ)
	if sec == nil || sec.Type == elf.SHT_NOBITS || sec.Size == 0 {
		return nil
	}
	word := uint64(24) // Elf64_Sym
	if f.Class == elf.ELFCLASS32 {
		word = 16
	}
	if sec.Size/word > maxSymbols {
		return fmt.Errorf("%w: %s has %d symbols, more than %d", pagemap.ErrFormat, sec.Name, sec.Size/word, maxSymbols)
	}
	if sec.Link == 0 || int(sec.Link) >= len(f.Sections) {
		return fmt.Errorf("%w: %s has no string table", pagemap.ErrFormat, sec.Name)
	}
	str := f.Sections[sec.Link]
	if str.Type != elf.SHT_STRTAB || str.Size > maxStrings {
		return fmt.Errorf("%w: string table of %s: type %v, %d bytes", pagemap.ErrFormat, sec.Name, str.Type, str.Size)
	}
	data, err := sec.Data()
	if err != nil {
		return fmt.Errorf("read %s: %w", sec.Name, err)
	}
	strings, err := str.Data()
	if err != nil {
		return fmt.Errorf("read %s: %w", str.Name, err)
	}
	p := len(t.parts)
	t.parts = append(t.parts, part{from, strings})
	code := codeSections(f)
	for ; uint64(len(data)) >= word; data = data[word:] {
		var name, shndx uint32
		var info byte
		var value, size uint64
		if o := f.ByteOrder; word == 24 {
			name, info, shndx = o.Uint32(data), data[4], uint32(o.Uint16(data[6:]))
			value, size = o.Uint64(data[8:]), o.Uint64(data[16:])
		} else {
			name, info, shndx = o.Uint32(data), data[12], uint32(o.Uint16(data[14:]))
			value, size = uint64(o.Uint32(data[4:])), uint64(o.Uint32(data[8:]))
		}
		kind := elf.ST_TYPE(info)
		function := kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC
		if !function && kind != elf.STT_NOTYPE || shndx == uint32(elf.SHN_UNDEF) || shndx == uint32(elf.SHN_ABS) || shndx == uint32(elf.SHN_COMMON) {
			continue
		}
		if f.Machine == elf.EM_ARM && function {
			value &^= 1 // Thumb code
		}
		if n := cstring(strings, name); len(n) == 0 || !function && local(n) {
			continue
		}
		end, ok := sectionEnd(code, value)
		if !ok {
			continue
		}
		if size > 0 {
			end = value + min(size, end-value)
		}
		t.syms = append(t.syms, symbol{value: value, end: end, name: name, part: uint8(p), bind: uint8(elf.ST_BIND(info)), notype: !function, sizeless: size == 0})
	}
	return nil
}

// local reports labels that are no names: the assembler's own, and the mapping symbols of ARM and RISC-V ($a, $x, …).
func local(name []byte) bool {
	return name[0] == '$' || bytes.HasPrefix(name, []byte(".L"))
}

// codeSections gives the sections that hold code, by address. Those of a debug file have no contents, but address and size.
func codeSections(f *elf.File) []*elf.Section {
	var out []*elf.Section
	for _, s := range f.Sections {
		if s.Flags&(elf.SHF_ALLOC|elf.SHF_EXECINSTR) == elf.SHF_ALLOC|elf.SHF_EXECINSTR && s.Addr+s.Size > s.Addr {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *elf.Section) int { return cmp.Compare(a.Addr, b.Addr) })
	return out
}

// sectionEnd gives the end of the code section that holds an address. Which section a symbol says it is in does not matter.
func sectionEnd(code []*elf.Section, addr uint64) (uint64, bool) {
	i := sort.Search(len(code), func(i int) bool { return code[i].Addr > addr })
	if i == 0 || addr-code[i-1].Addr >= code[i-1].Size {
		return 0, false
	}
	return code[i-1].Addr + code[i-1].Size, true
}

// finish orders what was added. whole says that local symbols are among it: only then does the next symbol after one
// without a size end it.
func (t *table) finish(whole bool) {
	slices.SortFunc(t.syms, t.compare)
	kept := t.syms[:0]
	var covered uint64 // the symbols before cover everything up to here, or nothing at it
	for i := range t.syms {
		s := t.syms[i]
		if i+1 < len(t.syms) && t.same(&s, &t.syms[i+1]) {
			continue // the next is the better copy
		}
		if s.sizeless {
			if !whole || s.value < covered {
				continue
			}
			next := i + 1
			for next < len(t.syms) && t.syms[next].value == s.value {
				next++
			}
			if !t.syms[next-1].sizeless {
				continue // another at the same address has a size, and sorts after it
			}
			if next < len(t.syms) {
				s.end = min(s.end, t.syms[next].value)
			}
			kept = append(kept, s)
			continue
		}
		covered = max(covered, s.end)
		kept = append(kept, s)
	}
	t.syms = slices.Clip(kept)
	t.spans = flatten(len(t.syms), func(i int32) uint64 { return t.syms[i].value }, func(i int32) uint64 { return t.syms[i].end })
}

// compare orders by address, and at one address the better name last.
func (t *table) compare(a, b symbol) int {
	if c := cmp.Compare(a.value, b.value); c != 0 {
		return c
	}
	return cmp.Or(
		no(a.sizeless, b.sizeless),
		no(a.notype, b.notype),
		cmp.Compare(bindRank(a.bind), bindRank(b.bind)),
		cmp.Compare(b.part, a.part),
		cmp.Compare(t.underscores(&b), t.underscores(&a)),
		cmp.Compare(a.end, b.end),
		bytes.Compare(t.raw(&b), t.raw(&a)),
	)
}

// no compares two properties that are better not had.
func no(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func bindRank(b uint8) int {
	switch elf.SymBind(b) {
	case elf.STB_GLOBAL, elf.STB_LOOS: // LOOS: STB_GNU_UNIQUE
		return 2
	case elf.STB_WEAK:
		return 1
	}
	return 0
}

func (t *table) raw(s *symbol) []byte { return cstring(t.parts[s.part].strings, s.name) }

func (t *table) underscores(s *symbol) int {
	n := t.raw(s)
	return len(n) - len(bytes.TrimLeft(n, "_"))
}

// same reports one function found in two tables.
func (t *table) same(a, b *symbol) bool {
	return a.value == b.value && a.end == b.end && a.sizeless == b.sizeless && a.part != b.part && bytes.Equal(t.raw(a), t.raw(b))
}

// at gives the symbol that covers a link-time address, -1 for none.
func (t *table) at(addr uint64) int32 {
	if t == nil {
		return -1
	}
	return t.spans.at(addr)
}
