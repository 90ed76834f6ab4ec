package forktest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"cowaudit/audit"
	"cowaudit/internal/host"
	"cowaudit/internal/symbols"
	"cowaudit/pagemap"
)

// runtimeLibrary gives the mapped file that holds the runtime (libruby, libpython; the program itself where it maps none) and
// its build ID, read from the very file that is mapped (/proc/PID/map_files, 3.3; needs CAP_CHECKPOINT_RESTORE or
// CAP_SYS_ADMIN). "" for what cannot be told.
func runtimeLibrary(fs pagemap.FS, pid pagemap.PID, exe string) (library, buildID string) {
	maps, err := fs.Maps(pid)
	if err != nil {
		return "", ""
	}
	var at *pagemap.Mapping
	for i := range maps {
		base := path.Base(maps[i].Path)
		switch {
		case strings.HasPrefix(base, "libruby"), strings.HasPrefix(base, "libpython"):
			at = &maps[i]
		case maps[i].Path == exe && at == nil:
			at = &maps[i]
		default:
			continue
		}
		if maps[i].Path != exe {
			break
		}
	}
	if at == nil {
		return "", ""
	}
	return at.Path, symbols.BuildID(fs.Path(strconv.Itoa(int(pid)), "map_files", fmt.Sprintf("%x-%x", at.Start, at.End)))
}

// identity tells in a sentence who a subject is.
func identity(s *audit.Subject) string {
	return fmt.Sprintf("%s (%s, %s, build %s)", s.Version, s.Executable, cmp.Or(s.Allocator, "unknown malloc"), cmp.Or(s.BuildID, "unknown"))
}

// environment reads what the machine is set to.
func environment() *audit.Environment {
	e := &audit.Environment{Random: setting("/proc/sys/kernel/randomize_va_space")}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Machine = unix.ByteSliceToString(u.Machine[:])
	}
	// "always [madvise] never" (Documentation/admin-guide/mm/transhuge.rst, 2.6.38)
	_, rest, _ := strings.Cut(setting("/sys/kernel/mm/transparent_hugepage/enabled"), "[")
	e.HugePages, _, _ = strings.Cut(rest, "]")
	if zero, err := host.ZeroPage(); err == nil {
		e.ZeroPage = map[bool]string{true: "yes", false: "no"}[zero]
	}
	return e
}

// setting reads a file of one line; "" where it cannot be read.
func setting(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// appHash identifies what the user has loaded: two tests of different applications are not compared. "" for a built-in one.
func (p *plan) appHash() string {
	hooks := p.SettleHook + p.Event
	if p.App == "" && p.Preload == "" && hooks == "" {
		return ""
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d %s%d %s", len(p.source), p.source, len(p.Preload), p.Preload)
	if hooks != "" {
		fmt.Fprintf(h, "%d %s%d %s", len(p.SettleHook), p.SettleHook, len(p.Event), p.Event)
	}
	return hex.EncodeToString(h.Sum(nil))
}
