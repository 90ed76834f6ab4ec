package testkit

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// RequireEnv is the variable that makes every missing feature a failure: a test run that is to be complete sets it.
const RequireEnv = "COWAUDIT_REQUIRE"

// Require skips the test when this machine lacks one of the features, and fails it when COWAUDIT_REQUIRE is set. It is the
// only skip in the project: whatever a test needs is in the table of features.
func Require(t testing.TB, features ...string) {
	t.Helper()
	for _, name := range features {
		f, ok := table()[name]
		if !ok {
			t.Fatalf("testkit: no feature %q; there are %s", name, strings.Join(names(), ", "))
		}
		if err := f.probe(); err != nil {
			Missing(t, fmt.Sprintf("%s: %v", name, err))
		}
	}
}

// Missing ends a test that found out by itself that it cannot be shown here (a reproducer that exits with 77, say), by the
// rule of Require.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(RequireEnv) != "" {
		t.Fatalf("needed here (%s is set): %s", RequireEnv, what)
	}
	t.Skip("not here: " + what)
}

// feature is something that a test may need.
type feature struct {
	probe func() error // why it is not here
}

// table is made once: each probe runs at most once in a test run.
var table = sync.OnceValue(func() map[string]feature {
	m := map[string]feature{}
	for name, probe := range probes() {
		m[name] = feature{sync.OnceValue(probe)}
	}
	return m
})

func names() []string {
	var out []string
	for n := range table() {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
