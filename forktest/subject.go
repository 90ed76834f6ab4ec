package forktest

import (
	"debug/elf"
	"fmt"
	"path"
	"strconv"
	"strings"

	"cowaudit/pagemap"
)

// allocators by the name of the library that brings them.
var allocators = []struct{ library, name string }{
	{"libjemalloc", "jemalloc"},
	{"libmimalloc", "mimalloc"},
	{"libtcmalloc", "tcmalloc"},
	{"libsnmalloc", "snmalloc"},
	{"libhoard", "hoard"},
}

// marks are functions that an allocator defines when it is linked into a program.
var marks = []struct{ symbol, name string }{
	{"mallctl", "jemalloc"},
	{"mi_malloc", "mimalloc"},
	{"tc_malloc", "tcmalloc"},
}

// allocator tells a process' malloc by the libraries that it maps: one brought by a library of its own, else the C
// library's. One that was linked into the program, or into the runtime's own library, shows by the functions that these
// export; replaces says what a mapped file does. "" where it cannot be told.
func allocator(maps []pagemap.Mapping, exe string, replaces func(m *pagemap.Mapping) (name string, ok bool)) string {
	seen := map[string]bool{}
	var own []*pagemap.Mapping // the program, and the runtime's library
	libc := ""
	for i := range maps {
		m := &maps[i]
		if !strings.HasPrefix(m.Path, "/") || seen[m.Path] {
			continue
		}
		seen[m.Path] = true
		base := path.Base(m.Path)
		for _, a := range allocators {
			if strings.HasPrefix(base, a.library) {
				return a.name
			}
		}
		switch {
		case base == "libc.so.6", strings.HasPrefix(base, "libc-2."):
			libc = "glibc"
		case strings.HasPrefix(base, "ld-musl-"), strings.HasPrefix(base, "libc.musl-"):
			libc = "musl"
		case m.Path == exe, strings.HasPrefix(base, "libruby"), strings.HasPrefix(base, "libpython"):
			own = append(own, m)
		}
	}
	for _, m := range own {
		if name, ok := replaces(m); ok {
			return name
		}
	}
	return libc
}

// definesMalloc reports whether a program or library brings a malloc of its own, and whose it is, "" where that does not
// show.
func definesMalloc(file string) (name string, ok bool) {
	f, err := elf.Open(file)
	if err != nil {
		return "", false
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return "", false
	}
	for i := range symbols {
		s := &symbols[i]
		if s.Section == elf.SHN_UNDEF || elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		if s.Name == "malloc" {
			ok = true
		}
		for _, m := range marks {
			if s.Name == m.symbol {
				name, ok = m.name, true
			}
		}
	}
	return name, ok
}

// look gives what the running process shows of itself; "" for what it does not.
func look(fs pagemap.FS, pid pagemap.PID) (executable, malloc string) {
	executable, err := fs.Exe(pid)
	if err != nil {
		return "", ""
	}
	maps, err := fs.Maps(pid)
	if err != nil {
		return executable, ""
	}
	return executable, allocator(maps, executable, func(m *pagemap.Mapping) (string, bool) {
		// The very file that is mapped, wherever the process' root is and whatever has its name by now (3.3; needs
		// CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN).
		return definesMalloc(fs.Path(strconv.Itoa(int(pid)), "map_files", fmt.Sprintf("%x-%x", m.Start, m.End)))
	})
}
