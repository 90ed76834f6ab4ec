package taskstats

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// structOf makes a struct taskstats with copies and nothing else.
func structOf(version int, size, at int, copies uint64) []byte {
	b := make([]byte, size)
	binary.NativeEndian.PutUint16(b, uint16(version))
	binary.NativeEndian.PutUint64(b[at:], copies)
	return b
}

func attribute(kind uint16, value []byte) []byte {
	b := make([]byte, align(attrSize+len(value)))
	binary.NativeEndian.PutUint16(b, uint16(attrSize+len(value)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	copy(b[attrSize:], value)
	return b
}

// exitRecord is a message about the end of task 812 with 7 copies.
func exitRecord(t testing.TB, flags uint8) []byte {
	t.Helper()
	s := structOf(16, 560, 400, 7)
	s[offsetFlag] = flags
	binary.NativeEndian.PutUint32(s[368:], 812)
	var id [4]byte
	binary.NativeEndian.PutUint32(id[:], 812)
	body := append(attribute(0, nil), attribute(typeAggrPID|0x8000, append(attribute(typePID, id[:]), attribute(typeStats, s)...))...)
	b := make([]byte, headerSize+genlSize, headerSize+genlSize+len(body))
	b = append(b, body...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], 0x20)
	b[headerSize] = cmdNew
	return b
}

func TestParseStats(t *testing.T) {
	for _, tt := range []struct {
		name string
		b    []byte
		want stats
		err  error
	}{
		{"version 13", structOf(13, 416, 400, 101), stats{version: 13, copies: 101, counts: true}, nil},
		{"version 14", structOf(14, 432, 400, 103), stats{version: 14, copies: 103, counts: true}, nil},
		{"version 15, with its own layout", structOf(15, 560, 496, 107), stats{version: 15, copies: 107, counts: true}, nil},
		{"version 16", structOf(16, 560, 400, 109), stats{version: 16, copies: 109, counts: true}, nil},
		{"a later one, longer", structOf(19, 640, 400, 113), stats{version: 19, copies: 113, counts: true}, nil},
		{"no count at all", structOf(16, 560, 400, 0), stats{version: 16}, nil},
		{"only another count", structOf(16, 560, 352, 5), stats{version: 16, counts: true}, nil},
		{"a processor count, which everybody has", structOf(16, 560, 16, 5), stats{version: 16}, nil},
		{"version 12 counts no copies", structOf(12, 400, 16, 5), stats{}, pagemap.ErrNotSupported},
		{"version 14 with the fields of 15", structOf(14, 560, 400, 5), stats{}, pagemap.ErrFormat},
		{"cut", structOf(16, 552, 400, 5), stats{}, pagemap.ErrFormat},
		{"empty", nil, stats{}, pagemap.ErrFormat},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStats(tt.b)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(stats{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The table is that of the running kernel, by its own type information.
func TestLayoutOfThisKernel(t *testing.T) {
	testkit.Require(t, "taskstats")
	c := open(t)
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		testkit.Missing(t, err.Error())
	}
	var s *btf.Struct
	if err := spec.TypeByName("taskstats", &s); err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for _, m := range s.Members {
		at[m.Name] = int(m.Offset.Bytes())
	}
	l := layouts[min(c.Version(), latestVersion)]
	want := layout{size: int(s.Size), grows: l.grows, tgid: at["ac_tgid"], wpcopy: at["wpcopy_count"], wpwait: at["wpcopy_delay_total"]}
	for _, name := range []string{"blkio", "swapin", "freepages", "thrashing", "compact", "wpcopy", "irq"} {
		if off, ok := at[name+"_count"]; ok {
			want.counts = append(want.counts, off)
		}
	}
	if l.grows {
		want.size = min(want.size, l.size)
	}
	if diff := cmp.Diff(want, l, cmp.AllowUnexported(layout{})); diff != "" {
		t.Errorf("version %d (-kernel +table):\n%s", c.Version(), diff)
	}
	if at["ac_flag"] != offsetFlag {
		t.Errorf("ac_flag at %d", at["ac_flag"])
	}
}

// And that of the headers that are installed, whatever their version, by the compiler.
func TestLayoutOfTheHeaders(t *testing.T) {
	testkit.Require(t, "gcc")
	src := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(src, []byte(`#include <linux/taskstats.h>
#include <stddef.h>
#include <stdio.h>
int main(void) {
#if TASKSTATS_VERSION < 13
	return 77;
#else
	struct taskstats t;
	printf("%d size=%zu\n", TASKSTATS_VERSION, sizeof t);
	printf("%zu %zu %zu\n", offsetof(struct taskstats, ac_tgid), offsetof(struct taskstats, wpcopy_count), offsetof(struct taskstats, wpcopy_delay_total));
#endif
}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	p := testkit.Start(t, testkit.CC(t, src))
	line, ok := p.Line()
	if !ok && p.Wait() == 77 {
		testkit.Missing(t, "the headers are older than taskstats version 13")
	}
	var version, size, tgid, wpcopy, wpwait int
	scan(t, line, "%d size=%d", &version, &size)
	line, _ = p.Line()
	scan(t, line, "%d %d %d", &tgid, &wpcopy, &wpwait)
	if code := p.Wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	l := layouts[min(version, latestVersion)]
	if got := []int{size, tgid, wpcopy, wpwait}; !slices.Equal(got, []int{l.size, l.tgid, l.wpcopy, l.wpwait}) && (!l.grows || size < l.size) {
		t.Errorf("version %d: %v, the table has %+v", version, got, l)
	}
}

func TestNextMessage(t *testing.T) {
	ack := make([]byte, headerSize+4)
	binary.NativeEndian.PutUint32(ack, uint32(len(ack)))
	binary.NativeEndian.PutUint16(ack[4:], 2) // NLMSG_ERROR
	refused := slices.Clone(ack)
	code := int32(-1)
	binary.NativeEndian.PutUint32(refused[headerSize:], uint32(code))
	m, rest, err := nextMessage(append(slices.Clone(ack), refused...))
	if err != nil || m.err != nil || len(rest) != len(refused) {
		t.Errorf("%+v, %d bytes left, %v", m, len(rest), err)
	}
	if m, rest, err = nextMessage(rest); err != nil || !errors.Is(m.err, syscall.EPERM) || len(rest) != 0 {
		t.Errorf("%+v, %d bytes left, %v", m, len(rest), err)
	}
	for name, b := range map[string][]byte{"short": ack[:10], "cut": ack[:17], "an error without a number": {16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
		if _, _, err := nextMessage(b); !errors.Is(err, pagemap.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDatagram(f *testing.F) {
	f.Add(exitRecord(f, agroup))
	f.Add(exitRecord(f, 0)[:40])
	f.Add([]byte(strings.Repeat("\x10\x00\x00\x00", 8)))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := &Exits{queue: make(chan Counts, len(b)/headerSize+1)}
		err := e.datagram(b, 0x20, Accounting{On: true})
		if err != nil && !errors.Is(err, pagemap.ErrFormat) && !errors.Is(err, pagemap.ErrNotSupported) {
			t.Fatal(err)
		}
		if e.lost.Load() != 0 {
			t.Fatal("more records than the datagram has room for")
		}
	})
}
