package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
	"cowaudit/report"
)

// runProgram runs the program in this process.
func runProgram(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = run(append([]string{"cowaudit"}, args...), strings.NewReader(""), &out, &errs)
	return out.String(), errs.String(), code
}

// must runs the program, which must succeed and say nothing on standard error.
func must(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := runProgram(args...)
	if code != exitDone || stderr != "" {
		t.Fatalf("cowaudit %s: exit %d, stderr %q", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// loaded reads a result that the program wrote as JSON.
func loaded[T any](t *testing.T, s string) T {
	t.Helper()
	v, err := report.Load(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	r, ok := v.(T)
	if !ok {
		t.Fatalf("a %T", v)
	}
	return r
}

// workload starts the program with exact page counts.
func workload(t *testing.T, statements ...string) *testkit.Staged {
	t.Helper()
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"))
	return testkit.Stages(t, append([]string{bin}, statements...)...)
}

func rangeArg(r testkit.Range) string { return fmt.Sprintf("%x-%x", r.Start, r.End) }

// A master with two workers; w1 writes 211 pages and, between the stages, 23 more; the master 31.
var familyStatements = []string{
	"anon A 701", "write A 0 701 1", "fork w1", "fork w2", "w1: write A 0 211 2", "write A 300 331 3", "stage one",
	"w1: write A 500 523 4", "w2: words A 600 607 0", "stage two",
}

func TestAuditOfKnownFamily(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "kpageflags", "gcc")
	s := workload(t, familyStatements...)
	one := s.To("one")
	master, w1, w2 := one.Named["m"], one.Named["w1"], one.Named["w2"]
	pid, rng := strconv.Itoa(master), rangeArg(one.Regions["A"])

	r := loaded[*audit.Report](t, must(t, "audit", "--format", "json", "--range", rng, pid))
	want := map[int]audit.Pages{
		master: {Shared: 670, Unshared: 31, Held: 701, Private: 31},
		w1:     {Shared: 459, Copied: 242, CopiedByWorker: 211, CopiedByReference: 31, Held: 701, Private: 211, SharedWithSiblings: 31},
		w2:     {Shared: 670, Copied: 31, CopiedByReference: 31, Held: 701, SharedWithSiblings: 31},
	}
	for i := range r.Family {
		p := &r.Family[i]
		if d := cmp.Diff(want[int(p.PID)], p.Pages); d != "" {
			t.Errorf("process %d (-want +got):\n%s", p.PID, d)
		}
		delete(want, int(p.PID))
	}
	if len(want) > 0 {
		t.Errorf("not in the result: %v", want)
	}
	if r.Version != version() || r.Range == nil || r.Capture.Basis != audit.BasisSingle {
		t.Errorf("version %q, range %v, basis %q", r.Version, r.Range, r.Capture.Basis)
	}

	text := must(t, "audit", "--range", rng, pid)
	for _, row := range []string{
		fmt.Sprintf(`(?m)^ *%d +master +2804 +2680 +96%% +- +- +- +- +124 +0 +124$`, master),
		fmt.Sprintf(`(?m)^ *%d +worker +2804 +1836 +65%% +968 +844 +124 +0 +0 +0 +844$`, w1),
		fmt.Sprintf(`(?m)^ *%d +worker +2804 +2680 +96%% +124 +0 +124 +0 +0 +0 +0$`, w2),
		`(?m)^TOTAL +8412 +7196 `,
	} {
		if !regexp.MustCompile(row).MatchString(text) {
			t.Errorf("no row %s in\n%s", row, text)
		}
	}

	alone := loaded[*audit.Report](t, must(t, "audit", "--format", "json", "--alone", "--contents=false", pid))
	if len(alone.Family) != 1 || alone.Capture.Contents {
		t.Errorf("--alone --contents=false: %d processes, contents compared: %v", len(alone.Family), alone.Capture.Contents)
	}
	given := loaded[*audit.Report](t, must(t, "audit", "--format", "json", "--range", rng, "--reference", strconv.Itoa(w1), strconv.Itoa(w2)))
	for i := range given.Family {
		if p := &given.Family[i]; int(p.PID) == w2 && (int(p.ReferencePID) != w1 || p.ReferenceBasis != pagemap.ReferenceGiven || p.Pages.Shared != 490) {
			t.Errorf("--reference: reference %d (%s), shared %d, want %d, given and 490", p.ReferencePID, p.ReferenceBasis, p.Pages.Shared, w1)
		}
	}
	s.Finish()
}

func TestSnapshotDiffShow(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "kpageflags", "gcc")
	dir := t.TempDir()
	before, after, saved := filepath.Join(dir, "before.cow"), filepath.Join(dir, "after.cow"), filepath.Join(dir, "diff.json")
	s := workload(t, familyStatements...)
	one := s.To("one")
	pid, rng := strconv.Itoa(one.Named["m"]), rangeArg(one.Regions["A"])
	if out := must(t, "snapshot", "-o", before, pid); out != "" {
		t.Errorf("snapshot printed %q", out)
	}
	s.To("two")
	must(t, "snapshot", "-o", after, pid)
	s.Finish()

	out := must(t, "diff", "--format", "json", "--range", rng, before, after)
	r := loaded[*audit.DiffReport](t, out)
	got := map[pagemap.PID][4]int64{}
	for i := range r.Family {
		p := &r.Family[i]
		got[p.PID] = [4]int64{p.SharedBefore, p.CopiedPages, p.CopiedByWorker, p.Change.Identical}
	}
	want := map[pagemap.PID][4]int64{pagemap.PID(one.Named["w1"]): {459, 23, 23, 0}, pagemap.PID(one.Named["w2"]): {670, 7, 7, 7}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("shared before, copied, by the worker, identical (-want +got):\n%s", d)
	}

	// A saved result is shown as it is, and as text.
	if err := os.WriteFile(saved, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := must(t, "show", "--format", "json", saved); again != out {
		t.Errorf("shown again it differs:\n%s", cmp.Diff(out, again))
	}
	if d := cmp.Diff(must(t, "diff", "--range", rng, before, after), must(t, "show", saved)); d != "" {
		t.Errorf("diff and show of the saved diff (-diff +show):\n%s", d)
	}

	// A snapshot is audited when it is shown.
	shown := loaded[*audit.Report](t, must(t, "show", "--format", "json", before))
	if len(shown.Family) != 3 || !shown.Capture.Contents || shown.Totals.Pages.Copied < 242+31 {
		t.Errorf("show of a snapshot: %d processes, contents %v, %d pages copied", len(shown.Family), shown.Capture.Contents, shown.Totals.Pages.Copied)
	}
	piped, stderr, code := runWithInput(t, before, "show", "--format", "json", "-")
	if code != exitDone || stderr != "" || piped != must(t, "show", "--format", "json", before) {
		t.Errorf("show of standard input: exit %d, stderr %q", code, stderr)
	}

	// What cannot be right is refused in one line.
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"diff", after, before}, exitUsage, "after.cow was taken "},
		{[]string{"diff", before, saved}, exitNotMeasured, "not a snapshot file: bad format: give a file that \"cowaudit snapshot\" wrote"},
		{[]string{"snapshot", "-o", before, pid}, exitUsage, "the file exists: give --force to overwrite it"},
		{[]string{"diff", "--range", "1-2", before, after}, exitUsage, "not the start of a page (page size 4096)"},
	} {
		stdout, stderr, code := runProgram(tt.args...)
		if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", tt.args, code, stdout, stderr)
		}
	}
}

