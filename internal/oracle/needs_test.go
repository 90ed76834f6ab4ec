package oracle

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"
)

// require skips, or fails where COWAUDIT_REQUIRE is set.
func require(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("COWAUDIT_REQUIRE") != "" {
		t.Fatalf("not here: %s", what)
	}
	t.Skipf("not here: %s", what)
}

// requireFrames wants frame numbers to be visible.
func requireFrames(t *testing.T) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		require(t, "pagemap")
	}
	defer f.Close()
	here := []byte{1}
	var b [8]byte
	if _, err := f.ReadAt(b[:], int64(uintptr(unsafe.Pointer(&here[0]))/uintptr(pageSize)*8)); err != nil || binary.NativeEndian.Uint64(b[:])&(1<<55-1) == 0 {
		require(t, "frame numbers (CAP_SYS_ADMIN)")
	}
}
