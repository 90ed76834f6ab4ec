package forktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// leftBehind lists the processes that carry a mark in their environment or are children of this one: at once, since Run
// promises that there are none when it returns.
func leftBehind(t *testing.T, mark string) (left []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		env, _ := os.ReadFile(d + "/environ")
		st, err := pagemap.FS("").Stat(pagemap.PID(pid))
		if err == nil && pid != os.Getpid() && (bytes.Contains(env, []byte(mark)) || st.PPID == pagemap.PID(os.Getpid())) {
			left = append(left, fmt.Sprintf("%d (%s, %c)", pid, st.Comm, st.State))
		}
	}
	return left
}

// script writes an executable file.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "subject")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each failure is one line that says what happened, and leaves no process.
func TestFailures(t *testing.T) {
	testkit.Require(t, "ruby")
	const load, settle, first = "loading the application", "settling", "running the event first_major_gc"
	app := func(text string) func(*testing.T, *Config) {
		return func(t *testing.T, c *Config) {
			c.App = filepath.Join(t.TempDir(), "app.rb")
			if err := os.WriteFile(c.App, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	preload := func(text string) func(*testing.T, *Config) {
		return func(_ *testing.T, c *Config) { c.Preload = text }
	}
	subject := func(command string) func(*testing.T, *Config) {
		return func(_ *testing.T, c *Config) { c.Subject = command }
	}
	shell := func(text string) func(*testing.T, *Config) {
		return func(t *testing.T, c *Config) { c.Subject = script(t, "#!/bin/sh\n"+text) }
	}
	tests := []struct {
		name   string
		set    func(*testing.T, *Config)
		hangs  string // in which phase: the time for an answer is short there, and long in all others
		want   string // a regular expression for the whole line
		output string // is in the application's last output
	}{
		{"crash", app("puts 'here we go'\nProcess.kill(:SEGV, $$)\nsleep\n"), "",
			`run 1: ruby was killed by signal 6 \(SIGABRT\) while loading the application; its last output: ".*\[BUG\] Segmentation fault at .*"`, "[BUG] Segmentation fault"},
		{"killed", app("puts 'half done'\nProcess.kill(:KILL, $$)\nsleep\n"), "",
			`run 1: ruby was killed by signal 9 \(SIGKILL\) while loading the application; its last output: "half done": if nobody else killed it, memory ran out: see dmesg`, "half done"},
		{"exception", app("def broken\n  raise ArgumentError, \"too\\nmuch\"\nend\nwarn 'soon'\nbroken\n"), "",
			`run 1: ArgumentError at .*/app.rb:2 while loading the application: too`, "soon"},
		{"syntax error", app("def x\n"), "", `run 1: SyntaxError.* while loading the application: .*app.rb:\d.*`, "app.rb"},
		{"load error", app("require 'no/such/gem'\n"), "", `run 1: LoadError at .*app.rb:1 while loading the application: cannot load such file -- no/such/gem`, ""},
		{"exit", app("exit 3\n"), "", `run 1: SystemExit at .*app.rb:1 while loading the application: the application called exit\(3\)`, ""},
		{"abort", app("abort 'no database'\n"), "", `run 1: SystemExit at .*app.rb:1 while loading the application: the application called exit\(1\); its last output: "no database"`, "no database"},
		{"exit at once", app("exit! 3\n"), "", `run 1: ruby ended with status 3 while loading the application`, ""},
		{"another program", app("exec 'sleep', '1000'\n"), "",
			`run 1: ruby closed its control channel while loading the application: keep standard input open, and do not exec another program`, ""},
		{"hang", app("puts 'waiting for the database'\nsleep\n"), load,
			`run 1: ruby did not answer within 2s while loading the application; its last output: "waiting for the database"`, "database"},
		{"endless output", app("loop { puts 'x' * 100 }\n"), load,
			`run 1: ruby did not answer within 2s while loading the application; its last output: "x+"`, "xxx"},
		{"exception in the expression", preload("raise 'no'"), "", `run 1: RuntimeError at --preload:1 while evaluating the preload expression: no`, ""},
		{"cannot fork", preload("Process.singleton_class.send(:undef_method, :fork)"), "",
			`run 1: NotImplementedError while forking: this Ruby cannot fork: Process.fork is not there`, ""},
		{"fork fails", preload("def Process.fork(*) = raise(Errno::EAGAIN, 'fork(2)')"), "", `run 1: Errno::EAGAIN .*while forking: Resource temporarily unavailable - fork\(2\)`, ""},
		{"worker dies at once", preload("module Process; class << self; alias f fork; def fork(&b) = (pid = f { exit!(9) }; wait(pid); pid); end; end"), "",
			`run 1: worker 1 has ended before its first order, or is no child of ruby: process \d+, as its parent calls it: process is gone`, ""},
		{"worker's fork hook raises", preload("module Process; class << self; alias f fork; def fork(&b) = f { warn 'reconnecting'; raise 'no connection' }; end; end"), "",
			`run 1: worker 1 ended with status 1 while forking; its last output: ".*no connection \(RuntimeError\)"`, "reconnecting"},
		{"worker crashes in the event", func(_ *testing.T, c *Config) {
			c.Preload = "def GC.start(**) = Process.kill(:KILL, $$)"
			c.Settle = Settle{Fixed: true}
		}, "", `run 1: worker 1 was killed by signal 9 \(SIGKILL\) while running the event first_major_gc: if nobody.*`, ""},
		{"worker raises in the event", func(_ *testing.T, c *Config) {
			c.Preload = "def GC.start(**) = raise('out of order')"
			c.Settle = Settle{Fixed: true}
		}, "", `run 1: RuntimeError at .* while running the event first_major_gc: out of order`, ""},
		{"worker hangs in the event", func(_ *testing.T, c *Config) {
			c.Preload = "def GC.start(**) = sleep"
			c.Settle = Settle{Fixed: true}
		}, first, `run 1: ruby did not answer within 2s while running the event first_major_gc`, ""},
		{"worker does not collect", func(_ *testing.T, c *Config) {
			c.Preload = "def GC.start(**) = nil"
			c.Settle = Settle{Fixed: true}
		}, "", `run 1: worker 1 did not collect in first_major_gc: major_gc_count is still \d+`, ""},
		{"parent crashes while a worker works", func(_ *testing.T, c *Config) {
			c.Preload = "def GC.start(**) = (Process.kill(:KILL, Process.ppid); sleep)"
			c.Settle = Settle{Fixed: true}
		}, "", `run 1: ruby was killed by signal 9 \(SIGKILL\) while running the event first_major_gc: .*`, ""},
		{"settling hangs", preload("def GC.start(**) = sleep"), settle, `run 1: ruby did not answer within 2s while settling`, ""},
		{"forked application answers too", preload("Process.fork; sleep 0"), "",
			`run 1: process \d+ answered instead of process \d+ while .*: the application forked a process that went on as if it were the subject`, ""},
		{"daemon", app("Process.fork { Process.setsid; Process.fork { sleep }; exit!(0) }\nProcess.wait\nraise 'with a daemon'\n"), "",
			`run 1: RuntimeError at .*: with a daemon`, ""},
		{"no such command", subject("ruby9.9 --yjit"), "", `no such command: ruby9\.9 \(looked for in .*\)`, ""},
		{"no such file", subject("/nowhere/ruby"), "", `no such command: /nowhere/ruby: no such file or directory`, ""},
		{"not executable", subject("/etc/passwd"), "", `no such command: /etc/passwd: is not executable`, ""},
		{"a folder", subject("/etc"), "", `no such command: /etc: is a directory`, ""},
		{"not a program", func(t *testing.T, c *Config) { c.Subject = script(t, "\x7fELF what\n") }, "", `start .*subject: exec format error`, ""},
		{"no such command in a wrapper", shell("exec no-such-ruby \"$@\"\n"), "", `run 1: subject ended with status 127 while starting; its last output: ".*not found": is it a Ruby, 2\.7 or later\?`, "not found"},
		{"not a Ruby", subject("cat"), "", `run 1: cat ended with status 1 while starting; its last output: ".*": is it a Ruby, 2\.7 or later\?`, "No such file"},
		{"a silent program", shell("exec sleep 1000\n"), "starting", `run 1: subject did not answer within 2s while starting: is it a Ruby, 2\.7 or later\?`, ""},
		{"an echo", shell("exec cat >&0\n"), "", `run 1: subject said something else than the protocol on its standard input while starting: not the fork test protocol: .*: is it a Ruby.*`, ""},
		{"another language", shell("echo 'HTTP/1.1 400 Bad Request' >&0; exec sleep 1000\n"), "",
			`run 1: subject said something else than the protocol .*: no word in "HTTP/1.1 400 Bad Request": is it a Ruby.*`, ""},
		{"another version", shell("echo 'hello protocol=2 events=null' >&0; exec sleep 1000\n"), "", `run 1: subject speaks version "2" of the protocol, not 1`, ""},
		{"an answer out of turn", shell("echo 'ready' >&0; exec sleep 1000\n"), "", `run 1: subject answered "ready" instead of hello while starting: .*`, ""},
		{"wrapper that saw its Ruby crash", shell("ruby \"$@\"\nexit $?\n"), "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mark := "COWAUDIT_FAILURE_TEST=" + strconv.FormatInt(time.Now().UnixNano(), 36)
			c := Config{Subject: "ruby", Env: []string{mark}, Runs: 1, Observer: &fakeObserver{}}
			tt.set(t, &c)
			if tt.want == "" { // the wrapper's own case
				c.Preload = "Process.kill(:KILL, $$)"
				tt.want = `run 1: (subject ended with status 137 \(SIGKILL\)|subject was killed by signal 9 \(SIGKILL\)) while evaluating the preload expression.*`
			}
			p, err := newPlan(c)
			if err != nil {
				t.Fatal(err)
			}
			p.Progress = func(at Progress) {
				if p.Timeout = time.Minute; at.Phase == tt.hangs {
					p.Timeout = 2 * time.Second
				}
			}
			if _, err = p.run(context.Background(), fakeDiff(nil)); err == nil {
				t.Fatal("no error")
			}
			if !regexp.MustCompile(`^(?:` + tt.want + `)$`).MatchString(err.Error()) {
				t.Errorf("got  %s\nwant %s", err, tt.want)
			}
			var f *Failure
			if errors.As(err, &f) && !strings.Contains(strings.Join(f.Output, "\n"), tt.output) {
				t.Errorf("output %q does not hold %q", f.Output, tt.output)
			}
			if left := leftBehind(t, mark); len(left) > 0 {
				t.Errorf("left behind: %s", strings.Join(left, ", "))
			}
		})
	}
}

// An interrupt ends a run in whatever phase it is, and leaves no process.
func TestInterrupt(t *testing.T) {
	testkit.Require(t, "ruby")
	for _, phase := range []string{"starting", "loading the application", "settling", "forking", "running the event null", "running the event first_major_gc"} {
		t.Run(phase, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			mark := "COWAUDIT_INTERRUPT_TEST=" + strconv.FormatInt(time.Now().UnixNano(), 36)
			p, err := newPlan(Config{Subject: "ruby", Env: []string{mark}, Methods: 100, Runs: 1, Timeout: time.Minute, Observer: &fakeObserver{},
				Progress: func(p Progress) {
					if p.Phase == phase {
						cancel()
					}
				}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.run(ctx, fakeDiff(nil)); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if left := leftBehind(t, mark); len(left) > 0 {
				t.Errorf("left behind: %s", strings.Join(left, ", "))
			}
		})
	}
}
