package host

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func rows(t *testing.T) map[string]Row {
	t.Helper()
	f, err := Look()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Row{}
	for _, r := range f.Rows {
		if _, ok := out[r.Name]; ok {
			t.Errorf("two rows %s", r.Name)
		}
		if r.Detail == "" || r.Group == "" {
			t.Errorf("row %s says nothing: %+v", r.Name, r)
		}
		out[r.Name] = r
	}
	return out
}

// What can be told by other means agrees.
func TestLook(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "kpageflags", "kpagecount")
	got := rows(t)
	for _, name := range []string{"frame_numbers", "page_flags", "page_counts", "smaps_rollup", "privilege"} {
		if got[name].State != Yes {
			t.Errorf("%s: %+v", name, got[name])
		}
	}
	release, err := text("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	p := prober{release: release}
	if r := got["anon_exclusive"]; p.before("5.19") != (r.State == No) {
		t.Errorf("anon_exclusive on %s: %+v", release, r)
	}
	for name, option := range map[string]string{
		"mapping_names": "CONFIG_ANON_VMA_NAME", "soft_dirty": "CONFIG_MEM_SOFT_DIRTY", "kcmp": "CONFIG_KCMP",
	} {
		r := got[name]
		v, err := pagemap.FS("").KernelOption(release, option)
		if errors.Is(err, pagemap.ErrNotSupported) {
			continue // this kernel does not show its configuration
		}
		if err != nil {
			t.Fatal(err)
		}
		if (v == "y") != (r.State == Yes) {
			t.Errorf("%s: %s is %q and the row %+v", name, option, v, r)
		}
	}
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil {
		t.Fatal(err)
	}
	if has := strings.Count(string(swaps), "\n") > 1; has != (got["swap"].State == Yes) {
		t.Errorf("swap: %q and the row %+v", swaps, got["swap"])
	}
	path, err := exec.LookPath("ruby")
	if (err == nil) != (got["ruby"].State == Yes) || !strings.Contains(got["ruby"].Detail, path) {
		t.Errorf("ruby at %q and the row %+v", path, got["ruby"])
	}
}

