package pagemap

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"cowaudit/internal/testkit"

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

// startReady runs a program until it prints a line that begins with "ready" and gives all its lines.
func startReady(t *testing.T, argv ...string) (PID, []string) {
	t.Helper()
	p := testkit.Start(t, argv...)
	var lines []string
	for {
		line, ok := p.Line()
		if !ok {
			t.Fatalf("%q ended early: %s", argv, p.Stderr())
		}
		lines = append(lines, line)
		if strings.HasPrefix(line, "ready") {
			return PID(p.PID()), lines
		}
	}
}

func TestShapesOfLiveMemory(t *testing.T) {
	pid, lines := startReady(t, testkit.CC(t, "testdata/shapes.c", "-O0"))
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

func TestShapesOfRuby(t *testing.T) {
	testkit.Require(t, "ruby")
	shapesOfRuby(t, "ruby")
}

func TestShapesOfRubies(t *testing.T) {
	for _, r := range testkit.Rubies(t) {
		t.Run(r.Version, func(t *testing.T) { shapesOfRuby(t, r.Argv...) })
	}
}

// shapesOfRuby checks that the heap pages that are found are, to the page, those that Ruby says it has.
func shapesOfRuby(t *testing.T, ruby ...string) {
	t.Helper()
	pid, lines := startReady(t, append(ruby, "-e", rubyScript)...)
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
}
