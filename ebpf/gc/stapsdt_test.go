package gc

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"testing"

	"cowaudit/pagemap"

	"github.com/google/go-cmp/cmp"
)

// noteBytes makes a note as sys/sdt.h does.
func noteBytes(owner string, kind uint32, body []byte) []byte {
	pad := func(b []byte) []byte { return append(b, make([]byte, -len(b)&3)...) }
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(owner)+1))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = append(b, pad(append([]byte(owner), 0))...)
	return append(b, pad(bytes.Clone(body))...)
}

func usdtBytes(addr, base, semaphore uint64, words string) []byte {
	var b []byte
	for _, n := range []uint64{addr, base, semaphore} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return noteBytes("stapsdt", 3, append(b, words...))
}

func TestParseUSDT(t *testing.T) {
	one := usdtBytes(0x1000, 0x5000, 0x7000, "ruby\x00gc__mark__begin\x00\x00")
	two := usdtBytes(0x1100, 0x5000, 0, "python\x00gc__start\x00-4@112(%rsp)\x00")
	other := noteBytes("GNU", 3, []byte("build-id"))
	unmoved := []usdt{{"ruby", "gc__mark__begin", 0x1000, 0x7000, ""}, {"python", "gc__start", 0x1100, 0, "-4@112(%rsp)"}}
	moved := []usdt{{"ruby", "gc__mark__begin", 0x1010, 0x7010, ""}, {"python", "gc__start", 0x1110, 0, "-4@112(%rsp)"}}
	for _, c := range []struct {
		name  string
		in    []byte
		base  uint64
		known bool
		want  []usdt
		fails bool
	}{
		{"empty", nil, 0, false, nil, false},
		{"not moved", append(bytes.Clone(one), two...), 0x5000, true, unmoved, false},
		{"no base in the file", append(bytes.Clone(one), two...), 0, false, unmoved, false},
		{"moved by prelink", append(bytes.Clone(one), two...), 0x5010, true, moved, false},
		{"another note between", bytes.Join([][]byte{one, other, two}, nil), 0x5000, true, unmoved, false},
		{"cut in the head", one[:11], 0, false, nil, true},
		{"cut in the body", one[:len(one)-8], 0, false, nil, true},
		{"rest behind", append(bytes.Clone(one), 1, 2, 3), 0, false, nil, true},
		{"too short", noteBytes("stapsdt", 3, make([]byte, 20)), 0, false, nil, true},
		{"strings without end", usdtBytes(1, 2, 3, "ruby\x00gc"), 0, false, nil, true},
		{"no name", usdtBytes(1, 2, 3, "ruby\x00\x00\x00"), 0, false, nil, true},
		{"huge lengths", bytes.Repeat([]byte{0xff}, 64), 0, false, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseUSDT(c.in, c.base, c.known)
			if c.fails != (err != nil) || err != nil && !errors.Is(err, pagemap.ErrFormat) {
				t.Errorf("error %v, want one: %v", err, c.fails)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(usdt{})); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseArgs(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []Arg
	}{
		{"", nil},
		{"4@%edi", []Arg{{Kind: ArgRegister, Register: DI, Size: 4}}},
		{"-4@$5 8@$-1 -8@$0x10", []Arg{
			{Kind: ArgConstant, Size: 4, Signed: true, Value: 5},
			{Kind: ArgConstant, Size: 8, Value: -1},
			{Kind: ArgConstant, Size: 8, Signed: true, Value: 16},
		}},
		{"-4@112(%rsp) 8@-16(%rbp) 8@(%r13)", []Arg{
			{Kind: ArgMemory, Register: SP, Offset: 112, Size: 4, Signed: true},
			{Kind: ArgMemory, Register: BP, Offset: -16, Size: 8},
			{Kind: ArgMemory, Register: R13, Size: 8},
		}},
		{"1@%ah 2@%r9w -1@%sil 8@%r15", []Arg{
			{Kind: ArgRegister, Register: AX, Size: 1, Shift: 8},
			{Kind: ArgRegister, Register: R9, Size: 2},
			{Kind: ArgRegister, Register: SI, Size: 1, Signed: true},
			{Kind: ArgRegister, Register: R15, Size: 8},
		}},
		// What is not understood keeps its place.
		{"8@%rax 8@8(%rax,%rbx,4) 8@name(%rip) 8@%xmm0 3@%rax %rax x@%rax 8@$n 8@(%eax) 8@( 4@%edx", []Arg{
			{Kind: ArgRegister, Register: AX, Size: 8}, {}, {}, {}, {}, {}, {}, {}, {}, {},
			{Kind: ArgRegister, Register: DX, Size: 4},
		}},
	} {
		if diff := cmp.Diff(c.want, parseArgs(c.in)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.in, diff)
		}
	}
}

func FuzzUSDT(f *testing.F) {
	f.Add(usdtBytes(0x1000, 0x5000, 0x7000, "ruby\x00gc__mark__begin\x00-4@112(%rsp) 8@$5\x00"), uint64(0x5000), true)
	f.Add(append(noteBytes("GNU", 3, []byte("id")), usdtBytes(1, 2, 3, "a\x00b\x00\x00")...), uint64(0), false)
	f.Fuzz(func(t *testing.T, b []byte, base uint64, known bool) {
		list, err := parseUSDT(b, base, known)
		if err != nil && list != nil {
			t.Errorf("notes and an error: %v, %v", list, err)
		}
		if len(list) > len(b)/40 {
			t.Errorf("%d notes in %d bytes", len(list), len(b))
		}
		for _, u := range list {
			for _, a := range parseArgs(u.args) {
				if (a.Kind == ArgNone) != (a == Arg{}) || a.Register > SS {
					t.Errorf("%q: %+v", u.args, a)
				}
			}
		}
	})
}

func TestInstances(t *testing.T) {
	symbol := func(name string, size uint64) elf.Symbol {
		return elf.Symbol{Name: name, Info: byte(elf.STT_FUNC), Section: 1, Value: 0x1000, Size: size}
	}
	for _, c := range []struct {
		name  string
		in    []elf.Symbol
		found int
		plain bool
	}{
		{"itself", []elf.Symbol{symbol("gc_start", 10), symbol("gc_start_internal", 10), symbol("x_gc_start", 1)}, 1, true},
		{"with a cold part", []elf.Symbol{symbol("gc_start", 10), symbol("gc_start.cold", 10)}, 1, true},
		{"renamed", []elf.Symbol{symbol("gc_start.lto_priv.0", 10)}, 1, true},
		{"with other arguments", []elf.Symbol{symbol("gc_start.constprop.0", 10)}, 1, false},
		{"two", []elf.Symbol{symbol("gc_start", 10), symbol("gc_start.isra.0", 10)}, 2, false},
		{"a part in callers", []elf.Symbol{symbol("gc_start", 10), symbol("gc_start.part.0", 10)}, 0, false},
		{"without size", []elf.Symbol{symbol("gc_start", 0)}, 0, false},
		{"none", nil, 0, false},
	} {
		found, plain := instances(c.in, "gc_start")
		if len(found) != c.found || plain != c.plain {
			t.Errorf("%s: %d found, plain %v; want %d, %v", c.name, len(found), plain, c.found, c.plain)
		}
	}
}
