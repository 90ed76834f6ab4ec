package repocheck

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cowaudit/internal/testkit"
)

// tree gives the files of the project, tracked or about to be, by their paths in it.
func tree(t *testing.T) (root string, files []string) {
	t.Helper()
	testkit.Require(t, "git")
	root = testkit.Root(t)
	cmd := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		testkit.Missing(t, "the project is no git repository: "+err.Error())
	}
	for _, f := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(filepath.Join(root, f)); err == nil && info.Mode().IsRegular() {
			files = append(files, f)
		}
	}
	slices.Sort(files)
	files = slices.Compact(files)
	if len(files) < 20 {
		t.Fatalf("%d files in %s: not the project", len(files), root)
	}
	return root, files
}

func read(t *testing.T, root, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func complain(t *testing.T, found []Finding) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

func TestGoFiles(t *testing.T) {
	root, files := tree(t)
	documented := map[string]bool{}
	for _, name := range files {
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "testdata/") {
			continue
		}
		src := read(t, root, name)
		found, err := GoFile(name, src)
		if err != nil {
			t.Error(err)
			continue
		}
		complain(t, found)
		if dir := filepath.Dir(name); !strings.HasSuffix(name, "_test.go") {
			documented[dir] = documented[dir] || bytes.Contains(src, []byte("\n// Package ")) || bytes.HasPrefix(src, []byte("// Package ")) ||
				bytes.Contains(src, []byte("\n// Command ")) || bytes.HasPrefix(src, []byte("// Command "))
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no comment says what the package is", dir)
		}
	}
}

func TestNoPlacesOfOneMachine(t *testing.T) {
	root, files := tree(t)
	places := placesHere(t, root)
	if len(places) == 0 {
		t.Fatal("this machine has no places to look for")
	}
	for _, name := range files {
		complain(t, Machine(name, read(t, root, name), places))
	}
}

// placesHere gives the folders that hold this checkout and the user's home, and the hosts that packages come from here.
func placesHere(t *testing.T, root string) (places []string) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	for _, dir := range []string{root, filepath.Dir(root), home} {
		if dir != "/" && dir != "." {
			places = append(places, dir+"/")
		}
	}
	sources, err := exec.Command("go", "env", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	if apt, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI)").Output(); err == nil {
		sources = append(append(sources, '\n'), apt...)
	}
	for _, word := range strings.FieldsFunc(string(sources), func(r rune) bool { return r == ',' || r == '|' || r == '\n' || r == ' ' }) {
		if u, err := url.Parse(word); err == nil && u.Hostname() != "" && !slices.Contains(places, u.Hostname()) {
			places = append(places, u.Hostname())
		}
	}
	return places
}

// What README and the documents tell the reader to type exists: make targets, commands and their options.
func TestTypedCommands(t *testing.T) {
	root, files := tree(t)
	targets, found := Targets("Makefile", read(t, root, "Makefile"))
	complain(t, found)
	if !slices.Contains(files, "README.md") {
		t.Error("no README.md")
	}
	help := map[string]string{}
	for _, name := range files {
		if filepath.Ext(name) != ".md" {
			continue
		}
		for _, c := range Commands(string(read(t, root, name))) {
			switch filepath.Base(c.Words[0]) {
			case "make":
				for _, w := range c.Words[1:] {
					if !strings.Contains(w, "=") && !slices.Contains(targets, w) {
						t.Errorf("%s:%d: make %s: no such target", name, c.Line, w)
					}
				}
			case "cowaudit":
				typedCowaudit(t, help, name, c)
			}
		}
	}
}

// typedCowaudit checks a command line of cowaudit against the help of the command.
func typedCowaudit(t *testing.T, help map[string]string, file string, c Typed) {
	t.Helper()
	if len(c.Words) < 2 {
		return
	}
	command := c.Words[1]
	if strings.HasPrefix(command, "-") {
		command = "help"
	}
	if _, ok := help[command]; !ok {
		out, err := exec.Command(testkit.Binary(t), "help", command).Output()
		if err != nil {
			t.Errorf("%s:%d: cowaudit %s: no such command", file, c.Line, command)
		}
		help[command] = string(out)
	}
	for _, w := range c.Words[2:] {
		if w == "--" {
			break
		}
		flag, _, _ := strings.Cut(w, "=")
		if len(flag) > 1 && flag[0] == '-' && !strings.Contains(help[command], flag+" ") && !strings.Contains(help[command], flag+",") {
			t.Errorf("%s:%d: cowaudit %s %s: no such option", file, c.Line, command, flag)
		}
	}
}
