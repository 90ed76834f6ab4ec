package forktest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOwnProc(t *testing.T) {
	if err := ownProc("/proc/self"); err != nil {
		t.Error(err)
	}
	other := filepath.Join(t.TempDir(), "self")
	if err := ownProc(other); err == nil || !strings.HasPrefix(err.Error(), "find this process in /proc: no such file") {
		t.Errorf("no /proc: %v", err)
	}
	if err := os.Symlink("1000000", other); err != nil {
		t.Fatal(err)
	}
	if err := ownProc(other); err == nil || !strings.HasPrefix(err.Error(), "/proc is of another pid namespace: it calls process ") {
		t.Errorf("another namespace's /proc: %v", err)
	}
}

func TestLookPath(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	for name, mode := range map[string]os.FileMode{"ruby": 0o755, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, tt := range []struct{ name, path, want string }{
		{"ruby", empty + ":" + dir, dir + "/ruby"},
		{"ruby", empty + "::" + dir, "./ruby"}, // an empty entry is the current folder
		{dir + "/ruby", "", dir + "/ruby"},
		{"./ruby", empty, "./ruby"},
	} {
		if got, err := lookPath(tt.name, tt.path); err != nil || got != tt.want {
			t.Errorf("%s in %q: %q, %v; want %q", tt.name, tt.path, got, err, tt.want)
		}
	}
	for _, tt := range []struct{ name, path string }{{"ruby", empty}, {"ruby", ""}, {"plain", dir}, {"./plain", dir}, {dir, dir}, {"", dir}} {
		if got, err := lookPath(tt.name, tt.path); err == nil || !strings.HasPrefix(err.Error(), "no such command: ") {
			t.Errorf("%q in %q: %q, %v", tt.name, tt.path, got, err)
		}
	}
}
