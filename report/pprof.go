package report

import (
	"compress/gzip"
	"fmt"
	"io"
	"sort"

	pprof "github.com/google/pprof/profile"

	"cowaudit/audit"
)

// Pprof writes the copies of a trace, or of a traced fork test, as a gzip'd profile.proto, which "go tool pprof" opens:
//
//   - sample types: copies (faults; in a fork test pages), bytes, and, only where every copied page was compared, identical
//     (bytes of pages on which nothing changed);
//   - labels: pid, command, region, phase, step where it is known, mode=kernel where a system call wrote, and of a fork test
//     event;
//   - a mapping for each file, with its build ID; the addresses of locations are the file's own (link-time), so that a
//     profile of many processes has each instruction once.
//
// Where stacks were not taken, or one could not be, a sample's stack is the writing instruction alone.
func Pprof(w io.Writer, v any) error {
	p, err := profileOf(v)
	if err != nil {
		return err
	}
	b := newPprofBuilder(p)
	for i := range p.parts {
		b.part(&p.parts[i])
	}
	out := b.finish()
	if err := out.CheckValid(); err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	z := gzip.NewWriter(w)
	if err := out.WriteUncompressed(z); err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	return nil
}

type pprofBuilder struct {
	p         *profile
	out       *pprof.Profile
	identical bool
	mappings  map[[2]string]*pprof.Mapping // by path and build ID
	functions map[[3]string]*pprof.Function
	locations map[pprofPlace]*pprof.Location
}

// pprofPlace is what makes two frames the same location.
type pprofPlace struct {
	mapping  *pprof.Mapping
	function *pprof.Function
	address  uint64
	line     int
}

func newPprofBuilder(p *profile) *pprofBuilder {
	b := &pprofBuilder{
		p: p, identical: p.compared(), mappings: map[[2]string]*pprof.Mapping{}, functions: map[[3]string]*pprof.Function{},
		locations: map[pprofPlace]*pprof.Location{},
		out: &pprof.Profile{
			SampleType:        []*pprof.ValueType{{Type: "copies", Unit: "count"}, {Type: "bytes", Unit: "bytes"}},
			DefaultSampleType: "bytes", TimeNanos: p.time, DurationNanos: p.duration,
			PeriodType: &pprof.ValueType{Type: "copies", Unit: "count"}, Period: 1,
			Comments: append([]string{"cowaudit: " + p.what}, p.comments...),
		},
	}
	if b.identical {
		b.out.SampleType = append(b.out.SampleType, &pprof.ValueType{Type: "identical", Unit: "bytes"})
	} else {
		b.out.Comments = append(b.out.Comments, "what the writes changed was not compared: there is no sample type \"identical\"")
	}
	return b
}

func (b *pprofBuilder) part(part *profilePart) {
	for i := range part.profile.Samples {
		s := &part.profile.Samples[i]
		values := []int64{s.Copies, int64(pagesToBytes(s.CopiedPages, b.p.page))}
		if b.identical {
			values = append(values, int64(pagesToBytes(*s.Identical, b.p.page)))
		}
		label := map[string][]string{"pid": {fmt.Sprint(s.PID)}, "region": {string(s.Region)}, "phase": {string(s.Phase)}}
		if s.Step != audit.StepUnknown && s.Step != audit.StepNone {
			label["step"] = []string{string(s.Step)}
		}
		if s.KernelMode {
			label["mode"] = []string{"kernel"}
		}
		if name := part.program(s.PID); name != "" {
			label["command"] = []string{name}
		}
		if part.event != "" {
			label["event"] = []string{printable(part.event)}
		}
		var chain []*pprof.Location
		for _, f := range part.profile.Stacks[s.Stack].Frames {
			chain = append(chain, b.location(&part.profile.Frames[f]))
		}
		if len(chain) == 0 {
			chain = []*pprof.Location{b.location(&audit.ProfileFrame{Name: "[unknown]"})}
		}
		b.out.Sample = append(b.out.Sample, &pprof.Sample{Location: chain, Value: values, Label: label})
	}
}

func (b *pprofBuilder) location(f *audit.ProfileFrame) *pprof.Location {
	at := pprofPlace{mapping: b.mapping(f), function: b.function(f), address: f.Addr, line: f.Line}
	if at.mapping != nil {
		at.address = f.Offset
		at.mapping.Limit = max(at.mapping.Limit, f.Offset+1)
	}
	l := b.locations[at]
	if l == nil {
		l = &pprof.Location{
			ID: uint64(len(b.locations) + 1), Mapping: at.mapping, Address: at.address,
			Line: []pprof.Line{{Function: at.function, Line: int64(f.Line)}},
		}
		b.locations[at] = l
		b.out.Location = append(b.out.Location, l)
	}
	return l
}

// mapping gives the file of a frame; nil for code of no file (JIT code, or a mapping that is not known).
func (b *pprofBuilder) mapping(f *audit.ProfileFrame) *pprof.Mapping {
	if f.Module == "" && f.Path == "" {
		return nil
	}
	path := f.Path
	if path == "" {
		path = f.Module
	}
	k := [2]string{path, f.BuildID}
	m := b.mappings[k]
	if m == nil {
		m = &pprof.Mapping{ID: uint64(len(b.mappings) + 1), File: printable(path), BuildID: f.BuildID, HasFunctions: true}
		b.mappings[k] = m
		b.out.Mapping = append(b.out.Mapping, m)
	}
	// pprof must not put a name of its own in the place of module+offset: every frame has its name already.
	if f.File != "" {
		m.HasFilenames, m.HasLineNumbers = true, true
	}
	return m
}

func (b *pprofBuilder) function(f *audit.ProfileFrame) *pprof.Function {
	k := [3]string{f.Name, f.File, f.Path}
	fn := b.functions[k]
	if fn == nil {
		fn = &pprof.Function{ID: uint64(len(b.functions) + 1), Name: printable(f.Name), SystemName: printable(f.Name), Filename: printable(f.File)}
		b.functions[k] = fn
		b.out.Function = append(b.out.Function, fn)
	}
	return fn
}

// finish rounds the ends of the mappings up to whole pages.
func (b *pprofBuilder) finish() *pprof.Profile {
	page := uint64(b.p.page)
	for _, m := range b.out.Mapping {
		m.Limit = (m.Limit + page - 1) / page * page
	}
	// The first mapping is taken for the program's own file: the one with the most copies.
	weight := map[*pprof.Mapping]int64{}
	for _, s := range b.out.Sample {
		if m := s.Location[0].Mapping; m != nil {
			weight[m] += s.Value[0]
		}
	}
	sort.SliceStable(b.out.Mapping, func(i, j int) bool { return weight[b.out.Mapping[i]] > weight[b.out.Mapping[j]] })
	for i, m := range b.out.Mapping {
		m.ID = uint64(i + 1)
	}
	return b.out
}
