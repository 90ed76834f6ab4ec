package gc

import (
	"debug/elf"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cowaudit/pagemap"

	"golang.org/x/arch/x86/x86asm"
)

// pythonFull is the generation whose collection is a full one: the oldest of three.
const pythonFull = 2

// pythonNotes are the notes of Include/pydtrace.d. gc__start has the generation, decided.
var pythonNotes = map[string]Event{"gc__start": GCBegin, "gc__done": GCEnd}

// Offsets in struct _gc_runtime_state (Include/internal/pycore_gc.h, pycore_pymem.h in 3.8) of CPython 3.8 to 3.13, on
// x86-64: trash_delete_later 0, trash_delete_nesting 8, enabled 12, debug 16, generations 24 (three of 24 bytes),
// generation0 96, permanent_generation 104, generation_stats 128 (three of three words), collecting 200.
const (
	pyEnabled     = 12
	pyGenerations = 24
	pyGeneration0 = 96 // points to generations
	pyFullCount   = 128 + 2*24
	pyCollecting  = 200
)

var pythonName = regexp.MustCompile(`python(\d+)\.(\d+)`)

// pythonVersion is Py_Version (since 3.11, PY_VERSION_HEX), "3.11.2", else what the file's name says, "3.9".
func pythonVersion(t *target, m *module) string {
	if addr, ok := m.export("Py_Version"); ok {
		if v, err := word(t.mem, addr, 8); err == nil && v>>24 == 3 {
			return fmt.Sprintf("%d.%d.%d", v>>24, v>>16&0xff, v>>8&0xff)
		}
	}
	if f := pythonName.FindStringSubmatch(m.name()); f != nil {
		return f[1] + "." + f[2]
	}
	return ""
}

