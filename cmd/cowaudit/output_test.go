package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// A reader that closed its end of the pipe has enough: no word, no signal, the exit code of what was done.
func TestClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := exec.Command(testkit.Binary(t), "audit") // the list of families, which needs no privilege
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v, %q", err, stderr.String())
	}
}

// A file is replaced once for each result, keeps its mode, and is what it was when a result fails.
func TestOutputFileRounds(t *testing.T) {
	name := filepath.Join(t.TempDir(), "result")
	if err := os.WriteFile(name, []byte("before"), 0o640); err != nil {
		t.Fatal(err)
	}
	f, err := openOutputFile(name, true)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for _, c := range []struct {
		write, want string
		err         error
	}{
		{"first", "first", nil},
		{"second", "second", nil},
		{"half", "second", broken},
		{"third", "third", nil},
	} {
		err := f.write(func(w io.Writer) error {
			if _, err := io.WriteString(w, c.write); err != nil {
				return err
			}
			return c.err
		})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.write, err, c.err)
		}
		got, err := os.ReadFile(name)
		if err != nil || string(got) != c.want {
			t.Errorf("after %s: %q, %v, want %q", c.write, got, err, c.want)
		}
	}
	if err := f.discard(); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if list, err := os.ReadDir(filepath.Dir(name)); err != nil || len(list) != 1 {
		t.Errorf("left in the folder: %v, %v", list, err)
	}
}

// What somebody else put in the place of a new file while the measurement ran is not overwritten.
func TestOutputFileTaken(t *testing.T) {
	name := filepath.Join(t.TempDir(), "result")
	f, err := openOutputFile(name, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = f.write(func(w io.Writer) error { _, err := io.WriteString(w, "ours"); return err })
	if !errors.Is(err, os.ErrExist) {
		t.Errorf("write: %v, want that it exists", err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "theirs" {
		t.Errorf("%q, %v", got, err)
	}
	if list, err := os.ReadDir(filepath.Dir(name)); err != nil || len(list) != 1 {
		t.Errorf("left in the folder: %v, %v", list, err)
	}
}

func TestLinesAndCodes(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		code int
		line string
	}{
		{"plain", errors.New("read x: odd"), 3, "read x: odd"},
		{"usage", usageErrorf("no"), 2, "no"},
		{"usage within", fmt.Errorf("audit: %w", usageErrorf("no: %w", syscall.EACCES)), 2, "audit: no: permission denied"},
		{"permission", fmt.Errorf("open x: %w", syscall.EACCES), 3, "open x: permission denied: run it as root (sudo)"},
		{"hidden", fmt.Errorf("audit 5: %w", pagemap.ErrNoPFN), 3, "audit 5: " + pagemap.ErrNoPFN.Error() + ": run it as root of the host (sudo); \"cowaudit doctor\" shows what can be measured here"},
		{"own remedy", fmt.Errorf("x: %w", withRemedy(pagemap.ErrNoPFN, "do this")), 3, "x: " + pagemap.ErrNoPFN.Error() + ": do this"},
		{"joined", errors.Join(errors.New("one"), errors.New("two")), 3, "one; two"},
		{"hostile", errors.New("process \x1b[31m\u202e\xff"), 3, `process \x1b[31m\u202e\xff`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := lineOf(c.err); got != c.line {
				t.Errorf("line %q, want %q", got, c.line)
			}
			if got := codeOf(c.err); got != c.code {
				t.Errorf("code %d, want %d", got, c.code)
			}
		})
	}
}

// Each command says in 80 columns what it does, gives an example that is of itself, and names the privileges.
func TestHelp(t *testing.T) {
	a := &application{args: []string{"cowaudit"}, stdout: io.Discard, stderr: io.Discard}
	app := a.cli()
	for _, c := range app.Commands {
		text := commandHelp(c)
		for _, line := range strings.Split(text, "\n") {
			if n := len([]rune(line)); n > helpWidth && !strings.HasPrefix(line, "  cowaudit ") {
				t.Errorf("help %s: %d columns: %s", c.Name, n, line)
			}
		}
		if c.Hidden {
			continue
		}
		_, example, _ := strings.Cut(text, "Example:")
		example, _, _ = strings.Cut(strings.TrimSpace(example), "\n")
		if !strings.HasPrefix(strings.TrimPrefix(example, "sudo "), "cowaudit "+c.Name) {
			t.Errorf("help %s: the example is %q", c.Name, example)
		}
		if !strings.Contains(text, "\nNeeds: ") || c.Usage == "" || strings.HasSuffix(c.Usage, ".") {
			t.Errorf("help %s: no sentence, or no privileges:\n%s", c.Name, text)
		}
	}
	for _, line := range strings.Split(appHelp(app), "\n") {
		if len([]rune(line)) > helpWidth {
			t.Errorf("help: %d columns: %s", len([]rune(line)), line)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"audit", "snapshot", "diff", "show", "demo", "doctor"}
	for word, want := range map[string]string{
		"audt": "audit", "audits": "audit", "snap": "snapshot", "dif": "diff", "doc": "doctor", "x": "", "xyzzy": "", "": "", "hsow": "show",
	} {
		if got := nearest(word, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		n    int
	}{{"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "axc", 1}, {"abc", "xabc", 1}, {"kitten", "sitting", 3}} {
		if got := editDistance(c.a, c.b); got != c.n {
			t.Errorf("editDistance(%q, %q) = %d, want %d", c.a, c.b, got, c.n)
		}
	}
}