func runWithInput(t *testing.T, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out, errs bytes.Buffer
	code = run(append([]string{"cowaudit"}, args...), f, &out, &errs)
	return out.String(), errs.String(), code
}

// Snapshots of two families have nothing to be compared.
func TestDiffOfUnrelatedSnapshots(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "gcc")
	dir := t.TempDir()
	var files []string
	for i := range 2 {
		s := workload(t, "anon A 11", "write A 0 11 1", "fork w", "stage up")
		files = append(files, filepath.Join(dir, fmt.Sprint(i)))
		must(t, "snapshot", "-o", files[i], strconv.Itoa(s.To("up").Named["m"]))
		s.Finish()
	}
	stdout, stderr, code := runProgram("diff", files[0], files[1])
	if code != exitNotMeasured || stdout != "" || !strings.HasSuffix(stderr, "the two snapshots have no process in common: take both of one family, with no restart between them\n") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// Without a PID the forking families are listed, this one among them, with the way on.
func TestAuditListsFamilies(t *testing.T) {
	testkit.Require(t, "root", "gcc")
	s := workload(t, "fork a", "fork b", "a: fork c", "stage up")
	master := pagemap.PID(s.To("up").Named["m"])
	r := loaded[*audit.FamiliesReport](t, must(t, "audit", "--format", "json"))
	found := false
	for _, f := range r.Families {
		if f.PID == master {
			found = true
			if f.Workers != 3 || f.RSS <= 0 || !strings.Contains(f.Command, "stage up") {
				t.Errorf("%+v", f)
			}
		}
	}
	if !found {
		t.Errorf("process %d is not in %+v", master, r.Families)
	}
	if text := must(t, "audit", "--all"); !regexp.MustCompile(fmt.Sprintf(`(?m)^ *%d +3 +\S+ .iB +\S`, master)).MatchString(text) || !strings.Contains(text, "\n  cowaudit audit ") {
		t.Errorf("text:\n%s", text)
	}
	s.Finish()
}

