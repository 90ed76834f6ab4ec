package oracle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cowaudit/ebpf"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// pythonBoth is a worker that collects and reads, one after the other without a stage between them: the collector writes
// to the lists, reading to the reference counts of the strings. Frozen, the lists are none of the collector's business.
const pythonBoth = `
import gc, os, sys
gc.disable()
TEXTS = [f"value {i}" for i in range(200_000)]
LISTS = [[i] for i in range(150_000)]
gc.collect()
if sys.argv[1] == "frozen": gc.freeze()
order, orders = os.pipe(); answer, answers = os.pipe(); worker = os.fork()
if not worker:
    os.close(orders)
    while c := os.read(order, 1):
        if c == b"j":
            gc.collect()
            for text in TEXTS: pass
        os.write(answers, c)
    os._exit(0)
def stage(name, c):
    os.write(orders, c); os.read(answer, 1)
    print(f"STAGE {name} pids={os.getpid()},{worker}", flush=True); sys.stdin.buffer.raw.read(1)
stage("forked", b"n"); stage("worked", b"j")
`

// The writes of the collector and those of reference counts are told apart, in one worker and one window; frozen, the
// collector's vanish, and the reference counts' stay.
func TestTracePython(t *testing.T) {
	requireFrames(t)
	python := testkit.Program(t, "python3")
	seen := map[string][2]int{}
	for _, mode := range []string{"plain", "frozen"} {
		t.Run(mode, func(t *testing.T) {
			s := start(t, nil, python, "-c", pythonBoth, mode)
			w := traceStages(t, s, ebpf.Options{}, "forked", "worked")
			w.agrees(t)
			worker := w.pids[1]
			copies := w.copies[worker]
			var n [2]int
			for _, f := range copies {
				switch {
				case inGC(f):
					n[0]++
				case noGC(f):
					n[1]++
				}
			}
			seen[mode] = n
			p := w.SpaceByID(spacesOf(w.Trace, worker)[0]).Provider
			t.Logf("%s %s by %s (%s): %s; %s", p.Runtime, p.Version, p.Name, p.Why, phases(copies), most(names(w.Trace, copies)))
			if p.Runtime != "python" || p.Name == "none" || p.Why == "" {
				t.Errorf("provider %+v", p)
			}
			if n[0]+n[1] != len(copies) {
				t.Errorf("of %d copies the phase is not told: %s", len(copies)-n[0]-n[1], phases(copies))
			}
			s.finish()
		})
	}
	plain, frozen := seen["plain"], seen["frozen"]
	if plain[0] < 1500 || frozen[0] > 100 {
		t.Errorf("copies by the collector: %d plain, %d frozen", plain[0], frozen[0])
	}
	if plain[1] < 2500 || frozen[1] < 2500 || 100*(max(plain[1], frozen[1])-min(plain[1], frozen[1])) > 5*plain[1] {
		t.Errorf("copies by reading: %d plain, %d frozen: reading does not depend on it", plain[1], frozen[1])
	}
}

// All ways that there are to learn the phase of this Python say the same of each copy.
func TestTracePythonProviders(t *testing.T) {
	requireFrames(t)
	s := start(t, nil, testkit.Program(t, "python3"), "-c", pythonBoth, "plain")
	ways := []string{"auto", "flag", "symbols", "usdt"}
	var options []ebpf.Options
	for _, way := range ways {
		options = append(options, ebpf.Options{Collector: way})
	}
	all := traceWith(t, s, options, "forked", "worked")
	worker := all[0].pids[1]
	first := map[pagemap.Addr]*ebpf.Fault{}
	for _, f := range all[0].copies[worker] {
		first[f.Addr] = f
	}
	there := 0
	for i := range all {
		p := all[i].SpaceByID(spacesOf(all[i].Trace, worker)[0]).Provider
		copies := all[i].copies[worker]
		t.Logf("%s: %s: %s: %s", ways[i], p.Name, p.Why, phases(copies))
		if p.Name == "none" {
			if p.Why == "" || percent(copies, func(f *ebpf.Fault) bool { return f.GC.Phase == ebpf.PhaseUnknown }) != 100 {
				t.Errorf("%s is not there, because %q, and the phases are %s", ways[i], p.Why, phases(copies))
			}
			continue
		}
		there++
		same := percent(copies, func(f *ebpf.Fault) bool { return first[f.Addr] != nil && inGC(first[f.Addr]) == inGC(f) })
		if same < 99 || len(copies) < 4000 {
			t.Errorf("%s and %s say the same of %.2f%% of %d copies", ways[0], ways[i], same, len(copies))
		}
	}
	if there < 2 {
		t.Error("no provider but auto")
	}
	s.finish()
}