// The setting decides the row. It is one of the whole machine, which other tests may be using, so it is not turned here.
func TestDelays(t *testing.T) {
	const old, since = "5.15.0-1-amd64", "6.1.0-44-amd64"
	for _, c := range []struct {
		name, value, release string
		state                State
	}{
		{"off", "0", since, No},
		{"on", "1", since, Yes},
		{"on, of a kernel that counts no copies", "1", old, No},
		{"no such setting", "", since, No},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "sys", "kernel"), 0o755); err != nil {
				t.Fatal(err)
			}
			if c.value != "" {
				if err := os.WriteFile(filepath.Join(dir, "sys", "kernel", "task_delayacct"), []byte(c.value+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p := prober{fs: pagemap.FS(dir), release: c.release}
			if r := p.delays(); r.State != c.state || r.Detail == "" || (r.Remedy == "") != (c.state == Yes) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A program that does not run is not taken for one that is not there, nor for one that is.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	p := prober{who: who{sudoUID: -1}}
	if r := p.program("ruby", "x", "install it"); r.State != No || r.Remedy != "install it" {
		t.Errorf("none: %+v", r)
	}
	script := filepath.Join(dir, "ruby")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(script, []byte(s), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("#!/bin/sh\nexit 3\n")
	if r := p.program("ruby", "x", "install it"); r.State != Unknown || !strings.Contains(r.Detail, "exit status 3") {
		t.Errorf("one that fails: %+v", r)
	}
	write("#!/bin/sh\necho ruby 9.9\necho more\n")
	if r := p.program("ruby", "x", "install it"); r.State != Yes || r.Detail != script+": ruby 9.9" {
		t.Errorf("one that runs: %+v", r)
	}
}

func TestAccess(t *testing.T) {
	all := who{uid: 0, effective: ^uint64(0), initUser: true}
	none := who{uid: 1000, initUser: true}
	refuse := func(which ...int) func(int) error {
		return func(pid int) error {
			for _, w := range which {
				if w == pid {
					return os.ErrPermission
				}
			}
			if pid == 99 {
				return pagemap.ErrGone
			}
			return nil
		}
	}
	for _, c := range []struct {
		name   string
		who    who
		try    func(int) error
		others []int
		state  State
		detail string
	}{
		{"all", all, refuse(), []int{1, 2}, Yes, "see all 2 processes"},
		{"one ended", all, refuse(), []int{1, 99}, Yes, "see the one other process"},
		{"none there", all, refuse(), nil, Unknown, "there is no other process to try it on"},
		{"root refused one", all, refuse(1), []int{1, 2, 3}, Yes, "see 2 of 3 processes; refused of process 1"},
		{"root refused all", all, refuse(1, 2), []int{1, 2}, No, "see no other process"},
		{"user, own ones", none, refuse(1), []int{1, 2}, No, "see 1 of 2 processes"},
		{"user, none", none, refuse(1, 2), []int{1, 2}, No, "see no other process"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := prober{who: c.who}
			r := p.access(Row{}, access{"x", "see", c.try}, c.others)
			if r.State != c.state || r.Detail != c.detail || r.State == No && r.Remedy == "" {
				t.Errorf("%+v, want state %d, %q", r, c.state, c.detail)
			}
		})
	}
}

func TestAbsent(t *testing.T) {
	p := prober{release: "5.10.0-44-amd64"}
	if r := p.absent(Row{Since: "5.19"}, "CONFIG_X"); r.State != No || r.Remedy != "a kernel from Linux 5.19 on" {
		t.Errorf("an old kernel: %+v", r)
	}
	if r := p.absent(Row{Since: "5.10"}, "CONFIG_X"); r.Remedy != "a kernel with CONFIG_X" {
		t.Errorf("built without: %+v", r)
	}
}

func TestParsers(t *testing.T) {
	for s, want := range map[string]struct {
		v  [2]int
		ok bool
	}{
		"6.18.44-fc": {[2]int{6, 18}, true}, "5.19": {[2]int{5, 19}, true}, "7.0-rc1": {[2]int{7, 0}, true}, "6": {[2]int{6, 0}, false}, "x.y": {[2]int{}, false},
	} {
		if v, ok := parseVersion(s); v != want.v || ok != want.ok {
			t.Errorf("parseVersion(%q) = %v, %v", s, v, ok)
		}
	}
	for s, want := range map[string]string{
		"22 27 0:21 / /proc rw,relatime - proc proc rw":                                                                 "",
		"22 27 0:21 / /proc rw - proc proc rw,hidepid=2":                                                                "2",
		"22 27 0:21 / /proc rw - proc proc rw,hidepid=invisible,gid=5":                                                  "invisible",
		"22 27 0:21 / /proc rw - proc proc rw,hidepid=0":                                                                "",
		"22 27 0:21 / /srv/proc rw - proc proc rw,hidepid=2":                                                            "",
		"22 27 0:21 / /proc rw - proc proc rw,hidepid=2\n23 22 0:22 / /proc rw shared:1 - proc proc rw":                 "",
		"22 27 0:21 / /proc rw - proc proc rw\n23 22 0:22 / /proc rw shared:1 master:2 - proc proc rw,hidepid=noaccess": "noaccess",
	} {
		if got := hidepid(s); got != want {
			t.Errorf("hidepid(%q) = %q, want %q", s, got, want)
		}
	}
	if got := parseCapabilities("Name:\tx\nCapPrm:\t00\nCapEff:\t000001fffeffffff\nCapBnd:\t00\n"); got != 0x1fffeffffff {
		t.Errorf("capabilities %x", got)
	}
	if got := chosen("always [madvise] never"); got != "madvise" {
		t.Errorf("chosen: %q", got)
	}
	type swaps struct {
		Areas      int
		Size, Used int64
	}
	for s, want := range map[string]swaps{
		"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority":                                              {},
		"Filename Type Size Used Priority\n/dev/sda2 partition 2097148 100 -2\n/a\\040b file 1024 24 5": {2, 2098172, 124},
	} {
		n, size, used, err := parseSwaps(s)
		if diff := cmp.Diff(want, swaps{n, size, used}); err != nil || diff != "" {
			t.Errorf("parseSwaps(%q): %v (-want +got):\n%s", s, err, diff)
		}
	}
	for _, s := range []string{"head\nx y", "head\n/dev/sda2 partition many 100 -2"} {
		if _, _, _, err := parseSwaps(s); !errors.Is(err, pagemap.ErrFormat) {
			t.Errorf("parseSwaps(%q): %v", s, err)
		}
	}
}