func TestFamilyCommandsRefuse(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte("no result\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args string
		code int
		want string // the end of the one line
	}{
		{"audit x", exitUsage, `audit: x is not a PID: "cowaudit audit" without one lists the forking families`},
		{"audit 0", exitUsage, `0 is not a PID: "cowaudit audit" without one lists the forking families`},
		{"audit 4194305", exitUsage, `4194305 is not a PID: "cowaudit audit" without one lists the forking families`},
		{"audit -- -5", exitUsage, `-5 is not a PID: "cowaudit audit" without one lists the forking families`},
		{"audit 4194304", exitNotMeasured, `"cowaudit audit" without a PID lists the forking families`},
		{"audit --reference 0 " + self, exitUsage, "--reference 0 is not a PID"},
		{"audit --reference x " + self, exitUsage, `lists the options`},
		{"audit --reference 4194304 " + self, exitNotMeasured, `"cowaudit audit" without a PID lists the forking families`},
		{"audit --range 1000 " + self, exitUsage, "--range 1000: no range: write two addresses like 7f1200000000-7f1240000000"},
		{"audit --range 2000-1000 " + self, exitUsage, "the end does not lie behind the start: write two addresses like 7f1200000000-7f1240000000"},
		{"audit --range 1000-1000 " + self, exitUsage, "the end does not lie behind the start: write two addresses like 7f1200000000-7f1240000000"},
		{"audit --range 1000-x " + self, exitUsage, `"x" is no address: write two addresses like 7f1200000000-7f1240000000`},
		{"audit --range 1000-fffffffffffffffff " + self, exitUsage, `"fffffffffffffffff" is no address: write two addresses like 7f1200000000-7f1240000000`},
		{"audit --range 1-100000 " + self, exitUsage, "write two addresses like 7f1200000000-7f1240000000"},
		{"audit --range 1000-2000", exitUsage, `--range without a PID: "cowaudit audit" alone lists the forking families`},
		{"audit --mappings", exitUsage, `--mappings without a PID: "cowaudit audit" alone lists the forking families`},
		{"audit --format xml " + self, exitUsage, "--format xml: one of text, json"},
		{"audit " + self + " --mappings", exitUsage, "options come first: cowaudit audit --mappings " + self},
		{"snapshot", exitUsage, `snapshot: no PID: "cowaudit audit" lists the forking families`},
		{"snapshot -o " + dir + " " + self, exitUsage, "is a folder: give the name of a file"},
		{"diff", exitUsage, "diff: 0 files given: give two snapshots, the earlier one first"},
		{"diff - -", exitUsage, "standard input holds one snapshot: give a file for the other"},
		{"diff " + junk + " " + dir, exitNotMeasured, `give a file that "cowaudit snapshot" wrote`},
		{"show", exitUsage, "show: 0 files given: give one, a saved result or a snapshot"},
		{"show " + filepath.Join(dir, "none"), exitUsage, "none: no such file"},
		{"show " + dir, exitUsage, "is a folder: give a file"},
		{"show " + junk, exitNotMeasured, `give a file that a command wrote with --format json, or that "cowaudit snapshot" wrote`},
		{"show -", exitNotMeasured, `give a file that a command wrote with --format json, or that "cowaudit snapshot" wrote`},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			stdout, stderr, code := runProgram(strings.Fields(tt.args)...)
			if code != tt.code || stdout != "" || !strings.HasSuffix(stderr, tt.want+"\n") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit %d, want %d; stdout %q; stderr %q, want the end %q", code, tt.code, stdout, stderr, tt.want)
			}
		})
	}
}

