package gc

import "golang.org/x/arch/x86/x86asm"

// execute carries out an instruction that does not jump. ok is false for one that is not understood.
func (f *follower) execute(inst x86asm.Inst, next uint64) (ok bool, err error) {
	a, b := inst.Args[0], inst.Args[1]
	switch inst.Op {
	case x86asm.NOP:
		return true, nil
	case x86asm.PUSH:
		v, size, err := f.operand(a, inst, next)
		if err != nil || size != 8 || f.regs[4].kind != stackAddress {
			return false, err
		}
		f.push(v)
		return true, nil
	case x86asm.POP:
		r, ok := a.(x86asm.Reg)
		return ok && f.set(r, f.pop()), nil
	case x86asm.LEAVE:
		f.regs[4] = f.regs[5]
		f.regs[5] = f.pop()
		return f.regs[4].kind == stackAddress, nil
	case x86asm.LEA:
		r, isReg := a.(x86asm.Reg)
		mem, ok := b.(x86asm.Mem)
		if !ok || !isReg {
			return false, nil
		}
		addr, onStack, ok := f.address(mem, next)
		if !ok {
			return false, nil
		}
		v := constant(addr)
		if onStack {
			v.kind = stackAddress
		}
		return f.set(r, v), nil
	case x86asm.MOV, x86asm.MOVZX:
		return f.move(inst, next)
	case x86asm.XOR, x86asm.SUB, x86asm.ADD, x86asm.AND, x86asm.SHR:
		return f.arithmetic(inst, next)
	case x86asm.TEST, x86asm.CMP, x86asm.BT:
		return f.compare(inst, next)
	case x86asm.SETNE:
		r, ok := a.(x86asm.Reg)
		bit := f.tested
		if !ok || !f.testValid || bit.from.size == 0 || bit.mask == 0 || bit.mask&(bit.mask-1) != 0 {
			return false, nil
		}
		for bit.mask != 1 {
			bit = bit.right(1)
		}
		return f.set(r, bit), nil
	case x86asm.SETB:
		r, ok := a.(x86asm.Reg)
		return ok && f.carrySet && f.set(r, f.carry), nil
	}
	return false, nil
}

func (f *follower) move(inst x86asm.Inst, next uint64) (bool, error) {
	v, _, err := f.operand(inst.Args[1], inst, next)
	if err != nil {
		return false, err
	}
	switch to := inst.Args[0].(type) {
	case x86asm.Reg:
		return f.set(to, v), nil
	case x86asm.Mem: // to a word of the own stack only
		addr, onStack, ok := f.address(to, next)
		if !ok || !onStack || inst.MemBytes != 8 {
			return false, nil
		}
		f.stack[addr] = v
		return true, nil
	}
	return false, nil
}

func (f *follower) arithmetic(inst x86asm.Inst, next uint64) (bool, error) {
	f.testValid, f.carrySet = false, false
	r, ok := inst.Args[0].(x86asm.Reg)
	if !ok {
		return false, nil
	}
	v, size := f.register(r)
	if size == 0 {
		return false, nil
	}
	if inst.Op == x86asm.XOR {
		other, same := inst.Args[1].(x86asm.Reg)
		return same && other == r && size >= 4 && f.set(r, constant(0)), nil
	}
	imm, ok := inst.Args[1].(x86asm.Imm)
	if !ok {
		return false, nil
	}
	switch inst.Op {
	case x86asm.ADD, x86asm.SUB:
		d := uint64(int64(imm))
		if inst.Op == x86asm.SUB {
			d = -d
		}
		return size == 8 && f.set(r, v.plus(d)), nil
	case x86asm.AND:
		v = v.and(uint64(int64(imm)) & ones(size))
		f.testValid, f.tested = v.kind == number64, v
		return f.set(r, v), nil
	case x86asm.SHR:
		if imm < 0 || int(imm) >= 8*size {
			return false, nil
		}
		return f.set(r, v.right(uint8(imm))), nil
	}
	return false, nil
}

