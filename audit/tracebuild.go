package audit

import (
	"cmp"
	"fmt"
	"slices"

	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// TraceOptions say what a TraceReport is about.
type TraceOptions struct {
	Version string // of cowaudit
	OnlyGC  bool   // leave out of the tables what faulted outside of a collection, or where that is not known
}

// NewTraceReport sums a trace up. The error wraps [ErrConservation].
func NewTraceReport(t *ebpf.Trace, o TraceOptions) (*TraceReport, error) {
	b := newTraceBuilder(t, o)
	for i := range t.Counts {
		b.add(&t.Counts[i])
	}
	r := b.report()
	if err := CheckTrace(r); err != nil {
		return nil, err
	}
	r.Findings = FindingsForTrace(r)
	return r, nil
}

// traceIndex finds the parts of a trace by their numbers.
type traceIndex struct {
	trace   *ebpf.Trace
	spaces  map[ebpf.SpaceID]*ebpf.Space
	regions map[ebpf.RegionID]*ebpf.Region
	kinds   map[ebpf.SpaceID][]RegionKind // of each space's mappings
}

func newTraceIndex(t *ebpf.Trace) *traceIndex {
	x := &traceIndex{trace: t, spaces: map[ebpf.SpaceID]*ebpf.Space{}, regions: map[ebpf.RegionID]*ebpf.Region{}, kinds: map[ebpf.SpaceID][]RegionKind{}}
	for i := range t.Spaces {
		s := &t.Spaces[i]
		x.spaces[s.ID] = s
		x.kinds[s.ID] = regionKinds(s.Mappings)
	}
	for i := range t.Regions {
		x.regions[t.Regions[i].ID] = &t.Regions[i]
	}
	return x
}

func (x *traceIndex) pid(id ebpf.SpaceID) pagemap.PID {
	if s := x.spaces[id]; s != nil {
		return s.Process.PID
	}
	return 0
}

// region says what the memory of a region is for, and the file it maps. What the process' own list of mappings did not
// show any more is unknown: the kernel's name and the neighbours are what tells.
func (x *traceIndex) region(id ebpf.RegionID) (RegionKind, string) {
	g := x.regions[id]
	if g == nil || !g.Named {
		return RegionUnknown, ""
	}
	path := ""
	if g.Mapping.Inode != 0 {
		path = g.Mapping.Path
	}
	kind := regionKind(&g.Mapping)
	if s := x.spaces[g.Space]; s != nil && kind == RegionOther {
		// The .bss is told by its neighbour.
		if k := mappingAt(s.Mappings, g.Mapping.Start); k < len(s.Mappings) && s.Mappings[k].Start == g.Mapping.Start && s.Mappings[k].Path == g.Mapping.Path {
			kind = x.kinds[g.Space][k]
		}
	}
	return kind, path
}

// frame gives a place in code; the unknown one where there is none of that number.
func (x *traceIndex) frame(id ebpf.FrameID) *ebpf.Frame {
	if int(id) < len(x.trace.Frames) {
		return &x.trace.Frames[id]
	}
	return &ebpf.Frame{}
}

func frameName(f *ebpf.Frame) string {
	return cmp.Or(f.Name, f.Function, unknownFunction)
}

// unknownFunction is printed where not even the module is known.
const unknownFunction = "[unknown]"

func (x *traceIndex) stack(id ebpf.StackID) *ebpf.Stack {
	if int(id) < len(x.trace.Stacks) {
		return &x.trace.Stacks[id]
	}
	return &ebpf.Stack{}
}

// traceBuilder sums a trace up.
type traceBuilder struct {
	*traceIndex
	o         TraceOptions
	inTables  FaultCounts
	leftOut   FaultCounts
	spaces    map[ebpf.SpaceID]*FaultCounts
	regions   map[regionKey]*FaultCounts
	functions map[functionKey]*functionSum
	stacks    map[ebpf.StackID]*FaultCounts
	phases    map[phaseKey]*FaultCounts
	gcs       map[gcKey]*Collection
	profile   profileBuilder
	hasStacks bool
}

type regionKey struct {
	kind RegionKind
	path string
}

// functionKey is what one row of by_function has in common. Two builds of one module are two rows.
type functionKey struct{ name, module, path, buildID string }

type phaseKey struct {
	phase GCPhase
	step  GCStep
}

type gcKey struct {
	space ebpf.SpaceID
	seq   uint32
	phase GCPhase
}

// functionSum is a row of by_function in the making.
type functionSum struct {
	FaultCounts
	phases PhaseCounts
	lines  map[sourceLine]int64 // copied pages
}

type sourceLine struct {
	file string
	line int
}

func newTraceBuilder(t *ebpf.Trace, o TraceOptions) *traceBuilder {
	x := newTraceIndex(t)
	b := &traceBuilder{
		traceIndex: x, o: o, spaces: map[ebpf.SpaceID]*FaultCounts{}, regions: map[regionKey]*FaultCounts{},
		functions: map[functionKey]*functionSum{}, stacks: map[ebpf.StackID]*FaultCounts{}, phases: map[phaseKey]*FaultCounts{},
		gcs: map[gcKey]*Collection{}, profile: newProfileBuilder(x), hasStacks: len(t.Stacks) > 1,
	}
	return b
}

func sumAt[K comparable, V any](m map[K]*V, k K) *V {
	v := m[k]
	if v == nil {
		v = new(V)
		m[k] = v
	}
	return v
}

// add counts one entry of a trace's counts.
func (b *traceBuilder) add(c *ebpf.Count) {
	var n FaultCounts
	n.count(c, b.trace.PageSize)
	phase, step := gcPhase(c.GC.Phase), gcStep(c.GC.Step)
	if b.o.OnlyGC && !phase.During() {
		b.leftOut.Add(&n)
		return
	}
	kind, path := b.region(c.Region)
	b.inTables.Add(&n)
	sumAt(b.spaces, c.Space).Add(&n)
	sumAt(b.regions, regionKey{kind, path}).Add(&n)
	sumAt(b.phases, phaseKey{phase, step}).Add(&n)
	if b.hasStacks {
		sumAt(b.stacks, c.Stack).Add(&n)
	}
	f := b.frame(c.Frame)
	fn := sumAt(b.functions, functionKey{frameName(f), f.Module, f.Path, f.BuildID})
	fn.Add(&n)
	fn.phases.add(phase, n.CopiedPages)
	if f.File != "" {
		if fn.lines == nil {
			fn.lines = map[sourceLine]int64{}
		}
		fn.lines[sourceLine{f.File, f.Line}] += n.CopiedPages
	}
	if phase.During() {
		g := sumAt(b.gcs, gcKey{c.Space, c.GC.Seq, phase})
		g.Faults += c.Faults
		g.Copies += n.Copied
		g.CopiedPages += n.CopiedPages
	}
	if c.Kind == ebpf.KindCopied {
		b.profile.add(sampleKey{
			pid: b.pid(c.Space), region: kind, phase: phase, step: step, frame: c.Frame, stack: c.Stack,
			kernel: c.Detail&ebpf.DetailKernel != 0,
		}, c.Faults, c.Pages, nil)
	}
}

func gcPhase(p ebpf.Phase) GCPhase {
	switch p {
	case ebpf.PhaseNone:
		return GCNone
	case ebpf.PhaseMinor:
		return GCMinor
	case ebpf.PhaseMajor:
		return GCMajor
	case ebpf.PhaseGC:
		return GCSome
	}
	return GCUnknown
}

func gcStep(s ebpf.Step) GCStep {
	switch s {
	case ebpf.StepNone:
		return StepNone
	case ebpf.StepMarking:
		return StepMarking
	case ebpf.StepSweeping:
		return StepSweeping
	case ebpf.StepCompacting:
		return StepCompacting
	}
	return StepUnknown
}

func (p *PhaseCounts) add(phase GCPhase, n int64) {
	switch phase {
	case GCNone:
		p.None += n
	case GCMinor:
		p.Minor += n
	case GCMajor:
		p.Major += n
	case GCSome:
		p.GC += n
	default:
		p.Unknown += n
	}
}

// Sum gives all of them.
func (p *PhaseCounts) Sum() int64 { return p.None + p.Minor + p.Major + p.GC + p.Unknown }

// report puts the tables in order.
func (b *traceBuilder) report() *TraceReport {
	t := b.trace
	r := &TraceReport{
		SchemaVersion: SchemaVersion, Kind: KindTrace, Version: b.o.Version,
		Trace: TraceFacts{
			Host: t.Host, Kernel: t.Kernel, TimeUnixNano: t.Began.UnixNano(), DurationNano: t.Duration.Nanoseconds(), PageSize: t.PageSize,
			Variant: t.Variant, SeesQuiet: t.Quiet, Each: t.Faults != nil, Stacks: b.hasStacks, OnlyGC: b.o.OnlyGC,
		},
		InTables: b.inTables, LeftOut: b.leftOut, ByRegion: []RegionRow{}, ByFunction: []FunctionRow{}, ByStack: []StackRow{},
		ByPhase: []PhaseRow{}, GC: b.collections(), Processes: b.processes(), Profile: b.profile.profile(),
		Findings: []Finding{}, Warnings: TraceWarnings(t), Lost: LostParts(t.Lost),
	}
	r.Faults = b.totals()
	for k, n := range b.regions {
		r.ByRegion = append(r.ByRegion, RegionRow{k.kind, k.path, *n})
	}
	slices.SortFunc(r.ByRegion, func(x, y RegionRow) int {
		return cmp.Or(x.compare(&y.FaultCounts), cmp.Compare(x.Region, y.Region), cmp.Compare(x.Path, y.Path))
	})
	for k, n := range b.functions {
		row := FunctionRow{Name: k.name, Module: k.module, Path: k.path, BuildID: k.buildID, FaultCounts: n.FaultCounts, CopiedByPhase: n.phases}
		row.File, row.Line = mostOf(n.lines)
		r.ByFunction = append(r.ByFunction, row)
	}
	slices.SortFunc(r.ByFunction, func(x, y FunctionRow) int {
		return cmp.Or(x.compare(&y.FaultCounts), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Path, y.Path), cmp.Compare(x.Module, y.Module), cmp.Compare(x.BuildID, y.BuildID))
	})
	r.ByStack = append(r.ByStack, b.stackRows()...)
	for k, n := range b.phases {
		r.ByPhase = append(r.ByPhase, PhaseRow{k.phase, k.step, *n})
	}
	slices.SortFunc(r.ByPhase, func(x, y PhaseRow) int {
		return cmp.Or(x.compare(&y.FaultCounts), cmp.Compare(x.Phase, y.Phase), cmp.Compare(x.Step, y.Step))
	})
	return r
}

