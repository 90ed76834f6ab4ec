package gc

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// rubyScript does what its lines say and answers with the counts. Its loops make no objects, so that no collection happens
// that was not asked for.
const rubyScript = `
keep = Array.new(400_000) { |i| "object #{i}" }
keep = keep.each_slice(2).map(&:first) # room for new objects: a full heap makes each collection a major one
4.times { GC.start }
$stdout.sync = true
answer = proc { |word| puts "#{word} #{$$} #{GC.count} #{GC.stat(:major_gc_count)}" }
run = proc do |line|
  i = 0
  case line.chomp
  when "major" then (GC.start(full_mark: true, immediate_sweep: true); i += 1) while i < 20
  when "minor" then (GC.start(full_mark: false, immediate_sweep: true); i += 1) while i < 20
  when "compact" then (GC.compact; i += 1) while i < 5
  when "child" then Process.wait(fork { run.call("major"); answer.call("forked"); gets })
  end
  answer.call("done")
end
answer.call("ready")
while line = gets
  run.call(line)
end
`

func startRuby(t *testing.T, argv []string, env ...string) *testkit.Process {
	t.Helper()
	cmd := exec.Command(argv[0], slices.Concat(argv[1:], []string{"-e", rubyScript})...)
	cmd.Env = append(cmd.Environ(), env...)
	return testkit.StartCmd(t, cmd)
}

// seen is what a reader of the flags saw while the process was at work.
type seen struct{ none, minor, major, unsettled, marking, sweeping, compacting int }

func (s *seen) add(o seen) {
	s.none += o.none
	s.minor += o.minor
	s.major += o.major
	s.unsettled += o.unsettled
	s.marking += o.marking
	s.sweeping += o.sweeping
	s.compacting += o.compacting
}

// watch reads the state word over and over until done is closed.
func watch(t *testing.T, pid pagemap.PID, f *Flag, done <-chan struct{}) (s seen) {
	t.Helper()
	mem, err := openMemory("", pid)
	if err != nil {
		t.Error(err)
		return s
	}
	defer mem.Close()
	for {
		select {
		case <-done:
			return s
		default:
		}
		w, err := word(mem, f.Addr, int(f.Size))
		if err != nil {
			t.Error(err)
			return s
		}
		switch {
		case !f.During.Holds(w):
			s.none++
			continue
		case f.Unsettled.Holds(w):
			s.unsettled++
		case f.Minor.Holds(w):
			s.minor++
		default:
			s.major++
		}
		switch {
		case f.Compacting.Holds(w):
			s.compacting++
		case f.Marking.Holds(w):
			s.marking++
		case f.Sweeping.Holds(w):
			s.sweeping++
		}
	}
}

// ask sends a line and gives what was seen until the answer, and the counts in it.
func ask(t *testing.T, p *testkit.Process, f *Flag, line string) (s seen, count, major uint64) {
	t.Helper()
	done, got := make(chan struct{}), make(chan seen)
	go func() { got <- watch(t, pagemap.PID(p.PID()), f, done) }()
	p.Send(line)
	answer := p.WaitLine("done")
	close(done)
	s = <-got
	var pid int
	if _, err := fmt.Sscanf(answer, "done %d %d %d", &pid, &count, &major); err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	return s, count, major
}

// tries is how often something that may be missed is tried again.
const tries = 50

// stage asks for collections of one kind until marking and sweeping were seen in them. Rounds in which Ruby made collections
// of the other kind as well do not count: it makes a major one of a minor one now and then.
func stage(t *testing.T, p *testkit.Process, f *Flag, kind string, check func(count, major uint64)) (all seen) {
	t.Helper()
	_, last, lastMajor := ask(t, p, f, kind)
	check(last, lastMajor)
	for range tries {
		s, count, major := ask(t, p, f, kind)
		check(count, major)
		pure := major-lastMajor == count-last
		if kind == "minor" {
			pure = major == lastMajor
		}
		last, lastMajor = count, major
		if !pure {
			continue
		}
		if all.add(s); all.marking > 0 && all.sweeping > 0 {
			return all
		}
	}
	t.Errorf("in %s collections: seen %+v, want marking and sweeping", kind, all)
	return all
}

