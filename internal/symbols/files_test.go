package symbols

import (
	"debug/elf"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Small files of each kind, as they are: whole, stripped with mini-debuginfo packed by xz, 32-bit.
func TestSmallFiles(t *testing.T) {
	type answer struct {
		name string
		from Source
	}
	for _, c := range []struct {
		file string
		want map[string]answer // by the file's symbol, or that of whole.elf
		line bool
	}{
		{"whole.elf", map[string]answer{"exported_before": {"exported_before", SourceSymtab}, "hidden_writer": {"hidden_writer", SourceSymtab}}, true},
		{"stripped.elf", map[string]answer{"exported_before": {"exported_before", SourceDynsym}, "hidden_writer": {"hidden_writer", SourceMini}}, false},
		{"w32.elf", map[string]answer{"exported_before": {"exported_before", SourceSymtab}, "hidden_writer": {"hidden_writer", SourceSymtab}}, false},
	} {
		f, err := os.Open(filepath.Join("testdata", "elf", c.file))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r := resolver(t, Options{Lines: true})
		m := &module{r: r, path: c.file, file: f, data: f}
		reference := "testdata/elf/whole.elf"
		if c.file == "w32.elf" {
			reference = "testdata/elf/w32.elf"
		}
		for name, want := range c.want {
			s := symbolOf(t, reference, name)
			got := Frame{Offset: s.Value + s.Size - 1}
			if err := m.open(); err != nil {
				t.Fatal(err)
			}
			m.name(&got)
			if got.Function != want.name || got.From != want.from || got.FunctionOffset != s.Size-1 || got.Size != s.Size || (got.Line > 0) != c.line {
				t.Errorf("%s, %s: %+v, want %v", c.file, name, got, want)
			}
		}
		noProblems(t, r)
	}
}

// Whatever is mapped in a process: at random addresses the name is one whose symbol covers the address, and there is none
// only where no symbol with a size does. The symbols are read by debug/elf, and looked through one by one.
func TestAgainstEverySymbol(t *testing.T) {
	h := hold(t)
	h.load(library(t, t.TempDir(), "libnames.so", "names.c"), "plain")
	for _, pid := range []int{h.PID(), os.Getpid()} {
		r := resolver(t, Options{})
		s := space(t, r, pid)
		checked, named := 0, 0
		for _, c := range s.live {
			if c.kind != kindFile || c.mod == nil {
				continue
			}
			list := everySymbol(t, c.mod.file)
			for range 500 {
				addr := uint64(c.m.Start) + rand.Uint64N(uint64(c.m.End-c.m.Start))
				got := s.Lookup(addr)
				checked++
				var covering []string
				for _, y := range list {
					if got.Offset >= y.Value && got.Offset-y.Value < y.Size {
						covering = append(covering, readable(y.Name))
					}
				}
				all := "\n" + strings.Join(covering, "\n") + "\n"
				switch {
				case got.Sizeless && len(covering) > 0, got.Function == "" && len(covering) > 0:
					t.Errorf("%s+%#x: %v, and these cover it: %q", c.name, got.Offset, got, covering)
				case got.Function != "" && !got.Sizeless && !strings.Contains(all, "\n"+got.Function+"\n"):
					t.Errorf("%s+%#x: %v, and only these cover it: %q", c.name, got.Offset, got, covering)
				case got.Function != "":
					named++
				}
			}
		}
		if checked < 500 || pid == h.PID() && named == 0 {
			t.Errorf("%d addresses of %d looked up, %d named", checked, pid, named)
		}
	}
}

// everySymbol gives the functions and labels of a file, as debug/elf reads them.
func everySymbol(t *testing.T, file *os.File) (out []elf.Symbol) {
	t.Helper()
	f, err := elf.NewFile(file)
	if err != nil {
		t.Fatal(err)
	}
	syms, _ := f.Symbols() // an error is a file without them
	dyn, _ := f.DynamicSymbols()
	for _, s := range append(syms, dyn...) {
		if k := elf.ST_TYPE(s.Info); s.Section != elf.SHN_UNDEF && s.Section != elf.SHN_ABS && s.Name != "" && (k == elf.STT_FUNC || k == elf.STT_GNU_IFUNC || k == elf.STT_NOTYPE) {
			out = append(out, s)
		}
	}
	return out
}
