package oracle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"cowaudit/ebpf"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// stormLength is how long a storm is traced: COWAUDIT_SOAK, as for the storm that is audited.
func stormLength(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("COWAUDIT_SOAK")
	if s == "" {
		return 4 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("COWAUDIT_SOAK: %v", err)
	}
	return d
}

// A storm of forks, execs, exits and mappings, traced from its first process to its last: each address space is there, with
// its parent, its cause and its end; counts and records sum to the totals; what was lost was counted; nothing stays behind.
func TestTraceStorm(t *testing.T) {
	testkit.Require(t, "trace")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "storm.c"))
	// Ten processes at a time, some hundreds of forks a second: forty leave a reader on two processors nothing to run on.
	for _, c := range []struct {
		name string
		o    ebpf.Options
	}{{"counts", ebpf.Options{}}, {"records and stacks", ebpf.Options{Faults: true, Stacks: true}}} {
		t.Run(c.name, func(t *testing.T) {
			limit := stormLength(t)
			objects := bpfObjects(t)
			p := testkit.Start(t, "sh", "-c", `read go; exec "$@"`, "sh", bin, fmt.Sprint(os.Getpid()), "10")
			tracer := trace(t, c.o, pagemap.PID(p.PID()))
			before := heap()
			p.Send("go")
			p.WaitLine("READY")
			var most int64
			for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				most = max(most, heap()-before)
				if err := tracer.Flush(); err != nil {
					t.Fatal(err)
				}
				// Descendants are traced already, or have just ended: to add them again changes nothing.
				tree, err := proc.Tree()
				if err != nil {
					t.Fatal(err)
				}
				for _, pid := range tree.Descendants(pagemap.PID(p.PID())) {
					if err := tracer.Add(pid); err != nil && !errors.Is(err, pagemap.ErrGone) && !errors.Is(err, pagemap.ErrNoMM) {
						t.Errorf("add: %v", err)
					}
				}
			}
			p.CloseStdin()
			line := p.WaitLine("DONE")
			if code := p.Wait(); code != 0 {
				t.Errorf("the storm ended with exit code %d: %s", code, p.Stderr())
			}
			allEnded(t, tracer)
			tr := tracer.stop()
			done := stormCounts(t, line)
			checkStormSpaces(t, tr, done)
			var faults int64
			for k := range tr.Totals {
				faults += tr.Totals[k].Faults
			}
			t.Logf("%v: %d faults in %d spaces, lost %+v, heap at most %d KiB more; %s", tr.Duration.Round(time.Millisecond), faults, len(tr.Spaces), tr.Lost, most>>10, line)
			for _, k := range []ebpf.Kind{ebpf.KindCopied, ebpf.KindReused, ebpf.KindNew, ebpf.KindFile, ebpf.KindShared, ebpf.KindRead} {
				if tr.Totals[k].Faults == 0 {
					t.Errorf("no fault is %s", k)
				}
			}
			if unknown := tr.Totals[ebpf.KindUnknown].Faults; 100*unknown > faults {
				t.Errorf("%d of %d faults are unknown", unknown, faults)
			}
			// Nothing but the records and what is known of each space may grow.
			if limit := int64(64<<20) + int64(len(tr.Faults))*256 + int64(len(tr.Spaces))*(64<<10); most > limit {
				t.Errorf("the heap grew by %d KiB, for %d spaces and %d records", most>>10, len(tr.Spaces), len(tr.Faults))
			}
			if left := leftBehind(t, objects); len(left) > 0 {
				t.Errorf("left in the kernel: %v", left)
			}
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// allEnded waits until the processes of the storm, which its first one's end ends, are gone.
func allEnded(t *testing.T, tracer *traceOf) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left := 0
		files, err := filepath.Glob("/proc/[0-9]*/comm")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			if err == nil && strings.HasPrefix(filepath.Base(strings.SplitN(string(b), "\x00", 2)[0]), "storm") {
				left++
			}
		}
		if left == 0 || time.Now().After(end) {
			return
		}
	}
}

func stormCounts(t *testing.T, line string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, w := range strings.Fields(line)[1:] {
		name, value, _ := strings.Cut(w, "=")
		var n int
		if _, err := fmt.Sscan(value, &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out[name] = n
	}
	return out
}

// checkStormSpaces holds the address spaces against what the storm counted itself, up to its end, when some of its processes
// still went on.
func checkStormSpaces(t *testing.T, tr *ebpf.Trace, done map[string]int) {
	t.Helper()
	causes := map[ebpf.Cause]int{}
	known := map[ebpf.SpaceID]bool{}
	for i := range tr.Spaces {
		known[tr.Spaces[i].ID] = true
	}
	for i := range tr.Spaces {
		s := &tr.Spaces[i]
		causes[s.Cause]++
		switch {
		case s.Cause != ebpf.CauseStart && !known[s.Parent]:
			t.Errorf("space %d (process %d, %s): no parent", s.ID, s.Process.PID, cause(s))
		case s.Ended == 0 || s.Ended < s.Began:
			t.Errorf("space %d (process %d, %s): from %v to %v", s.ID, s.Process.PID, cause(s), s.Began, s.Ended)
		}
		if t.Failed() {
			return
		}
	}
	near := func(what string, got, counted int) {
		if tr.Lost.Any() {
			t.Logf("%s: %d spaces, %d counted by the storm", what, got, counted)
		} else if slack := counted/50 + 40; got < counted-slack || got > counted+slack {
			t.Errorf("%s: %d spaces, %d counted by the storm", what, got, counted)
		}
	}
	near("forks", causes[ebpf.CauseFork], done["forks"])
	near("execs", causes[ebpf.CauseExec]-1, done["execs"]) // the first one is the shell's
	if causes[ebpf.CauseStart] != 1 || causes[ebpf.CauseUnknown] != 0 {
		t.Errorf("spaces by cause: %s", most(causes))
	}
}
