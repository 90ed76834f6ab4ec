package pagemap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// expected is one mapping of testdata/proc/*.expect.json.
type expected struct {
	Range   string  `json:"range"`
	Name    *string `json:"name"`
	Rss     Bytes   `json:"rss_kb"`
	Swap    Bytes   `json:"swap_kb"`
	Hugetlb Bytes   `json:"hugetlb_kb"`
}

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "testdata", "proc", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func checkExpected(t *testing.T, list []SmapsEntry, want []expected) {
	t.Helper()
	var got []expected
	for _, e := range list {
		x := expected{Range: fmt.Sprintf("%08x-%08x", uint64(e.Start), uint64(e.End)), Rss: e.Rss / 1024, Swap: e.Swap / 1024, Hugetlb: (e.SharedHugetlb + e.PrivateHugetlb) / 1024}
		if e.Path != "" {
			x.Name = &e.Path
		}
		got = append(got, x)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSmapsMixed(t *testing.T) {
	list, err := ParseSmaps(bytes.NewReader(fixture(t, "smaps-x86-mixed.txt")))
	if err != nil {
		t.Fatal(err)
	}
	var want []expected
	if err := json.Unmarshal(fixture(t, "smaps-x86-mixed.expect.json"), &want); err != nil {
		t.Fatal(err)
	}
	checkExpected(t, list, want)

	var rss, parts, hugetlb, swap, swapPss Bytes
	deleted := 0
	memory := regexp.MustCompile(`^/(memfd:|SYSV|dev/zero|anon_hugepage)`)
	for _, e := range list {
		rss += e.Rss
		parts += e.SharedClean + e.SharedDirty + e.PrivateClean + e.PrivateDirty
		hugetlb += e.SharedHugetlb + e.PrivateHugetlb
		swap += e.Swap
		swapPss += e.SwapPss
		if strings.HasSuffix(e.Path, " (deleted)") && !memory.MatchString(e.Path) {
			deleted++
		}
	}
	got := []Bytes{rss, parts, hugetlb, swap, swapPss, Bytes(deleted)}
	if diff := cmp.Diff([]Bytes{5144 << 10, 5144 << 10, 4096 << 10, 128 << 10, 64 << 10, 1}, got); diff != "" {
		t.Errorf("rss, its parts, hugetlb, swap, swap pss, deleted files (-want +got):\n%s", diff)
	}

	byName := map[string]SmapsEntry{}
	for _, e := range list {
		byName[e.Path] = e
	}
	if e := byName["/anon_hugepage (deleted)"]; e.HugePage != 2<<20 || e.Fork != ForkCopied {
		t.Errorf("hugetlb: %+v", e)
	}
	if e := byName["/srv/big major.so"]; e.VmFlags == nil || len(e.VmFlags) != 0 || e.Major != 0x103 || e.Minor != 0xa {
		t.Errorf("empty VmFlags: %+v", e)
	}
	if e := byName["anon_inode:[io_uring]"]; cmp.Diff([]string{"rd", "wr", "sh", "mr", "mw", "me", "ms", "pf", "io", "de", "dd"}, e.VmFlags) != "" {
		t.Errorf("VmFlags: %q", e.VmFlags)
	}
	if e := byName[`/srv/line1\012line2.so`]; e.Inode != 9000000000001 {
		t.Errorf("inode: %+v", e)
	}
}

func TestParseSmapsLargePages(t *testing.T) {
	list, err := ParseSmaps(bytes.NewReader(fixture(t, "smaps-arm64-64k.txt")))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		PageKB  Bytes      `json:"page_kb"`
		Regions []expected `json:"regions"`
		Rss     Bytes      `json:"pages_heap_rss"`
		Private Bytes      `json:"pages_heap_private"`
	}
	if err := json.Unmarshal(fixture(t, "smaps-arm64-64k.expect.json"), &want); err != nil {
		t.Fatal(err)
	}
	checkExpected(t, list, want.Regions)
	for _, e := range list {
		if e.KernelPageSize != want.PageKB<<10 || e.MMUPageSize != want.PageKB<<10 || e.HugePage != 0 {
			t.Errorf("%s: %+v", e.Path, e)
		}
		if e.Path == "[heap]" && (e.Rss/e.KernelPageSize != want.Rss || e.PrivateDirty/e.KernelPageSize != want.Private) {
			t.Errorf("heap: %+v", e)
		}
	}
}

func TestParseSmapsFields(t *testing.T) {
	const in = `1000-2000 rw-p 00000000 00:00 0
Size:                  1 kB
KernelPageSize:        2 kB
MMUPageSize:           3 kB
Rss:                   4 kB
Pss:                   5 kB
Pss_Dirty:            99 kB
Shared_Clean:          6 kB
Shared_Dirty:          7 kB
Private_Clean:         8 kB
Private_Dirty:         9 kB
Referenced:           10 kB
Anonymous:            11 kB
KSM:                  12 kB
LazyFree:             13 kB
AnonHugePages:        14 kB
ShmemPmdMapped:       99 kB
FilePmdMapped:        99 kB
Shared_Hugetlb:       15 kB
Private_Hugetlb:      16 kB
Swap:                 17 kB
SwapPss:              18 kB
Locked:               19 kB
THPeligible:           0
ProtectionKey:         0
FutureFlag:     yes
VmFlags: rd wr mr mw me ac dc 
`
	got, err := ParseSmaps(oneByte{strings.NewReader(in)})
	if err != nil {
		t.Fatal(err)
	}
	const k = 1024
	want := []SmapsEntry{{
		Mapping:        Mapping{Start: 0x1000, End: 0x2000, Perms: "rw-p", Fork: ForkSkipped},
		KernelPageSize: 2 * k, MMUPageSize: 3 * k, Rss: 4 * k, Pss: 5 * k,
		SharedClean: 6 * k, SharedDirty: 7 * k, PrivateClean: 8 * k, PrivateDirty: 9 * k, Referenced: 10 * k,
		Anonymous: 11 * k, KSM: 12 * k, LazyFree: 13 * k, AnonHugePages: 14 * k, SharedHugetlb: 15 * k, PrivateHugetlb: 16 * k,
		Swap: 17 * k, SwapPss: 18 * k, Locked: 19 * k,
		VmFlags: []string{"rd", "wr", "mr", "mw", "me", "ac", "dc"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSmapsErrors(t *testing.T) {
	const head = "1000-2000 rw-p 00000000 00:00 0 \n"
	for _, in := range []string{
		"Rss: 4 kB\n" + head, // no mapping yet
		head + "Rss: 4\n",
		head + "Rss: 4 MB\n",
		head + "Rss: -4 kB\n",
		head + "Rss:\n",
		head + "Rss: 9007199254740992 kB\n", // 2^63 bytes
		head + "Rss: 4 kB",                  // torn
		head + "rss: 4 kB\n",
		head + "Rss 4 kB\n",
		head + "\n",
		head + "3000-4000 rw-p 000\n",
	} {
		if list, err := ParseSmaps(strings.NewReader(in)); !errors.Is(err, ErrFormat) || !contains(err, "line ") || list != nil {
			t.Errorf("%q: %v, %v", in, list, err)
		}
	}
	if list, err := ParseSmaps(strings.NewReader("")); err != nil || len(list) != 0 {
		t.Errorf("empty: %v, %v", list, err)
	}
}

func TestForkRuleOf(t *testing.T) {
	tests := []struct {
		flags []string
		want  ForkRule
	}{
		{nil, ForkUnread},
		{[]string{}, ForkCopied},
		{[]string{"rd", "wr"}, ForkCopied},
		{[]string{"rd", "dc"}, ForkSkipped},
		{[]string{"rd", "wf"}, ForkWiped},
		{[]string{"wf", "dc"}, ForkSkipped},
		{[]string{"dc", "wf"}, ForkSkipped},
	}
	for _, tt := range tests {
		if got := ForkRuleOf(tt.flags); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.flags, got, tt.want)
		}
	}
}

// What madvise asks for is what smaps says and what fork does.
func TestSmapsForkRules(t *testing.T) {
	page := os.Getpagesize()
	rules := map[Addr]ForkRule{}
	for _, tt := range []struct {
		advice int
		want   ForkRule
	}{{unix.MADV_NORMAL, ForkCopied}, {unix.MADV_DONTFORK, ForkSkipped}, {unix.MADV_WIPEONFORK, ForkWiped}} {
		b, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Munmap(b); err != nil {
				t.Error(err)
			}
		})
		// The middle page has neighbours that keep it from being merged.
		if err := unix.Mprotect(b[:page], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mprotect(b[2*page:], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		if err := unix.Madvise(b[page:2*page], tt.advice); err != nil {
			t.Fatal(err)
		}
		rules[Addr(uintptr(unsafe.Pointer(&b[page])))] = tt.want
	}
	list, err := FS("").Smaps(PID(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, e := range list {
		if want, ok := rules[e.Start]; ok {
			seen++
			if e.Fork != want || e.Fork != ForkRuleOf(e.VmFlags) {
				t.Errorf("%x: %q %q, want %q", uint64(e.Start), e.Fork, e.VmFlags, want)
			}
		}
	}
	if seen != len(rules) {
		t.Errorf("saw %d mappings of %d", seen, len(rules))
	}
}

// Of a process that holds still, the rollup is the sum of smaps.
func TestRollupIsTheSumOfSmaps(t *testing.T) {
	tree := startTree(t, buildTree(t), "f A")
	for name, pid := range tree.pids {
		roll, err := FS("").Rollup(pid)
		if err != nil {
			t.Fatal(err)
		}
		list, err := FS("").Smaps(pid)
		if err != nil {
			t.Fatal(err)
		}
		var sum Rollup
		for _, e := range list {
			sum.RSS += e.Rss
			sum.SharedClean += e.SharedClean
			sum.SharedDirty += e.SharedDirty
			sum.PrivateClean += e.PrivateClean
			sum.PrivateDirty += e.PrivateDirty
			sum.Anonymous += e.Anonymous
			sum.KSM += e.KSM
			sum.AnonHugePages += e.AnonHugePages
			sum.SharedHugetlb += e.SharedHugetlb
			sum.PrivateHugetlb += e.PrivateHugetlb
			sum.Swap += e.Swap
			sum.SwapPSS += e.SwapPss
			sum.PSS += e.Pss // each rounded down to whole kB
		}
		if roll.PSS < sum.PSS || roll.PSS > sum.PSS+Bytes(len(list))<<10 {
			t.Errorf("%s: PSS %d, mappings %d", name, roll.PSS, sum.PSS)
		}
		sum.PSS = roll.PSS
		if diff := cmp.Diff(sum, roll); diff != "" {
			t.Errorf("%s (-sum +rollup):\n%s", name, diff)
		}
		if roll.RSS == 0 || roll.Anonymous == 0 {
			t.Errorf("%s: %+v", name, roll)
		}
	}
}

const rollupText = `55f6f0dd2000-7ffd8c1fe000 ---p 00000000 00:00 0                          [rollup]
Rss:                3000 kB
Pss:                 150 kB
Pss_Dirty:           100 kB
Pss_Anon:             90 kB
Pss_File:             60 kB
Pss_Shmem:             0 kB
Shared_Clean:       2000 kB
Shared_Dirty:        100 kB
Private_Clean:       200 kB
Private_Dirty:       700 kB
Referenced:         1900 kB
Anonymous:           800 kB
KSM:                   4 kB
LazyFree:              0 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:     4096 kB
Private_Hugetlb:    2048 kB
Swap:                 12 kB
SwapPss:               6 kB
Locked:                0 kB
`

func TestParseRollup(t *testing.T) {
	got, err := ParseRollup(strings.NewReader(rollupText))
	if err != nil {
		t.Fatal(err)
	}
	const k = 1024
	want := Rollup{
		RSS: 3000 * k, PSS: 150 * k, SharedClean: 2000 * k, SharedDirty: 100 * k, PrivateClean: 200 * k, PrivateDirty: 700 * k,
		Anonymous: 800 * k, KSM: 4 * k, AnonHugePages: 2048 * k, SharedHugetlb: 4096 * k, PrivateHugetlb: 2048 * k, Swap: 12 * k, SwapPSS: 6 * k,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, in := range []string{
		"",
		rollupText + rollupText,
		strings.Replace(rollupText, "[rollup]", "[heap]", 1),
		strings.Replace(rollupText, "Private_Dirty:", "Private_Other:", 1),
		rollupText[:300],
	} {
		if _, err := ParseRollup(strings.NewReader(in)); !errors.Is(err, ErrFormat) {
			t.Errorf("%.60q…: %v", in, err)
		}
	}
}

func FuzzParseSmaps(f *testing.F) {
	for _, name := range []string{"smaps-x86-mixed.txt", "smaps-arm64-64k.txt"} {
		b, err := os.ReadFile(filepath.Join("..", "testdata", "proc", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("1000-2000 rw-p 00000000 00:00 0 \nRss:  4 kB\nNew: what\nVmFlags: \n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		list, err := ParseSmaps(bytes.NewReader(in))
		if err != nil {
			if !errors.Is(err, ErrFormat) || list != nil {
				t.Fatalf("%v, %d mappings", err, len(list))
			}
			return
		}
		for _, e := range list {
			if e.Rss < 0 || e.Swap < 0 || e.Locked < 0 || e.Start >= e.End || e.Fork != ForkRuleOf(e.VmFlags) {
				t.Fatalf("%+v", e)
			}
		}
		// Whole files one after the other are the mappings of the one and then of the other.
		twice, err := ParseSmaps(bytes.NewReader(append(append([]byte(nil), in...), in...)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append(append([]SmapsEntry(nil), list...), list...), append([]SmapsEntry(nil), twice...)); diff != "" {
			t.Fatalf("twice:\n%s", diff)
		}
		// Its first lines are a maps file.
		var heads []byte
		for line := range bytes.Lines(in) {
			if line[0] < 'A' || line[0] > 'Z' {
				heads = append(heads, line...)
			}
		}
		maps, err := ParseMaps(bytes.NewReader(heads))
		if err != nil || len(maps) != len(list) {
			t.Fatalf("as maps: %v, %d mappings of %d", err, len(maps), len(list))
		}
	})
}

func FuzzParseRollup(f *testing.F) {
	f.Add([]byte(rollupText))
	f.Add([]byte(strings.Replace(rollupText, "3000 kB", "9007199254740991 kB", 1)))
	if own, err := os.ReadFile("/proc/self/smaps_rollup"); err == nil {
		f.Add(own)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		roll, err := ParseRollup(bytes.NewReader(in))
		if err != nil {
			if !errors.Is(err, ErrFormat) || roll != (Rollup{}) {
				t.Fatalf("%v, %+v", err, roll)
			}
			return
		}
		list, err := ParseSmaps(bytes.NewReader(in))
		if err != nil || len(list) != 1 || list[0].Path != "[rollup]" {
			t.Fatalf("%v, %+v", err, list)
		}
		e := list[0]
		if roll.RSS != e.Rss || roll.PSS != e.Pss || roll.SwapPSS != e.SwapPss || roll.PrivateDirty != e.PrivateDirty || roll.RSS < 0 {
			t.Fatalf("%+v, %+v", roll, e)
		}
	})
}
