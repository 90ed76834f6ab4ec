package pagemap

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// liveMemory is a process' memory with the reads of it.
type liveMemory struct {
	t       *testing.T
	mem     *os.File
	pagemap *os.File
}

func openLive(t *testing.T, pid PID) *liveMemory {
	t.Helper()
	l := &liveMemory{t: t}
	for name, f := range map[string]**os.File{"mem": &l.mem, "pagemap": &l.pagemap} {
		h, err := os.Open(FS("").file(pid, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		*f = h
	}
	return l
}

func (l *liveMemory) resident(a Addr) bool {
	var b [8]byte
	if _, err := l.pagemap.ReadAt(b[:], int64(a)/int64(os.Getpagesize())*8); err != nil {
		return false
	}
	return Entry(binary.NativeEndian.Uint64(b[:])).Present()
}

func (l *liveMemory) ReadAt(b []byte, at int64) (int, error) {
	if !l.resident(Addr(at)) || !l.resident(Addr(at)+Addr(len(b))-1) {
		l.t.Errorf("read of an absent page at %x", at)
	}
	return l.mem.ReadAt(b, at)
}

// shapesOf gives the mappings of a live process with their shapes.
func shapesOf(t *testing.T, pid PID) []Mapping {
	t.Helper()
	maps, err := FS("").Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	l := openLive(t, pid)
	Shapes(maps, l, l.resident, FS("").StackPointers(pid))
	return maps
}

// awaitReading waits until the main thread of a process reads its standard input, so that it holds still.
func awaitReading(t *testing.T, pid PID) {
	t.Helper()
	want := fmt.Sprintf("%d 0x0 ", unix.SYS_READ)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		b, err := FS("").read(pid, "syscall", nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(b), want) {
			return
		}
	}
	t.Fatalf("process %d does not come to rest", pid)
}

// startReady runs a program until it prints a line that begins with "ready" and gives all its lines. It ends with its
// standard input.
func startReady(t *testing.T, cmd *exec.Cmd) (PID, []string) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", cmd.Path, err, stderr.String())
		}
	})
	var lines []string
	scan := bufio.NewScanner(stdout)
	for scan.Scan() {
		lines = append(lines, scan.Text())
		if strings.HasPrefix(scan.Text(), "ready") {
			return PID(cmd.Process.Pid), lines
		}
	}
	t.Fatalf("%s ended early: %v\n%s", cmd.Path, scan.Err(), stderr.String())
	return 0, nil
}

