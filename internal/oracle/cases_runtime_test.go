package oracle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// Reproducers that are whole interpreters. Their truth is a range over several runs, and it counts frames that changed in
// the worker; noise of some tens of pages comes on top (stack, library data, the script's own orders).

// noise widens the stated ranges, in pages. A range of hundreds and thousands is widened by 3 per cent more, for builds and
// machines other than the one where it was measured.
const noise = 60

type window struct{ lo, hi int64 }

func (w window) has(n int64) bool {
	return n >= w.lo-noise-w.lo*3/100 && n <= w.hi+noise+w.hi*3/100
}

// step is what happens to one process from one stage to the next.
type step struct {
	to        string
	pid       int // index among the stage's pids
	worker    window
	reference *window // nil: not stated
	fresh     *window // new pages; nil: not stated
}

// follow runs a program from stage to stage and compares each with the one before: with the stated truth, and exactly with
// what the page tables read here say.
func follow(t *testing.T, s *staged, steps []step) (taken map[string]*pagemap.Snapshot, pids []pagemap.PID) {
	t.Helper()
	taken = map[string]*pagemap.Snapshot{}
	raw := newTableReader(t)
	var last *pagemap.Snapshot
	tables := map[pagemap.PID]table{}
	seen := 0
	for {
		st, ok := s.next()
		if !ok {
			break
		}
		snap, now := still(t, raw, st)
		r := share(t, snap, nil)
		parent := st.pids[0]
		for _, pid := range st.pids[1:] {
			for _, d := range raw.compare(now[parent], now[pid]).agrees(process(t, r, pid).Pages) {
				t.Errorf("%s: process %d: %s", st.name, pid, d)
			}
		}
		if last != nil {
			d := diff(t, last, snap, nil)
			for _, pid := range st.pids[1:] {
				if _, old := tables[pid]; !old {
					continue
				}
				for _, x := range raw.since(tables[parent], tables[pid], now[parent], now[pid]).agrees(processDiff(t, d, pid).Copied) {
					t.Errorf("%s: process %d: %s", st.name, pid, x)
				}
			}
			for _, want := range steps {
				if want.to == st.name {
					seen++
					want.check(t, processDiff(t, d, st.pids[want.pid]).Copied)
				}
			}
		}
		last, taken[st.name], tables, pids = snap, snap, now, st.pids
	}
	s.finish()
	if seen != len(steps) {
		t.Errorf("%d of %d stages seen", seen, len(steps))
	}
	return taken, pids
}

// still takes a capture during which the page tables stood still, and gives them. A server at rest still does something now
// and then, as Gunicorn's master does each second.
func still(t *testing.T, raw *tableReader, st stage) (*pagemap.Snapshot, map[pagemap.PID]table) {
	t.Helper()
	read := func() map[pagemap.PID]table {
		out := map[pagemap.PID]table{}
		for _, pid := range st.pids {
			out[pid] = raw.read(t, pid, nil)
		}
		return out
	}
	before := read()
	for range 20 {
		snap := snapshot(t, pagemap.Options{}, st.pids...)
		after := read()
		if maps.EqualFunc(before, after, same) {
			return snap, after
		}
		before = after
	}
	t.Fatalf("%s: the page tables of %v do not stand still", st.name, st.pids)
	return nil, nil
}

func (s step) check(t *testing.T, got audit.Copied) {
	t.Helper()
	t.Logf("%s: by the worker %d, by the reference %d, both %d, undetermined %d, new %d", s.to,
		got.CopiedByWorker, got.CopiedByReference, got.CopiedByBoth, got.CopiedByUndetermined, got.NewPages)
	if !s.worker.has(got.CopiedByWorker) {
		t.Errorf("%s: copied by the worker %d, want %d..%d", s.to, got.CopiedByWorker, s.worker.lo, s.worker.hi)
	}
	if s.reference != nil && !s.reference.has(got.CopiedByReference) {
		t.Errorf("%s: copied by the reference %d, want %d..%d", s.to, got.CopiedByReference, s.reference.lo, s.reference.hi)
	}
	if got.CopiedByUndetermined != 0 {
		t.Errorf("%s: with a capture from before, who copied %d pages is undetermined", s.to, got.CopiedByUndetermined)
	}
	if s.fresh != nil && !s.fresh.has(got.NewPages) {
		t.Errorf("%s: new %d, want %d..%d", s.to, got.NewPages, s.fresh.lo, s.fresh.hi)
	}
}

