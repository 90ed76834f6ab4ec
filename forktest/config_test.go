package forktest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestGuessRuntime(t *testing.T) {
	for command, want := range map[string]Runtime{
		"":                                RuntimeRuby,
		"ruby":                            RuntimeRuby,
		"ruby3.4":                         RuntimeRuby,
		"/opt/ruby/bin/ruby --yjit":       RuntimeRuby,
		"chroot /srv/python ruby3.3":      RuntimeRuby,
		"chroot /srv/ruby python3":        RuntimePython,
		"python3":                         RuntimePython,
		"/opt/pyenv/shims/python3.13t":    RuntimePython,
		"env PYTHONHASHSEED=0 pypy3":      RuntimePython,
		"./run-it":                        RuntimeRuby,
		"bundle exec ruby -I python":      RuntimePython, // the last word that is a name: --runtime overrides
		"jruby":                           RuntimeRuby,
		"./ruby-wrapper /usr/bin/python3": RuntimePython,
	} {
		words, err := SplitWords(command)
		if err != nil {
			t.Fatal(err)
		}
		if got := guessRuntime(words); got != want {
			t.Errorf("%q: %s, want %s", command, got, want)
		}
	}
}

func TestBootWordsSurviveUnquoted(t *testing.T) {
	for runtime, h := range harnesses {
		for _, word := range h.boot {
			if strings.ContainsAny(word, " \t\n*?[]'\\`") {
				t.Errorf("%s: %q would not survive a wrapper that says $@ without quotes", runtime, word)
			}
		}
	}
}

