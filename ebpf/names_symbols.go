package ebpf

import (
	"fmt"

	"cowaudit/internal/symbols"
	"cowaudit/pagemap"
)

func newNames(o *Options) *names {
	r := symbols.New(symbols.Options{FS: o.FS, DebugDirs: o.DebugDirs, Lines: o.Lines})
	return &names{
		open: func(pid pagemap.PID) (codeSpace, error) {
			s, err := r.Space(pid)
			if err != nil {
				return nil, err
			}
			return symbolSpace{s}, nil
		},
		shut: r.Close,
		problems: func() (w []pagemap.Warning) {
			for _, p := range r.Problems() {
				w = append(w, pagemap.Warning{
					Code: "symbols", Text: fmt.Sprintf("symbols of %s: %v", p.Path, p.Err),
					Remedy: "its functions are shown as module and offset",
				})
			}
			return w
		},
		spaces: map[SpaceID]codeSpace{},
	}
}

// symbolSpace is a space of the symbol look-up in this package's words.
type symbolSpace struct{ s *symbols.Space }

func (s symbolSpace) Refresh() error { return s.s.Refresh() }

func (s symbolSpace) Child() codeSpace { return symbolSpace{s.s.Child()} }

func (s symbolSpace) Lookup(addr uint64) Frame { return frame(s.s.Lookup(addr)) }

func (s symbolSpace) Stack(addrs []uint64) ([]Frame, bool) {
	found, cut := s.s.Stack(addrs)
	frames := make([]Frame, len(found))
	for i := range found {
		frames[i] = frame(found[i])
	}
	return frames, cut
}

func frame(f symbols.Frame) Frame {
	source := ""
	if f.From != symbols.SourceNone {
		source = f.From.String()
	}
	return Frame{
		Addr: f.Addr, Module: f.Module, Path: f.Path, BuildID: f.BuildID, Offset: f.Offset, Function: f.Function,
		FunctionOffset: f.FunctionOffset, File: f.File, Line: f.Line, Source: source, Name: f.String(),
	}
}
