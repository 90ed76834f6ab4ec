package oracle

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cowaudit/audit"
	"cowaudit/ebpf"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// The reproducers about symbols are scripts that have perf record a child's write faults while it works. Here the tracer
// stands in for perf: the script's pause before the child may write lasts until the tracer is on the child, perf record
// until it has written, and perf script prints what the tracer saw. So the script's own truths are about the tracer.
const shim = `#!/bin/sh
case ${0##*/}:$1 in
sleep:0.3) read go < "$SHIM/go" ;;
sleep:*) exec /bin/sleep "$@" ;;
perf:record) read go < "$SHIM/recorded" ;;
perf:script) cat "$SHIM/events" ;;
esac
`

// symbolCase is such a script while it runs.
type symbolCase struct {
	*testkit.Process
	t                *testing.T
	dir              string
	release, written *os.File
	truths           int
}

func caseScript(t *testing.T, file string) *symbolCase {
	t.Helper()
	testkit.Require(t, "gcc", "trace")
	c := &symbolCase{t: t, dir: t.TempDir()}
	bin := filepath.Join(c.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"perf", "sleep"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(shim), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.release, c.written = c.fifo("go"), c.fifo("recorded")
	cmd := exec.Command("sh", filepath.Join(testkit.Cases(t), file))
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "SHIM="+c.dir, "PATH="+bin+":"+os.Getenv("PATH"))
	c.Process = testkit.StartCmd(t, cmd)
	return c
}

// fifo makes a named pipe that keeps a line until it is read.
func (c *symbolCase) fifo(name string) *os.File {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		c.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { f.Close() })
	return f
}

var caseStage = regexp.MustCompile(`^STAGE \S+ pids=(\d+),(\d+).* region=([0-9a-f]+)\+(\d+)pages`)

// child reads up to the next stage and gives the child that will write, and where.
func (c *symbolCase) child() (pid pagemap.PID, rng audit.Range, notes string) {
	c.t.Helper()
	for {
		line, ok := c.Line()
		if !ok {
			c.t.Fatalf("ended before its stage: %s", c.Stderr())
		}
		c.truth(line)
		m := caseStage.FindStringSubmatch(line)
		if m == nil {
			notes += line + "\n"
			continue
		}
		n, err1 := strconv.Atoi(m[2])
		at, err2 := strconv.ParseUint(m[3], 16, 64)
		pages, err3 := strconv.Atoi(m[4])
		if err1 != nil || err2 != nil || err3 != nil {
			c.t.Fatalf("stage %q", line)
		}
		return pagemap.PID(n), audit.Range{Start: pagemap.Addr(at), End: pagemap.Addr(at) + pagemap.Addr(pages)*pagemap.Addr(pageSize)}, notes
	}
}

func (c *symbolCase) truth(line string) {
	c.t.Helper()
	if strings.HasPrefix(line, "TRUTH ") {
		c.truths++
		if !strings.HasSuffix(line, " ok") {
			c.t.Errorf("the case's own truth fails: %s", line)
		}
	}
}

// trace lets the child write under the tracer, and gives its copies.
func (c *symbolCase) trace(o ebpf.Options, pid pagemap.PID, rng audit.Range) (*ebpf.Trace, []*ebpf.Fault) {
	c.t.Helper()
	o.Faults = true
	tracer := trace(c.t, o, pid)
	c.send(c.release)
	// The child waits in read(2) before, in nanosleep(2) after.
	for end := time.Now().Add(testkit.Timeout); ; time.Sleep(time.Millisecond) {
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if n, _, _ := strings.Cut(string(call), " "); err != nil || n == fmt.Sprint(syscall.SYS_CLOCK_NANOSLEEP) || n == fmt.Sprint(syscall.SYS_NANOSLEEP) {
			break
		}
		if time.Now().After(end) {
			c.t.Fatalf("process %d does not come to its pause", pid)
		}
	}
	tr := tracer.end()
	faults := only(faultsOf(tr, pid, &rng, during{}), ebpf.KindCopied)
	var events strings.Builder
	for _, f := range faults {
		fmt.Fprintf(&events, "address=%#x ip=%#x error_code=%#x\n", f.Addr, tr.Frames[f.Frame].Addr, f.Code)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "events"), []byte(events.String()), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.send(c.written)
	return tr, faults
}

