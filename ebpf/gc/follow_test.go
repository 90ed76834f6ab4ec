package gc

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fake is memory: code at 0x10000, and words elsewhere.
type fake struct {
	code  []byte
	words map[uint64]uint64
}

const fakeCode = 0x10000

func (f *fake) executable(addr uint64) bool {
	return addr >= fakeCode && addr < fakeCode+uint64(len(f.code))
}

func (f *fake) read(addr uint64, buf []byte) error {
	if f.executable(addr) {
		if copy(buf, f.code[addr-fakeCode:]) < len(buf) {
			return fmt.Errorf("nothing after %#x", addr)
		}
		return nil
	}
	for i := range buf {
		w, ok := f.words[(addr+uint64(i))&^7]
		if !ok {
			return fmt.Errorf("nothing at %#x", addr)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], w)
		buf[i] = b[(addr+uint64(i))&7]
	}
	return nil
}

func assemble(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// In what follows rax is loaded from 0x11000 (a pointer to 0x20000), whose word at 0x20010 is 0x2b.
const load = "48 8b 04 25 00 10 01 00 " // mov 0x11000,%rax

func TestFollow(t *testing.T) {
	bitOf := func(addr uint64, size int, shift uint8) value {
		return value{kind: number64, n: 1, from: origin{addr, size}, shift: shift, mask: 1}
	}
	for _, c := range []struct {
		name string
		code string
		want value
		err  error
	}{
		{"shift and mask", load + "0f b6 40 10 c0 e8 05 83 e0 01 c3", bitOf(0x20010, 1, 5), nil},
		{"endbr64", "f3 0f 1e fa " + load + "8b 40 10 c1 e8 05 83 e0 01 c3", bitOf(0x20010, 4, 5), nil},
		{"setne after test", load + "31 c9 f6 40 10 20 0f 95 c1 89 c8 c3", bitOf(0x20010, 1, 5), nil},
		{"setne, then zero extension", load + "f6 40 10 20 0f 95 c0 0f b6 c0 c3", bitOf(0x20010, 1, 5), nil},
		{"setne, then mask", load + "f6 40 10 20 0f 95 c0 83 e0 01 c3", bitOf(0x20010, 1, 5), nil},
		{"bit test", load + "8b 40 10 0f ba e0 05 0f 92 c0 0f b6 c0 c3", bitOf(0x20010, 4, 5), nil},
		{"null check", load + "48 85 c0 74 08 0f b6 40 10 83 e0 01 c3 31 c0 c3", bitOf(0x20010, 1, 0), nil},
		{"null check the other way", load + "48 85 c0 75 03 31 c0 c3 0f b6 40 10 83 e0 01 c3", bitOf(0x20010, 1, 0), nil},
		{"null check in memory", "48 83 3c 25 00 10 01 00 00 74 10 " + load + "0f b6 40 10 83 e0 01 c3 31 c0 c3", bitOf(0x20010, 1, 0), nil},
		{"frame", "55 48 89 e5 48 83 ec 10 " + load + "48 89 45 f8 48 8b 45 f8 0f b6 40 10 83 e0 01 c9 c3", bitOf(0x20010, 1, 0), nil},
		{"call and return", "48 83 ec 08 e8 05 00 00 00 48 83 c4 08 c3 " + load + "0f b6 40 10 83 e0 01 c3", bitOf(0x20010, 1, 0), nil},
		{"call through memory", "ff 14 25 08 10 01 00 c3 " + load + "0f b6 40 10 83 e0 01 c3", bitOf(0x20010, 1, 0), nil},
		{"jump through a register", "48 8b 0c 25 08 10 01 00 ff e1 " + load + "c3", value{}, errCode}, // leads elsewhere: into the middle
		{"whole word", load + "48 8b 40 10 c3", value{kind: number64, n: 0x2b, from: origin{0x20010, 8}, mask: 1<<64 - 1}, nil},
		{"a sum is no word of memory", load + "48 8b 40 10 48 83 c0 01 c3", value{kind: number64, n: 0x2c}, nil},

		{"pointer not set", "48 8b 04 25 10 10 01 00 48 8b 40 10 c3", value{}, ErrNotYet},
		{"checked pointer not set", "48 8b 04 25 10 10 01 00 48 85 c0 74 02 c3 90 31 c0 c3", value{}, ErrNotYet},

		{"only the lowest byte", load + "f6 40 10 20 0f 95 c0 c3", value{kind: number64, n: 1, from: origin{0x20010, 1}, shift: 5, mask: 1, low: true}, nil},
		{"branch on a bit", load + "f6 40 10 20 74 03 31 c0 c3 c3", value{}, errCode},
		{"sete", load + "f6 40 10 20 0f 94 c0 0f b6 c0 c3", value{}, errCode},
		{"setne of several bits", load + "f6 40 10 60 0f 95 c0 0f b6 c0 c3", value{}, errCode},
		{"store", load + "c6 40 10 00 c3", value{}, errCode},
		{"thread-local storage", "64 48 8b 04 25 00 00 00 00 48 8b 40 10 c3", value{}, nil}, // an unknown value, of which nothing is said
		{"unknown register as an address", "48 8b 47 10 c3", value{}, nil},
		{"unknown register behind a jump", "ff e7", value{}, errCode},
		{"system call", "0f 05 c3", value{}, errCode},
		{"breakpoint", "cc c3", value{}, errCode},
		{"no instruction", "06", value{}, errCode},
		{"endless", "eb fe", value{}, errCode},
		{"endless calls", "e8 fb ff ff ff", value{}, errCode},
		{"out of the code", "e9 00 00 10 00", value{}, errCode},
		{"stack read past its return address", "58 58 c3", value{}, errCode},
		{"nothing there", "48 8b 04 25 00 f0 0f 00 c3", value{}, errors.New("nothing")},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := &fake{assemble(t, c.code), map[uint64]uint64{
				0x11000: 0x20000, 0x11008: fakeCode + 8, 0x11010: 0, 0x20010: 0x2b, 0x0: 7, 0x10: 7,
			}}
			got, err := follow(mem, fakeCode, mem.executable, func(_, now uint64) uint64 { return now })
			switch {
			case c.err == nil && err != nil, c.err != nil && err == nil:
				t.Fatalf("error %v, want %v", err, c.err)
			case (errors.Is(c.err, errCode) || errors.Is(c.err, ErrNotYet)) && !errors.Is(err, c.err):
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(value{}, origin{})); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the code is, following it ends, and what it says of a value is so: n is the word in memory, shifted and masked.
func FuzzFollow(f *testing.F) {
	for _, s := range []string{
		load + "0f b6 40 10 c0 e8 05 83 e0 01 c3", load + "31 c9 f6 40 10 20 0f 95 c1 89 c8 c3", load + "8b 40 10 0f ba e0 05 0f 92 c0 0f b6 c0 c3",
		"55 48 89 e5 48 83 ec 10 " + load + "48 89 45 f8 48 8b 45 f8 0f b6 40 10 83 e0 01 c9 c3", "e8 fb ff ff ff", "eb fe",
	} {
		f.Add(assemble(f, s))
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		mem := &fake{code, map[uint64]uint64{0x11000: 0x20000, 0x11008: fakeCode + 8, 0x11010: 0, 0x20010: 0x2b, 0x20018: 0x8182838485868788}}
		v, err := follow(mem, fakeCode, mem.executable, func(_, now uint64) uint64 { return now })
		if err != nil || v.kind != number64 || v.from.size == 0 {
			return
		}
		w, err := word(mem, v.from.addr, v.from.size)
		if err != nil {
			t.Fatalf("%+v: %v", v, err)
		}
		if w>>v.shift&v.mask != v.n {
			t.Errorf("% x: %+v, and the word is %#x", code, v, w)
		}
	})
}

func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		version string
		minor   uint8
		known   bool
	}{
		{"2.7.0", 9, true}, {"3.0.3", 10, true}, {"3.0.4", 9, true}, {"3.1.7", 9, true}, {"3.2.11", 9, true},
		{"3.3.0", 10, true}, {"3.4.11", 10, true}, {"4.0.0", 10, true},
		{"4.1.0", 0, false}, {"2.6.10", 0, false}, {"3.3", 0, false}, {"3.3.x", 0, false}, {"", 0, false}, {"3.3.-1", 0, false},
	} {
		l, ok := layoutOf(c.version)
		if ok != c.known || l.minor != c.minor {
			t.Errorf("%q: %+v, %v, want bit %d, %v", c.version, l, ok, c.minor, c.known)
		}
	}
}

func TestNames(t *testing.T) {
	if got := fmt.Sprint(ProviderUnknown, ProviderFlag, ProviderNone, Provider(99)); got != "unknown flag none unknown" {
		t.Errorf("providers: %s", got)
	}
	if got := fmt.Sprint(EventUnknown, GCBegin, SweepEnd, Event(99)); got != "unknown gc begin sweep end unknown" {
		t.Errorf("events: %s", got)
	}
}
