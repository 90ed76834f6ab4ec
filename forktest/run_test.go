package forktest

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

const (
	mib = 1 << 20
	// noise is what a null event may copy.
	noise = mib / 5
)

func mustRun(t *testing.T, c Config) *audit.ForktestReport {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Minute
	}
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func event(t *testing.T, r *audit.ForktestReport, name string) *audit.EventSummary {
	t.Helper()
	e := r.Summary.Event(name)
	if e == nil {
		t.Fatalf("no event %s in %+v", name, r.Summary)
	}
	return e
}

// The figures that the whole tool is about, on Debian's Rubies: what the first major GC of a worker copies of the code that
// never ran. 3.3 rewrites the call caches of all of it; 3.1 and 3.4 do not.
func TestRubies(t *testing.T) {
	testkit.Require(t, "pagemap", "rubies")
	for _, ruby := range testkit.Rubies(t) {
		t.Run(ruby.Version, func(t *testing.T) {
			r := mustRun(t, Config{Subject: ruby.Command, Runs: 5})
			null, first, second := event(t, r, "null"), event(t, r, "first_major_gc"), event(t, r, "second_major_gc")
			for _, e := range []*audit.EventSummary{null, first, second} {
				t.Logf("%s: %d to %d KiB of %d KiB, %+v", e.Name, e.CopiedBytes.Low>>10, e.CopiedBytes.High>>10, e.SharedBefore.Median>>10, e.Change)
				if e.N != 5 || len(r.Runs) != 5 {
					t.Errorf("%s: %d samples of %d runs", e.Name, e.N, len(r.Runs))
				}
			}
			if null.CopiedBytes.High >= noise {
				t.Errorf("the null event copies up to %d bytes", null.CopiedBytes.High)
			}
			if second.CopiedBytes.High >= noise {
				t.Errorf("the second major GC copies up to %d bytes", second.CopiedBytes.High)
			}
			if first.SharedBefore.Low < 25*mib {
				t.Errorf("the application is too small to tell: %d bytes shared", first.SharedBefore.Low)
			}
			if ruby.Version == "3.3" {
				if first.CopiedBytes.Low <= 25*mib {
					t.Errorf("the first major GC copies %d bytes", first.CopiedBytes.Low)
				}
				if same, all := first.Change.Identical, first.Change.Compared(); first.Change.NotCompared != 0 || 100*same < 95*all {
					t.Errorf("%d of %d copied pages are identical, %d were not compared", same, all, first.Change.NotCompared)
				}
				if heap := first.Regions[0]; heap.Kind != audit.RegionBrkHeap || 100*heap.CopiedPages < 95*first.Change.Compared() {
					t.Errorf("%d of %d copied pages lie in %s", heap.CopiedPages, first.Change.Compared(), heap.Kind)
				}
			} else if first.CopiedBytes.High >= 3*mib {
				t.Errorf("the first major GC copies %d bytes", first.CopiedBytes.High)
			}
			for _, run := range r.Runs {
				if len(run.Warnings) > 0 {
					t.Errorf("run %d warns: %+v", run.Seq, run.Warnings)
				}
				for _, e := range run.Events {
					if e.CopiedByReference != 0 || e.UnknownPages > 4 {
						t.Errorf("run %d, %s: the parent did not hold still: %+v", run.Seq, e.Name, e.Copied)
					}
				}
			}
			s := r.Subject
			if !strings.HasPrefix(s.Version, "ruby "+ruby.Version+".") || s.Runtime != "ruby" || s.Allocator != "glibc" ||
				!strings.HasPrefix(s.Executable, ruby.Tree) || !strings.Contains(s.Executable, "/bin/ruby"+ruby.Version) {
				t.Errorf("subject %+v", s)
			}
			if r.Scenario.SettleRuns < 4 || r.Scenario.SettleRuns > 12 || len(r.Warnings) != 0 {
				t.Errorf("settled in %d collections; warnings %+v", r.Scenario.SettleRuns, r.Warnings)
			}
		})
	}
}

