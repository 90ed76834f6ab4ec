package oracle

import (
	"fmt"
	"slices"
	"testing"

	"cowaudit/audit"
	"cowaudit/ebpf"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// tracedStages is what was traced between two stages of a program, beside what the page tables say.
type tracedStages struct {
	*ebpf.Trace
	pids    []pagemap.PID
	copies  map[pagemap.PID][]*ebpf.Fault // between the two captures
	changed map[pagemap.PID]map[uint64]bool
	pages   map[pagemap.PID]map[uint64]bool
	joined  *audit.Attribution // all of them, as the product joins the two
}

// traceStages traces the processes of one stage to another, with the page tables read at either.
func traceStages(t *testing.T, s *staged, o ebpf.Options, from, to string) tracedStages {
	t.Helper()
	return traceWith(t, s, []ebpf.Options{o}, from, to)[0]
}

// traceWith is traceStages with several tracers at once.
func traceWith(t *testing.T, s *staged, list []ebpf.Options, from, to string) []tracedStages {
	t.Helper()
	raw := newTableReader(t)
	st := s.to(from)
	// First the tracers: what they attach writes to the processes, which is to be over.
	var tracers []*traceOf
	when := make([]during, len(list))
	for _, o := range list {
		o.Faults = true
		tracers = append(tracers, trace(t, o, st.pids...))
	}
	for i, tracer := range tracers {
		when[i].from = tracer.Now()
	}
	first := snapshot(t, pagemap.Options{}, st.pids...)
	before, changed := map[pagemap.PID]table{}, map[pagemap.PID]map[uint64]bool{}
	for _, pid := range st.pids {
		before[pid] = raw.read(t, pid, nil)
	}
	s.to(to)
	for _, pid := range st.pids {
		changed[pid] = raw.changedPages(before[pid], raw.read(t, pid, nil))
	}
	second := snapshot(t, pagemap.Options{}, st.pids...)
	for i, tracer := range tracers {
		when[i].to = tracer.Now()
	}
	var out []tracedStages
	for i, tracer := range tracers {
		w := tracedStages{Trace: tracer.end(), pids: st.pids, copies: map[pagemap.PID][]*ebpf.Fault{}, changed: changed, pages: map[pagemap.PID]map[uint64]bool{}}
		for _, pid := range st.pids {
			faults := faultsOf(w.Trace, pid, nil, when[i])
			w.copies[pid], w.pages[pid] = only(faults, ebpf.KindCopied), copiedPages(faults)
		}
		_, copied, err := audit.DiffPages(first, second, audit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if w.joined, err = audit.Attribute(copied, w.Trace, audit.AttributeOptions{From: when[i].from, To: when[i].to}); err != nil {
			t.Fatal(err)
		}
		out = append(out, w)
	}
	return out
}

// agrees wants the two instruments to agree on the pages of each process: 99 per cent, and all but three where it copied few.
func (w *tracedStages) agrees(t *testing.T) {
	t.Helper()
	w.explained(t)
	for _, pid := range w.pids {
		if a := agreement(w.pages[pid], w.changed[pid]); a < 99 && len(w.pages[pid])+len(w.changed[pid]) > 6 {
			t.Errorf("process %d: tracer and page tables agree on %.2f%% of the copied pages: %s", pid, a, differ(w.pages[pid], w.changed[pid]))
		}
	}
}

// explained wants audit to explain 99 per cent of the copied pages by the copies that were traced.
func (w *tracedStages) explained(t *testing.T) {
	t.Helper()
	all := w.joined.ExplainedPages
	for _, r := range w.joined.Unexplained {
		all += r.Pages
	}
	if 100*w.joined.ExplainedPages < 99*all && all > 6 {
		t.Errorf("%d of %d copied pages are explained: %+v", w.joined.ExplainedPages, all, w.joined.Unexplained)
	}
}

// phases puts the phases and steps of faults into words.
func phases(faults []*ebpf.Fault) string {
	n := map[string]int{}
	for _, f := range faults {
		n[fmt.Sprintf("%s, %s", f.GC.Phase, f.GC.Step)]++
	}
	return most(n)
}

// during a collection, of whatever kind
func inGC(f *ebpf.Fault) bool {
	return f.GC.Phase == ebpf.PhaseMajor || f.GC.Phase == ebpf.PhaseMinor || f.GC.Phase == ebpf.PhaseGC
}

func inMajor(f *ebpf.Fault) bool    { return f.GC.Phase == ebpf.PhaseMajor }
func compacting(f *ebpf.Fault) bool { return inMajor(f) && f.GC.Step == ebpf.StepCompacting }
func marking(f *ebpf.Fault) bool    { return inMajor(f) && f.GC.Step == ebpf.StepMarking }
func noGC(f *ebpf.Fault) bool       { return f.GC.Phase == ebpf.PhaseNone }

// The Ruby cases in which the tracer tells what the page tables cannot: whether it was the collector, and which part of it.
func TestTraceRubyCases(t *testing.T) {
	requireFrames(t)
	for _, c := range []struct {
		file, mode, from, to string
		who                  int // index of the process that copies; the others copy (nearly) nothing
		what                 func(f *ebpf.Fault) bool
		share                float64   // of its copies, in per cent, for which what holds
		writer               [3]string // the one that made most copies, in 3.1, 3.3, 3.4, by name; "": not stated
	}{
		{"34-ruby-promote.rb", "plain", "idle-order", "child-first-major-gc", 1, inMajor, 99, [3]string{"libruby-3.1.so.3.1.2+0xcf85f", "", ""}},
		{"34-ruby-promote.rb", "plain", "idle-order", "child-first-major-gc", 1, marking, 90, [3]string{}},
		{"35-ruby-coderange.rb", "unknown", "idle-order", "child-only-read-100000-strings", 1, noGC, 100, [3]string{"rb_enc_str_coderange", "rb_enc_str_coderange", "rb_enc_str_coderange"}},
		{"37-ruby-compact-each-fork.rb", "every", "master-churned", "master-compacted-again", 0, compacting, 90, [3]string{}},
		{"38-ruby-inline-caches.rb", "cold", "idle-order", "child-first-request", 1, noGC, 100, [3]string{"", "", "libruby-3.4.so.3.4.11+0x2a7099"}},
		{"39-ruby-free-slots.rb", "holes", "idle-order", "child-allocated-60000-objects", 1, noGC, 100, [3]string{}},
	} {
		for i, version := range []string{"3.1", "3.3", "3.4"} {
			t.Run(version+" "+c.file+" "+c.to, func(t *testing.T) {
				s := caseRuby(t, version, c.file, c.mode)
				w := traceStages(t, s, ebpf.Options{}, c.from, c.to)
				w.agrees(t)
				for k, pid := range w.pids {
					copies := w.copies[pid]
					if k != c.who {
						if len(copies) > noise {
							t.Errorf("process %d copied %d pages", k, len(copies))
						}
						continue
					}
					by := names(w.Trace, copies)
					if p := percent(copies, c.what); p < c.share || len(copies) < 100 {
						t.Errorf("process %d: %d copies, %.1f%% as they should be, want %.0f%%: %s", k, len(copies), p, c.share, phases(copies))
					}
					if c.writer[i] != "" && 2*by[c.writer[i]] < len(copies) {
						t.Errorf("most copies by %s; want %s", most(by), c.writer[i])
					}
				}
				s.finish()
			})
		}
	}
}

// callCaches is a program with 20,000 methods of 20 call sites each that are never called. The worker's first collection
// finds the caches of all of them empty.
const callCaches = `
$stdout.sync = true
(0...20_000).each_slice(200) do |numbers|
  space = Object.const_set("Cold#{numbers.first}", Module.new)
  space.module_eval(numbers.map { |n| "def m#{n}(o);#{(0...20).map { |i| "o.c#{i}" }.join(";")};end\n" }.join)
end
4.times { GC.start }
order, orders = IO.pipe; answer, answers = IO.pipe
worker = fork do
  orders.close; answer.close
  buffer = +" "
  while order.read(1, buffer)
    GC.start if buffer == "g"
    answers.write("a")
  end
  exit!(0)
end
tell = ->(c) { orders.write(c); answer.read(1) }
stage = ->(name) { puts "STAGE #{name} pids=#{$$},#{worker}"; $stdin.gets }
tell.("n"); stage.("forked")
tell.("g"); stage.("collected")
tell.("g"); stage.("again")
orders.close; Process.wait(worker)
`

// coldRuby is a Ruby that runs it.
type coldRuby struct {
	name  string
	argv  []string
	env   []string
	ways  []string // the providers that it has; the first is the one chosen
	lines bool     // source lines are asked for
}

func coldRubies(t *testing.T) []coldRuby {
	t.Helper()
	var out []coldRuby
	for _, r := range testkit.Rubies(t) {
		ways := []string{"flag"}
		if r.Version == "3.1" {
			ways = []string{"flag", "usdt"}
		}
		out = append(out, coldRuby{name: r.Version, argv: r.Argv, ways: ways})
	}
	return out
}

func (r *coldRuby) start(t *testing.T) *staged {
	t.Helper()
	return start(t, r.env, append(slices.Clone(r.argv), "-e", callCaches)...)
}

func TestTraceCallCaches(t *testing.T) {
	requireFrames(t)
	for _, r := range coldRubies(t) {
		for run := range 3 {
			t.Run(fmt.Sprint(r.name, " ", run), func(t *testing.T) {
				callCacheRun(t, &r)
			})
		}
	}
}

// callCacheRun traces the worker's first collection, with all of the Ruby's providers at once, and gives what the first saw.
func callCacheRun(t *testing.T, r *coldRuby) (w *tracedStages, copies []*ebpf.Fault) {
	t.Helper()
	var options []ebpf.Options
	for _, way := range r.ways {
		options = append(options, ebpf.Options{Collector: way})
	}
	options[0].Lines = r.lines
	s := r.start(t)
	all := traceWith(t, s, options, "forked", "collected")
	worker := all[0].pids[1]
	phase := map[pagemap.Addr]ebpf.GC{}
	for i := range all {
		w := &all[i]
		w.agrees(t)
		sp := w.SpaceByID(spacesOf(w.Trace, worker)[0])
		if sp.Provider.Name != r.ways[i] {
			t.Errorf("provider %+v, want %s", sp.Provider, r.ways[i])
		}
		copies := w.copies[worker]
		t.Logf("%s: %d copies: %s; %s", sp.Provider.Name, len(copies), phases(copies), most(names(w.Trace, copies)))
		// In the worker's collection, nearly all: but for the script's own words.
		if p := percent(copies, inGC); p < 99 && len(copies) > 1000 {
			t.Errorf("%s: %.2f%% of %d copies are in a collection", sp.Provider.Name, p, len(copies))
		}
		same := 0
		for _, f := range copies {
			if i == 0 {
				phase[f.Addr] = f.GC
				continue
			}
			first, ok := phase[f.Addr]
			if ok && (first.Phase == f.GC.Phase || first.Phase == ebpf.PhaseMajor && f.GC.Phase == ebpf.PhaseGC) {
				same++
			}
		}
		if i > 0 && 100*same < 99*len(copies) {
			t.Errorf("%s and %s say the same phase for %d of %d copies", r.ways[0], r.ways[i], same, len(copies))
		}
	}
	s.finish()
	return &all[0], all[0].copies[worker]
}
