package oracle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// Reproducers about what /proc answers.

// Case 20: the script shows what the kernel answers; that cowaudit takes each answer for what it is, is shown on workloads
// that hold still.
func TestCase20DeadAndOddPIDs(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	t.Run("script", func(t *testing.T) { casePython(t, "20-dead-and-odd-pids.py").finish() })

	t.Run("zombie", func(t *testing.T) {
		s := pages(t, "anon A 97", "write A 0 97 1", "fork z", "fork w", "w: write A 0 23 2", "z: die", "stage dead")
		st := s.to("dead")
		z := st.names["z"]
		r := share(t, snapshot(t, pagemap.Options{}, st.pids...), nil)
		if p := process(t, r, z); p.State != pagemap.StateZombie || p.Pages != (audit.Pages{}) {
			t.Errorf("zombie: state %s, pages %+v", p.State, p.Pages)
		}
		rng := st.regions["A"]
		r = share(t, snapshot(t, pagemap.Options{}, st.pids...), &rng)
		samePages(t, "the other worker", process(t, r, st.names["w"]).Pages, sums(audit.Pages{Shared: 74, Copied: 23, CopiedByWorker: 23, Private: 23}))
		s.finish()
	})

	t.Run("kernel thread", func(t *testing.T) {
		st, err := proc.Stat(2)
		if err != nil || !st.KernelThread() {
			testkit.Missing(t, "a kernel thread with PID 2")
		}
		r := share(t, snapshot(t, pagemap.Options{}, 2, pagemap.PID(os.Getpid())), nil)
		if p := process(t, r, 2); p.State != pagemap.StateKernelThread || p.Pages != (audit.Pages{}) {
			t.Errorf("kernel thread: state %s, pages %+v", p.State, p.Pages)
		}
	})

	t.Run("gone", func(t *testing.T) {
		cmd := exec.Command("true")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pid := pagemap.PID(cmd.Process.Pid)
		if _, _, err := proc.Family([]pagemap.PID{pid}, pagemap.FamilyOptions{}); !errors.Is(err, pagemap.ErrGone) {
			t.Errorf("family of a process that is gone: %v, want ErrGone", err)
		}
		r := share(t, snapshot(t, pagemap.Options{}, pid, pagemap.PID(os.Getpid())), nil)
		if p := process(t, r, pid); p.State != pagemap.StateGone {
			t.Errorf("gone: state %s", p.State)
		}
		if !warned(r.Warnings, pid) {
			t.Errorf("no warning about process %d: %+v", pid, r.Warnings)
		}
	})

	t.Run("vsyscall", func(t *testing.T) {
		s := pages(t, "stage up")
		st := s.to("up")
		r := share(t, snapshot(t, pagemap.Options{}, st.pids...), nil)
		if len(r.Warnings) != 0 {
			t.Errorf("warnings about a plain process: %+v", r.Warnings)
		}
		for _, m := range r.Family[0].Mappings {
			if m.Path == "[vsyscall]" && m.Pages != (audit.Pages{}) {
				t.Errorf("vsyscall has pages: %+v", m.Pages)
			}
		}
		s.finish()
	})

	t.Run("worker ends between open and read", func(t *testing.T) {
		s := pages(t, "anon A 97", "write A 0 97 1", "fork a", "fork b", "a: write A 0 31 2", "stage open", "b: exit", "stage ended")
		st := s.to("open")
		rng := st.regions["A"]
		c := open(t, pagemap.Options{}, pagemap.FamilyOptions{Alone: true}, st.pids...)
		s.to("ended")
		r := share(t, c, &rng)
		if p := process(t, r, st.names["b"]); p.State != pagemap.StateGone || p.Pages != (audit.Pages{}) {
			t.Errorf("the worker that ended: state %s, pages %+v", p.State, p.Pages)
		}
		if !warned(r.Warnings, st.names["b"]) {
			t.Errorf("no warning about the worker that ended: %+v", r.Warnings)
		}
		samePages(t, "the other worker", process(t, r, st.names["a"]).Pages, sums(audit.Pages{Shared: 66, Copied: 31, CopiedByWorker: 31, Private: 31}))
		s.finish()
	})

	t.Run("worker execs between open and read", func(t *testing.T) {
		s := pages(t, "anon A 97", "write A 0 97 1", "fork a", "fork b", "stage open", "b: exec", "stage execed")
		st := s.to("open")
		rng := st.regions["A"]
		c := open(t, pagemap.Options{}, pagemap.FamilyOptions{Alone: true}, st.pids...)
		s.to("execed")
		r := share(t, c, &rng)
		if p := process(t, r, st.names["b"]); p.State != pagemap.StateChanged || p.Pages != (audit.Pages{}) {
			t.Errorf("the worker that exec'd: state %s, pages %+v", p.State, p.Pages)
		}
		samePages(t, "the other worker", process(t, r, st.names["a"]).Pages, sums(audit.Pages{Shared: 97}))
		s.finish()
	})

	t.Run("reference ends between open and read", func(t *testing.T) {
		s := pages(t, "fork w", "w: anon A 97", "w: write A 0 97 1", "w: fork g", "w: fork h", "stage open", "w: exit", "stage ended")
		st := s.to("open")
		c := open(t, pagemap.Options{}, pagemap.FamilyOptions{Alone: true}, st.names["w"], st.names["g"], st.names["h"])
		s.to("ended")
		r := share(t, c, nil)
		if p := process(t, r, st.names["w"]); p.State != pagemap.StateGone {
			t.Errorf("the reference: state %s", p.State)
		}
		for _, n := range []string{"g", "h"} {
			if p := process(t, r, st.names[n]); p.Pages.Copied != 0 || p.Pages.New != 0 {
				t.Errorf("%s, whose reference ended: %+v", n, p.Pages)
			}
			if !warned(r.Warnings, st.names[n]) {
				t.Errorf("no warning about %s, whose reference ended: %+v", n, r.Warnings)
			}
		}
		s.finish()
	})
}

