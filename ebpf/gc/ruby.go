package gc

import (
	"debug/elf"
	"errors"
	"fmt"

	"cowaudit/pagemap"
)

// rubyFlag follows rb_during_gc and rb_gc_count.
//
//	3.1, 3.3: ruby_current_vm_ptr->objspace->flags.during_gc, with or without a test of the pointer
//	3.4:      the same, by way of rb_gc_get_objspace and rb_gc_impl_during_gc_p, in the function itself, in another one, or
//	          through a table of functions where the collector is a module of its own (--with-modular-gc)
//
// The pointers on the way are set when the VM is made and are the same in every process that is forked from it.
func rubyFlag(t *target, m *module, version string) (*Flag, string, error) {
	during, err := t.follow(m, "rb_during_gc")
	if err != nil {
		return nil, "", err
	}
	if during.mask == 0 || during.mask&(during.mask-1) != 0 || during.from.size == 0 || during.low {
		return nil, "", fmt.Errorf("%w: rb_during_gc returns something else than a bit of memory", errCode)
	}
	mask := during.mask << during.shift
	f := &Flag{Addr: during.from.addr, Size: uint8(during.from.size), During: Bits{mask, mask}}
	how := fmt.Sprintf("rb_during_gc of %s reads bit mask %#x at %#x", m.name(), mask, f.Addr)
	count, err := t.follow(m, "rb_gc_count")
	switch {
	case errors.Is(err, ErrNotYet) || errors.Is(err, pagemap.ErrGone):
		return nil, "", err
	case err == nil && count.pointer():
		f.Count, f.CountSize = count.from.addr, 8
	default:
		how += "; the count of collections was not found"
	}
	l, ok := layoutOf(version)
	if !ok {
		return f, how + fmt.Sprintf("; which of its other bits tell minor from major is not known of Ruby %q", version), nil
	}
	if mask != 1<<l.during || f.Addr%4 != 0 {
		return f, how + fmt.Sprintf(", which is not where Ruby %s has it: it was built otherwise, and its other bits are not used", version), nil
	}
	return rubyBits(t.mem, f, l), how + fmt.Sprintf("; other bits as in Ruby %s", version), nil
}

// rubyBits adds what the release's layout knows. The counters are taken only where they add up in the process: each
// collection is minor or major, and the kind is counted a moment after the sum.
func rubyBits(m memory, f *Flag, l rubyLayout) *Flag {
	f.Size = 4 // unsigned int
	mode := func(n uint64) *Bits { return &Bits{modeMask, n} }
	minor := bit(l.minor)
	f.Minor, f.Unsettled = &minor, mode(modeNone)
	f.Marking, f.Sweeping = mode(modeMarking), mode(modeSweeping)
	if l.moving.Mask != 0 {
		moving := l.moving
		f.Compacting = &moving
	}
	if f.Count == 0 {
		return f
	}
	at := f.Count - l.majorBack
	for range 8 { // the collector may be at work
		var n [3]uint64
		for i, addr := range []uint64{f.Count, at, at - 8} {
			var err error
			if n[i], err = word(m, addr, 8); err != nil {
				return f
			}
		}
		if sum := n[1] + n[2]; sum == n[0] || sum+1 == n[0] {
			f.MajorCount = at
			return f
		}
	}
	return f
}

// rubyVersion reads ruby_version (version.c), "3.3.8".
func rubyVersion(t *target, m *module) string {
	addr, ok := m.export("ruby_version")
	if !ok {
		return ""
	}
	s, err := text(t.mem, addr, 32)
	if err != nil {
		return ""
	}
	return s
}

// rubyNotes are the notes of probes.d that tell the phase. They do not say minor or major.
var rubyNotes = map[string]Event{
	"gc__mark__begin":  MarkBegin,
	"gc__mark__end":    MarkEnd,
	"gc__sweep__begin": SweepBegin,
	"gc__sweep__end":   SweepEnd,
}

// rubyProbes takes the functions of gc.c (gc/default/default.c) that call gc_enter and gc_exit, which are nearly always copied
// into their callers: between beginning and end of these the collector is at work. gc_start begins a collection, gc_rest ends
// one that is under way, gc_continue (3.3) or gc_marks_continue and gc_sweep_continue (before) go on with one. Without all of
// them a part of the collector's work would be seen as the application's. A collection in steps is several begins and ends.
//
// None has an argument that tells for certain whether the collection is a major one: gc_start may decide otherwise than its
// caller asked for.
func rubyProbes(m *module, list []elf.Symbol) ([]Probe, error) {
	var out []Probe
	take := func(f function) (bool, error) {
		found, _ := instances(list, f.name)
		p, err := pair(m, found, f)
		out = append(out, p...)
		return len(p) > 0, err
	}
	need := [][]string{{"gc_start"}, {"gc_rest"}, {"gc_continue"}}
	if found, _ := instances(list, "gc_continue"); len(found) == 0 {
		need[2] = []string{"gc_marks_continue", "gc_sweep_continue"}
	}
	for _, names := range need {
		for _, name := range names {
			ok, err := take(function{name, GCBegin, GCEnd})
			if err != nil {
				return nil, err
			}
			if !ok {
				return nil, fmt.Errorf("function %s, where the collector enters or leaves, is not whole there", name)
			}
		}
	}
	for _, f := range []function{{"gc_marks_rest", MarkBegin, MarkEnd}, {"gc_sweep", SweepBegin, SweepEnd}} {
		if _, err := take(f); err != nil { // the steps are told where they can be
			return nil, err
		}
	}
	return out, nil
}
