package gc

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// function is a function of the collector and what its beginning and end mean.
type function struct {
	name       string
	begin, end Event
}

// debugDir is where distributions put separate debug files.
const debugDir = "/usr/lib/debug"

// localSymbols gives the functions of the module's symbol table: its own, or that of the debug file with its build-id, as the
// process sees the file system or as this one does. from says which.
func (t *target) localSymbols(m *module) (list []elf.Symbol, from string, err error) {
	list, err = m.elf.Symbols()
	if err == nil {
		return list, m.name(), nil
	}
	if !errors.Is(err, elf.ErrNoSymbols) {
		return nil, "", fmt.Errorf("read symbols of %s: %w", m.name(), err)
	}
	id := buildID(m.elf)
	if len(id) < 4 {
		return nil, "", fmt.Errorf("%s has no symbols, and no build-id to find debug symbols by", m.name())
	}
	name := filepath.Join(debugDir, ".build-id", id[:2], id[2:]+".debug")
	for _, path := range []string{t.fs.Path(strconv.Itoa(int(t.pid)), "root") + name, name} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		list, err := debugSymbols(f, id)
		f.Close()
		if err == nil {
			return list, path, nil
		}
	}
	return nil, "", fmt.Errorf("%s has no symbols, and there is no debug file of build-id %s", m.name(), id)
}

func debugSymbols(f *os.File, id string) ([]elf.Symbol, error) {
	e, err := elf.NewFile(f)
	if err != nil {
		return nil, err
	}
	if buildID(e) != id {
		return nil, errors.New("another build-id")
	}
	return e.Symbols()
}

func (t *target) bySymbols(r *runtime) (way, error) {
	list, from, err := t.localSymbols(r.module)
	if err != nil {
		return way{}, err
	}
	var probes []Probe
	if r.kind == "ruby" {
		probes, err = rubyProbes(r.module, list)
	} else {
		probes, err = pythonProbes(r.module, list, r.version)
	}
	if err != nil {
		return way{}, fmt.Errorf("%s: %w", from, err)
	}
	return way{provider: ProviderSymbols, probes: probes, why: fmt.Sprintf("functions of the collector by the symbols of %s", from)}, nil
}

// instances are the places of a function: itself, and the copies that GCC made with other arguments (.constprop, .isra) or
// renamed (.lto_priv). Where a part of it was moved to another function (.part), its beginning may be copied into callers,
// and its symbols do not find all of it: none is given. plain says that there is one, with its arguments as in the source.
func instances(list []elf.Symbol, name string) (found []elf.Symbol, plain bool) {
	plain = true
	for _, s := range list {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 || s.Section == elf.SHN_UNDEF {
			continue
		}
		rest, ok := strings.CutPrefix(s.Name, name)
		switch {
		case !ok || rest != "" && rest[0] != '.' || strings.HasSuffix(rest, ".cold"):
			continue
		case strings.Contains(rest, ".part"):
			return nil, false
		}
		plain = plain && (rest == "" || strings.HasPrefix(rest, ".lto_priv"))
		found = append(found, s)
	}
	return found, plain && len(found) == 1
}

// pair makes the two probes of each instance of a function.
func pair(m *module, found []elf.Symbol, f function) ([]Probe, error) {
	var out []Probe
	for _, s := range found {
		off, ok := m.offset(s.Value)
		if !ok {
			return nil, fmt.Errorf("%s at %#x is in no part of %s", s.Name, s.Value, m.name())
		}
		out = append(out, Probe{Event: f.begin, Name: s.Name, Offset: off}, Probe{Event: f.end, Name: s.Name, Offset: off, Return: true})
	}
	return out, nil
}