// Case 34: without settling the first major GC in the worker also pays for promotion. Process.warmup saves it as well.
func TestSettlingAndWarmup(t *testing.T) {
	testkit.Require(t, "pagemap", "rubies")
	const app = "KEEP = Array.new(400_000) { |i| [i, \"value #{i}\"] }"
	for _, ruby := range testkit.Rubies(t) {
		t.Run(ruby.Version, func(t *testing.T) {
			copied := func(settle Settle, warmup bool) int64 {
				r := mustRun(t, Config{Subject: ruby.Command, Preload: app, Runs: 1, Settle: settle, Warmup: warmup})
				return r.Runs[0].Events[1].CopiedPages
			}
			plain, quiet := copied(Settle{Fixed: true}, false), copied(Settle{}, false)
			t.Logf("pages copied: %d plain, %d settled", plain, quiet)
			if plain < 5000 || quiet > 2000 {
				t.Errorf("%d pages copied without settling, %d with it", plain, quiet)
			}
			if ruby.Version == "3.1" {
				return
			}
			if warm := copied(Settle{Fixed: true}, true); warm > 2000 {
				t.Errorf("%d pages copied after Process.warmup", warm)
			}
		})
	}
}

// A warm-up that a Ruby does not have is said so.
func TestNoWarmup(t *testing.T) {
	testkit.Require(t, "pagemap", "ruby", "rubies") // the system's is 3.1 where these are
	_, err := Run(context.Background(), Config{Subject: "ruby", Methods: 10, Runs: 1, Warmup: true})
	if err == nil || !regexp.MustCompile(`^run 1: ruby \(ruby 3\.1.*\) has no warmup: Process.warmup came with Ruby 3.3; leave --warmup out$`).MatchString(err.Error()) {
		t.Errorf("got %v", err)
	}
}

// Case 40: a collection writes to the head of every object that it looks at, unless they are frozen.
func TestPython(t *testing.T) {
	testkit.Require(t, "pagemap", "python3")
	for _, warmup := range []bool{false, true} {
		r := mustRun(t, Config{Subject: testkit.Program(t, "python3"), Runs: 2, Warmup: warmup})
		null, first, second := event(t, r, "null"), event(t, r, "first_collection"), event(t, r, "second_collection")
		t.Logf("gc.freeze %v: %d pages copied", warmup, first.CopiedBytes.Median/r.Capture.PageSize)
		if null.CopiedBytes.High >= noise || second.CopiedBytes.High >= noise {
			t.Errorf("null %+v, second %+v", null.CopiedBytes, second.CopiedBytes)
		}
		if pages := first.CopiedBytes.Median / r.Capture.PageSize; warmup && pages > 20 || !warmup && pages < 3000 {
			t.Errorf("gc.freeze %v: %d pages copied", warmup, pages)
		}
		if r.Subject.Runtime != "python" || !strings.HasPrefix(r.Subject.Version, "cpython 3.") || r.Scenario.Name != "tracked-objects" {
			t.Errorf("%+v, %+v", r.Subject, r.Scenario)
		}
	}
}

// Several workers: each is compared with the parent, by itself.
func TestWorkers(t *testing.T) {
	testkit.Require(t, "pagemap", "ruby")
	r := mustRun(t, Config{Subject: "ruby", Methods: 500, Runs: 2, Workers: 3})
	for _, run := range r.Runs {
		if len(run.Events) != 9 {
			t.Fatalf("%d events", len(run.Events))
		}
		for i, e := range run.Events {
			if e.Worker != i%3+1 || e.PID != run.Events[i%3].PID || e.SharedBefore < 100 || e.CopiedByReference != 0 {
				t.Errorf("event %d: %+v", i, e)
			}
		}
	}
	if e := event(t, r, "first_major_gc"); e.N != 2 {
		t.Errorf("%d samples of 2 runs", e.N)
	}
}