func TestShapesOfLiveMemory(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "shapes")
	out, err := exec.Command("gcc", "-O0", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", bin, "testdata/shapes.c").CombinedOutput()
	if err != nil {
		t.Fatalf("compile testdata/shapes.c: %v\n%s", err, out)
	}
	pid, lines := startReady(t, exec.Command(bin))
	type thing struct {
		what string
		at   Addr
	}
	var things []thing
	var child PID
	for _, line := range lines[:len(lines)-1] {
		what, hexa, _ := strings.Cut(line, " ")
		at, err := strconv.ParseUint(hexa, 16, 64)
		if err != nil {
			t.Fatalf("%q", line)
		}
		if what == "fork" {
			child = PID(at)
			continue
		}
		things = append(things, thing{what, Addr(at)})
	}
	fd, err := unix.PidfdOpen(int(child), 0)
	if err != nil {
		t.Fatal(err)
	}
	end := os.NewFile(uintptr(fd), "child")
	t.Cleanup(func() { end.Close() })
	want := map[string]Shape{
		"large": ShapeMallocLarge, "fiber": ShapeThreadStack, "stack": ShapeThreadStack, "data": ShapeUnknown,
		"arena": ShapeMallocArena, "arena-big": ShapeMallocArena, "arena-last": ShapeMallocArena,
	}
	counts := map[string]int{}
	for _, p := range []PID{pid, child} {
		awaitReading(t, p)
		before, err := FS("").Rollup(p)
		if err != nil {
			t.Fatal(err)
		}
		maps := shapesOf(t, p)
		if after, err := FS("").Rollup(p); err != nil || after.RSS != before.RSS || after.Anonymous != before.Anonymous {
			t.Errorf("process %d: the look at it changed it: %+v, before %+v, %v", p, after, before, err)
		}
		l := openLive(t, p)
		parts := ShapeParts(maps, l, l.resident)
		for _, x := range things {
			counts[x.what]++
			i := mappingAt(maps, x.at)
			if i == len(maps) || maps[i].Start > x.at {
				t.Errorf("process %d: %s at %x is not mapped", p, x.what, uint64(x.at))
				continue
			}
			got := maps[i].Shape
			for _, part := range parts {
				if x.at >= part.Start && x.at < part.End {
					got = part.Shape
				}
			}
			if w, ok := want[x.what]; !ok || got != w {
				t.Errorf("process %d: %s at %x is %q, want %q: %+v", p, x.what, uint64(x.at), got, w, maps[i])
			}
		}
		for _, m := range maps {
			if m.Shape == ShapeRubyHeap || m.Shape != ShapeUnknown && !shapeless(&m) {
				t.Errorf("process %d: %+v", p, m)
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"large": 6, "fiber": 2, "stack": 4, "data": 14, "arena": 2, "arena-big": 2, "arena-last": 2}, counts); diff != "" {
		t.Errorf("things looked at (-want +got):\n%s", diff)
	}
}

// This process is a Go program: its heap has the outline of a malloc arena, and its threads' stacks lie in it.
func TestShapesOfThisProcess(t *testing.T) {
	pid := PID(os.Getpid())
	maps, err := FS("").Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	sp := FS("").StackPointers(pid)
	if len(sp) == 0 {
		t.Error("no stack pointers")
	}
	l := openLive(t, pid)
	Shapes(maps, l.mem, l.resident, sp)
	for _, m := range maps {
		if m.Shape != ShapeUnknown {
			t.Errorf("%+v", m)
		}
	}
}

// rubyScript makes strings, threads, fibers and large blocks, then says how many heap pages it has. The second statistic
// is taken with collections off and after the first has allocated what it needs.
const rubyScript = `
keep = Array.new(150_000) { |i| "string number #{i} that is not embedded in its slot" }
keep << Array.new(3) { "x" * 3_000_000 } << Array.new(100_000) { |i| [i] }
threads = 3.times.map { Thread.new { Array.new(5000) { "y" * 100 } } }
keep << threads.map(&:value)
stuck = Thread.new { sleep }
fibers = 5.times.map { |i| Enumerator.new { |y| loop { y << i } } }
fibers.each(&:next)
GC.start
GC.disable
2.times { $text = "ready #{GC.stat(:heap_allocated_pages)} #{GC::INTERNAL_CONSTANTS[:HEAP_PAGE_SIZE]} #{RUBY_VERSION}\n" }
STDOUT.syswrite $text
STDIN.read
`

// rubies gives the interpreters that are there: the one in PATH, and those built for the tests.
func rubies(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	if path, err := exec.LookPath("ruby"); err == nil {
		found["PATH"] = []string{path}
	}
	for _, v := range []string{"3.3", "3.4"} {
		root, err := filepath.Abs(filepath.Join("..", ".rubies", v))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(root, "usr", "bin", "ruby"+v)); err == nil {
			found[v] = []string{"chroot", root, "ruby" + v}
		}
	}
	if len(found) == 0 {
		t.Skip("no Ruby")
	}
	return found
}