func (c *symbolCase) send(f *os.File) {
	c.t.Helper()
	if _, err := f.WriteString("go\n"); err != nil {
		c.t.Fatal(err)
	}
}

// end runs the script to its end and holds the number of its truths.
func (c *symbolCase) end(truths int) {
	c.t.Helper()
	for {
		line, ok := c.Line()
		if !ok {
			break
		}
		c.truth(line)
	}
	if code := c.Wait(); code != 0 || c.truths != truths {
		c.t.Errorf("exit code %d, %d truths, want 0, %d: %s", code, c.truths, truths, c.Stderr())
	}
}

// Case 31: symbol value, offset in the file and address at run time are three numbers, in a library whose first segment
// does not start at 0, and in a program that is not position independent.
func TestTraceCase31ELFOffset(t *testing.T) {
	c := caseScript(t, "31-elf-offset.sh")
	for _, module := range []string{"libpre.so", "nopie"} {
		pid, rng, _ := c.child()
		tr, faults := c.trace(ebpf.Options{}, pid, rng)
		if got := most(names(tr, faults)); got != "dirty_pages: 64" {
			t.Errorf("%s: copies by %q, want 64 by dirty_pages", module, got)
		}
		for _, f := range faults {
			if fr := tr.Frames[f.Frame]; fr.Module != module || fr.Function != "dirty_pages" || fr.FunctionOffset == 0 {
				t.Fatalf("%s: %+v", module, fr)
			}
		}
	}
	c.end(4)
}

// Case 32: a static function of a stripped library is a place in the library, or has the name that the debug file with
// the library's build id gives it; never that of the exported function before or after it.
func TestTraceCase32StrippedNearest(t *testing.T) {
	for _, debug := range []bool{false, true} {
		t.Run(map[bool]string{false: "stripped", true: "with its debug file"}[debug], func(t *testing.T) {
			c := caseScript(t, "32-stripped-nearest.sh")
			pid, rng, notes := c.child()
			m := regexp.MustCompile(`hidden_writer at file address 0x0*([0-9a-f]+);.*build-id ([0-9a-f]{2})([0-9a-f]+)`).FindStringSubmatch(notes)
			if m == nil {
				t.Fatalf("notes %q", notes)
			}
			hidden, err := strconv.ParseUint(m[1], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			dirs := t.TempDir()
			if debug {
				folder := filepath.Join(dirs, ".build-id", m[2])
				b, err := os.ReadFile(filepath.Join(fmt.Sprintf("/proc/%d/cwd", pid), "liba.debug"))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, folder, m[3]+".debug", string(b))
			}
			tr, faults := c.trace(ebpf.Options{DebugDirs: []string{dirs}}, pid, rng)
			if len(faults) != 50 {
				t.Errorf("%d copies, want 50", len(faults))
			}
			for _, f := range faults {
				fr := tr.Frames[f.Frame]
				want := fmt.Sprintf("liba.so+%#x", fr.Offset)
				if debug {
					want = "hidden_writer"
				}
				if fr.Name != want || fr.Module != "liba.so" || fr.Offset < hidden || fr.Offset > hidden+40 || debug != (fr.Function == "hidden_writer") {
					t.Fatalf("%+v, want %s", fr, want)
				}
			}
			c.end(3)
		})
	}
}

// Case 33: the library was replaced on disk while the process runs the old one, whose function it is.
func TestTraceCase33ReplacedLibrary(t *testing.T) {
	c := caseScript(t, "33-replaced-library.sh")
	pid, rng, _ := c.child()
	tr, faults := c.trace(ebpf.Options{}, pid, rng)
	if got := most(names(tr, faults)); got != "work_v1: 50" {
		t.Errorf("copies by %q, want 50 by work_v1", got)
	}
	c.end(6)
}