// Ways to start a Ruby, and a Python.
func TestWrappers(t *testing.T) {
	testkit.Require(t, "ruby", "python3")
	dir := t.TempDir()
	python := testkit.Program(t, "python3")
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// What the shims of rbenv and pyenv do: a script that runs programs, reads files, and execs a script that execs.
	exec2 := file("shim-exec", "#!/usr/bin/env bash\nset -e\nshift\nversion=$(cat </dev/null; echo 1)\nwhile IFS= read -r line; do version=$line; done <<<\"3\"\nexec \"$@\"\n")
	tests := []struct {
		name    string
		subject string
		runtime Runtime
		speaker string // "started" or "another": is the process that speaks the one that was started?
		require []string
	}{
		{"plain", "ruby", "", "started", nil},
		{"with options", "ruby -W:no-deprecated --disable-gems", "", "started", nil},
		{"env", "env FOO=bar ruby", "", "started", nil},
		{"script that execs", file("exec", "#!/bin/sh\nexec ruby \"$@\"\n"), "", "started", nil},
		{"script that waits", file("waits", "#!/bin/sh\necho starting\nruby \"$@\"\n"), "", "another", nil},
		{"script that quotes nothing", file("unquoted", "#!/bin/sh\nexec ruby $*\n"), "", "started", nil},
		{"script that leaves", file("leaves", "#!/bin/sh\nexec 3<&0\nruby \"$@\" <&3 &\n"), "", "another", nil},
		{"shim", file("ruby-shim", "#!/usr/bin/env bash\nset -e\nprogram=${0##*/}\nexec "+exec2+" $program ruby \"$@\"\n"), "", "started", nil},
		{"wrapper that closes descriptors", python + " -c 'import subprocess,sys;sys.exit(subprocess.run([\"ruby\"]+sys.argv[1:],close_fds=True).returncode)'", RuntimeRuby, "another", nil},
		{"pid namespace", "unshare -p -f ruby", "", "another", []string{"root", "pidns"}},
		{"user namespace", "unshare --user --map-root-user ruby", "", "started", []string{"root", "userns"}},
		{"python", python, "", "started", nil},
		{"python script that waits", file("py", "#!/bin/sh\n"+python+" \"$@\"\n"), RuntimePython, "another", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testkit.Require(t, tt.require...)
			c := Config{Subject: tt.subject, Runtime: tt.runtime, Runs: 1, Timeout: time.Minute, Preload: "X = 1", Workers: 2, Observer: &fakeObserver{}}
			p, err := newPlan(c)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := p.begin(1, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			err = converse(tr)
			if end := tr.end(); err != nil || end != nil {
				t.Fatal(err, end)
			}
			if got := tr.parent == tr.started; got != (tt.speaker == "started") {
				t.Errorf("the process that speaks (%d) was started (%d): %v", tr.parent.pid, tr.started.pid, got)
			}
		})
	}
}

// converse goes through all phases of a run but the captures.
func converse(t *trial) error {
	ctx := context.Background()
	if err := t.hello(ctx); err != nil {
		return err
	}
	if err := t.load(ctx); err != nil {
		return err
	}
	if _, _, err := t.settle(ctx); err != nil {
		return err
	}
	if err := t.fork(ctx); err != nil {
		return err
	}
	for _, w := range t.workers {
		if st, err := pagemap.FS("").Stat(w.pid); err != nil || st.PPID != t.parent.pid {
			return fmt.Errorf("worker %d is %+v, %v: no child of %d", w.number, st, err, t.parent.pid)
		}
		for _, name := range t.events {
			if _, err := t.event(ctx, w, name); err != nil {
				return err
			}
		}
	}
	t.leave()
	return nil
}