// mostOf gives the source line with the most copies.
func mostOf(lines map[sourceLine]int64) (string, int) {
	var best sourceLine
	most := int64(-1)
	for l, n := range lines {
		if n > most || n == most && cmp.Or(cmp.Compare(l.file, best.file), cmp.Compare(l.line, best.line)) < 0 {
			best, most = l, n
		}
	}
	return best.file, best.line
}

// stackRows joins stacks that read the same.
func (b *traceBuilder) stackRows() (out []StackRow) {
	where := map[string]int{}
	for id, n := range b.stacks {
		s := b.stack(id)
		row := StackRow{Frames: []string{}, Cut: s.Cut, FaultCounts: *n}
		for _, f := range s.Frames {
			row.Frames = append(row.Frames, frameName(b.frame(f)))
		}
		key := fmt.Sprintf("%v %q", row.Cut, row.Frames)
		if k, ok := where[key]; ok {
			out[k].Add(n)
			continue
		}
		where[key] = len(out)
		out = append(out, row)
	}
	slices.SortFunc(out, func(x, y StackRow) int {
		return cmp.Or(x.compare(&y.FaultCounts), slices.Compare(x.Frames, y.Frames), cmpBool(x.Cut, y.Cut))
	})
	return out
}

func (b *traceBuilder) collections() []Collection {
	out := []Collection{}
	for i := range b.trace.Faults {
		f := &b.trace.Faults[i]
		if g := b.gcs[gcKey{f.Space, f.GC.Seq, gcPhase(f.GC.Phase)}]; g != nil {
			ns := f.Time.Nanoseconds()
			if g.FirstNano == nil {
				g.FirstNano, g.LastNano = &ns, &ns
			}
			first, last := min(*g.FirstNano, ns), max(*g.LastNano, ns)
			g.FirstNano, g.LastNano = &first, &last
		}
	}
	keys := make([]gcKey, 0, len(b.gcs))
	for k := range b.gcs {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y gcKey) int {
		return cmp.Or(cmp.Compare(x.space, y.space), cmp.Compare(x.seq, y.seq), cmp.Compare(x.phase, y.phase))
	})
	for _, k := range keys {
		g := *b.gcs[k]
		g.PID, g.Seq, g.Kind = b.pid(k.space), k.seq, k.phase
		out = append(out, g)
	}
	return out
}

