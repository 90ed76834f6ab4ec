package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"cowaudit/audit"
	"cowaudit/internal/demoserver"
	"cowaudit/internal/host"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// runBinary runs the program as it is shipped: demo starts it again as its server.
func runBinary(t *testing.T, env []string, argv ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestDemoEqualsTruth(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "kpageflags")
	stdout, stderr, code := runBinary(t, nil, testkit.Binary(t), "demo", "--no-ruby", "--format", "json")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	var r demoReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.Kind != "demo" || r.SchemaVersion != audit.SchemaVersion || !r.Agrees {
		t.Errorf("kind %q, schema_version %d, agrees %v", r.Kind, r.SchemaVersion, r.Agrees)
	}
	if want := len(demoWords) * 4 * 3; len(r.Truth) != want {
		t.Errorf("%d rows, want %d", len(r.Truth), want)
	}
	got := map[string]int64{}
	for _, row := range r.Truth {
		if !row.OK || row.Truth != row.Measured {
			t.Errorf("%+v", row)
		}
		got[row.Process+" "+row.Word] += row.Measured
	}
	zero, err := host.ZeroPage()
	if err != nil {
		t.Fatal(err)
	}
	if !zero { // then what is only read is new too
		got["worker 3 new"], got["worker 3 zero"] = got["worker 3 new"]-23, got["worker 3 zero"]+23
	}
	for what, want := range map[string]int64{
		"worker 1 copied_by_worker": 211, "worker 2 copied_by_worker": 307, "worker 2 identical": 307, "worker 1 rewritten": 211,
		"worker 1 copied_by_reference": 101, "worker 3 one_word": 101, "worker 3 new": 401, "worker 3 dropped": 89,
		"worker 3 zero": 23, "worker 3 file": 53, "worker 2 kept": 61, "worker 1 shared": 1619, "master unshared": 101,
	} {
		if got[what] != want {
			t.Errorf("%s: %d, want %d", what, got[what], want)
		}
	}
	if r.Audit == nil {
		t.Fatal("no audit report")
	}
	if err := audit.Check(r.Audit); err != nil {
		t.Errorf("the audit report: %v", err)
	}
	for _, p := range r.Audit.Family {
		if p.Rollup == nil || !p.Rollup.Agrees {
			t.Errorf("process %d: smaps_rollup: %+v", p.PID, p.Rollup)
		}
	}
}

func TestDemoText(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "kpageflags")
	stdout, stderr, code := runBinary(t, []string{"PATH=/nonexistent"}, testkit.Binary(t), "demo")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	for _, want := range []string{
		"All 312 counts (26 words, 4 processes, 3 mappings in each) equal the truth.\n",
		"worker 2  wrote 307 pages, with what was there\n",
		"shared                1,830 1,619 1,523 1,741    1,830 1,619 1,523 1,741  ok\n",
		"WHO SHARES WHAT",
		"No Ruby was found in PATH, so the fork test was left out:\ninstall one",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("not in the text: %q", want)
		}
	}
	for line := range strings.Lines(stdout) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

func TestDemoToFile(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "kpageflags")
	file := t.TempDir() + "/demo.txt"
	stdout, stderr, code := runBinary(t, []string{"PATH=/nonexistent"}, testkit.Binary(t), "demo", "-o", file)
	if code != 0 || stdout+stderr != "" {
		t.Fatalf("exit %d, output %q", code, stdout+stderr)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"A built-in server", "WHO SHARES WHAT", "No Ruby was found"} {
		if n := bytes.Count(b, []byte(part)); n != 1 {
			t.Errorf("%q is %d times in the file", part, n)
		}
	}
}

func TestDemoRuby(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "kpageflags", "ruby")
	stdout, stderr, code := runBinary(t, nil, testkit.Binary(t), "demo", "--runs", "1", "--format", "json")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	var r demoReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.Forktest == nil {
		t.Fatal("no fork test")
	}
	if err := audit.CheckForktest(r.Forktest); err != nil {
		t.Errorf("the fork test's report: %v", err)
	}
	var names []string
	for _, e := range r.Forktest.Summary.Events {
		names = append(names, e.Name)
	}
	if got := strings.Join(names, " "); got != "null first_major_gc second_major_gc" || len(r.Forktest.Runs) != 1 {
		t.Errorf("events %q in %d runs", got, len(r.Forktest.Runs))
	}
}

