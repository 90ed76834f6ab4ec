package audit

import (
	"cmp"
	"slices"

	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

// sampleKey is what the copies of one sample have in common.
type sampleKey struct {
	pid    pagemap.PID
	region RegionKind
	phase  GCPhase
	step   GCStep
	frame  ebpf.FrameID
	stack  ebpf.StackID
	kernel bool
}

type sampleSum struct {
	copies, pages, identical int64
	compared                 bool
}

// profileBuilder gathers samples.
type profileBuilder struct {
	x    *traceIndex
	sums map[sampleKey]*sampleSum
}

func newProfileBuilder(x *traceIndex) profileBuilder {
	return profileBuilder{x: x, sums: map[sampleKey]*sampleSum{}}
}

// add counts copies; identical is nil where contents were not compared.
func (b *profileBuilder) add(k sampleKey, copies, pages int64, identical *int64) {
	s := sumAt(b.sums, k)
	s.copies += copies
	s.pages += pages
	if identical != nil {
		s.compared = true
		s.identical += *identical
	}
}

// profile puts the samples in order, the most copied pages first, and numbers the stacks and frames that they use.
func (b *profileBuilder) profile() Profile {
	p := Profile{Samples: []Sample{}, Stacks: []ProfileStack{}, Frames: []ProfileFrame{}}
	keys := make([]sampleKey, 0, len(b.sums))
	for k := range b.sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y sampleKey) int {
		return cmp.Or(cmp.Compare(b.sums[y].pages, b.sums[x].pages), cmp.Compare(b.sums[y].copies, b.sums[x].copies),
			cmp.Compare(x.pid, y.pid), cmp.Compare(x.region, y.region), cmp.Compare(x.phase, y.phase), cmp.Compare(x.step, y.step),
			cmp.Compare(x.frame, y.frame), cmp.Compare(x.stack, y.stack), cmpBool(x.kernel, y.kernel))
	})
	frames := map[ebpf.FrameID]int{}
	frame := func(id ebpf.FrameID) int {
		k, ok := frames[id]
		if !ok {
			k = len(p.Frames)
			frames[id] = k
			f := b.x.frame(id)
			p.Frames = append(p.Frames, ProfileFrame{
				Name: frameName(f), Function: f.Function, Module: f.Module, Path: f.Path, BuildID: f.BuildID, Offset: f.Offset,
				Addr: f.Addr, File: f.File, Line: f.Line,
			})
		}
		return k
	}
	type chain struct {
		stack ebpf.StackID
		frame ebpf.FrameID // of a chain that is the writing instruction alone
	}
	stacks := map[chain]int{}
	for _, key := range keys {
		c := chain{stack: key.stack}
		s := b.x.stack(key.stack)
		if len(s.Frames) == 0 {
			c, s = chain{frame: key.frame}, &ebpf.Stack{Frames: []ebpf.FrameID{key.frame}, Cut: true}
		}
		k, ok := stacks[c]
		if !ok {
			k = len(p.Stacks)
			stacks[c] = k
			ps := ProfileStack{Cut: s.Cut}
			for _, f := range s.Frames {
				ps.Frames = append(ps.Frames, frame(f))
			}
			p.Stacks = append(p.Stacks, ps)
		}
		sum := b.sums[key]
		one := Sample{
			PID: key.pid, Region: key.region, Phase: key.phase, Step: key.step, Stack: k, KernelMode: key.kernel,
			Copies: sum.copies, CopiedPages: sum.pages,
		}
		if sum.compared {
			one.Identical = &sum.identical
		}
		p.Samples = append(p.Samples, one)
	}
	return p
}
