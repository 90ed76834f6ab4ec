package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"cowaudit/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// Transcripts of the command line: what is typed, what is printed, the exit code. In a script, "code N COMMAND..." runs a
// command that must exit with N; "nobody N COMMAND..." does so as a user without privileges.
func TestScripts(t *testing.T) {
	testscript.Run(t, scripts(t, "testdata/script"))
}

// Transcripts that need root.
func TestScriptsAsRoot(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "kpageflags", "setpriv", "unshare", "mountns", "chroot")
	testscript.Run(t, scripts(t, "testdata/script/root"))
}

func scripts(t *testing.T, dir string) testscript.Params {
	bin := testkit.Binary(t)
	return testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			path := filepath.Join(env.WorkDir, "bin")
			if err := os.Mkdir(path, 0o755); err != nil {
				return err
			}
			if err := os.Symlink(bin, filepath.Join(path, "cowaudit")); err != nil {
				return err
			}
			env.Setenv("PATH", path+":"+env.Getenv("PATH"))
			return os.Chmod(env.WorkDir, 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": func(ts *testscript.TestScript, neg bool, args []string) { runCode(ts, neg, args) },
			"nobody": func(ts *testscript.TestScript, neg bool, args []string) {
				runCode(ts, neg, append([]string{args[0], "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}, args[1:]...))
			},
		},
	}
}

func runCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
