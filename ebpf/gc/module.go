package gc

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"cowaudit/pagemap"
)

// module is a mapped ELF file.
type module struct {
	path    string // as maps shows it
	file    string // opens it
	bias    uint64
	elf     *elf.File
	raw     *os.File
	dynamic map[string]elf.Symbol // exported, defined
	lazy    map[uint64]string     // addresses in the file of the PLT's slots, and the functions they are for
}

func (m *module) Close() error { return m.raw.Close() }

// name is the base name without the mark of a deleted file.
func (m *module) name() string {
	return filepath.Base(strings.TrimSuffix(m.path, " (deleted)"))
}

// openModule opens the file of an executable mapping.
func openModule(fs pagemap.FS, pid pagemap.PID, at pagemap.Mapping) (*module, error) {
	raw, name, err := openMapped(fs, pid, at)
	if err != nil {
		return nil, err
	}
	m := &module{path: at.Path, file: name, raw: raw}
	if err := m.parse(at); err != nil {
		raw.Close()
		return nil, fmt.Errorf("read %s of %d: %w", at.Path, pid, err)
	}
	return m, nil
}

// openMapped opens the file that is mapped, whatever lies under its path now.
func openMapped(fs pagemap.FS, pid pagemap.PID, at pagemap.Mapping) (*os.File, string, error) {
	name := fs.Path(strconv.Itoa(int(pid)), "map_files", fmt.Sprintf("%x-%x", uint64(at.Start), uint64(at.End)))
	f, err := os.Open(name)
	if err == nil {
		return f, name, nil
	}
	direct := fmt.Errorf("open %s of %d: %w", at.Path, pid, err)
	// maps shows the path as this process would see it, or, from another mount namespace, as the target does.
	for _, name := range []string{fs.Path(strconv.Itoa(int(pid)), "root") + at.Path, at.Path} {
		f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO may lie there now
		if err != nil {
			continue
		}
		if sameFile(f, at) {
			return f, name, nil
		}
		f.Close()
	}
	return nil, "", fmt.Errorf("%w (and what lies at that path now is not for certain what is mapped)", direct)
}

// sameFile reports whether an open file is the mapped one. Where it cannot be told (btrfs and overlayfs show other device
// numbers in maps than in stat) it is not.
func sameFile(f *os.File, at pagemap.Mapping) bool {
	var st syscall.Stat_t
	err := syscall.Fstat(int(f.Fd()), &st)
	return err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Ino == at.Inode && major(st.Dev) == at.Major && minor(st.Dev) == at.Minor
}

// major and minor take a device number of stat apart (glibc's gnu_dev_major, gnu_dev_minor).
func major(dev uint64) uint32 { return uint32(dev>>8&0xfff | dev>>32&^0xfff) }
func minor(dev uint64) uint32 { return uint32(dev&0xff | dev>>12&^0xff) }

func (m *module) parse(at pagemap.Mapping) error {
	f, err := elf.NewFile(m.raw)
	if err != nil {
		return err
	}
	m.elf = f
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		return fmt.Errorf("%w: machine %s: only x86-64 is understood", errMachine, f.Machine)
	}
	seg := m.segment(at.Offset)
	if seg == nil {
		return fmt.Errorf("%w: no program header covers offset %#x", pagemap.ErrFormat, at.Offset)
	}
	m.bias = uint64(at.Start) - (seg.Vaddr + at.Offset - seg.Off)
	m.dynamic = map[string]elf.Symbol{}
	list, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return err
	}
	for _, s := range list {
		if s.Section != elf.SHN_UNDEF && s.Value != 0 {
			m.dynamic[s.Name] = s
		}
	}
	m.lazy = plt(f, list)
	return nil
}

var errMachine = errors.New("another kind of machine")

// segment is the executable program header that a mapping at that offset of the file comes from: the kernel maps whole
// pages, so that the header may begin within the first one.
func (m *module) segment(offset uint64) *elf.Prog {
	for _, p := range m.elf.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && offset >= p.Off&^0xfff && offset < p.Off+p.Filesz {
			return p
		}
	}
	return nil
}

// offset is where an address of the file lies in it.
func (m *module) offset(addr uint64) (uint64, bool) {
	for _, p := range m.elf.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			return addr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}

// export is the address in the process of an exported symbol.
func (m *module) export(name string) (uint64, bool) {
	s, ok := m.dynamic[name]
	return s.Value + m.bias, ok
}

// plt gives the slots of the procedure linkage table and the functions they are for (R_X86_64_JUMP_SLOT).
func plt(f *elf.File, symbols []elf.Symbol) map[uint64]string {
	slots := map[uint64]string{}
	s := f.Section(".rela.plt")
	if s == nil || s.Size > 1<<22 {
		return slots
	}
	b, err := s.Data()
	if err != nil {
		return slots
	}
	for ; len(b) >= 24; b = b[24:] {
		info := binary.LittleEndian.Uint64(b[8:])
		if i := info >> 32; uint32(info) == uint32(elf.R_X86_64_JMP_SLOT) && i >= 1 && i <= uint64(len(symbols)) {
			slots[binary.LittleEndian.Uint64(b)] = symbols[i-1].Name
		}
	}
	return slots
}

// buildID is the note of type NT_GNU_BUILD_ID in hexadecimal.
func buildID(f *elf.File) string {
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE || s.Size > 1<<16 {
			continue
		}
		b, err := s.Data()
		if err != nil {
			continue
		}
		for n, rest, ok := nextNote(b); ok; n, rest, ok = nextNote(rest) {
			if n.kind == 3 && n.owner == "GNU" {
				return hex.EncodeToString(n.body)
			}
		}
	}
	return ""
}

// note is one ELF note (gABI, Note Section).
type note struct {
	owner string
	kind  uint32
	body  []byte
}

// nextNote takes the first note off b. ok is false where there is no whole one.
func nextNote(b []byte) (n note, rest []byte, ok bool) {
	if len(b) < 12 {
		return n, nil, false
	}
	name, body := uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[4:]))
	start := 12 + (name+3)&^3
	end := start + body
	if end > uint64(len(b)) {
		return n, nil, false
	}
	owner, _, _ := bytes.Cut(b[12:12+name], []byte{0})
	n = note{string(owner), binary.LittleEndian.Uint32(b[8:]), b[start:end]}
	return n, b[min((end+3)&^3, uint64(len(b))):], true
}