func TestParseSettle(t *testing.T) {
	for in, want := range map[string]Settle{"until-quiet": {}, "0": {Fixed: true}, "4": {Fixed: true, Count: 4}} {
		got, err := ParseSettle(in)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "-1", "x", "4.5", "1001", "until quiet"} {
		var c *ConfigError
		if got, err := ParseSettle(in); !errors.As(err, &c) {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
}

func TestNewPlan(t *testing.T) {
	type part struct {
		Subject, Scenario, App, Source string
		Runtime                        Runtime
		Argv                           []string
		Methods, CallSites             int
		Workers, Runs                  int
		Timeout                        time.Duration
	}
	app := filepath.Join(t.TempDir(), "app.rb")
	if err := os.WriteFile(app, []byte("X = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ruby, python := harnesses[RuntimeRuby].boot, harnesses[RuntimePython].boot
	tests := []struct {
		name string
		in   Config
		want part
	}{
		{"defaults", Config{}, part{Subject: "ruby", Scenario: "callcache-cold", Runtime: RuntimeRuby, Argv: append([]string{"ruby"}, ruby...),
			Methods: 20_000, CallSites: 20, Workers: 1, Runs: 5, Timeout: 10 * time.Minute}},
		{"sizes", Config{Subject: "chroot /srv ruby3.3", Methods: 5, CallSites: 7, Workers: 2, Runs: 3, Timeout: time.Second, User: "root"},
			part{Subject: "chroot /srv ruby3.3", Scenario: "callcache-cold", Runtime: RuntimeRuby, Argv: append([]string{"chroot", "/srv", "ruby3.3"}, ruby...),
				Methods: 5, CallSites: 7, Workers: 2, Runs: 3, Timeout: time.Second}},
		{"python", Config{Runtime: RuntimePython}, part{Subject: "python3", Scenario: "tracked-objects", Runtime: RuntimePython,
			Argv: append([]string{"python3"}, python...), Workers: 1, Runs: 5, Timeout: 10 * time.Minute}},
		{"application", Config{App: app}, part{Subject: "ruby", Scenario: "app", App: app, Source: "X = 1\n", Runtime: RuntimeRuby,
			Argv: append([]string{"ruby"}, ruby...), Workers: 1, Runs: 5, Timeout: 10 * time.Minute}},
		{"preload alone", Config{Preload: "X = 2"}, part{Subject: "ruby", Scenario: "app", Runtime: RuntimeRuby,
			Argv: append([]string{"ruby"}, ruby...), Workers: 1, Runs: 5, Timeout: 10 * time.Minute}},
		{"preload on top of a scenario", Config{Preload: "X = 2", Scenario: "callcache-cold"}, part{Subject: "ruby", Scenario: "callcache-cold", Runtime: RuntimeRuby,
			Argv: append([]string{"ruby"}, ruby...), Methods: 20_000, CallSites: 20, Workers: 1, Runs: 5, Timeout: 10 * time.Minute}},
		{"script", Config{Subject: "./mine --fast", Runtime: RuntimeScript}, part{Subject: "./mine --fast", Scenario: "script", Runtime: RuntimeScript,
			Argv: []string{"./mine", "--fast"}, Workers: 1, Runs: 5, Timeout: 10 * time.Minute}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := newPlan(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			got := part{p.Subject, p.Scenario, p.App, p.source, p.Runtime, p.argv, p.Methods, p.CallSites, p.Workers, p.Runs, p.Timeout}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if p.Observer == nil {
				t.Error("no observer")
			}
		})
	}
}

func TestNewPlanRefuses(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name string
		in   Config
		want string
	}{
		{"quote", Config{Subject: "ruby 'x"}, "is not closed"},
		{"runtime", Config{Runtime: "perl"}, `runtime "perl": auto, ruby, python or script`},
		{"script without a command", Config{Runtime: RuntimeScript}, "a script needs a command"},
		{"environment", Config{Env: []string{"X"}}, `environment "X": K=V`},
		{"environment without a name", Config{Env: []string{"=X"}}, "K=V"},
		{"two applications", Config{Scenario: "callcache-cold", App: "x.rb"}, "not both"},
		{"unknown scenario", Config{Scenario: "warm"}, "there is no scenario warm for ruby: it has callcache-cold, callcache-warm, inline-cache, coderange, compact-each-fork, exit, alloc-debt, fragmentation, retention, leak-or-plateau"},
		{"another runtime's scenario", Config{Subject: "python3", Scenario: "callcache-cold"}, "for python: it has tracked-objects"},
		{"scenario of a script", Config{Subject: "x", Runtime: RuntimeScript, Scenario: "callcache-cold"}, "for a script"},
		{"sizes without the scenario", Config{Subject: "python3", Methods: 3}, "sizes of the scenarios callcache-cold, callcache-warm and inline-cache"},
		{"methods", Config{Methods: -1}, "-1 methods"},
		{"workers", Config{Workers: 65}, "65 workers: from 1 to 64"},
		{"runs", Config{Runs: -2}, "-2 runs"},
		{"timeout", Config{Timeout: -time.Second}, "timeout -1s"},
		{"user", Config{User: "nobody-of-that-name"}, "there is no user nobody-of-that-name"},
		{"no such application", Config{App: filepath.Join(dir, "none.rb")}, "no such file or directory"},
		{"application is a folder", Config{App: dir}, "not a file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newPlan(tt.in)
			var c *ConfigError
			if !errors.As(err, &c) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestChrootNeedsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Setenv("SUDO_UID", "")
		if _, err := newPlan(Config{Subject: "chroot /srv ruby"}); err == nil || !strings.Contains(err.Error(), "only root may chroot") {
			t.Errorf("got %v", err)
		}
		return
	}
	t.Setenv("SUDO_UID", "65534")
	t.Setenv("SUDO_GID", "65534")
	_, err := newPlan(Config{Subject: "chroot /srv ruby"})
	if err == nil || err.Error() != "chroot /srv ruby: only root may chroot, and the application runs as nobody: give --user root" {
		t.Errorf("got %v", err)
	}
	p, err := newPlan(Config{Subject: "chroot /srv ruby", User: "root"})
	if err != nil || p.as != nil {
		t.Errorf("with --user root: %+v, %v", p, err)
	}
	if p, err := newPlan(Config{Subject: "ruby"}); err != nil || p.as == nil || p.as.uid != 65534 {
		t.Errorf("without chroot: %+v, %v", p, err)
	}
}
