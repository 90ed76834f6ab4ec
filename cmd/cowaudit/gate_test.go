package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cowaudit/audit"
	"cowaudit/pagemap"
	"cowaudit/report"
)

const gateFileGood = `scenarios = ["callcache-cold"]
workers = 2
[rounds]
min = 6
max = 20
[subjects.old]
ruby = "ruby3.1"
env = ["A=b"]
[[rules]]
name = "copies"
scenario = "callcache-cold"
region = "brk_heap"
max_bytes = "2 MiB"
max_increase_percent = 5
[[rules]]
name = "all"
max_increase_bytes = 4096
[[excuses]]
function = "f"
reason = "known"
expires = 2027-01-31
`

func TestGateFile(t *testing.T) {
	g, err := readGateFile("cowaudit.toml", strings.NewReader(gateFileGood))
	if err != nil {
		t.Fatal(err)
	}
	want := []audit.Limit{{Kind: audit.LimitMaxBytes, Value: 2 << 20}, {Kind: audit.LimitIncreasePercent, Value: 5}}
	if len(g.rules) != 2 || len(g.rules[0].Limits) != 2 || g.rules[0].Limits[0] != want[0] || g.rules[0].Limits[1] != want[1] {
		t.Errorf("%+v", g.rules)
	}
	if len(g.excuses) != 1 || g.excuses[0].Expires != "2027-01-31" || g.file.Subjects["old"].Ruby != "ruby3.1" || g.file.Rounds.Max != 20 {
		t.Errorf("%+v", g)
	}
}

// Each mistake is one line with its place, and wrong usage.
func TestGateFileErrors(t *testing.T) {
	rule := "[[rules]]\nname = \"r\"\n"
	for _, c := range []struct{ file, want string }{
		{"scenarios = [", "f.toml:1:"},
		{rule + "max_byte = 1\n", `f.toml:3:1: unknown key "rules.max_byte" (did you mean "max_bytes"?)`},
		{"sceanrios = []\n", `f.toml:1:1: unknown key "sceanrios" (did you mean "scenarios"?)`},
		{"workers = \"x\"\n", "f.toml:1:"},
		{"workers = -1\n" + rule + "max_bytes = 1\n", "f.toml:1: workers = -1: at least 1"},
		{"[rounds]\nmin = 7\nmax = 6\n", "f.toml:2: rounds.min = 7: at most rounds.max, 6"},
		{"scenarios = [\"callcache-cold\"]\napp = \"a.rb\"\n", "f.toml:2: app and preload load an application of your own: leave out scenarios"},
		{"event = \" \"\n", "f.toml:1: event: a value that is not empty"},
		{"timeout = \"1 day\"\n", "f.toml:1: timeout = \"1 day\": a time such as"},
		{"preloads = \"x\"\n", "(did you mean \"preload\"?)"},
		{"[subjects.a]\nenv = []\n", `f.toml:1: subject "a" has no ruby`},
		{"[subjects.a]\nruby = \"r\"\nenv = [\"x\"]\n", `f.toml:3: env "x": write it as K=V`},
		{"workers = 1\n", "f.toml: no rule"},
		{"workers = 1\nscenarios = [\"callcache-cool\"]\n", `f.toml:2: scenario "callcache-cool": one of callcache-cold`},
		{rule, `f.toml:1: rule "r" has no limit`},
		{"[[rules]]\nmax_bytes = 1\n", "f.toml:1: a rule without a name"},
		{rule + "max_bytes = 1\n" + rule + "max_bytes = 1\n", `f.toml:5: rule "r": the name is taken, by the rule in line 1`},
		{rule + "max_bytes = -1\n", `f.toml:3: rule "r": max_bytes: -1 is not 0 or more`},
		{rule + "max_bytes = \"2 MB\"\n", `f.toml:3: rule "r": max_bytes: "2 MB" is no amount of memory`},
		{rule + "max_bytes = true\n", `f.toml:3: rule "r": max_bytes: true is no number`},
		{rule + "max = 1\n", `f.toml:3: rule "r": copied_bytes is in bytes: use max_bytes`},
		{rule + "max_increase_percent = nan\n", `f.toml:3: rule "r": max_increase_percent: NaN is not 0 or more`},
		{rule + "region = \"brk_haep\"\nmax_bytes = 1\n", `(did you mean "brk_heap"?)`},
		{rule + "metric = \"peak\"\nregion = \"stack\"\nmax = 1\n", "f.toml:4: rule \"r\": only copied_bytes and new_bytes"},
		{rule + "metric = \"new_bytes\"\nfunction = \"f\"\nmax_bytes = 1\n", "f.toml:4: rule \"r\": only copied_bytes is known by function"},
		{"scenarios = [\"callcache-cold\"]\n" + rule + "scenario = \"callcache-cool\"\nmax_bytes = 1\n", `f.toml:4: rule "r": scenario "callcache-cool" is not one of scenarios, which are callcache-cold (did you mean "callcache-cold"?)`},
		{rule + "max_bytes = 1\n[[excuses]]\nfunction = \"f\"\nexpires = 2027-01-31\n", "f.toml:4: the excuse for f has no reason"},
		{rule + "max_bytes = 1\n[[excuses]]\nfunction = \"f\"\nreason = \"x\"\n", "f.toml:4: the excuse for f has no expires"},
		{rule + "max_bytes = 1\n[[excuses]]\nreason = \"x\"\n", "f.toml:4: an excuse names a function or a region"},
		{rule + "max_bytes = 1\n[[excuses]]\nregion = \"x\"\nreason = \"x\"\nexpires = 2027-01-31\n", `f.toml:5: region "x": one of brk_heap`},
	} {
		_, err := readGateFile("f.toml", strings.NewReader(c.file))
		if err == nil {
			t.Errorf("%q: no error", c.file)
			continue
		}
		line := lineOf(err)
		if !strings.Contains(line, c.want) || strings.Contains(line, "\n") || codeOf(err) != exitUsage {
			t.Errorf("%q: %d, %s, want %s", c.file, codeOf(err), line, c.want)
		}
	}
}

