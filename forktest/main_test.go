package forktest

import (
	"os"
	"testing"

	"cowaudit/internal/testkit"
)

func TestMain(m *testing.M) {
	// A test run under sudo tests the same as any: what sudo means here is tested where it is set.
	os.Unsetenv("SUDO_UID")
	testkit.Main(m)
}
