package ebpf

import (
	"testing"

	"cowaudit/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