// caseRuby starts a reproducer in Ruby, in the tree of its version.
func caseRuby(t *testing.T, version string, script string, args ...string) *staged {
	t.Helper()
	var env []string
	for _, r := range testkit.Rubies(t) {
		if r.Tree != "" {
			env = append(env, "RUBY"+strings.ReplaceAll(r.Version, ".", "")+"_ROOT="+r.Tree)
		}
	}
	return start(t, env, append([]string{filepath.Join(testkit.Cases(t), "rb.sh"), version, script}, args...)...)
}

func TestCase34RubyPromote(t *testing.T) {
	const script = "34-ruby-promote.rb"
	truth := map[string]map[string]window{
		"3.1": {"plain": {7092, 7103}, "gc4": {1041, 1045}},
		"3.3": {"plain": {8786, 8790}, "gc4": {1336, 1343}, "warmup": {1307, 1318}},
		"3.4": {"plain": {8748, 8763}, "gc4": {1061, 1071}, "warmup": {1044, 1052}},
	}
	eachRuby(t, truth, func(t *testing.T, version, mode string, w window) {
		taken, pids := follow(t, caseRuby(t, version, script, mode), []step{
			{to: "idle-order", pid: 1},
			{to: "child-first-major-gc", pid: 1, worker: w, reference: &window{}},
			{to: "child-second-major-gc", pid: 1, worker: window{0, 1}, reference: &window{}},
		})
		if mode != "plain" {
			return
		}
		// Where: object slots, which are anonymous memory, and little in the brk heap.
		d := diff(t, taken["idle-order"], taken["child-first-major-gc"], nil)
		var heap, all int64
		for _, g := range processDiff(t, d, pids[1]).Regions {
			all += g.CopiedPages
			if g.Kind == audit.RegionBrkHeap {
				heap += g.CopiedPages
			}
		}
		if heap*4 > all {
			t.Errorf("%d of %d copied pages are said to lie in the brk heap", heap, all)
		}
	})
}

func eachRuby(t *testing.T, truth map[string]map[string]window, f func(t *testing.T, version, mode string, w window)) {
	t.Helper()
	requireFrames(t)
	for _, version := range []string{"3.1", "3.3", "3.4"} {
		for mode, w := range truth[version] {
			t.Run(version+" "+mode, func(t *testing.T) {
				t.Parallel()
				f(t, version, mode, w)
			})
		}
	}
}

func TestCase35RubyCodeRange(t *testing.T) {
	eachRuby(t, map[string]map[string]window{
		"3.1": {"unknown": {1322, 1323}, "known": {1, 2}},
		"3.3": {"unknown": {2017, 2021}, "known": {0, 0}, "warmup": {6, 7}},
		"3.4": {"unknown": {2018, 2020}, "known": {1, 1}, "warmup": {8, 14}},
	}, func(t *testing.T, version, mode string, w window) {
		follow(t, caseRuby(t, version, "35-ruby-coderange.rb", mode), []step{
			{to: "idle-order", pid: 1},
			{to: "child-only-read-100000-strings", pid: 1, worker: w, reference: &window{}},
		})
	})
}

// Case 37: it is the master that copies; the worker forked before is left alone with the old frames and copies nothing.
func TestCase37RubyCompactEachFork(t *testing.T) {
	// In 3.1 some hundreds of pages of the lazy sweep are left to whichever side allocates first.
	churn := map[string]window{"3.1": {2570, 3230}, "3.3": {2780, 2780}, "3.4": {2575, 2575}}
	eachRuby(t, map[string]map[string]window{
		"3.1": {"every": {190, 194}, "once": {0, 0}},
		"3.3": {"every": {262, 268}, "once": {0, 0}},
		"3.4": {"every": {1246, 1254}, "once": {0, 0}},
	}, func(t *testing.T, version, mode string, w window) {
		second := "master-compacted-again"
		if mode == "once" {
			second = "master-did-nothing"
		}
		churned := churn[version]
		s := caseRuby(t, version, "37-ruby-compact-each-fork.rb", mode)
		taken, pids := follow(t, s, []step{
			{to: "master-churned", pid: 1, reference: &churned},
			{to: second, pid: 1, reference: &w},
		})
		for _, pair := range [][2]string{{"worker1-forked", "master-churned"}, {"master-churned", second}, {second, "worker2-forked"}} {
			d := processDiff(t, diff(t, taken[pair[0]], taken[pair[1]], nil), pids[1])
			if n := d.CopiedByWorker + d.CopiedByBoth; n != 0 {
				t.Errorf("%s to %s: worker 1 is said to have copied %d pages", pair[0], pair[1], n)
			}
		}
	})
}

