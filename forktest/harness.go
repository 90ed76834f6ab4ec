package forktest

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Runtime is the kind of program that a subject is.
type Runtime string

// Runtimes. With RuntimeAuto the command's name decides.
const (
	RuntimeAuto   Runtime = "auto"
	RuntimeRuby   Runtime = "ruby"
	RuntimePython Runtime = "python"
	RuntimeScript Runtime = "script" // a program that speaks the protocol by itself
)

//go:embed harness/ruby.rb
var rubyProtocol string

//go:embed harness/scenarios.rb
var rubyScenarios string

//go:embed harness/neighbours.rb
var rubyNeighbours string

// rubyHarness is one program: the protocol, the scenarios, and the call that begins it.
var rubyHarness = rubyProtocol + "\n" + rubyScenarios + "\n" + rubyNeighbours + "\nCowauditHarness.main\n"

//go:embed harness/python.py
var pythonHarness string

// harness is how a runtime is made to speak the protocol. The words of boot have no blanks, so that they survive a wrapper
// that hands its arguments on unquoted, and name no file, so that nothing need exist in the subject's root: they read eight
// digits, and as many bytes of program, from standard input.
type harness struct {
	boot     []string
	program  string
	command  string // where none is given
	scenario string // the built-in one
	hint     string // when there is no answer
}

var harnesses = map[Runtime]harness{
	RuntimeRuby: {
		boot:    []string{"-e", `eval($stdin.read($stdin.read(8).hex).force_encoding("UTF-8"),TOPLEVEL_BINDING,"cowaudit-harness")`},
		program: rubyHarness, command: "ruby", scenario: ScenarioCallcacheCold, hint: "is it a Ruby, 2.7 or later?",
	},
	RuntimePython: {
		boot:    []string{"-c", `exec((f:=open(0,"rb",closefd=False)).read(int(f.read(8),16)))`},
		program: pythonHarness, command: "python3", scenario: ScenarioTrackedObjects, hint: "is it a CPython, 3.8 or later?",
	},
	RuntimeScript: {hint: "does it speak the protocol?"},
}

// hello gives what is sent first: the program, with its length before it.
func (h *harness) hello() string {
	if h.program == "" {
		return ""
	}
	return fmt.Sprintf("%08x%s", len(h.program), h.program)
}

var (
	rubyName   = regexp.MustCompile(`^(j|truffle|m)?ruby[0-9.]*$`)
	pythonName = regexp.MustCompile(`^(python|pypy)[0-9.]*t?$`)
)

// guessRuntime tells the runtime by the last word that is the name of one: in "chroot /srv/python ruby3.3" that is Ruby. A
// command that names none is taken for a wrapper of a Ruby.
func guessRuntime(words []string) Runtime {
	for i := len(words) - 1; i >= 0; i-- {
		if strings.HasPrefix(words[i], "-") {
			continue
		}
		switch base := filepath.Base(words[i]); {
		case rubyName.MatchString(base):
			return RuntimeRuby
		case pythonName.MatchString(base):
			return RuntimePython
		}
	}
	return RuntimeRuby
}
