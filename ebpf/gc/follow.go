package gc

import (
	"errors"
	"fmt"

	"golang.org/x/arch/x86/x86asm"
)

// errCode: machine code that is not understood. It is never answered with a guess.
var errCode = errors.New("code that is not understood")

// Bounds of what is followed: the functions of interest have some ten instructions and call two deep.
const (
	maxSteps = 256
	maxCalls = 8
)

// follower carries out a function of the process on copies of its registers, reading the process' memory as the function
// would, and remembers of each value from where in memory it is. It knows few instructions; any other ends it with errCode.
type follower struct {
	mem memory
	// executable reports whether an address is in code that belongs to a file.
	executable func(addr uint64) bool
	// target gives the function that a jump through memory at slot leads to, where what is there now is not it (a PLT slot
	// that was not bound yet).
	target func(slot, now uint64) uint64

	regs  [16]value // by x86-64 number: rax rcx rdx rbx rsp rbp rsi rdi r8 ...
	stack map[uint64]value
	calls int
	// Of the last comparison: tested & testedMask was compared with 0, where testValid.
	testValid bool
	tested    value
	carry     value // after bt
	carrySet  bool
}

// result is what a function returns, in rax.
func follow(mem memory, entry uint64, executable func(uint64) bool, target func(slot, now uint64) uint64) (value, error) {
	f := &follower{mem: mem, executable: executable, target: target, stack: map[uint64]value{}}
	f.regs[4] = value{kind: stackAddress}
	f.stack[0] = value{kind: returnMark}
	pc := entry
	for range maxSteps {
		next, done, err := f.step(pc)
		if err != nil {
			return value{}, err
		}
		if done {
			return f.regs[0], nil
		}
		pc = next
	}
	return value{}, fmt.Errorf("%w: more than %d instructions from %#x", errCode, maxSteps, entry)
}

func (f *follower) step(pc uint64) (next uint64, done bool, err error) {
	if !f.executable(pc) {
		return 0, false, fmt.Errorf("%w: %#x is in no file's code", errCode, pc)
	}
	inst, err := instruction(f.mem, pc)
	if err != nil {
		return 0, false, err
	}
	next = pc + uint64(inst.Len)
	refuse := func() (uint64, bool, error) {
		return 0, false, fmt.Errorf("%w: %s at %#x", errCode, x86asm.GNUSyntax(inst, pc, nil), pc)
	}
	switch inst.Op {
	case x86asm.JMP, x86asm.CALL:
		to, err := f.destination(inst, next)
		if err != nil {
			return 0, false, err
		}
		if inst.Op == x86asm.CALL {
			if f.calls++; f.calls > maxCalls {
				return refuse()
			}
			f.push(constant(next))
		}
		return to, false, nil
	case x86asm.JE, x86asm.JNE:
		// A branch is followed where it asks whether a pointer is there: that is as it will stay.
		if !f.testValid || !f.tested.pointer() {
			return refuse()
		}
		if f.tested.n < nullPage {
			return 0, false, ErrNotYet
		}
		rel, ok := inst.Args[0].(x86asm.Rel)
		if !ok {
			return refuse()
		}
		if inst.Op == x86asm.JNE {
			next += uint64(int64(rel))
		}
		return next, false, nil
	case x86asm.RET:
		if inst.Args[0] != nil {
			return refuse()
		}
		to := f.pop()
		switch to.kind {
		case returnMark:
			return 0, true, nil
		case number64:
			return to.n, false, nil
		}
		return refuse()
	}
	ok, err := f.execute(inst, next)
	if err != nil {
		return 0, false, err
	}
	if !ok {
		return refuse()
	}
	return next, false, nil
}

// nullPage: nothing is mapped below it (vm.mmap_min_addr); a pointer that is smaller was not set.
const nullPage = 4096

// instruction decodes what is at pc. endbr64 and data16 prefixes of calls are not in x86asm's tables.
func instruction(mem memory, pc uint64) (x86asm.Inst, error) {
	var b [15]byte
	n := len(b)
	for mem.read(pc, b[:n]) != nil { // the end of a mapping may be near
		if n--; n == 0 {
			return x86asm.Inst{}, fmt.Errorf("read code at %#x: %w", pc, mem.read(pc, b[:1]))
		}
	}
	if n >= 4 && string(b[:4]) == "\xf3\x0f\x1e\xfa" { // endbr64
		return x86asm.Inst{Op: x86asm.NOP, Len: 4, Mode: 64}, nil
	}
	inst, err := x86asm.Decode(b[:n], 64)
	if err != nil {
		return inst, fmt.Errorf("%w: % x at %#x: %w", errCode, b[:n], pc, err)
	}
	return inst, nil
}

// destination is where a jump or call leads.
func (f *follower) destination(inst x86asm.Inst, next uint64) (uint64, error) {
	switch a := inst.Args[0].(type) {
	case x86asm.Rel:
		return next + uint64(int64(a)), nil
	case x86asm.Mem:
		slot, onStack, ok := f.address(a, next)
		if !ok || onStack {
			break
		}
		now, err := word(f.mem, slot, 8)
		if err != nil {
			return 0, err
		}
		return f.target(slot, now), nil
	case x86asm.Reg:
		if v, size := f.register(a); size == 8 && v.kind == number64 && !v.low {
			return v.n, nil
		}
	}
	return 0, fmt.Errorf("%w: %s before %#x", errCode, x86asm.GNUSyntax(inst, next, nil), next)
}

func (f *follower) push(v value) {
	f.regs[4].n -= 8
	f.stack[f.regs[4].n] = v
}

func (f *follower) pop() value {
	sp := &f.regs[4]
	if sp.kind != stackAddress {
		return value{}
	}
	v := f.stack[sp.n]
	sp.n += 8
	return v
}
