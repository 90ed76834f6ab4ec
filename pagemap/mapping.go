package pagemap

// Mapping is one line of /proc/PID/maps (Documentation/filesystems/proc.rst; fs/proc/task_mmu.c, show_map_vma), with what
// else the capture learned of it.
type Mapping struct {
	Start  Addr   `json:"start"`
	End    Addr   `json:"end"`    // first address after it
	Perms  string `json:"perms"`  // "rw-p": four characters, as printed
	Offset uint64 `json:"offset"` // in the file, bytes
	Major  uint32 `json:"major,omitempty"`
	Minor  uint32 `json:"minor,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
	// Path is the last field byte for byte as the kernel prints it: a newline in a name is the four characters \012, and
	// " (deleted)" may be part of a live file's name. Empty where the kernel prints nothing.
	Path string `json:"path,omitempty"`
	// Shape is what the first words of an unnamed mapping show it to be, decided at the capture; no contents are kept.
	Shape Shape `json:"shape,omitempty"`
	// Fork is what fork does with the mapping, from the VmFlags line of smaps; read only where a result depends on it.
	Fork ForkRule `json:"fork,omitempty"`
	// Whole is the kernel's mapping that this is a part of, where the kernel merged several things into one; nil: all of it.
	Whole *Extent `json:"whole,omitempty"`
	// HugePage is the size of its huge pages where it is a hugetlb mapping, else 0.
	HugePage Bytes `json:"huge_page_bytes,omitempty"`
}

// Extent is a stretch of addresses, end excluded.
type Extent struct {
	Start Addr `json:"start"`
	End   Addr `json:"end"`
}

// Extent is the mapping as the kernel has it.
func (m *Mapping) Extent() Extent {
	if m.Whole != nil {
		return *m.Whole
	}
	return Extent{m.Start, m.End}
}

// Private reports a MAP_PRIVATE mapping.
func (m *Mapping) Private() bool { return len(m.Perms) == 4 && m.Perms[3] == 'p' }

// Anonymous reports a mapping without a file: no inode (names in brackets included). A private mapping of /dev/zero is
// anonymous too although it has a path and an inode (drivers/char/mem.c, mmap_zero).
func (m *Mapping) Anonymous() bool { return m.Inode == 0 }

// Readable reports whether pagemap has entries for it; the vsyscall page lies outside user space.
func (m *Mapping) Readable() bool { return m.Path != "[vsyscall]" && m.Start < m.End }

// Size is its length in bytes.
func (m *Mapping) Size() Bytes { return Bytes(m.End - m.Start) }

// Shape is what an unnamed private mapping is by its form.
type Shape string

// Shapes; the empty string means that the form says nothing.
const (
	ShapeUnknown     Shape = ""
	ShapeMallocArena Shape = "malloc_arena"     // glibc thread arena: 64 MiB aligned
	ShapeMallocLarge Shape = "malloc_large"     // glibc mmapped chunks, header by header
	ShapeRubyHeap    Shape = "ruby_object_heap" // pages that start with a pointer to their struct heap_page
	ShapeThreadStack Shape = "thread_stack"     // holds a thread's stack pointer, or lies directly above a guard
)

// ForkRule is what fork does with a mapping (mm/madvise.c).
type ForkRule string

// Fork rules; the empty string means not read.
const (
	ForkUnread  ForkRule = ""
	ForkCopied  ForkRule = "copied"
	ForkSkipped ForkRule = "skipped" // MADV_DONTFORK, VmFlags dc
	ForkWiped   ForkRule = "wiped"   // MADV_WIPEONFORK, VmFlags wf
)

// Special reports one of the kernel's own mappings ([vdso], [vvar], [uprobes], [sigpage]): no file, and pages that are the
// kernel's (mm/mmap.c, _install_special_mapping).
func (m *Mapping) Special() bool {
	if m.Inode != 0 || len(m.Path) == 0 || m.Path[0] != '[' {
		return false
	}
	switch {
	case m.Path == "[heap]", m.Path == "[stack]", len(m.Path) >= 6 && m.Path[:6] == "[stack", len(m.Path) >= 5 && m.Path[:5] == "[anon":
		return false
	}
	return true
}