// series is the first two numbers of a version.
func series(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// pythonFlag finds the word "collecting" of the main interpreter's collector.
func pythonFlag(t *target, m *module, version string) (*Flag, string, error) {
	var addr uint64
	var how string
	var err error
	switch series := series(version); series {
	case "3.8", "3.9", "3.10", "3.11", "3.12":
		addr, err = pythonByCode(t, m, series)
		how = "PyGC_Collect of " + m.name() + " says where its collector keeps its state"
	case "3.13":
		addr, err = pythonByOffsets(t, m)
		how = "_PyRuntime of " + m.name() + " says where its collector keeps its state"
	default:
		return nil, "", fmt.Errorf("%w: where the collector of Python %q keeps its state is not known", errCode, version)
	}
	if err != nil {
		return nil, "", err
	}
	if err := checkPython(t.mem, addr-pyCollecting); err != nil {
		return nil, "", fmt.Errorf("%s, at %#x: %w", how, addr, err)
	}
	return &Flag{
		Addr: addr, Size: 4, During: Bits{1<<32 - 1, 1},
		MajorCount: addr - pyCollecting + pyFullCount, CountSize: 8,
	}, how + "; it does not tell which generation is collected, and is the main interpreter's", nil
}

// checkPython holds what was found against the structure that it must lie in: generation0 points to the first of the
// generations, which precede it.
func checkPython(m memory, state uint64) error {
	head, err := word(m, state+pyGeneration0, 8)
	if err != nil {
		return err
	}
	enabled, err := word(m, state+pyEnabled, 4)
	if err != nil {
		return err
	}
	collecting, err := word(m, state+pyCollecting, 4)
	if err != nil {
		return err
	}
	switch {
	case head == 0 && enabled == 0 && collecting == 0:
		return ErrNotYet
	case head != state+pyGenerations || enabled > 1 || collecting > 1:
		return fmt.Errorf("%w: this is not the state of a collector", errCode)
	}
	return nil
}

// pythonByCode reads PyGC_Collect: it returns at once where enabled is 0 or collecting is not, and else stores 1 in collecting:
// two words of one structure by the same register, a known distance apart. The structure is part of the interpreter's state,
// in 3.8 of _PyRuntime.
func pythonByCode(t *target, m *module, series string) (uint64, error) {
	found, absolute, err := collectingOperand(t, m)
	if err != nil || absolute {
		return found, err
	}
	if series == "3.8" {
		base, ok := m.export("_PyRuntime")
		if !ok {
			return 0, fmt.Errorf("%w: %s does not export _PyRuntime", errCode, m.name())
		}
		return base + found, nil
	}
	interp, err := t.follow(m, "PyInterpreterState_Main")
	if err != nil {
		return 0, err
	}
	if !interp.pointer() {
		return 0, fmt.Errorf("%w: PyInterpreterState_Main returns something else than a pointer", errCode)
	}
	if interp.n < nullPage {
		return 0, ErrNotYet
	}
	return interp.n + found, nil
}

// collectingOperand gives the one displacement at which PyGC_Collect stores 1, and from whose register it also reads
// enabled, or the address where both are absolute.
func collectingOperand(t *target, m *module) (at uint64, absolute bool, err error) {
	entry, ok := m.export("PyGC_Collect")
	size := m.dynamic["PyGC_Collect"].Size
	if !ok || size == 0 || size > 4096 {
		return 0, false, fmt.Errorf("%w: PyGC_Collect of %s has %d bytes", errCode, m.name(), size)
	}
	type operand struct {
		base x86asm.Reg
		disp uint64
	}
	var stores, reads []operand
	for pc := entry; pc < entry+size; {
		inst, err := instruction(t.mem, pc)
		if err != nil {
			return 0, false, err
		}
		pc += uint64(inst.Len)
		for i, arg := range inst.Args[:2] {
			mem, ok := arg.(x86asm.Mem)
			if !ok || inst.MemBytes != 4 || mem.Index != 0 || mem.Segment != 0 {
				continue
			}
			o := operand{mem.Base, uint64(mem.Disp)}
			if mem.Base == x86asm.RIP || mem.Base == 0 {
				o = operand{0, o.disp}
				if mem.Base == x86asm.RIP {
					o.disp += pc
				}
			}
			imm, isImm := inst.Args[1].(x86asm.Imm)
			switch {
			case i == 0 && inst.Op == x86asm.MOV && isImm && imm == 1 && !slices.Contains(stores, o):
				stores = append(stores, o)
			case i == 1 && inst.Op == x86asm.MOV, i == 0 && inst.Op == x86asm.CMP && isImm && imm == 0:
				reads = append(reads, o)
			}
		}
	}
	stores = slices.DeleteFunc(stores, func(s operand) bool {
		return !slices.Contains(reads, operand{s.base, s.disp - (pyCollecting - pyEnabled)})
	})
	if len(stores) != 1 {
		return 0, false, fmt.Errorf("%w: PyGC_Collect of %s does not show where its collector keeps its state", errCode, m.name())
	}
	return stores[0].disp, stores[0].base == 0, nil
}

// Words of struct _Py_DebugOffsets of 3.13 (Include/internal/pycore_runtime.h), which is how _PyRuntime begins.
const (
	offsetsWords            = 73
	offsetsVersion          = 1
	offsetsInterpretersHead = 5
	offsetsInterpreterSize  = 6
	offsetsInterpreterID    = 7
	offsetsInterpreterNext  = 8
	offsetsInterpreterGC    = 10
	offsetsGCSize           = 71
	offsetsGCCollecting     = 72
)

// pythonByOffsets uses what CPython 3.13 publishes for debuggers and profilers outside of the process.
func pythonByOffsets(t *target, m *module) (uint64, error) {
	base, ok := m.export("_PyRuntime")
	if !ok {
		return 0, fmt.Errorf("%w: %s does not export _PyRuntime", errCode, m.name())
	}
	var o [offsetsWords]uint64
	for i := range o {
		var err error
		if o[i], err = word(t.mem, base+8*uint64(i), 8); err != nil {
			return 0, err
		}
	}
	const cookie = 0x7970677562656478 // "xdebugpy"
	if o[0] != cookie || o[offsetsVersion]>>16 != 0x030d || o[offsetsGCCollecting] != pyCollecting ||
		o[offsetsGCCollecting]+4 > o[offsetsGCSize] || o[offsetsInterpreterGC]+o[offsetsGCSize] > o[offsetsInterpreterSize] {
		return 0, fmt.Errorf("%w: the offsets that _PyRuntime of %s publishes are not those of 3.13", errCode, m.name())
	}
	interp, err := word(t.mem, base+o[offsetsInterpretersHead], 8)
	for range 1024 { // the main interpreter, number 0, is the last of the list
		if err != nil {
			return 0, err
		}
		if interp < nullPage {
			return 0, ErrNotYet
		}
		id, err := word(t.mem, interp+o[offsetsInterpreterID], 8)
		if err != nil {
			return 0, err
		}
		if id == 0 {
			return interp + o[offsetsInterpreterGC] + o[offsetsGCCollecting], nil
		}
		interp, err = word(t.mem, interp+o[offsetsInterpreterNext], 8)
		if err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: there is no end to the interpreters", pagemap.ErrFormat)
}

// pythonProbes takes the function that collects: gc_collect_main since 3.10, collect before, the generation its second
// argument. In 3.13 that may be "whichever is due", so it tells nothing there.
func pythonProbes(m *module, list []elf.Symbol, version string) ([]Probe, error) {
	name := "gc_collect_main"
	found, plain := instances(list, name)
	if s := series(version); len(found) == 0 && (s == "3.8" || s == "3.9") {
		name = "collect"
		found, plain = instances(list, name)
		if len(found) > 1 {
			return nil, errors.New("several functions are named collect")
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("function %s, which collects, is not whole there", name)
	}
	probes, err := pair(m, found, function{name, GCBegin, GCEnd})
	if err != nil || !plain || !slices.Contains([]string{"3.8", "3.9", "3.10", "3.11", "3.12"}, series(version)) {
		return probes, err
	}
	probes[0].Arg = Arg{Kind: ArgRegister, Register: SI, Size: 4, Signed: true}
	probes[0].Rule, probes[0].Operand = RuleAtLeast, pythonFull
	return probes, nil
}