var causes = map[ebpf.Cause]string{ebpf.CauseStart: "start", ebpf.CauseFork: "fork", ebpf.CauseExec: "exec"}

// processes gives every address space of the trace, in the order in which they came up, then what belongs to none of them.
func (b *traceBuilder) processes() []Traced {
	out := []Traced{}
	for i := range b.trace.Spaces {
		s := &b.trace.Spaces[i]
		p := Traced{
			PID: s.Process.PID, StartTicks: s.Process.Start, ParentPID: b.pid(s.Parent), Command: s.Command,
			Cause: cmp.Or(causes[s.Cause], "unknown"), BeganNano: s.Began.Nanoseconds(), EndedNano: s.Ended.Nanoseconds(),
			Collector: Collector(s.Provider),
		}
		if s.Cause == ebpf.CauseExec {
			p.ParentPID = 0 // the space before is of the same process
			if q := b.traceIndex.spaces[s.Parent]; q != nil {
				p.ParentPID = b.pid(q.Parent)
			}
		}
		if n := b.spaces[s.ID]; n != nil {
			p.FaultCounts = *n
		}
		out = append(out, p)
	}
	for id, n := range b.spaces {
		if b.traceIndex.spaces[id] == nil {
			k := len(out) - 1
			if k < len(b.trace.Spaces) {
				out = append(out, Traced{Cause: "unknown", Collector: Collector{Name: "none"}})
				k++
			}
			out[k].Add(n)
		}
	}
	return out
}

// totals takes the kernel's own totals, and what is in no table.
func (b *traceBuilder) totals() FaultTotals {
	var f FaultTotals
	for k := range b.trace.Totals {
		n := &b.trace.Totals[k]
		f.count(&ebpf.Count{Kind: ebpf.Kind(k), Faults: n.Faults, Pages: n.Pages}, b.trace.PageSize)
	}
	f.KernelMode = b.inTables.KernelMode + b.leftOut.KernelMode
	f.WithoutFault = b.inTables.WithoutFault + b.leftOut.WithoutFault
	f.FromSwap = b.inTables.FromSwap + b.leftOut.FromSwap
	f.Lost = f.Total() - f.Read - (b.inTables.Total() - b.inTables.Read) - (b.leftOut.Total() - b.leftOut.Read)
	return f
}