// gateFixture writes a fork test whose runs copied so many pages in the first major GC, and gives its file.
func gateFixture(t *testing.T, kernel string, pages ...int64) string {
	t.Helper()
	r := &audit.ForktestReport{
		SchemaVersion: audit.SchemaVersion, Kind: audit.KindForktest,
		Scenario: audit.Scenario{Name: "callcache-cold", Methods: 100, CallSites: 2, Workers: 1},
		Capture:  audit.Capture{Basis: audit.BasisBaseline, Kernel: kernel, PageSize: 4096},
	}
	for i, n := range pages {
		c := audit.Copied{SharedBefore: 9000, StillShared: 9000 - n, CopiedPages: n, CopiedBytes: pagemap.Bytes(n) * 4096, CopiedByWorker: n, Change: audit.Change{Identical: n}}
		r.Runs = append(r.Runs, audit.Run{Seq: i + 1, Events: []audit.Event{{Name: "first_major_gc", Copied: c, Regions: []audit.RegionDiff{{Kind: audit.RegionBrkHeap, Copied: c}}}}})
	}
	r.Summary = audit.Summarize(r.Runs, 4096)
	name := filepath.Join(t.TempDir(), "result.json")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(report.JSON(f, r), f.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

// gateRun runs the command and gives its exit code and what it wrote.
func gateRun(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(append([]string{"cowaudit", "gate"}, args...), strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func gateWrite(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "cowaudit.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Saved results alone decide, with the exit code of each verdict, and a baseline stands in for A.
func TestGateSaved(t *testing.T) {
	rules := gateWrite(t, "[[rules]]\nname = \"r\"\nmax_increase_bytes = \"1 MiB\"\n")
	small, large := gateFixture(t, "6.1", 100, 101, 102, 103, 104, 105), gateFixture(t, "6.1", 8000, 8001, 8002, 8003, 8004, 8005)
	other := gateFixture(t, "6.12", 100, 101, 102, 103, 104, 105)
	base := filepath.Join(t.TempDir(), "base")
	if code, _, errs := gateRun("--file", rules, "--save-baseline", base, small); code != exitDone {
		t.Fatalf("%d, %s", code, errs)
	}
	for _, c := range []struct {
		args []string
		code int
		out  string // in standard output or in the line on standard error
	}{
		{[]string{"--file", rules, small, large}, exitGateFailed, "the brk heap, identical pages"},
		{[]string{"--file", rules, "--explain", large, small}, exitDone, "p "},
		{[]string{"--file", rules, large}, exitNotMeasured, "only one was measured"},
		{[]string{"--file", rules, "--baseline", base, large}, exitGateFailed, "exceeds the limit of 1.0 MiB"},
		{[]string{"--file", rules, "--baseline", base, small}, exitDone, "PASS: 1 limit held"},
		{[]string{"--file", rules, "--format", "json", "--baseline", base, small}, exitDone, `"verdict": "pass"`},
		{[]string{"--file", rules, "--baseline", base, other}, exitNotMeasured, `kernel is "6.1" in A and "6.12" in B`},
		{[]string{"--file", rules, "--baseline", base, "--allow-other-environment", other}, exitDone, "! A and B differ beside the subject"},
		{[]string{"--file", rules, "--baseline", small, small}, exitNotMeasured, "is no baseline"},
		{[]string{"--file", rules, "--save-baseline", base, small}, exitUsage, "--save-baseline " + base + ": the file exists"},
		{[]string{"--file", rules, "--baseline", base, "--save-baseline", base, small}, exitUsage, "give one of them"},
		{[]string{"--file", rules, "--baseline", base, small, large}, exitUsage, "give one subject"},
		{[]string{"--file", rules, "--allow-other-environment", small}, exitUsage, "only together with --baseline"},
		{[]string{"--file", rules, "--rounds", "0", small}, exitUsage, "at least 1"},
		{[]string{"--file", rules}, exitUsage, "0 subjects given"},
		{[]string{"--file", rules, "missing.json"}, exitUsage, "no such file"},
		{[]string{"--file", "missing.toml", small}, exitUsage, "missing.toml: no such file"},
		{[]string{"--file", rules, "--baseline", "missing", small}, exitUsage, "missing: no such file"},
	} {
		code, out, errs := gateRun(c.args...)
		if code != c.code || !strings.Contains(out+errs, c.out) {
			t.Errorf("%q: %d, want %d with %q\n%s%s", c.args, code, c.code, c.out, out, errs)
		}
		if strings.Count(errs, "\n") > 1 {
			t.Errorf("%q: more than one line: %s", c.args, errs)
		}
	}
}
