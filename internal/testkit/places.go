package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Program gives the path of a program by the name of its feature ("php-fpm", "postgres"), by the rule of Require.
func Program(t testing.TB, feature string) string {
	t.Helper()
	Require(t, feature)
	path, err := program(feature)
	if err != nil {
		t.Fatalf("%s: %v", feature, err)
	}
	return path
}

// Jemalloc gives the path of the library libjemalloc.so.2, by the rule of Require.
func Jemalloc(t testing.TB) string {
	t.Helper()
	Require(t, "jemalloc")
	path, err := jemalloc()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Root is the folder of the project: that of go.mod, above the package under test.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := projectRoot()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var projectRoot = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if b, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(b), "module cowaudit\n") {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod of cowaudit above the working folder")
		}
		dir = up
	}
})

// Cases gives the folder of the reproducers, COWAUDIT_CASES, by the rule of Require.
func Cases(t testing.TB) string {
	t.Helper()
	Require(t, "cases")
	dir, err := cases()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func cases() (string, error) {
	dir := os.Getenv("COWAUDIT_CASES")
	if dir == "" {
		return "", errors.New("COWAUDIT_CASES is not set")
	}
	if _, err := os.Stat(filepath.Join(dir, "cow.h")); err != nil {
		return "", fmt.Errorf("COWAUDIT_CASES: %w", err)
	}
	return filepath.Abs(dir)
}

// Ruby is one of the Rubies that tests compare.
type Ruby struct {
	Version string   // "3.1", "3.3", "3.4"
	Command string   // as a user would give it: "ruby", "chroot .../.rubies/3.3 ruby3.3"
	Argv    []string // the same in words
	Tree    string   // the folder that it is rooted in; "" for the system's own
}

// Rubies gives Debian's Rubies 3.1 (the system's), 3.3 and 3.4 (the trees of `make rubies`), in this order.
func Rubies(t testing.TB) []Ruby {
	t.Helper()
	Require(t, "rubies")
	list, err := rubies()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

var rubies = sync.OnceValues(func() ([]Ruby, error) {
	list := []Ruby{{Version: "3.1", Argv: []string{"ruby"}}}
	dir, err := projectRoot()
	if err != nil {
		return nil, err
	}
	for _, v := range []string{"3.3", "3.4"} {
		tree := filepath.Join(dir, ".rubies", v)
		list = append(list, Ruby{Version: v, Argv: []string{"chroot", tree, "ruby" + v}, Tree: tree})
	}
	for i := range list {
		r := &list[i]
		r.Command = strings.Join(r.Argv, " ")
		out, err := exec.Command(r.Argv[0], append(r.Argv[1:], "-e", "print RUBY_VERSION")...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w (make rubies)", r.Command, err)
		}
		if !strings.HasPrefix(string(out), r.Version+".") {
			return nil, fmt.Errorf("%s is Ruby %s, not %s", r.Command, out, r.Version)
		}
	}
	return list, nil
})
