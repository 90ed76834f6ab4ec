package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
)

// maxNotes bounds a note segment, and maxBuildID an id in it (20 bytes as a rule).
const (
	maxNotes   = 1 << 20
	maxBuildID = 64
)

// buildID is the NT_GNU_BUILD_ID note of a file: an id of its contents that the linker made.
type buildID struct {
	id  []byte
	off uint64 // of the id in the file
}

// BuildID gives the build ID of an ELF file in hexadecimal; "" where it has none, or is no such file.
func BuildID(file string) string {
	f, err := elf.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	return readBuildID(f).String()
}

func (b buildID) String() string { return hex.EncodeToString(b.id) }

// differs reports that both have an id and it is not the same.
func (b buildID) differs(c buildID) bool {
	return len(b.id) > 0 && len(c.id) > 0 && !bytes.Equal(b.id, c.id)
}

// readBuildID looks in the note sections, and where there are none, in the note segments. (In a debug file the segments'
// headers are those of the other file.)
func readBuildID(f *elf.File) buildID {
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE || s.Flags&elf.SHF_COMPRESSED != 0 || s.Size > maxNotes {
			continue
		}
		if b, err := s.Data(); err == nil {
			if id := findBuildID(f, b, s.Addralign); id.id != nil {
				id.off += s.Offset
				return id
			}
		}
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > maxNotes {
			continue
		}
		b := make([]byte, p.Filesz)
		if n, _ := p.ReadAt(b, 0); uint64(n) == p.Filesz {
			if id := findBuildID(f, b, p.Align); id.id != nil {
				id.off += p.Off
				return id
			}
		}
	}
	return buildID{}
}

// findBuildID goes through notes (elf(5), Elf64_Nhdr): three words, the name, the content, each padded to the alignment of 4,
// or 8 where the section says so.
func findBuildID(f *elf.File, b []byte, align uint64) buildID {
	if align != 8 {
		align = 4
	}
	for off := uint64(0); off+12 <= uint64(len(b)); {
		o := f.ByteOrder
		name, size, kind := uint64(o.Uint32(b[off:])), uint64(o.Uint32(b[off+4:])), o.Uint32(b[off+8:])
		at := off + (12+name+align-1)&^(align-1)
		end := at + size
		if end > uint64(len(b)) {
			break
		}
		const ntGNUBuildID = 3
		if kind == ntGNUBuildID && name == 4 && string(b[off+12:off+16]) == "GNU\x00" && size > 0 && size <= maxBuildID {
			return buildID{bytes.Clone(b[at:end]), at}
		}
		off = (end + align - 1) &^ (align - 1)
	}
	return buildID{}
}