func TestDemoErrors(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "setpriv")
	demo := []string{testkit.Binary(t), "demo"}
	nobody := append([]string{testkit.Program(t, "setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups"}, demo...)
	for _, c := range []struct {
		name string
		argv []string
		code int
		want string
	}{
		{"frame numbers hidden", append(nobody, "--no-ruby"), exitNotMeasured,
			"cowaudit: demo: frame numbers are hidden: needs CAP_SYS_ADMIN in the initial user namespace: run it as root"},
		{"argument", append(demo, "now"), exitUsage, "cowaudit: demo: it takes no arguments, and was given now\n"},
		{"no runs", append(demo, "--runs", "0"), exitUsage, "cowaudit: demo: --runs 0: 1 or more\n"},
		{"no such Ruby", append(demo, "--ruby", "/nonexistent/ruby"), exitNotMeasured, "/nonexistent/ruby"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, stderr, code := runBinary(t, nil, c.argv...)
			if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit %d, stderr %q; want exit %d, %q", code, stderr, c.code, c.want)
			}
		})
	}
}

// TestDemoTellsDifferences falsifies one count after the other.
func TestDemoTellsDifferences(t *testing.T) {
	truth, r := demoFixture()
	rows, err := compareDemo(truth, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if !row.OK {
			t.Fatalf("the fixture is wrong: %+v", row)
		}
	}
	for i, falsify := range []func(m *audit.Mapping){
		func(m *audit.Mapping) { m.Pages.Shared++ },
		func(m *audit.Mapping) { m.Pages.Copied-- },
		func(m *audit.Mapping) { m.Pages.Unknown = 1 },
		func(m *audit.Mapping) { m.Pages.CopiedByUndetermined = 2 },
		func(m *audit.Mapping) { m.Change.NotCompared = 3 },
		func(m *audit.Mapping) { m.Change.Identical, m.Change.OneWord = m.Change.OneWord, m.Change.Identical },
		func(m *audit.Mapping) { m.Start-- },
	} {
		truth, r := demoFixture()
		falsify(&r.Family[1].Mappings[1])
		rows, err := compareDemo(truth, r)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := writeTruth(&b, truth, rows); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "DIFFER from the truth") || !strings.Contains(b.String(), "WRONG") || strings.Contains(b.String(), "equal the truth") {
			t.Errorf("falsification %d is not told:\n%s", i, b.String())
		}
	}
	r.Family = r.Family[:1]
	if _, err := compareDemo(truth, r); err == nil {
		t.Error("a worker that is missing in the audit is not told")
	}
}

// demoFixture is a master and a worker that copied 5 of 7 pages.
func demoFixture() (*demoserver.Truth, *audit.Report) {
	region := demoserver.Region{Name: "heap", Start: 0x10000, End: 0x17000}
	truth := &demoserver.Truth{PageSize: 4096, Regions: []demoserver.Region{region}, Processes: []demoserver.Process{
		{PID: 10, Name: "master", Regions: []demoserver.Counts{{Shared: 2, Unshared: 5, Private: 5, Held: 7}}},
		{PID: 11, Name: "worker 1", Regions: []demoserver.Counts{{Shared: 2, Copied: 5, CopiedByWorker: 5, Identical: 5, Private: 5, Held: 7}}},
	}}
	outside := audit.Mapping{Start: 0x8000, End: 0x10000, Pages: audit.Pages{Shared: 8, Held: 8}}
	mapping := func(p audit.Pages, c audit.Change) audit.Mapping {
		return audit.Mapping{Start: region.Start, End: region.End, Pages: p, Change: &c}
	}
	return truth, &audit.Report{Capture: audit.Capture{PageSize: 4096}, Family: []audit.Process{
		{PID: 10, State: pagemap.StateAudited, Mappings: []audit.Mapping{outside,
			mapping(audit.Pages{Shared: 2, Unshared: 5, Private: 5, Held: 7}, audit.Change{})}},
		{PID: 11, State: pagemap.StateAudited, Mappings: []audit.Mapping{outside,
			mapping(audit.Pages{Shared: 2, Copied: 5, CopiedByWorker: 5, Private: 5, Held: 7}, audit.Change{Identical: 5})}},
	}}
}
