package forktest

import (
	"os"
	"strings"
	"testing"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// The library that is mapped is told apart from another one of the same name and version, by its build ID.
func TestRuntimeLibrary(t *testing.T) {
	testkit.Require(t, "pagemap", "ruby-pair")
	pair := testkit.RubyPair(t)
	var ids []string
	for _, env := range []string{pair.EnvA, pair.EnvB} {
		r := mustRun(t, Config{Subject: pair.Command, Env: []string{env}, Runs: 1, Methods: 10})
		s := r.Subject
		if dir := strings.TrimPrefix(env, "LD_LIBRARY_PATH="); !strings.HasPrefix(s.Library, pair.Tree+dir+"/libruby") || len(s.BuildID) != 40 {
			t.Errorf("with %s: library %q, build ID %q", env, s.Library, s.BuildID)
		}
		if len(s.Env) != 1 || s.Env[0] != env {
			t.Errorf("environment %q", s.Env)
		}
		ids = append(ids, s.BuildID)
	}
	if ids[0] == ids[1] {
		t.Errorf("both libraries have the build ID %s", ids[0])
	}
}

// A program without such a library is its own; where there is nothing to see, nothing is said.
func TestRuntimeLibraryOfAProgram(t *testing.T) {
	p := testkit.Start(t, "cat")
	p.Send("ready")
	p.WaitLine("ready")
	exe, _ := look("", pagemap.PID(p.PID()))
	if library, id := runtimeLibrary("", pagemap.PID(p.PID()), exe); library != exe || os.Geteuid() == 0 && id == "" {
		t.Errorf("%s: library %q, build ID %q", exe, library, id)
	}
	if library, id := runtimeLibrary("", 1<<22+1, ""); library != "" || id != "" {
		t.Errorf("no process: %q, %q", library, id)
	}
}

func TestEnvironment(t *testing.T) {
	e := environment()
	if e.Machine == "" || strings.ContainsAny(e.HugePages, " []") || !strings.Contains("012", e.Random) || e.ZeroPage != "yes" && e.ZeroPage != "no" {
		t.Errorf("%+v", e)
	}
}

// What the user has loaded is told apart by its contents, and by what is a file and what an expression.
func TestAppHash(t *testing.T) {
	seen := map[string]string{}
	for name, p := range map[string]*plan{
		"file":       {Config: Config{App: "a"}, source: "x"},
		"other file": {Config: Config{App: "a"}, source: "y"},
		"expression": {Config: Config{Preload: "x"}},
		"both":       {Config: Config{App: "a", Preload: "x"}, source: "x"},
	} {
		h := p.appHash()
		if other := seen[h]; len(h) != 64 || other != "" {
			t.Errorf("%s: %q, as of %q", name, h, other)
		}
		seen[h] = name
	}
	if h := (&plan{}).appHash(); h != "" {
		t.Errorf("nothing loaded: %q", h)
	}
}