// compare remembers what was compared with zero, or the bit that was asked for.
func (f *follower) compare(inst x86asm.Inst, next uint64) (bool, error) {
	f.testValid, f.carrySet = false, false
	v, size, err := f.operand(inst.Args[0], inst, next)
	if err != nil {
		return false, err
	}
	if size == 0 || v.kind != number64 {
		return false, nil
	}
	switch inst.Op {
	case x86asm.TEST:
		switch b := inst.Args[1].(type) {
		case x86asm.Reg:
			a, same := inst.Args[0].(x86asm.Reg)
			if !same || a != b {
				return false, nil
			}
		case x86asm.Imm:
			v = v.and(uint64(int64(b)) & ones(size))
		default:
			return false, nil
		}
	case x86asm.CMP:
		if imm, ok := inst.Args[1].(x86asm.Imm); !ok || imm != 0 {
			return false, nil
		}
	case x86asm.BT:
		imm, ok := inst.Args[1].(x86asm.Imm)
		if !ok || imm < 0 || int(imm) >= 8*size {
			return false, nil
		}
		f.carry, f.carrySet = v.right(uint8(imm)).and(1), true
		return f.carry.kind == number64, nil
	}
	f.tested, f.testValid = v, v.kind == number64
	return f.testValid, nil
}

func ones(size int) uint64 { return 1<<(8*uint(size)) - 1 }

// operand is the value of a register, a word in memory or an immediate, and its size in bytes.
func (f *follower) operand(arg x86asm.Arg, inst x86asm.Inst, next uint64) (v value, size int, err error) {
	switch a := arg.(type) {
	case x86asm.Reg:
		v, size = f.register(a)
		return v, size, nil
	case x86asm.Imm:
		return constant(uint64(int64(a))), 8, nil
	case x86asm.Mem:
		addr, onStack, ok := f.address(a, next)
		size := inst.MemBytes
		if !ok {
			return value{}, 0, nil
		}
		if onStack {
			if size != 8 {
				return value{}, 0, nil
			}
			return f.stack[addr], size, nil
		}
		if addr < nullPage {
			return value{}, 0, ErrNotYet
		}
		switch size {
		case 1, 2, 4, 8:
		default:
			return value{}, 0, nil
		}
		n, err := word(f.mem, addr, size)
		if err != nil {
			return value{}, 0, err
		}
		return value{kind: number64, n: n, from: origin{addr, size}, mask: ones(size)}, size, nil
	}
	return value{}, 0, nil
}

// address is the effective address of a memory operand. Addresses in another segment (thread-local storage) are not
// understood.
func (f *follower) address(m x86asm.Mem, next uint64) (addr uint64, onStack, ok bool) {
	if m.Segment != 0 {
		return 0, false, false
	}
	addr = uint64(m.Disp)
	switch {
	case m.Base == x86asm.RIP:
		return addr + next, false, m.Index == 0
	case m.Base != 0:
		v, size := f.register(m.Base)
		if size != 8 || v.low || v.kind != number64 && v.kind != stackAddress {
			return 0, false, false
		}
		addr += v.n
		onStack = v.kind == stackAddress
	}
	if m.Index != 0 {
		v, size := f.register(m.Index)
		if size != 8 || v.low || v.kind != number64 || onStack {
			return 0, false, false
		}
		addr += v.n * uint64(m.Scale)
	}
	return addr, onStack, true
}

// register reads a register or its lowest bytes. size is 0 for one that is not followed (ah, segments, vectors).
func (f *follower) register(r x86asm.Reg) (v value, size int) {
	i, size := general(r)
	if size == 0 {
		return value{}, 0
	}
	v = f.regs[i]
	if size == 1 {
		v.low = false // the byte is all that is asked for
	}
	return v.narrow(size), size
}

// set writes a register: 4 bytes clear the upper half, 1 byte leaves the rest.
func (f *follower) set(r x86asm.Reg, v value) bool {
	i, size := general(r)
	switch size {
	case 8, 4:
		if v.low {
			return false
		}
		f.regs[i] = v.narrow(size)
	case 1:
		v.low = false
		v = v.narrow(1)
		old := f.regs[i]
		// The rest of the register is nothing: where it is not known to be zero, only the byte is known from now on.
		v.low = old.kind != number64 || old.low || old.n&^0xff != 0 || old.mask&^0xff != 0
		if v.kind != number64 {
			v = value{}
		}
		f.regs[i] = v
	default:
		return false
	}
	return true
}

func general(r x86asm.Reg) (i, size int) {
	switch {
	case r >= x86asm.RAX && r <= x86asm.R15:
		return int(r - x86asm.RAX), 8
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return int(r - x86asm.EAX), 4
	case r >= x86asm.AX && r <= x86asm.R15W:
		return int(r - x86asm.AX), 2
	case r >= x86asm.AL && r <= x86asm.BL:
		return int(r - x86asm.AL), 1
	case r >= x86asm.SPB && r <= x86asm.R15B:
		return int(r-x86asm.SPB) + 4, 1
	}
	return 0, 0
}
