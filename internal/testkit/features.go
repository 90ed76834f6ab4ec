package testkit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"
)

// probes tells for each feature why it is not here, or nil.
func probes() map[string]func() error {
	m := map[string]func() error{
		"root":       root,
		"trace":      tracing,
		"pagemap":    framesVisible,
		"kpageflags": func() error { return readable("/proc/kpageflags") },
		"kpagecount": func() error { return readable("/proc/kpagecount") },
		"rubies":     func() error { _, err := rubies(); return err },
		"ruby-pair":  func() error { _, err := rubyPair(); return err },
		"cases":      func() error { _, err := cases(); return err },
		"hugetlb":    func() error { return writable("/proc/sys/vm/nr_hugepages") },
		"ksm":        func() error { return writable("/sys/kernel/mm/ksm/run") },
		"swap":       swap,
		"taskstats":  taskstats,
		"thp":        thp,
		"userns":     func() error { return runs("unshare", "--user", "--map-root-user", "true") },
		"pidns":      func() error { return runs("unshare", "--pid", "--fork", "true") },
		"mountns":    func() error { return runs("unshare", "--mount", "true") },
		"jemalloc":   func() error { _, err := jemalloc(); return err },
	}
	for name := range programs {
		m[name] = func() error { _, err := program(name); return err }
	}
	return m
}

// programs are features that are a program: where it may lie beside PATH. The last match is taken, the newest version
// where the name holds one.
var programs = map[string][]string{
	"ruby":     nil,
	"python3":  {"/usr/bin/python3"},
	"gunicorn": {"/usr/bin/gunicorn"},
	"php-fpm":  {"/usr/sbin/php-fpm[0-9]*"},
	"postgres": {"/usr/lib/postgresql/*/bin/postgres"},
	"redis":    {"/usr/bin/redis-server"},
	"gcc":      nil,
	"smem":     nil,
	"pmap":     nil,
	"setpriv":  nil,
	"taskset":  nil,
	"unshare":  nil,
	"chroot":   {"/usr/sbin/chroot"},
	"mkswap":   {"/usr/sbin/mkswap", "/sbin/mkswap"},
	"git":      nil,
	"make":     nil,
}

// program finds a program by the name of its feature: first where the system's packages put it, then in PATH.
func program(name string) (string, error) {
	for _, pattern := range programs[name] {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		found = slices.DeleteFunc(found, func(p string) bool {
			info, err := os.Stat(p)
			return err != nil || info.IsDir() || info.Mode()&0o111 == 0
		})
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errors.New("no such program")
	}
	return path, nil
}

// jemalloc finds the library, as Debian's libjemalloc2 has it.
func jemalloc() (string, error) {
	found, err := filepath.Glob("/usr/lib/*/libjemalloc.so.2")
	if err == nil && len(found) == 0 {
		err = errors.New("no /usr/lib/*/libjemalloc.so.2 (libjemalloc2)")
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// tracing: the kernel's type information and tracefs, which one of the tracer's ways to attach needs.
func tracing() error {
	if err := root(); err != nil {
		return err
	}
	for _, path := range []string{"/sys/kernel/btf/vmlinux", "/sys/kernel/tracing/events/exceptions/page_fault_user"} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w (mount -t tracefs tracefs /sys/kernel/tracing)", err)
		}
	}
	return nil
}

func root() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("user id %d", os.Geteuid())
	}
	return nil
}

// framesVisible reads the frame number of a page of its own: 0 without CAP_SYS_ADMIN in the initial user namespace.
func framesVisible() error {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return err
	}
	defer f.Close()
	here := []byte{1}
	at := uintptr(unsafe.Pointer(&here[0])) / uintptr(os.Getpagesize()) * 8
	var word [8]byte
	if _, err := f.ReadAt(word[:], int64(at)); err != nil {
		return err
	}
	e := binary.NativeEndian.Uint64(word[:])
	here[0]++ // still in use: the page is present while it is read
	if e>>63 != 1 {
		return errors.New("a page of the own process reads as not present")
	}
	if e&(1<<55-1) == 0 {
		return errors.New("frame numbers are hidden (CAP_SYS_ADMIN)")
	}
	return nil
}

// readable opens a file and reads a word: permission is asked for in either place.
func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var word [8]byte
	_, err = f.Read(word[:])
	return err
}

func writable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// swap wants a kernel with swap and the right to switch swap space on.
func swap() error {
	if err := root(); err != nil {
		return err
	}
	if _, err := os.Stat("/proc/swaps"); err != nil {
		return err
	}
	if _, err := program("mkswap"); err != nil {
		return fmt.Errorf("mkswap: %w", err)
	}
	// EINVAL: no swap space in that file, so the right to ask is there. EPERM: it is not.
	err := swapoff("/proc/version")
	if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("swapoff: %w", err)
	}
	return nil
}

func swapoff(path string) error {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall(syscall.SYS_SWAPOFF, uintptr(unsafe.Pointer(p)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// taskstats wants a kernel whose delay accounting can be switched, and the right to do so: the same root may ask for counts.
func taskstats() error {
	if err := root(); err != nil {
		return err
	}
	return writable("/proc/sys/kernel/task_delayacct")
}

// thp wants huge pages where a program asks for them (madvise) at least.
func thp() error {
	const path = "/sys/kernel/mm/transparent_hugepage/enabled"
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if strings.Contains(string(b), "[never]") {
		return fmt.Errorf("%s is never", path)
	}
	return nil
}

func runs(argv ...string) error {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
