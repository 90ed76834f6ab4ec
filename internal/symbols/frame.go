package symbols

import "fmt"

// Source is where a function's name is from.
type Source int

// Sources.
const (
	SourceNone      Source = iota // no name
	SourceSymtab                  // .symtab of the file
	SourceBuildID                 // .symtab of a debug file, found by build-id
	SourceDebugLink               // .symtab of a debug file, found by .gnu_debuglink
	SourceMini                    // .gnu_debugdata, "mini-debuginfo"
	SourceDynsym                  // .dynsym of the file: exported functions only
	SourcePerfMap                 // /tmp/perf-PID.map
	SourceVDSO                    // .dynsym of the vDSO
)

// String is the word for a source in output.
func (s Source) String() string {
	switch s {
	case SourceSymtab:
		return "symtab"
	case SourceBuildID:
		return "debug file by build-id"
	case SourceDebugLink:
		return "debug file by debuglink"
	case SourceMini:
		return "mini-debuginfo"
	case SourceDynsym:
		return "dynsym"
	case SourcePerfMap:
		return "perf map"
	case SourceVDSO:
		return "vdso"
	}
	return "none"
}

// Frame is what is known of one code address of a process.
type Frame struct {
	Addr    uint64 // in the process
	Module  string // last part of the path; "[vdso]"; "[JIT]" for nameless anonymous code; "" where no executable mapping covers Addr
	Path    string // as maps shows it, without " (deleted)"
	Deleted bool   // the name in maps leads to this file no more
	BuildID string // hexadecimal; "" where the file has none or was not read

	// Offset is the link-time (ELF virtual) address. Memory that is no file's has none: there it is Addr, or for [vdso] and the
	// kernel's other mappings what that would be (from the start of the mapping).
	Offset uint64
	// FileOffset: the file could not be read, or is no ELF file, and Offset is an offset in the file.
	FileOffset bool

	Function       string // demangled; "" where no symbol covers the address
	FunctionOffset uint64 // from the start of the function, bytes
	Size           uint64 // of the function, bytes; of a sizeless one, to the next symbol
	Sizeless       bool   // the symbol has no size, and Function is only the last label before the address in its section
	File           string // source file, where there is DWARF and it was asked for
	Line           int    // in File; 0: not known
	From           Source // of Function
}

// String is the name to print:
//
//	rb_gc_mark                      a function
//	memcpy_loop?                    a label without a size, the last one before the address
//	libruby-3.3.so.3.3+0x15bf4a     no symbol covers it: module and link-time address
//	libfoo.so@0x1f4a                the file could not be read: module and offset in the file
//	[JIT]+0x7f32a0001234            anonymous code that nobody named: address in the process
//	[unknown]+0x1234                no executable mapping covers it: address in the process
func (f Frame) String() string {
	switch {
	case f.Function != "" && f.Sizeless:
		return f.Function + "?"
	case f.Function != "":
		return f.Function
	case f.Module == "":
		return fmt.Sprintf("[unknown]+0x%x", f.Addr)
	case f.FileOffset:
		return fmt.Sprintf("%s@0x%x", f.Module, f.Offset)
	}
	return fmt.Sprintf("%s+0x%x", f.Module, f.Offset)
}