// The heap pages that are found are, to the page, those that Ruby says it has.
func TestShapesOfRuby(t *testing.T) {
	for name, command := range rubies(t) {
		t.Run(name, func(t *testing.T) {
			pid, lines := startReady(t, exec.Command(command[0], append(command[1:], "-e", rubyScript)...))
			var pages, size Bytes
			var version string
			if _, err := fmt.Sscanf(lines[0], "ready %d %d %s", &pages, &size, &version); err != nil {
				t.Fatalf("%q: %v", lines[0], err)
			}
			maps := shapesOf(t, pid)
			sum := map[Shape]Bytes{}
			count := map[Shape]int{}
			named := Bytes(0)
			for i := range maps {
				m := &maps[i]
				sum[m.Shape] += m.Size()
				count[m.Shape]++
				if strings.HasPrefix(m.Path, "[anon:Ruby:") && strings.Contains(m.Path, "heap_page") {
					named += m.Size()
				}
			}
			l := openLive(t, pid)
			for _, p := range ShapeParts(maps, l, l.resident) {
				sum[p.Shape] += Bytes(p.End - p.Start)
				count[p.Shape]++
			}
			t.Logf("Ruby %s: %d heap pages of %d bytes; %v %v", version, pages, size, count, sum)
			if got := (sum[ShapeRubyHeap] + named) / size; got != pages {
				t.Errorf("%d heap pages, want %d", got, pages)
			}
			if sum[ShapeMallocLarge] < 3*3_000_000 {
				t.Errorf("large blocks: %d bytes", sum[ShapeMallocLarge])
			}
			// A thread sleeps, and each fiber has a stack.
			if count[ShapeThreadStack] < 6 {
				t.Errorf("%d stacks", count[ShapeThreadStack])
			}
			if count[ShapeMallocArena] < 1 {
				t.Errorf("%d arenas", count[ShapeMallocArena])
			}
		})
	}
}

// fakeMemory is a few resident pages. Reading any other is an error of the test.
type fakeMemory struct {
	t     *testing.T
	pages map[Addr][]byte
}

func (f *fakeMemory) resident(a Addr) bool { return f.pages[a&^4095] != nil }

func (f *fakeMemory) ReadAt(b []byte, at int64) (int, error) {
	for i := range b {
		p := f.pages[Addr(at+int64(i))&^4095]
		if p == nil {
			f.t.Errorf("read of an absent page at %x", at+int64(i))
			return i, io.ErrUnexpectedEOF
		}
		b[i] = p[(at+int64(i))%4096]
	}
	return len(b), nil
}

func (f *fakeMemory) put(at Addr, words ...uint64) {
	for i, w := range words {
		a := at + Addr(i)*8
		if f.pages[a&^4095] == nil {
			f.pages[a&^4095] = make([]byte, 4096)
		}
		binary.NativeEndian.PutUint64(f.pages[a&^4095][a%4096:], w)
	}
}

