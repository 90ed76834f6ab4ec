package gc

// kind is what is known of a value.
type kind uint8

const (
	unknown kind = iota
	number64
	stackAddress // n is an offset from the stack pointer at the entry
	returnMark   // the return address of the function that is followed
)

// origin is the memory that a value was loaded from.
type origin struct {
	addr uint64
	size int // bytes; 0: not loaded from memory
}

// value is the content of a register or of a word of the stack. While from.size is not 0, n is
// (word at from.addr >> shift) & mask.
type value struct {
	kind  kind
	n     uint64
	from  origin
	shift uint8
	mask  uint64
	// low: only the lowest byte is known and is what n, shift and mask describe.
	low bool
}

func constant(n uint64) value { return value{kind: number64, n: n} }

// and is v & m.
func (v value) and(m uint64) value {
	if v.kind != number64 || v.low && m > 0xff {
		return value{}
	}
	v.n &= m
	v.mask &= m
	v.low = false
	return v
}

// right is v >> n, unsigned.
func (v value) right(n uint8) value {
	if v.kind != number64 || v.low || n > 63 {
		return value{}
	}
	v.n >>= n
	v.mask >>= n
	v.shift += n
	return v
}

// narrow is what remains of v in a register's lowest size bytes.
func (v value) narrow(size int) value {
	if size >= 8 || v.low {
		return v
	}
	if v.kind != number64 {
		return value{}
	}
	return v.and(1<<(8*size) - 1)
}

// plus is v + d, which no longer is what was loaded.
func (v value) plus(d uint64) value {
	switch {
	case v.kind == unknown || v.kind == returnMark || v.low:
		return value{}
	case d == 0:
		return v
	}
	return value{kind: v.kind, n: v.n + d}
}

// pointer reports whether v is a whole word of 8 bytes: what a pointer is.
func (v value) pointer() bool {
	return v.kind == number64 && v.from.size == 8 && v.shift == 0 && v.mask == 1<<64-1
}