// A zombie cannot be audited: the result says so, the line too, and the exit code.
func TestAuditOfZombie(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "gcc")
	s := workload(t, "fork z", "z: die", "stage dead")
	z := strconv.Itoa(s.To("dead").Named["z"])
	stdout, stderr, code := runProgram("audit", z)
	if code != exitNotMeasured || stderr != "cowaudit: audit: process "+z+": zombie: it has exited and holds no memory: give the PID of a running program\n" {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
	if !strings.Contains(stdout, "NOT AUDITED\n"+z+" (") {
		t.Errorf("stdout:\n%s", stdout)
	}
	file := filepath.Join(t.TempDir(), "z.cow")
	if _, stderr, code := runProgram("snapshot", "-o", file, z); code != exitNotMeasured || strings.Count(stderr, "\n") != 1 {
		t.Errorf("snapshot: exit %d, stderr %q", code, stderr)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) > 0 {
		t.Errorf("snapshot left %v (%v)", left, err)
	}
	s.Finish()
}

// Without frame numbers audit shows what is known all the same, says at the top what is not, and exits with 3; snapshot
// writes nothing.
func TestFamilyCommandsWithoutPrivilege(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "setpriv", "python3")
	nobody := []string{testkit.Program(t, "setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups"}
	script := `import mmap,os,signal
n=64
m=mmap.mmap(-1,n*mmap.PAGESIZE,flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS)
for i in range(n): m[i*mmap.PAGESIZE]=1
if os.fork()==0:
    for i in range(40): m[i*mmap.PAGESIZE]=2
    print("READY",flush=True)
signal.pause()`
	p := testkit.Start(t, append(nobody, testkit.Program(t, "python3"), "-c", script)...)
	p.WaitLine("READY")
	bin, pid := testkit.Binary(t), strconv.Itoa(p.PID())
	stdout, stderr, code := runBinary(t, nil, append(nobody, bin, "audit", "--format", "json", pid)...)
	if code != exitNotMeasured || !strings.HasPrefix(stderr, "cowaudit: audit: frame numbers are hidden: needs CAP_SYS_ADMIN") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
	r := loaded[*audit.Report](t, stdout)
	w := r.Totals.Pages
	if r.Capture.FramesVisible || w.Shared+w.Copied+w.New != 0 || w.Unknown < 128 || w.Private < 80 || r.Findings[0].Code != "frames_hidden" {
		t.Errorf("frames visible %v, totals %+v, findings %v", r.Capture.FramesVisible, w, r.Findings)
	}
	text, _, _ := runBinary(t, nil, append(nobody, bin, "audit", pid)...)
	if lines := strings.Split(text, "\n"); len(lines) < 6 || !strings.HasPrefix(lines[3], "* Frame numbers are hidden") || !strings.Contains(text, "→ Run as root, or with CAP_SYS_ADMIN") {
		t.Errorf("text:\n%s", text)
	}
	stdout, stderr, code = runBinary(t, nil, append(nobody, bin, "snapshot", pid)...)
	if code != exitNotMeasured || stdout != "" || !strings.Contains(stderr, "frame numbers are hidden") {
		t.Errorf("snapshot: exit %d, stdout %d bytes, stderr %q", code, len(stdout), stderr)
	}
}