func TestShapesByForm(t *testing.T) {
	const (
		mib   = 1 << 20
		arena = Addr(0x7f0000000000)
		heap  = Addr(0x55a000000000) // [heap]
	)
	anon := func(start, end Addr, perms string) Mapping { return Mapping{Start: start, End: end, Perms: perms} }
	brk := Mapping{Start: heap, End: heap + mib, Perms: "rw-p", Path: "[heap]"}
	// slots is the first word of a struct heap_page on this machine.
	slots := func(size, n uint16) uint64 {
		var b [8]byte
		binary.NativeEndian.PutUint16(b[0:], size)
		binary.NativeEndian.PutUint16(b[2:], n)
		return binary.NativeEndian.Uint64(b[:])
	}
	rubyPage := func(m *fakeMemory, at, page Addr, size, n uint16) {
		m.put(at, uint64(page))
		m.put(page, slots(size, n), 0, 0, uint64(at)+8, 0, 0, 0, 0)
	}
	tests := []struct {
		name  string
		maps  []Mapping
		fill  func(m *fakeMemory)
		sp    []Addr
		want  []Shape // of each mapping
		parts []ShapePart
	}{
		{
			name: "arena",
			maps: []Mapping{anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib, "---p")},
			fill: func(m *fakeMemory) { m.put(arena, uint64(arena)+0x30, 0, 0x21000, mib) },
			want: []Shape{ShapeMallocArena, ""},
		}, {
			name: "arena whose first page is not resident",
			maps: []Mapping{anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib, "---p")},
			want: []Shape{"", ""},
		}, {
			name: "arena that is not followed by its rest",
			maps: []Mapping{anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+63*mib, "---p")},
			fill: func(m *fakeMemory) { m.put(arena, uint64(arena)+0x30, 0, 0x21000, mib) },
			want: []Shape{"", ""},
		}, {
			name: "arena whose rest is merged with a guard",
			maps: []Mapping{anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib+4096, "---p")},
			fill: func(m *fakeMemory) { m.put(arena, uint64(arena)+0x30, 0, 0x21000, mib) },
			want: []Shape{ShapeMallocArena, ""},
		}, {
			name: "full heap and the next heap of the same arena in one mapping",
			maps: []Mapping{anon(arena, arena+65*mib, "rw-p"), anon(arena+65*mib, arena+128*mib, "---p")},
			fill: func(m *fakeMemory) {
				m.put(arena, uint64(arena)+0x30, 0, 64*mib, 64*mib)
				m.put(arena+64*mib, uint64(arena)+0x30, uint64(arena), 0x1000, mib)
			},
			want: []Shape{ShapeMallocArena, ""},
		}, {
			name: "full heap and something else in one mapping",
			maps: []Mapping{anon(arena, arena+65*mib, "rw-p"), anon(arena+65*mib, arena+128*mib, "---p")},
			fill: func(m *fakeMemory) {
				m.put(arena, uint64(arena)+0x30, 0, 64*mib, 64*mib)
				m.put(arena+64*mib, 1, 2, 3, 4)
			},
			want: []Shape{"", ""},
		}, {
			name: "first heap that names a heap before it",
			maps: []Mapping{anon(arena-64*mib, arena-63*mib, "rw-p"), anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib, "---p")},
			fill: func(m *fakeMemory) { m.put(arena, uint64(arena)+0x30, uint64(arena)-64*mib, 0x21000, mib) },
			want: []Shape{"", "", ""},
		}, {
			name: "second heap that names no heap before it",
			maps: []Mapping{anon(arena, arena+mib, "rw-p"), anon(arena+mib, arena+64*mib, "---p"), anon(arena+64*mib, arena+65*mib, "rw-p"), anon(arena+65*mib, arena+128*mib, "---p")},
			fill: func(m *fakeMemory) {
				m.put(arena, uint64(arena)+0x30, 0, 0x21000, mib)
				m.put(arena+64*mib, uint64(arena)+0x30, 0, 0x1000, mib)
			},
			want: []Shape{ShapeMallocArena, "", "", ""},
		}, {
			name: "small rest of an arena is no guard",
			maps: []Mapping{anon(arena, arena+64*mib-0x8000, "rw-p"), anon(arena+64*mib-0x8000, arena+64*mib, "---p"), anon(arena+64*mib, arena+65*mib, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena, uint64(arena)+0x30, 0, 64*mib-0x8000, 64*mib-0x8000)
				m.put(arena+65*mib-8, 1) // used at its top only
			},
			want: []Shape{ShapeMallocArena, "", ""},
		}, {
			name: "mapped chunks to the end",
			maps: []Mapping{anon(arena+0x1000, arena+0x6000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0x1000, 0, 0x2002)
				m.put(arena+0x3000, 0, 0x3002)
			},
			want: []Shape{ShapeMallocLarge},
		}, {
			name: "mapped chunks of glibc 2.43 to the end",
			maps: []Mapping{anon(arena+0x1000, arena+0x6000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0x1000, 0, 0x1ff2)
				m.put(arena+0x3000, 1, 0x2ff2)
			},
			want: []Shape{ShapeMallocLarge},
		}, {
			name: "mapped chunk and a tail",
			maps: []Mapping{anon(arena+0x1000, arena+0x6000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0x1000, 0, 0x2002)
				m.put(arena+0x3000, 7, 0x3002)
			},
			want: []Shape{""},
		}, {
			name: "Ruby heap pages of 64 KiB",
			maps: []Mapping{brk, anon(arena+0x10000, arena+0x30000, "rw-p")},
			fill: func(m *fakeMemory) {
				rubyPage(m, arena+0x10000, heap+0x100, 40, 1637)
				rubyPage(m, arena+0x20000, heap+0x1ff0, 640, 102) // its struct lies in two pages
			},
			want: []Shape{"", ShapeRubyHeap},
		}, {
			name: "Ruby heap pages of 16 KiB",
			maps: []Mapping{brk, anon(arena+0x14000, arena+0x1c000, "rw-p")},
			fill: func(m *fakeMemory) {
				rubyPage(m, arena+0x14000, heap+0x100, 40, 408)
				rubyPage(m, arena+0x18000, heap+0x200, 40, 408)
			},
			want: []Shape{"", ShapeRubyHeap},
		}, {
			name: "Ruby heap page whose struct is another's",
			maps: []Mapping{brk, anon(arena+0x10000, arena+0x30000, "rw-p")},
			fill: func(m *fakeMemory) {
				rubyPage(m, arena+0x10000, heap+0x100, 40, 1637)
				m.put(arena+0x20000, uint64(heap)+0x100)
			},
			want:  []Shape{"", ""},
			parts: []ShapePart{{arena + 0x10000, arena + 0x20000, ShapeRubyHeap}},
		}, {
			name: "Ruby heap page whose struct is not resident",
			maps: []Mapping{brk, anon(arena+0x10000, arena+0x20000, "rw-p")},
			fill: func(m *fakeMemory) { m.put(arena+0x10000, uint64(heap)+0x100) },
			want: []Shape{"", ""},
		}, {
			name: "Ruby heap page whose struct is resident in part",
			maps: []Mapping{brk, anon(arena+0x10000, arena+0x20000, "rw-p")},
			fill: func(m *fakeMemory) {
				rubyPage(m, arena+0x10000, heap+0xfe0, 40, 1637)
				delete(m.pages, heap+0x1000)
			},
			want: []Shape{"", ""},
		}, {
			name: "Ruby heap page with slots for half of it, and for more than it",
			maps: []Mapping{brk, anon(arena+0x10000, arena+0x20000, "rw-p"), anon(arena+0x30000, arena+0x40000, "rw-p")},
			fill: func(m *fakeMemory) {
				rubyPage(m, arena+0x10000, heap+0x100, 40, 800)
				rubyPage(m, arena+0x30000, heap+0x200, 40, 1700)
			},
			want: []Shape{"", "", ""},
		}, {
			name: "pointer to a file's memory",
			maps: []Mapping{{Start: heap, End: heap + mib, Perms: "rw-p", Inode: 9, Path: "/x"}, anon(arena+0x10000, arena+0x20000, "rw-p")},
			fill: func(m *fakeMemory) { rubyPage(m, arena+0x10000, heap+0x100, 40, 1637) },
			want: []Shape{"", ""},
		}, {
			name: "chunk, Ruby heap pages, something, a Ruby heap page, and a chunk that leads nowhere",
			maps: []Mapping{{Start: 0x1000, End: 0x2000, Perms: "r-xp", Inode: 1, Path: "/usr/bin/ruby3.3"}, brk, anon(arena+0xe000, arena+0x44000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0xe000, 0, 0x2002)
				rubyPage(m, arena+0x10000, heap+0x100, 40, 1637)
				m.put(arena+0x20000, 1, 2)
				rubyPage(m, arena+0x30000, heap+0x200, 40, 1637)
				m.put(arena+0x40000, 0, 0x1002)
			},
			want: []Shape{"", "", ""},
			parts: []ShapePart{
				{arena + 0xe000, arena + 0x10000, ShapeMallocLarge},
				{arena + 0x10000, arena + 0x20000, ShapeRubyHeap},
				{arena + 0x30000, arena + 0x40000, ShapeRubyHeap},
			},
		}, {
			name: "large mapped chunk and a tail",
			maps: []Mapping{anon(arena+0x1000, arena+0x31000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0x1000, 0, 0x20002)
				m.put(arena+0x21000, 7, 0x3002)
			},
			want:  []Shape{""},
			parts: []ShapePart{{arena + 0x1000, arena + 0x21000, ShapeMallocLarge}},
		}, {
			name: "stack with its thread's descriptor",
			maps: []Mapping{anon(arena, arena+0x1000, "---p"), anon(arena+0x1000, arena+0x9000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0x1000, 1) // used down to its end
				m.put(arena+0x8a90, uint64(arena), 0x9000)
			},
			want: []Shape{"", ShapeThreadStack},
		}, {
			name: "two stacks with guards inside the mapping",
			maps: []Mapping{anon(arena, arena+0x10000, "rw-p")},
			fill: func(m *fakeMemory) {
				m.put(arena+0xfa90, uint64(arena)+0x8000, 0x8000)
				m.put(arena+0x7a90, uint64(arena), 0x8000)
			},
			want: []Shape{ShapeThreadStack},
		}, {
			name: "one stack above something else",
			maps: []Mapping{anon(arena, arena+0x10000, "rw-p")},
			fill: func(m *fakeMemory) { m.put(arena+0xfa90, uint64(arena)+0x8000, 0x8000) },
			want: []Shape{""},
		}, {
			name: "stack pointer above a guard",
			maps: []Mapping{anon(arena, arena+0x1000, "---p"), anon(arena+0x1000, arena+0x9000, "rw-p")},
			fill: func(m *fakeMemory) { m.put(arena+0x1000, 1) },
			sp:   []Addr{0x10, arena + 0x8ff8},
			want: []Shape{"", ShapeThreadStack},
		}, {
			name: "stack pointer without a guard",
			maps: []Mapping{anon(arena+0x1000, arena+0x9000, "rw-p")},
			sp:   []Addr{arena + 0x8ff8},
			want: []Shape{""},
		}, {
			name: "guard too large",
			maps: []Mapping{anon(arena, arena+0x11000, "---p"), anon(arena+0x11000, arena+0x19000, "rw-p")},
			sp:   []Addr{arena + 0x18ff8},
			want: []Shape{"", ""},
		}, {
			name: "guard that does not touch",
			maps: []Mapping{anon(arena, arena+0x1000, "---p"), anon(arena+0x2000, arena+0x9000, "rw-p")},
			sp:   []Addr{arena + 0x8ff8},
			want: []Shape{"", ""},
		}, {
			name: "not for data, shared, of a file, named",
			maps: []Mapping{
				anon(0x1000, 0x2000, "r--p"), anon(0x2000, 0x3000, "rw-s"), anon(0x3000, 0x4000, "rwxp"),
				{Start: 0x4000, End: 0x5000, Perms: "rw-p", Inode: 3, Path: "/x"}, {Start: 0x5000, End: 0x6000, Perms: "rw-p", Path: "[anon:x]"},
			},
			fill: func(m *fakeMemory) {
				for a := Addr(0x1000); a < 0x6000; a += 0x1000 {
					m.put(a, 0, 0x1002)
				}
			},
			want: []Shape{"", "", "", "", ""},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &fakeMemory{t: t, pages: map[Addr][]byte{}}
			if tt.fill != nil {
				tt.fill(m)
			}
			Shapes(tt.maps, m, m.resident, tt.sp)
			var got []Shape
			for _, x := range tt.maps {
				got = append(got, x.Shape)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("shapes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.parts, ShapeParts(tt.maps, m, m.resident)); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseSyscall(t *testing.T) {
	tests := []struct {
		in string
		sp Addr
		ok bool
	}{
		{"running\n", 0, false},
		{"-1 0x7ffd8c1fe000 0x7f10aa090000\n", 0x7ffd8c1fe000, true},
		{"0 0x0 0x7ffd 0x1 0x0 0x0 0x0 0x7ffd8c1fe008 0x7f10aa090000\n", 0x7ffd8c1fe008, true},
		{"0 0x0 0x0 0x0\n", 0, false},
		{"", 0, false},
		{"1 2 3\n", 0, false},
	}
	for _, tt := range tests {
		if sp, ok := parseSyscall([]byte(tt.in)); sp != tt.sp && tt.ok || ok != tt.ok {
			t.Errorf("%q: %x %t", tt.in, uint64(sp), ok)
		}
	}
}
