package gc

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"cowaudit/pagemap"
)

// target is a process that is looked at.
type target struct {
	fs   pagemap.FS
	pid  pagemap.PID
	mem  memory
	code []pagemap.Mapping // executable mappings of files, ascending
	exe  string            // as /proc/PID/exe shows it; empty where that could not be read
}

func openTarget(fs pagemap.FS, pid pagemap.PID) (*target, func(), error) {
	maps, err := fs.Maps(pid)
	if err != nil {
		return nil, nil, err
	}
	mem, err := openMemory(fs, pid)
	if err != nil {
		return nil, nil, err
	}
	t := &target{fs: fs, pid: pid, mem: mem}
	for _, m := range maps {
		if m.Perms[2] == 'x' && m.Inode != 0 {
			t.code = append(t.code, m)
		}
	}
	t.exe, _ = os.Readlink(fs.Path(strconv.Itoa(int(pid)), "exe")) // names a candidate only
	return t, func() { mem.Close() }, nil
}

// executable reports whether an address lies in code that is mapped from a file.
func (t *target) executable(addr uint64) bool {
	i, _ := slices.BinarySearchFunc(t.code, pagemap.Addr(addr), func(m pagemap.Mapping, a pagemap.Addr) int {
		if m.End <= a {
			return -1
		}
		return 1
	})
	return i < len(t.code) && t.code[i].Start <= pagemap.Addr(addr)
}

// follow carries out an exported function.
func (t *target) follow(m *module, name string) (value, error) {
	entry, ok := m.export(name)
	if !ok {
		return value{}, fmt.Errorf("%w: %s does not export %s", errCode, m.name(), name)
	}
	v, err := follow(t.mem, entry, t.executable, m.bound)
	if err != nil {
		return value{}, fmt.Errorf("follow %s of %s: %w", name, m.name(), err)
	}
	return v, nil
}

// bound is the function that a slot of the PLT is for: what it holds, or, where it still leads back into the PLT (lazy
// binding), the module's own function of that name.
func (m *module) bound(slot, now uint64) uint64 {
	name, ok := m.lazy[slot-m.bias]
	if !ok {
		return now
	}
	plt := m.elf.Section(".plt")
	if plt == nil || now-m.bias < plt.Addr || now-m.bias >= plt.Addr+plt.Size {
		return now
	}
	if to, ok := m.export(name); ok {
		return to
	}
	return now
}

// candidates are the mappings of files that may hold a runtime: shared libraries by their names first, then the program.
// One for each file.
func (t *target) candidates() []pagemap.Mapping {
	var libraries, programs []pagemap.Mapping
	seen := map[string]bool{}
	for _, m := range t.code {
		if seen[m.Path] {
			continue
		}
		name := m.Path[strings.LastIndexByte(m.Path, '/')+1:]
		switch {
		case strings.HasPrefix(name, "libruby") || strings.HasPrefix(name, "libpython"):
			libraries = append(libraries, m)
		case m.Path == t.exe || strings.HasPrefix(name, "ruby") || strings.HasPrefix(name, "python"):
			programs = append(programs, m)
		default:
			continue
		}
		seen[m.Path] = true
	}
	return append(libraries, programs...)
}

// runtime is a module that has a runtime of a known kind in it.
type runtime struct {
	*module
	kind    string // "ruby", "python"
	version string
}

// runtime finds the module that holds a runtime. nil without an error: there is none; why says what was seen.
func (t *target) runtime() (r *runtime, why string, err error) {
	var troubles []string
	for _, at := range t.candidates() {
		m, err := openModule(t.fs, t.pid, at)
		if err != nil && t.isGone() {
			return nil, "", fmt.Errorf("%w: %w", pagemap.ErrGone, err)
		}
		if err != nil {
			troubles = append(troubles, err.Error())
			continue
		}
		if _, ok := m.export("rb_during_gc"); ok {
			return &runtime{m, "ruby", rubyVersion(t, m)}, "", nil
		}
		if _, ok := m.export("PyGC_Collect"); ok {
			return &runtime{m, "python", pythonVersion(t, m)}, "", nil
		}
		if strings.HasPrefix(m.name(), "libruby") || strings.HasPrefix(m.name(), "libpython") {
			troubles = append(troubles, m.name()+" exports neither rb_during_gc nor PyGC_Collect")
		}
		m.Close()
	}
	return nil, strings.Join(troubles, "; "), nil
}

func (t *target) isGone() bool {
	_, err := t.fs.Stat(t.pid)
	return err != nil
}
