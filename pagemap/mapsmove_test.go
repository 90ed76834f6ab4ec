package pagemap

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// killer ends a process after the first chunk of its maps has been read.
type killer struct {
	*os.File
	kill func()
}

func (k *killer) Read(b []byte) (int, error) {
	n, err := k.File.Read(b)
	if k.kill != nil {
		k.kill()
		k.kill = nil
	}
	return n, err
}

// A process that ends in the middle leaves a maps file that is short and otherwise in order.
func TestMapsOfProcessThatEnds(t *testing.T) {
	tree := startTree(t, buildTree(t), "m M")
	pid := tree.pids["M"]
	whole, err := FS("").Maps(pid)
	if err != nil || len(whole) < 400 {
		t.Fatalf("%d mappings, %v", len(whole), err)
	}
	f, err := os.Open(FS("").file(pid, "maps"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		t.Fatal(err)
	}
	end := os.NewFile(uintptr(fd), "M")
	_, err = readMaps(pid, &killer{f, func() {
		if err := unix.PidfdSendSignal(int(end.Fd()), unix.SIGKILL, nil, 0); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, end)
	}})
	if !errors.Is(err, ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
}

// scripted is a maps file that reads differently each time, as while a process maps and unmaps.
type scripted struct {
	texts []string
	next  int
	r     *strings.Reader
	reads int
}

func (s *scripted) Seek(int64, int) (int64, error) { s.r = nil; return 0, nil }

func (s *scripted) Read(b []byte) (int, error) {
	if s.r == nil {
		s.r = strings.NewReader(s.texts[min(s.next, len(s.texts)-1)])
		s.next++
		s.reads++
	}
	return s.r.Read(b)
}

func (s *scripted) ReadAt(b []byte, _ int64) (int, error) { return len(b), nil }

func TestMapsThatMove(t *testing.T) {
	const (
		low    = "1000-3000 rw-p 00000000 00:00 0 \n"
		grown  = "1000-5000 rw-p 00000000 00:00 0 \n"
		high   = "3000-5000 r--p 00000000 00:00 0 \n"
		inside = "2000-5000 r--p 00000000 00:00 0 \n"
	)
	private := func(start, end Addr, perms string) Mapping { return Mapping{Start: start, End: end, Perms: perms} }
	tests := []struct {
		name  string
		texts []string
		reads int
		want  []Mapping
	}{
		{"in order", []string{low + high}, 1, []Mapping{private(0x1000, 0x3000, "rw-p"), private(0x3000, 0x5000, "r--p")}},
		{"in order the second time", []string{low + grown, grown}, 2, []Mapping{private(0x1000, 0x5000, "rw-p")}},
		{"never: merged with what an earlier chunk had", []string{low + grown}, 4, []Mapping{private(0x1000, 0x5000, "rw-p")}},
		{"never: the second took from the first", []string{low + inside}, 4, []Mapping{private(0x1000, 0x2000, "rw-p"), private(0x2000, 0x5000, "r--p")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &scripted{texts: tt.texts}
			got, err := readMaps(1, s)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s.reads != tt.reads {
				t.Errorf("read %d times, want %d", s.reads, tt.reads)
			}
		})
	}
}
