package oracle

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"cowaudit/ebpf"
	"cowaudit/ebpf/gc"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// bpfObjects lists the programs, maps and links in the kernel, of all processes: "prog_id 12".
func bpfObjects(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	// enum bpf_cmd of include/uapi/linux/bpf.h: BPF_PROG_, BPF_MAP_, BPF_LINK_GET_NEXT_ID.
	for name, cmd := range map[string]uintptr{"prog_id": 11, "map_id": 12, "link_id": 31} {
		attr := struct{ start, next, flags uint32 }{}
		for {
			_, _, no := unix.Syscall(unix.SYS_BPF, cmd, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
			if no == unix.ENOENT {
				break
			}
			if no != 0 {
				t.Fatalf("list BPF objects: %v", no)
			}
			out[fmt.Sprint(name, " ", attr.next)] = true
			attr.start = attr.next
		}
	}
	return out
}

// held are the BPF objects of which some process has a descriptor: /proc/PID/fdinfo.
func held(pattern string) map[string]bool {
	out := map[string]bool{}
	files, _ := filepath.Glob("/proc/" + pattern + "/fdinfo/*")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // closed since
		}
		for line := range strings.Lines(string(b)) {
			name, id, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "prog_id" || name == "map_id" || name == "link_id" {
				out[name+" "+strings.TrimSpace(id)] = true
			}
		}
	}
	return out
}