func TestCase38RubyInlineCaches(t *testing.T) {
	fresh := map[string]window{"cold": {414, 1373}, "warmed": {124, 224}}
	eachRuby(t, map[string]map[string]window{
		"3.1": {"cold": {4729, 4772}, "warmed": {923, 938}},
		"3.3": {"cold": {5229, 5234}, "warmed": {57, 59}},
		"3.4": {"cold": {5362, 5374}, "warmed": {5415, 5423}},
	}, func(t *testing.T, version, mode string, w window) {
		f := fresh[mode]
		follow(t, caseRuby(t, version, "38-ruby-inline-caches.rb", mode), []step{
			{to: "idle-order", pid: 1},
			{to: "child-first-request", pid: 1, worker: w, reference: &window{}, fresh: &f},
		})
	})
}

func TestCase39RubyFreeSlots(t *testing.T) {
	fresh := map[string]window{
		"3.1 holes": {512, 513}, "3.1 compacted": {117, 117},
		"3.3 holes": {117, 117}, "3.3 compacted": {697, 699},
		"3.4 holes": {108, 116}, "3.4 compacted": {117, 117},
	}
	eachRuby(t, map[string]map[string]window{
		"3.1": {"holes": {216, 221}, "compacted": {616, 618}},
		"3.3": {"holes": {652, 652}, "compacted": {48, 61}},
		"3.4": {"holes": {658, 663}, "compacted": {620, 620}},
	}, func(t *testing.T, version, mode string, w window) {
		f := fresh[version+" "+mode]
		follow(t, caseRuby(t, version, "39-ruby-free-slots.rb", mode), []step{
			{to: "idle-order", pid: 1},
			{to: "child-allocated-60000-objects", pid: 1, worker: w, reference: &window{}, fresh: &f},
		})
	})
}

// python gives an interpreter of a version by the place where pyenv puts it.
func python(version string) string {
	root := os.Getenv("PYENV_ROOT")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		root = filepath.Join(home, ".pyenv")
	}
	bin := filepath.Join(root, "versions", version, "bin", "python3")
	if _, err := os.Stat(bin); err != nil {
		return ""
	}
	return bin
}

func TestCase40PythonRefcount(t *testing.T) {
	requireFrames(t)
	read := window{4708, 4710}
	truth := map[string]map[string]window{
		"3.10.13": {"read": read, "read-interned": {4710, 4710}, "gc": {3356, 3356}},
		"3.11.7":  {"read": read, "read-interned": {4709, 4709}, "gc": {3798, 3798}},
		"3.12.1":  {"read": read, "read-interned": {1, 1}, "gc": {3327, 3327}},
		"3.13.0":  {"read": read, "read-interned": {4709, 4709}, "gc": {3432, 3432}},
	}
	pythons := map[string]string{}
	for version := range truth {
		if bin := python(version); bin != "" {
			pythons[version] = bin
		}
	}
	// The machine's own Python is always there, of whatever version: its counts are the README's but for some pages of layout.
	pythons["of the machine"] = testkit.Program(t, "python3")
	truth["of the machine"] = map[string]window{"read": {4600, 4800}, "gc": {3200, 3900}}
	for version, bin := range pythons {
		modes := truth[version]
		modes["read-none"], modes["read-ints"], modes["gc-frozen"] = window{1, 4}, window{1, 4}, window{0, 8}
		for mode, w := range modes {
			t.Run(fmt.Sprint(version, " ", mode), func(t *testing.T) {
				t.Parallel()
				s := start(t, nil, bin, filepath.Join(testkit.Cases(t), "40-python-refcount.py"), mode)
				follow(t, s, []step{
					{to: "idle-order", pid: 1},
					{to: "child-did-" + mode, pid: 1, worker: w, reference: &window{}},
				})
			})
		}
	}
}