func warned(list []pagemap.Warning, pid pagemap.PID) bool {
	return slices.ContainsFunc(list, func(w pagemap.Warning) bool {
		return w.PID == pid && w.Code != "" && w.Text != "" && w.Remedy != ""
	})
}

// Case 22: names byte for byte; two files of which the text is the same differ by their inodes.
func TestCase22MapsNames(t *testing.T) {
	t.Parallel()
	s := casePython(t, "22-maps-names.py")
	st := s.to("mapped")
	const dir = "/tmp/case22/"
	want := map[string]int{
		"lib with spaces.so": 1, `line1\012line2`: 2, "plain (deleted)": 1, "gone.so (deleted)": 1, "twice (deleted) (deleted)": 1,
		"  two blanks": 1, "a\tb": 1, "caf\u00e9-\u96ea.so": 1, "bad\xff\xfe.so": 1, "[heap]": 1, "[anon:fake]": 1,
		"7f0000000000-7f0000001000 rw-p 00000000 00:00 0": 1, strings.Repeat("n", 255): 1,
	}
	mappings, err := proc.Maps(st.pids[0])
	if err != nil {
		t.Fatal(err)
	}
	captured := snapshot(t, pagemap.Options{}, st.pids...).Fam.Processes[0].Mappings
	for what, list := range map[string][]pagemap.Mapping{"maps": mappings, "capture": captured} {
		got := map[string]int{}
		inodes := map[[3]uint64]bool{}
		for _, m := range list {
			if name, ok := strings.CutPrefix(m.Path, dir); ok {
				got[name]++
				inodes[[3]uint64{uint64(m.Major), uint64(m.Minor), m.Inode}] = true
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: names (-want +got):\n%s", what, d)
		}
		if len(inodes) != 14 {
			t.Errorf("%s: %d files by device and inode, want 14", what, len(inodes))
		}
	}
	s.finish()
}

// Case 23: smaps captures that broke other parsers.
func TestCase23SmapsFixtures(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(testkit.Cases(t), "fixtures")
	for _, name := range []string{"smaps-x86-mixed", "smaps-arm64-64k"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			list, err := pagemap.ParseSmaps(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			type row struct {
				Range string  `json:"range"`
				Name  *string `json:"name"`
				RSS   int64   `json:"rss_kb"`
				Swap  int64   `json:"swap_kb"`
				Huge  int64   `json:"hugetlb_kb"`
			}
			var want, got []row
			b, err := os.ReadFile(filepath.Join(dir, name+".expect.json"))
			if err != nil {
				t.Fatal(err)
			}
			all := struct {
				Regions []row `json:"regions"`
			}{}
			if json.Unmarshal(b, &want) != nil {
				if err := json.Unmarshal(b, &all); err != nil {
					t.Fatal(err)
				}
				want = all.Regions
			}
			if len(want) == 0 {
				t.Fatal("nothing to expect")
			}
			for _, m := range list {
				r := row{RSS: int64(m.Rss / 1024), Swap: int64(m.Swap / 1024), Huge: int64((m.SharedHugetlb + m.PrivateHugetlb) / 1024)}
				if m.Path != "" {
					r.Name = &m.Path
				}
				got = append(got, r)
			}
			for i := range want {
				var lo, hi pagemap.Addr
				if _, err := fmt.Sscanf(want[i].Range, "%x-%x", &lo, &hi); err != nil {
					t.Fatal(err)
				}
				if i < len(list) && (list[i].Start != lo || list[i].End != hi) {
					t.Errorf("mapping %d is %x-%x, want %s", i, list[i].Start, list[i].End, want[i].Range)
				}
				want[i].Range = ""
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("mappings (-want +got):\n%s", d)
			}
			var sum pagemap.SmapsEntry
			deleted := 0
			notAFile := regexp.MustCompile(`^/(memfd:|SYSV|dev/zero|anon_hugepage)`)
			for _, m := range list {
				sum.Rss += m.Rss
				sum.SharedClean += m.SharedClean + m.SharedDirty + m.PrivateClean + m.PrivateDirty
				sum.SharedHugetlb += m.SharedHugetlb + m.PrivateHugetlb
				sum.Swap += m.Swap
				sum.SwapPss += m.SwapPss
				if strings.HasSuffix(m.Path, " (deleted)") && !notAFile.MatchString(m.Path) {
					deleted++
				}
			}
			switch name {
			case "smaps-x86-mixed":
				got := []int64{int64(len(list)), int64(sum.Rss / 1024), int64(sum.SharedClean / 1024), int64(sum.SharedHugetlb / 1024), int64(sum.Swap / 1024), int64(sum.SwapPss / 1024), int64(deleted)}
				if want := []int64{18, 5144, 5144, 4096, 128, 64, 1}; !slices.Equal(got, want) {
					t.Errorf("mappings, Rss, its parts, hugetlb, Swap, SwapPss, deleted: %v, want %v", got, want)
				}
			default:
				const page = 64 << 10
				for _, m := range list {
					if m.KernelPageSize != page {
						t.Errorf("%x-%x: page size %d", m.Start, m.End, m.KernelPageSize)
					}
				}
				if r, p := list[1].Rss/page, list[1].PrivateDirty/page; r != 48 || p != 2 {
					t.Errorf("heap: %d pages resident, %d private, want 48 and 2", r, p)
				}
			}
		})
	}
}