// leftBehind waits until no BPF object is left that came after before and that no process has a descriptor of: other
// programs may use BPF too. It gives what does not go.
func leftBehind(t *testing.T, before map[string]bool) (left []string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left = left[:0]
		now := bpfObjects(t)
		others := held("[0-9]*")
		for id := range now {
			if !before[id] && !others[id] {
				left = append(left, id)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// probed are the places of a process at which the tracer's probes are, and their semaphores.
type probed struct {
	code, semaphores []int64
	mem              *os.File
}

func probesOf(t *testing.T, pid pagemap.PID) *probed {
	t.Helper()
	plan, err := gc.Find(proc, pid, gc.ProviderUSDT)
	if err != nil || plan.Provider != gc.ProviderUSDT {
		t.Fatalf("probes of %d: %+v, %v", pid, plan, err)
	}
	list, err := proc.Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	p := &probed{}
	place := func(offset uint64) int64 {
		m := one(t, fmt.Sprintf("a mapping of %s at %#x", plan.Module, offset), list, func(m pagemap.Mapping) bool {
			return m.Path == plan.Module && m.Offset <= offset && offset < m.Offset+uint64(m.End-m.Start)
		})
		return int64(uint64(m.Start) + offset - m.Offset)
	}
	for _, probe := range plan.Probes {
		p.code = append(p.code, place(probe.Offset))
		if probe.Semaphore != 0 {
			p.semaphores = append(p.semaphores, place(probe.Semaphore))
		}
	}
	if p.mem, err = os.Open(fmt.Sprintf("/proc/%d/mem", pid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.mem.Close() })
	return p
}

// bytes reads 8 bytes at each place.
func (p *probed) bytes(t *testing.T, places []int64) []byte {
	t.Helper()
	var out []byte
	for _, at := range places {
		var b [8]byte
		if _, err := p.mem.ReadAt(b[:], at); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		out = append(out, b[:]...)
	}
	return out
}

// set counts the probed places that hold a breakpoint, and the semaphores that are raised.
func (p *probed) set(t *testing.T) (breakpoints, raised int) {
	t.Helper()
	for b := range slices.Chunk(p.bytes(t, p.code), 8) {
		if b[0] == 0xcc {
			breakpoints++
		}
	}
	for b := range slices.Chunk(p.bytes(t, p.semaphores), 8) {
		if b[0] != 0 || b[1] != 0 { // an unsigned short, <sys/sdt.h>
			raised++
		}
	}
	return breakpoints, raised
}

// collecting is a Ruby 3.1 that forks a child which collects, for each line. Its library is a copy of its own: a probe is in
// every process that maps the file, and other tests may have theirs in the system's.
func collecting(t *testing.T) *testkit.Process {
	t.Helper()
	r := testkit.Rubies(t)[0]
	const script = `$stdout.sync = true
		puts "up " + File.readlines("/proc/self/maps").grep(/libruby-3.1.so/).first.split.last
		while gets; Process.wait(fork { GC.start; exit!(0) }); puts "done"; end`
	argv := append(slices.Clone(r.Argv), "-e", script)
	first := testkit.Start(t, argv...)
	library := strings.TrimPrefix(first.WaitLine("up "), "up ")
	first.End()
	b, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	own := write(t, dir, "libruby-3.1.so.3.1", string(b))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	p := testkit.StartCmd(t, cmd)
	if got := p.WaitLine("up "); got != "up "+own {
		t.Fatalf("%s, with a library of its own in %s", got, own)
	}
	return p
}

func uprobeEvents(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/sys/kernel/tracing/uprobe_events")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

// Loaded and unloaded a hundred times, half of them with probes: nothing stays behind, in the kernel, in this process or in
// the target. Four targets at once: it is the kernel's grace periods that take long.
func TestTraceLoadAndUnload(t *testing.T) {
	testkit.Require(t, "trace", "rubies")
	const side, rounds = 4, 25
	objects, events := bpfObjects(t), uprobeEvents(t)
	var targets [side]*testkit.Process
	for i := range targets {
		targets[i] = collecting(t)
		loadAndUnload(t, targets[i], 2)
	}
	descriptors, routines := openDescriptors(), runtime.NumGoroutine()
	var wg sync.WaitGroup // not parallel tests, of which only as many run as there are processors
	for _, p := range targets {
		wg.Go(func() { loadAndUnload(t, p, rounds) })
	}
	wg.Wait()
	if own := held("self"); len(own) > 0 {
		t.Errorf("this process still has descriptors of %v", own)
	}
	if left := leftBehind(t, objects); len(left) > 0 {
		t.Errorf("left in the kernel: %v", left)
	}
	if now := uprobeEvents(t); now != events {
		t.Errorf("uprobe events: %q, before %q", now, events)
	}
	if n := openDescriptors(); n > descriptors {
		t.Errorf("descriptors: %d, %d before %d rounds", n, descriptors, side*rounds)
	}
	if n := runtime.NumGoroutine(); n > routines {
		t.Errorf("goroutines: %d, %d before %d rounds", n, routines, side*rounds)
	}
	for _, p := range targets {
		undisturbed(t, p)
	}
}

// loadAndUnload traces a process again and again, every other time with probes.
func loadAndUnload(t *testing.T, p *testkit.Process, rounds int) {
	t.Helper()
	pid := pagemap.PID(p.PID())
	probes := probesOf(t, pid)
	defer probes.mem.Close()
	code := probes.bytes(t, probes.code)
	for i := range rounds {
		o := ebpf.Options{Collector: "none", Faults: i%3 == 0, Stacks: i%5 == 0}
		if i%2 == 1 {
			o.Collector = "usdt"
		}
		tracer, err := ebpf.Start(o)
		if err == nil {
			err = tracer.Add(pid)
		}
		if err != nil {
			t.Errorf("round %d: %v", i, err)
			return
		}
		set, raised := probes.set(t)
		if set != i%2*len(probes.code) || raised != i%2*len(probes.semaphores) {
			t.Errorf("round %d: %d breakpoints, %d semaphores raised", i, set, raised)
		}
		p.Send("")
		p.WaitLine("done")
		if tr, err := tracer.Stop(); err != nil || tr.Totals[ebpf.KindCopied].Faults == 0 {
			t.Errorf("round %d: %v, %+v", i, err, tr)
			return
		}
		if set, raised := probes.set(t); set != 0 || raised != 0 || !bytes.Equal(probes.bytes(t, probes.code), code) {
			t.Errorf("after round %d: %d breakpoints, %d semaphores raised, or other code", i, set, raised)
		}
	}
}

func openDescriptors() int {
	runtime.GC()
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

// undisturbed wants the target to run as ever.
func undisturbed(t *testing.T, p *testkit.Process) {
	t.Helper()
	p.Send("")
	p.WaitLine("done")
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"State:\tT", "State:\tt", "State:\tZ"} {
		if strings.Contains(string(b), bad) {
			t.Errorf("the target: %s", bad)
		}
	}
	if !strings.Contains(string(b), "TracerPid:\t0\n") {
		t.Error("the target is being traced by ptrace")
	}
	p.CloseStdin()
	if code := p.Wait(); code != 0 {
		t.Errorf("the target ended with exit code %d: %s", code, p.Stderr())
	}
}

// killedEnv names the process that the program of TestTraceKilled traces.
const killedEnv = "COWAUDIT_TEST_TRACE"

// A process that traces is killed, in the middle of it: the kernel takes everything away by itself.
func TestTraceKilled(t *testing.T) {
	if target := os.Getenv(killedEnv); target != "" {
		traceUntilKilled(t, target)
		return
	}
	testkit.Require(t, "trace", "rubies")
	p := collecting(t)
	probes := probesOf(t, pagemap.PID(p.PID()))
	code := probes.bytes(t, probes.code)
	objects, events := bpfObjects(t), uprobeEvents(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		cmd := exec.Command(self, "-test.run=^TestTraceKilled$")
		cmd.Env = append(os.Environ(), fmt.Sprint(killedEnv, "=", p.PID()))
		tracing := testkit.StartCmd(t, cmd)
		tracing.WaitLine("TRACING")
		if set, raised := probes.set(t); set != len(probes.code) || raised != len(probes.semaphores) {
			t.Errorf("round %d: %d breakpoints and %d semaphores while it is traced", round, set, raised)
		}
		if own := held(fmt.Sprint(tracing.PID())); len(own) < 10 {
			t.Errorf("the tracing process holds only %v", own)
		}
		// In the middle: the target works while the other one is killed.
		p.Send("")
		tracing.Signal(unix.SIGKILL)
		began := time.Now()
		if code := tracing.Wait(); code != -1 {
			t.Errorf("the tracing process ended with exit code %d", code)
		}
		p.WaitLine("done")
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			set, raised := probes.set(t)
			if set == 0 && raised == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d breakpoints, %d semaphores after the end", set, raised)
			}
		}
		if left := leftBehind(t, objects); len(left) > 0 {
			t.Errorf("left in the kernel: %v", left)
		}
		t.Logf("all gone after %v", time.Since(began).Round(time.Millisecond))
		if !bytes.Equal(probes.bytes(t, probes.code), code) {
			t.Error("the target's code is not what it was")
		}
		if now := uprobeEvents(t); now != events {
			t.Errorf("uprobe events: %q, before %q", now, events)
		}
	}
	undisturbed(t, p)
}

// traceUntilKilled is the program of TestTraceKilled.
func traceUntilKilled(t *testing.T, target string) {
	t.Helper()
	var pid pagemap.PID
	if _, err := fmt.Sscan(target, &pid); err != nil {
		t.Fatal(err)
	}
	tracer := trace(t, ebpf.Options{Faults: true, Stacks: true, Collector: "usdt"}, pid)
	if p := tracer.Collector(pid); p.Name != "usdt" {
		t.Fatalf("provider %+v", p)
	}
	fmt.Println("TRACING")
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
	t.Fatal("not killed")
}
