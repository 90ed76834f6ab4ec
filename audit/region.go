package audit

import (
	"strings"

	"cowaudit/pagemap"
)

// regionKinds says what each mapping of a process is for: by the kernel's name where there is one, by form where not, and
// "other" where neither tells.
func regionKinds(maps []pagemap.Mapping) []RegionKind {
	kinds := make([]RegionKind, len(maps))
	for i := range maps {
		kinds[i] = regionKind(&maps[i])
	}
	// The .bss of a program or library is the unnamed mapping that begins where its last writable file mapping ends
	// (fs/binfmt_elf.c, elf_load; glibc elf/dl-map-segments.h).
	for i := 1; i < len(maps); i++ {
		m, before := &maps[i], &maps[i-1]
		if kinds[i] == RegionOther && m.Path == "" && m.Inode == 0 && m.Private() && m.Start == before.End &&
			kinds[i-1] == RegionLibraryData && before.Inode != 0 {
			kinds[i] = RegionLibraryData
		}
	}
	return kinds
}

func regionKind(m *pagemap.Mapping) RegionKind {
	if !m.Private() {
		// Device memory and the kernel's rings are shared mappings too; their pages are nobody's copies either way.
		return RegionSharedMem.orFile(m)
	}
	if k, ok := byName(m.Path); ok && m.Inode == 0 {
		return k
	}
	switch m.Shape {
	case pagemap.ShapeMallocArena:
		return RegionMallocArena
	case pagemap.ShapeMallocLarge:
		return RegionMallocLarge
	case pagemap.ShapeRubyHeap:
		return RegionRubyHeap
	case pagemap.ShapeThreadStack:
		return RegionThreadStack
	}
	switch {
	case m.Inode != 0 && m.Path != "/dev/zero" && m.HugePage == 0:
		return fileRegion(m)
	case m.Special():
		return RegionOther
	case m.Inode == 0 && strings.Contains(m.Perms, "x"):
		// Code that no file holds was made by a just-in-time compiler (or a trampoline: one page or two).
		return RegionJIT
	}
	return RegionOther
}

// orFile tells shared memory from a file that is mapped shared: shared memory has a name that no file of a file system
// has (mm/shmem.c, ipc/shm.c, fs/hugetlbfs/inode.c), or lies in /dev/shm.
func (k RegionKind) orFile(m *pagemap.Mapping) RegionKind {
	for _, p := range []string{"/dev/zero", "/memfd:", "/SYSV", "/dev/shm/", "/anon_hugepage", "[anon_shmem:"} {
		if strings.HasPrefix(m.Path, p) {
			return RegionSharedMem
		}
	}
	if m.Path == "" {
		return RegionSharedMem
	}
	return RegionFile
}

// fileRegion tells a library's data from a file: data is what may be written, or could be before relocation made it
// read-only (RELRO: the read-only mapping that shares a page's copy). Without looking into the file, a private mapping of
// it that is readable and neither executable nor at offset 0 is taken for data only when it is writable.
func fileRegion(m *pagemap.Mapping) RegionKind {
	if strings.Contains(m.Perms, "w") {
		return RegionLibraryData
	}
	return RegionFile
}

// names of anonymous mappings given by prctl(PR_SET_VMA_ANON_NAME) (5.17, CONFIG_ANON_VMA_NAME), by their beginning.
var namedRegions = []struct {
	prefix string
	kind   RegionKind
}{
	{"[heap]", RegionBrkHeap},
	{"[stack]", RegionStack},
	{"[stack:", RegionThreadStack}, // up to 4.4
	{"[anon:Ruby:GC:", RegionRubyHeap},
	{"[anon:Ruby:rb_yjit_reserve_addr_space", RegionJIT},
	{"[anon:Ruby:rb_jit_reserve_addr_space", RegionJIT},
	{"[anon:Ruby:rb_zjit_reserve_addr_space", RegionJIT},
	{"[anon:Ruby:rjit_reserve_addr_space", RegionJIT},
	{"[anon:Ruby:fiber_pool_allocate_memory", RegionThreadStack},
	{"[anon:Ruby:nt_alloc_thread_stack_chunk", RegionThreadStack},
	{"[anon: glibc: malloc arena]", RegionMallocArena}, // glibc 2.39, glibc.mem.decorate_maps
	{"[anon: glibc: malloc]", RegionMallocLarge},
	{"[anon: glibc: pthread stack:", RegionThreadStack},
	{"[anon:jemalloc_pg", RegionMallocArena},
	{"[anon:mimalloc]", RegionMallocArena},
	{"[anon:libc_malloc]", RegionMallocArena},
	{"[anon:zend_alloc]", RegionMallocArena},
	{"[anon:zend_huge", RegionMallocLarge},
	{"[anon:zend_fiber_stack]", RegionThreadStack},
}

func byName(path string) (RegionKind, bool) {
	for _, n := range namedRegions {
		if strings.HasPrefix(path, n.prefix) {
			return n.kind, true
		}
	}
	return "", false
}