// What is read is what the collector does: marking and sweeping, major and minor, never the other.
func TestRubyFlag(t *testing.T) {
	testkit.Require(t, "root")
	for _, r := range testkit.Rubies(t) {
		t.Run(r.Version, func(t *testing.T) {
			p := startRuby(t, r.Argv)
			var pid int
			var before, majors uint64
			if _, err := fmt.Sscanf(p.WaitLine("ready"), "ready %d %d %d", &pid, &before, &majors); err != nil {
				t.Fatal(err)
			}
			plan := find(t, pagemap.PID(p.PID()), ProviderUnknown)
			f := plan.Flag
			if plan.Provider != ProviderFlag || f.Minor == nil || f.Count == 0 || f.MajorCount == 0 || f.Compacting == nil {
				t.Fatalf("%+v, want a flag that tells all", plan)
			}
			counts := func(count, major uint64) {
				t.Helper()
				mem, err := openMemory("", pagemap.PID(p.PID()))
				if err != nil {
					t.Fatal(err)
				}
				defer mem.Close()
				c, err1 := word(mem, f.Count, 8)
				m, err2 := word(mem, f.MajorCount, 8)
				if c != count || m != major || err1 != nil || err2 != nil {
					t.Errorf("counts %d and %d (%v, %v), want %d and %d", c, m, err1, err2, count, major)
				}
				if w, err := word(mem, f.Addr, 4); err != nil || f.During.Holds(w) {
					t.Errorf("at rest: word %#x, %v: a collection", w, err)
				}
			}
			counts(before, majors)

			// On a busy machine the reader may be late: until both steps were seen, and never the other kind.
			major := stage(t, p, f, "major", counts)
			if major.minor != 0 {
				t.Errorf("in major collections: seen %+v", major)
			}
			minor := stage(t, p, f, "minor", counts)
			if minor.major != 0 {
				t.Errorf("in minor collections: seen %+v", minor)
			}
			t.Logf("major: %+v, minor: %+v", major, minor)
			var moved seen
			for range tries {
				s, count, major := ask(t, p, f, "compact")
				counts(count, major)
				if moved.add(s); moved.compacting > 0 {
					return
				}
			}
			t.Errorf("in compactions: seen %+v", moved)
		})
	}
}

// The plan of a parent holds for its children: they inherit the addresses.
func TestRubyChild(t *testing.T) {
	testkit.Require(t, "root")
	p := startRuby(t, []string{testkit.Program(t, "ruby")})
	p.WaitLine("ready")
	f := find(t, pagemap.PID(p.PID()), ProviderFlag).Flag
	p.Send("child")
	var child int
	var count, major uint64
	p.WaitLine("done") // of what the child did
	if _, err := fmt.Sscanf(p.WaitLine("forked"), "forked %d %d %d", &child, &count, &major); err != nil {
		t.Fatal(err)
	}
	read := func(pid int) (n, m uint64) {
		t.Helper()
		mem, err := openMemory("", pagemap.PID(pid))
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Close()
		n, err1 := word(mem, f.Count, 8)
		m, err2 := word(mem, f.MajorCount, 8)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return n, m
	}
	if n, m := read(child); n != count || m != major {
		t.Errorf("the child counts %d and %d, by its parent's plan %d and %d", count, major, n, m)
	}
	if n, m := read(p.PID()); n != count-20 || m != major-20 {
		t.Errorf("the parent's counts are %d and %d, want %d and %d", n, m, count-20, major-20)
	}
	p.Send("end of the child")
	p.WaitLine("done")
}

// A libruby with symbols: the functions that enter and leave the collector.
func TestRubySymbols(t *testing.T) {
	testkit.Require(t, "root")
	pair := testkit.RubyPair(t)
	p := startRuby(t, pair.Argv, pair.EnvA)
	p.WaitLine("ready")
	plan := find(t, pagemap.PID(p.PID()), ProviderSymbols)
	if plan.Provider != ProviderSymbols {
		t.Fatalf("%+v, want symbols", plan)
	}
	have := map[string]int{}
	for _, probe := range plan.Probes {
		have[probe.Name]++
		if probe.Offset == 0 || probe.Rule != RuleNone || probe.Return != (probe.Event == GCEnd || probe.Event == MarkEnd || probe.Event == SweepEnd) {
			t.Errorf("probe %+v", probe)
		}
	}
	for _, name := range []string{"gc_start", "gc_rest", "gc_continue"} {
		if have[name] != 2 {
			t.Errorf("%d probes on %s, want its beginning and its end; there are %v", have[name], name, have)
		}
	}
	if best := find(t, pagemap.PID(p.PID()), ProviderUnknown); best.Provider != ProviderFlag {
		t.Errorf("the best way is %s, want the flag: it tells more and attaches nothing", best.Provider)
	}
}
