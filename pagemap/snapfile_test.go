package pagemap

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// sample is a snapshot with every part of a row, made by hand.
func sample() *Snapshot {
	row := func(pfn Entry) []Entry {
		e := make([]Entry, WindowPages)
		for i := range e {
			e[i] = entryPresent | pfn + Entry(i)
		}
		return e
	}
	flags, counts, words, unstable := make([]KFlags, WindowPages), make([]int32, WindowPages), make([]int16, WindowPages), make([]bool, WindowPages)
	for i := range flags {
		flags[i], counts[i], words[i] = FlagsUnread, CountUnread, WordsUnread
	}
	flags[3], flags[1023] = KFlagAnon|KFlagAnonExclusive, 0
	counts[0], counts[17] = 0, 1<<31-1
	words[5], words[6] = 0, 512
	unstable[1], unstable[1000] = true, true
	second := row(5000)
	copy(second[:512], row(100)[:512])
	return &Snapshot{
		Fam: Family{
			Processes: []Process{
				{Identity: Identity{PID: 10, Start: 99}, State: StateAudited, Comm: "m\nx\xff\\xff\\", Mappings: []Mapping{{Start: 0x400000, End: 0x800000, Perms: "rw-p", Path: "/a b\xff (deleted)", Inode: 1 << 60}}},
				{Identity: Identity{PID: 11, Start: 100}, Reference: 10, Basis: ReferenceParent, State: StateAudited, Mappings: []Mapping{}},
				{Identity: Identity{PID: 12, Start: 101}, State: StateGone, Mappings: []Mapping{}},
			},
			Facts:    Facts{PageSize: 4096, FramesVisible: true, ZeroFrames: []PFN{7}},
			Warnings: []Warning{{Code: "gone", PID: 12, Text: "t", Remedy: "r"}},
		},
		Windows: []Window{
			{Start: 0x400000, Rows: []Row{{Entries: row(100)}, {Entries: second, Flags: flags, Counts: counts, Words: words, Unstable: unstable}, {}}},
			{Start: 0x7fff00000000, Rows: []Row{{}, {Entries: row(9)}, {}}},
		},
	}
}

func encode(t testing.TB, s *Snapshot) []byte {
	var b bytes.Buffer
	if err := WriteSnapshot(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSnapshotRoundTrip(t *testing.T) {
	s := sample()
	got, err := ReadSnapshot(bytes.NewReader(encode(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, got); d != "" {
		t.Errorf("read back differs (-written +read):\n%s", d)
	}
	if !bytes.Equal(encode(t, s), encode(t, got)) {
		t.Error("written again, the file differs")
	}
}

func TestSnapshotCut(t *testing.T) {
	b := encode(t, sample())
	for _, n := range []int{0, 3, 7, 8, 20, len(b) / 2, len(b) - 1} {
		if _, err := ReadSnapshot(bytes.NewReader(b[:n])); !errors.Is(err, ErrFormat) {
			t.Errorf("cut at %d of %d bytes: %v, want ErrFormat", n, len(b), err)
		}
	}
	flip := bytes.Clone(b)
	flip[len(flip)/2] ^= 0x10
	if _, err := ReadSnapshot(bytes.NewReader(flip)); !errors.Is(err, ErrFormat) {
		t.Errorf("a flipped bit: %v, want ErrFormat", err)
	}
}

// Every write error must come up: a full disk leaves no file that looks whole.
func TestSnapshotWriteError(t *testing.T) {
	b := encode(t, sample())
	for n := 0; n < len(b); n += len(b)/7 + 1 {
		if err := WriteSnapshot(&fullDisk{n}, sample()); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("disk full after %d of %d bytes: %v", n, len(b), err)
		}
	}
}

type fullDisk struct{ left int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if len(b) > d.left {
		n := d.left
		d.left = 0
		return n, io.ErrShortWrite
	}
	d.left -= len(b)
	return len(b), nil
}

// FuzzReadSnapshot feeds what follows the magic through the compressor, so that the fuzzer reaches the decoder behind it.
func FuzzReadSnapshot(f *testing.F) {
	small := &Snapshot{Fam: Family{Facts: Facts{PageSize: 4096}, Processes: []Process{{State: StateAudited}}}}
	small.Windows = sample().Windows[:1]
	small.Windows[0].Rows = small.Windows[0].Rows[1:2]
	for _, s := range []*Snapshot{small, {Fam: Family{Facts: Facts{PageSize: 4096}}}} {
		z, err := zstd.NewReader(bytes.NewReader(encode(f, s)[8:]))
		if err != nil {
			f.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(plain)
		f.Add(plain[:len(plain)/3])
	}
	f.Add([]byte{2, '{', '}', 0, 0})
	f.Fuzz(func(t *testing.T, plain []byte) {
		var b bytes.Buffer
		b.WriteString(snapMagic + "\x01")
		w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<16), zstd.WithLowerEncoderMem(true))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(plain); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := ReadSnapshot(bytes.NewReader(b.Bytes()))
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("error is not ErrFormat: %v", err)
			}
			return
		}
		again, err := ReadSnapshot(bytes.NewReader(encode(t, s)))
		if err != nil {
			t.Fatalf("what was read cannot be read back: %v", err)
		}
		if !reflect.DeepEqual(s.Windows, again.Windows) {
			t.Fatal("what was read, written and read again differs")
		}
	})
}