// Case 44: a preloaded gunicorn; the same two kinds of writes, by two requests.
func TestTraceCase44Gunicorn(t *testing.T) {
	requireFrames(t)
	testkit.Require(t, "gunicorn")
	for _, c := range []struct {
		mode, from, to string
		copies         window
		what           func(*ebpf.Fault) bool
		share          float64
	}{
		{"plain", "idle-request", "worker-collected", window{1948, 1966}, inGC, 95},
		{"plain", "worker-collected", "worker-read-the-table", window{3136, 3136}, noGC, 100},
		{"freeze", "idle-request", "worker-collected", window{61, 61}, inGC, 0},
		{"freeze", "worker-collected", "worker-read-the-table", window{3137, 3137}, noGC, 100},
	} {
		t.Run(c.mode+" "+c.to, func(t *testing.T) {
			s := casePython(t, "44-gunicorn-preload.py", c.mode)
			w := traceStages(t, s, ebpf.Options{}, c.from, c.to)
			w.agrees(t)
			copies := w.copies[w.pids[1]]
			t.Logf("%s; %s", phases(copies), most(names(w.Trace, copies)))
			if n := int64(len(copies)); !c.copies.has(n) {
				t.Errorf("%d copies, want %+v", n, c.copies)
			}
			if p := percent(copies, c.what); p < c.share {
				t.Errorf("%.1f%% of %d copies as they should be, want %.0f%%: %s", p, len(copies), c.share, phases(copies))
			}
			s.finish()
		})
	}
}

// Case 46: what is copied while a process shuts down is seen until its end, and named although it is gone when the trace is
// read. Who ends at once copies next to nothing.
func TestTraceCase46CopiesAtExit(t *testing.T) {
	requireFrames(t)
	for _, mode := range []string{"finalize", "_exit"} {
		t.Run(mode, func(t *testing.T) {
			s := casePython(t, "46-copies-at-exit.py", mode)
			st := s.to("after-fork")
			worker := st.pids[1]
			tracer := trace(t, ebpf.Options{Faults: true}, st.pids...)
			s.finish()
			tr := tracer.end()
			copies := only(faultsOf(tr, worker, nil, during{}), ebpf.KindCopied)
			by := names(tr, copies)
			t.Logf("%d copies: %s; %s", len(copies), phases(copies), most(by))
			if n := len(copies); mode == "finalize" && n <= 3000 || mode == "_exit" && n >= 200 {
				t.Errorf("%d copies at the end by %s", n, mode)
			}
			sp := tr.SpaceByID(spacesOf(tr, worker)[0])
			if sp.Ended == 0 || sp.Process.Start == 0 {
				t.Errorf("the worker's space: ended %v, %+v", sp.Ended, sp.Process)
			}
			unknown := 0
			for _, f := range copies {
				if fr := tr.Frames[f.Frame]; fr.Module == "" || f.Time > sp.Ended {
					unknown++
				}
			}
			if unknown > 0 {
				t.Errorf("%d copies without a place, or after the end: %s", unknown, most(by))
			}
		})
	}
}

// Case 47: libruby 3.1 has probes, 3.3 and 3.4 have none. What is chosen instead is named, and asked for by name what is not
// there is said not to be there: the phase is unknown then, never "no GC".
func TestTraceCase47USDTAbsent(t *testing.T) {
	testkit.Require(t, "trace", "rubies")
	script := exec.Command("sh", filepath.Join(testkit.Cases(t), "47-usdt-absent.sh"))
	script.Env = os.Environ()
	for _, r := range testkit.Rubies(t) {
		if r.Tree != "" {
			script.Env = append(script.Env, "RUBY"+strings.ReplaceAll(r.Version, ".", "")+"_ROOT="+r.Tree)
		}
	}
	if out, err := script.CombinedOutput(); err != nil || !strings.Contains(string(out), "RESULT OK") {
		t.Errorf("the case's own truths: %v\n%s", err, out)
	}
	for _, r := range testkit.Rubies(t) {
		notes := r.Version == "3.1"
		for _, way := range []string{"auto", "usdt"} {
			t.Run(r.Version+" "+way, func(t *testing.T) {
				p := testkit.Start(t, append(append([]string{}, r.Argv...), "-e", `$stdout.sync = true
					A = Array.new(300_000) { |i| "value #{i}" }
					puts "up"; gets; GC.start; puts "done"; gets`)...)
				p.WaitLine("up")
				tracer := trace(t, ebpf.Options{Faults: true, Collector: way}, pagemap.PID(p.PID()))
				got := tracer.Collector(pagemap.PID(p.PID()))
				p.Send("")
				p.WaitLine("done")
				tr := tracer.end()
				phase := map[ebpf.Phase]int{}
				for i := range tr.Counts {
					phase[tr.Counts[i].GC.Phase] += int(tr.Counts[i].Faults)
				}
				t.Logf("%+v: %s", got, most(phase))
				usdt := notes && way == "usdt"
				switch {
				case got.Runtime != "ruby" || !strings.HasPrefix(got.Version, r.Version+".") || got.Why == "":
					t.Errorf("provider %+v", got)
				case way == "auto" && got.Name != "flag", usdt && (got.Name != "usdt" || got.Probes < 4):
					t.Errorf("provider %+v", got)
				case way == "usdt" && !notes && (got.Name != "none" || got.Probes != 0 || !strings.Contains(got.Why, "USDT") && !strings.Contains(got.Why, "probe") && !strings.Contains(got.Why, "note")):
					t.Errorf("provider %+v, where there are no notes", got)
				}
				// The one process writes to its own memory while it collects.
				if got.Name == "none" {
					if len(phase) != 1 || phase[ebpf.PhaseUnknown] == 0 {
						t.Errorf("phases without a provider: %s", most(phase))
					}
				} else if phase[ebpf.PhaseUnknown] != 0 || phase[ebpf.PhaseMajor]+phase[ebpf.PhaseGC] == 0 {
					t.Errorf("phases by %s: %s", got.Name, most(phase))
				}
			})
		}
	}
}
