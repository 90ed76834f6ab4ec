package oracle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"cowaudit/internal/testkit"
)

// requireFrames wants what every comparison of page tables needs.
func requireFrames(t *testing.T) {
	t.Helper()
	testkit.Require(t, "pagemap", "kpageflags", "kpagecount")
}

// What tests change for the whole machine, and put back: swap, huge pages, KSM. Tests that use these do not run in parallel.

// swapOn gives the machine a swap file for the length of the test.
func swapOn(t *testing.T) {
	t.Helper()
	testkit.Require(t, "swap")
	file := filepath.Join(t.TempDir(), "swap")
	if err := os.WriteFile(file, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testkit.Program(t, "mkswap"), file).CombinedOutput(); err != nil {
		t.Fatalf("mkswap: %v\n%s", err, out)
	}
	path, err := syscall.BytePtrFromString(file)
	if err != nil {
		t.Fatal(err)
	}
	// First in line (include/linux/swap.h, SWAP_FLAG_PREFER): what another test swaps off must not bring these pages back.
	const preferred = 0x8000 | 0x7fff
	if _, _, no := syscall.Syscall(syscall.SYS_SWAPON, uintptr(unsafe.Pointer(path)), preferred, 0); no != 0 {
		testkit.Missing(t, "swap: swapon: "+no.Error())
	}
	t.Cleanup(func() {
		if _, _, no := syscall.Syscall(syscall.SYS_SWAPOFF, uintptr(unsafe.Pointer(path)), 0, 0); no != 0 {
			t.Errorf("swapoff: %v", no)
		}
	})
}

// setting writes a file of /proc/sys or /sys and puts the old value back after the test.
func setting(t *testing.T, file, value string) {
	t.Helper()
	old, err := os.ReadFile(file)
	if err != nil {
		testkit.Missing(t, file)
	}
	if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
		testkit.Missing(t, file+": "+err.Error())
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, []byte(strings.TrimSpace(string(old))), 0o644); err != nil {
			t.Errorf("put %s back: %v", file, err)
		}
	})
}

const ksm = "/sys/kernel/mm/ksm/"

// merge lets KSM go over memory several times and stops it again; what is merged stays merged until the end of the test.
func merge(t *testing.T) {
	t.Helper()
	setting(t, ksm+"run", "1")
	// Unmerge before the old value is put back.
	t.Cleanup(func() { _ = os.WriteFile(ksm+"run", []byte("2"), 0o644) })
	scans := func() int {
		b, err := os.ReadFile(ksm + "full_scans")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := scans()
	for end := time.Now().Add(30 * time.Second); scans() < first+4; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("KSM does not come round")
		}
	}
	if err := os.WriteFile(ksm+"run", []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
}
