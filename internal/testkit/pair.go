package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Pair is a Ruby 3.3 and two builds of its library, unstripped and with debug information, that differ in one line: A is
// Debian's source as it is, B leaves out the store of an empty call cache over itself (scripts/rubies-pair.sh).
type Pair struct {
	Command    string   // the Ruby as a user would give it: "chroot .../.rubies/ruby-pair ruby3.3"; by itself, Debian's stripped library
	Argv       []string // the same in words
	Tree       string   // the folder that it is rooted in
	EnvA, EnvB string   // what it runs with either library by: "LD_LIBRARY_PATH=/libruby-a"
	A, B       string   // the libraries' files, as this process finds them
}

// RubyPair gives the pair of `make rubies-pair`.
func RubyPair(t testing.TB) Pair {
	t.Helper()
	Require(t, "ruby-pair")
	p, err := rubyPair()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var rubyPair = sync.OnceValues(func() (Pair, error) {
	dir, err := projectRoot()
	if err != nil {
		return Pair{}, err
	}
	tree, err := filepath.EvalSymlinks(filepath.Join(dir, ".rubies", "ruby-pair"))
	if err != nil {
		return Pair{}, fmt.Errorf("%w (make rubies-pair)", err)
	}
	p := Pair{Argv: []string{"chroot", tree, "ruby3.3"}, Tree: tree}
	p.Command = strings.Join(p.Argv, " ")
	for _, lib := range []struct {
		name      string
		env, file *string
	}{{"libruby-a", &p.EnvA, &p.A}, {"libruby-b", &p.EnvB, &p.B}} {
		*lib.env = "LD_LIBRARY_PATH=/" + lib.name
		if *lib.file, err = filepath.EvalSymlinks(filepath.Join(tree, lib.name, "libruby-3.3.so.3.3")); err != nil {
			return Pair{}, fmt.Errorf("%w (make rubies-pair)", err)
		}
		cmd := exec.Command(p.Argv[0], append(p.Argv[1:], "-e", "print RUBY_VERSION")...)
		cmd.Env = append(os.Environ(), *lib.env)
		out, err := cmd.Output()
		if err != nil {
			return Pair{}, fmt.Errorf("%s %s: %w (make rubies-pair)", *lib.env, p.Command, err)
		}
		if !strings.HasPrefix(string(out), "3.3.") {
			return Pair{}, fmt.Errorf("%s %s is Ruby %s, not 3.3", *lib.env, p.Command, out)
		}
	}
	return p, nil
})
