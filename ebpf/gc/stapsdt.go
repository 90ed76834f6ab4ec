package gc

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"cowaudit/pagemap"
)

// usdt is one USDT probe of a file.
type usdt struct {
	provider, name  string
	addr, semaphore uint64 // of the file, adjusted; semaphore 0: none
	args            string
}

// usdtLimit bounds the section: the largest known has some 100 KiB.
const usdtLimit = 16 << 20

// usdtNotes reads .note.stapsdt (SystemTap's wiki, UserSpaceProbeImplementation; sys/sdt.h): notes of owner "stapsdt" and
// type 3, each with three addresses (the probe, the address of .stapsdt.base when it was linked, the semaphore) and three
// strings. Where a later step moved the sections (prelink), the difference of the base's address to what the note remembers
// is added to both others.
func usdtNotes(f *elf.File) ([]usdt, error) {
	s := f.Section(".note.stapsdt")
	if s == nil || s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	if s.Size > usdtLimit {
		return nil, fmt.Errorf("%w: .note.stapsdt has %d bytes", pagemap.ErrFormat, s.Size)
	}
	b, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("read .note.stapsdt: %w", err)
	}
	base, known := uint64(0), false
	if s := f.Section(".stapsdt.base"); s != nil {
		base, known = s.Addr, true
	}
	return parseUSDT(b, base, known)
}

// parseUSDT parses the section. A note that is not whole is an error: what follows it cannot be found.
func parseUSDT(b []byte, base uint64, baseKnown bool) ([]usdt, error) {
	var out []usdt
	for len(b) > 0 {
		n, rest, ok := nextNote(b)
		if !ok {
			return nil, fmt.Errorf("%w: .note.stapsdt: note %d is cut off: %.60q", pagemap.ErrFormat, len(out)+1, b)
		}
		b = rest
		if n.owner != "stapsdt" || n.kind != 3 {
			continue
		}
		u, ok := parseNote(n.body, base, baseKnown)
		if !ok {
			return nil, fmt.Errorf("%w: .note.stapsdt: note %d: %.60q", pagemap.ErrFormat, len(out)+1, n.body)
		}
		out = append(out, u)
	}
	return out, nil
}

func parseNote(b []byte, base uint64, baseKnown bool) (u usdt, ok bool) {
	if len(b) < 24+3 {
		return u, false
	}
	u.addr = binary.LittleEndian.Uint64(b)
	was := binary.LittleEndian.Uint64(b[8:])
	u.semaphore = binary.LittleEndian.Uint64(b[16:])
	if baseKnown && was != 0 {
		u.addr += base - was
		if u.semaphore != 0 {
			u.semaphore += base - was
		}
	}
	rest := b[24:]
	for _, field := range []*string{&u.provider, &u.name, &u.args} {
		word, after, found := bytes.Cut(rest, []byte{0})
		if !found {
			return u, false
		}
		*field, rest = string(word), after
	}
	return u, u.provider != "" && u.name != ""
}

// parseArgs parses the operands of a note, "-4@112(%rsp) 8@%rbx 4@$5": size in bytes, negative when signed, and an operand
// of the assembler (AT&T). What is not understood (an index, a symbol) becomes an argument of kind ArgNone.
func parseArgs(s string) []Arg {
	var out []Arg
	for _, field := range strings.Fields(s) {
		out = append(out, parseArg(field))
	}
	return out
}

func parseArg(s string) Arg {
	size, operand, ok := strings.Cut(s, "@")
	if !ok { // a note without sizes
		return Arg{}
	}
	n, err := strconv.Atoi(size)
	if err != nil {
		return Arg{}
	}
	a := Arg{Signed: n < 0}
	switch n {
	case 1, 2, 4, 8:
		a.Size = uint8(n)
	case -1, -2, -4, -8:
		a.Size = uint8(-n)
	default:
		return Arg{}
	}
	switch {
	case strings.HasPrefix(operand, "$"):
		v, ok := number(operand[1:])
		if !ok {
			return Arg{}
		}
		a.Kind, a.Value = ArgConstant, v
	case strings.HasPrefix(operand, "%"):
		r, ok := registers[operand[1:]]
		if !ok {
			return Arg{}
		}
		a.Kind, a.Register, a.Shift = ArgRegister, r.register, r.shift
	case strings.HasSuffix(operand, ")"):
		disp, base, _ := strings.Cut(strings.TrimSuffix(operand, ")"), "(")
		if disp != "" {
			if a.Offset, ok = number(disp); !ok {
				return Arg{}
			}
		}
		r, ok := registers[strings.TrimPrefix(base, "%")]
		if !ok || !r.whole || !strings.HasPrefix(base, "%") {
			return Arg{}
		}
		a.Kind, a.Register = ArgMemory, r.register
	default:
		return Arg{}
	}
	return a
}

func number(s string) (int64, bool) {
	v, err := strconv.ParseInt(s, 0, 64)
	return v, err == nil
}

type registerName struct {
	register Register
	shift    uint8
	whole    bool // all of its 64 bits
}

// registers are the names of the general registers, in all sizes.
var registers = registerNames()

func registerNames() map[string]registerName {
	m := map[string]registerName{}
	for name, r := range map[string]Register{"ax": AX, "bx": BX, "cx": CX, "dx": DX, "si": SI, "di": DI, "bp": BP, "sp": SP} {
		m["r"+name] = registerName{r, 0, true}
		m["e"+name] = registerName{r, 0, false}
		m[name] = registerName{r, 0, false}
		if name[1] == 'x' {
			m[name[:1]+"l"] = registerName{r, 0, false}
			m[name[:1]+"h"] = registerName{r, 8, false}
		} else {
			m[name+"l"] = registerName{r, 0, false}
		}
	}
	for i, r := range []Register{R8, R9, R10, R11, R12, R13, R14, R15} {
		name := "r" + strconv.Itoa(8+i)
		m[name] = registerName{r, 0, true}
		for _, suffix := range []string{"d", "w", "b"} {
			m[name+suffix] = registerName{r, 0, false}
		}
	}
	return m
}
