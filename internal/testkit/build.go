package testkit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Binary builds cmd/cowaudit once in a test run, as it is shipped (no cgo), and gives its path. Every user can run it.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := product()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var product = sync.OnceValues(func() (string, error) {
	return built(func(out string) error {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", out, "cowaudit/cmd/cowaudit")
		cmd.Env = append(plainEnv(), "CGO_ENABLED=0")
		if b, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build cmd/cowaudit: %w\n%s", err, b)
		}
		return nil
	})
})

// built runs a build into the cache and gives the result a name by its content, so that test runs side by side, perhaps
// of different states of the source, never replace a program that another one runs.
func built(build func(out string) error) (string, error) {
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(dir, "building-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	out := filepath.Join(temp, "out")
	if err := build(out); err != nil {
		return "", err
	}
	f, err := os.Open(out)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return install(out, filepath.Join(dir, "cowaudit-"+name(h.Sum(nil))))
}

// CC compiles a C program with gcc -O1 and gives its path. The result is kept by the content of the source, of the
// headers beside it and the flags.
func CC(t testing.TB, src string, flags ...string) string {
	t.Helper()
	Require(t, "gcc")
	path, err := compiled(src, flags)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var compiling sync.Mutex

func compiled(src string, flags []string) (string, error) {
	compiling.Lock()
	defer compiling.Unlock()
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	flags = append([]string{"-O1", "-Wall", "-Wno-unused-variable", "-pthread"}, flags...)
	h := sha256.New()
	fmt.Fprintln(h, runtime.GOARCH, flags)
	headers, err := filepath.Glob(filepath.Join(filepath.Dir(src), "*.h"))
	if err != nil {
		return "", err
	}
	for _, name := range append([]string{src}, headers...) {
		b, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(name), len(b))
		h.Write(b)
	}
	path := filepath.Join(dir, strings.TrimSuffix(filepath.Base(src), ".c")+"-"+name(h.Sum(nil)))
	if _, err := os.Stat(path); err == nil {
		return path, touch(path)
	}
	temp, err := os.MkdirTemp(dir, "building-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	out := filepath.Join(temp, "out")
	cmd := exec.Command("gcc", append(flags, "-o", out, src)...)
	cmd.Env = plainEnv()
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s: %w\n%s", src, err, b)
	}
	return install(out, path)
}

func install(from, to string) (string, error) {
	if _, err := os.Stat(to); err == nil {
		return to, touch(to)
	}
	if err := os.Chmod(from, 0o755); err != nil {
		return "", err
	}
	return to, os.Rename(from, to)
}

func touch(path string) error {
	now := time.Now()
	return os.Chtimes(path, now, now)
}

func name(sum []byte) string { return hex.EncodeToString(sum[:8]) }

// cacheDir is where built programs are kept: one folder for each user, that other users can enter and not write. What was
// not used for a day is removed.
var cacheDir = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("cowaudit-testkit-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || st.Uid != uint32(os.Getuid()) || info.Mode()&0o022 != 0 {
		return "", fmt.Errorf("%s is not a folder of this user alone: remove it", dir)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask
		return "", err
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
})

// plainEnv is the environment without the mark of this test run: the go command leaves a process of its own behind for
// a while.
func plainEnv() []string {
	var out []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, runEnv+"=") {
			out = append(out, kv)
		}
	}
	return out
}