// Case 30: PIDs outside and inside.
func TestCase30PIDNamespace(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	s := casePython(t, "30-pid-namespace.py")
	st, ok := s.next()
	if !ok {
		s.finish()
		t.Fatal("no stage")
	}
	rng := st.regions["region"]
	r := share(t, snapshot(t, pagemap.Options{}, st.pids...), &rng)
	for i, inner := range []pagemap.PID{1, 2} {
		if d := cmp.Diff([]pagemap.PID{st.pids[i], inner}, process(t, r, st.pids[i]).NSPIDs); d != "" {
			t.Errorf("NSpid of process %d (-want +got):\n%s", i, d)
		}
	}
	want := sums(audit.Pages{Shared: 70, Copied: 30, CopiedByWorker: 30, Private: 30})
	samePages(t, "worker, from outside", process(t, r, st.pids[1]).Pages, want)

	bin := testkit.Binary(t)
	out, err := exec.Command("nsenter", "-t", fmt.Sprint(st.pids[0]), "-p", "-m", "--", bin, "audit", "--format", "json",
		"--range", rangeArg(rng), "1").Output()
	if err != nil {
		t.Fatalf("audit inside: %v\n%s", err, stderrOf(err))
	}
	var inside audit.Report
	if err := json.Unmarshal(out, &inside); err != nil {
		t.Fatal(err)
	}
	conserved(t, &inside)
	samePages(t, "worker, from inside", process(t, &inside, 2).Pages, want)
	s.finish()
}

func rangeArg(r audit.Range) string { return fmt.Sprintf("%x-%x", uint64(r.Start), uint64(r.End)) }

func stderrOf(err error) string {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return string(e.Stderr)
	}
	return ""
}