// The application is loaded as load would, whether the subject can see its file or not.
func TestApplicationFile(t *testing.T) {
	testkit.Require(t, "ruby")
	const text = "# frozen_string_literal: true\n# encoding: utf-8\nlocal = 'ü'\n$stdout.puts [__FILE__, __dir__, __LINE__, File.exist?(__FILE__), local.size, self.inspect, $0 == __FILE__].inspect\nrequire_relative 'other'\nputs OTHER\nputs \"stdin: #{$stdin.read.inspect}\"\n"
	const other = "OTHER = 'the other file'\n"
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	app := write("my app, 50%.rb", text)
	write("other.rb", other)
	run := func(t *testing.T, command string) []string {
		var out strings.Builder
		c := Config{Subject: command, App: app, Runs: 1, Timeout: time.Minute, Observer: &fakeObserver{}, Output: &out}
		if _, err := runFake(t, c, nil); err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	want := func(exists bool) []string {
		return []string{fmt.Sprintf(`[%q, %q, 4, %v, 1, "main", false]`, app, dir, exists), "the other file", `stdin: ""`}
	}
	t.Run("seen by the subject", func(t *testing.T) {
		if diff := cmp.Diff(want(true), run(t, "ruby")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("in another root", func(t *testing.T) {
		testkit.Require(t, "rubies")
		for _, ruby := range testkit.Rubies(t) {
			if ruby.Tree == "" {
				continue
			}
			// The file that it requires is found beside it in its own root, where the application itself is not.
			in := filepath.Join(ruby.Tree, dir)
			if err := os.MkdirAll(in, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				for d := in; d != filepath.Join(ruby.Tree, os.TempDir()) && len(d) > len(ruby.Tree); d = filepath.Dir(d) {
					os.RemoveAll(d)
				}
			})
			if err := os.WriteFile(filepath.Join(in, "other.rb"), []byte(other), 0o644); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want(false), run(t, ruby.Command)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", ruby.Version, diff)
			}
		}
	})
}

// Under sudo the application runs as the user who called it, with that user's groups, home and nothing of root's.
func TestRunsAsTheInvokingUser(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "ruby")
	t.Setenv("SUDO_UID", "65534")
	t.Setenv("SUDO_GID", "65534")
	app := filepath.Join(t.TempDir(), "app.rb")
	const text = "puts [Process.uid, Process.euid, Process.gid, Process.egid, Process.groups, ENV['HOME'], ENV['USER']].inspect\nbegin; File.read('/etc/shadow'); rescue => e; puts e.class; end\n"
	if err := os.WriteFile(app, []byte(text), 0o600); err != nil { // root reads it, the subject could not
		t.Fatal(err)
	}
	var out strings.Builder
	r := mustRun(t, Config{Subject: "ruby", App: app, Runs: 1, Output: &out})
	nobody, err := user.LookupId("65534")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("[65534, 65534, 65534, 65534, [65534], %q, %q]\nErrno::EACCES\n", nobody.HomeDir, nobody.Username); out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if e := event(t, r, "first_major_gc"); e.SharedBefore.Median == 0 || e.Change.NotCompared != 0 {
		t.Errorf("%+v", e)
	}
}

// The example in docs/protocol.md does what it says.
func TestProtocolExample(t *testing.T) {
	testkit.Require(t, "pagemap", "python3")
	text, err := os.ReadFile(filepath.Join(testkit.Root(t), "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```python\n")
	code, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("no example in docs/protocol.md")
	}
	path := filepath.Join(t.TempDir(), "example.py")
	if err := os.WriteFile(path, []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	r := mustRun(t, Config{Subject: testkit.Program(t, "python3") + " " + path, Runtime: RuntimeScript, Runs: 2, Workers: 2})
	null, touch := event(t, r, "null"), event(t, r, "touch")
	// 1,000 lists of 100 pointers lie ten lists, or some 9 KiB, apart: each write copies a page of its own.
	if pages := touch.CopiedBytes.Median / r.Capture.PageSize; pages < 900 || pages > 1200 || null.CopiedBytes.High >= noise {
		t.Errorf("null %+v; touch copies %d pages", null.CopiedBytes, pages)
	}
	if r.Subject.Runtime != "example" || r.Scenario.SettleRuns != 0 {
		t.Errorf("%+v, %+v", r.Subject, r.Scenario)
	}
}
