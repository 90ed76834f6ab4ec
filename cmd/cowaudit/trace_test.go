package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
)

// A command whose child copies 79 pages: traced, saved, shown in every format.
func TestTraceCommand(t *testing.T) {
	testkit.Require(t, "gcc", "trace")
	pages := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	for _, how := range [][]string{nil, {"--each-fault"}, {"--stacks"}} {
		file := filepath.Join(t.TempDir(), "trace.json")
		args := append(append([]string{"trace"}, how...), "--format", "json", "-o", file, "--",
			pages, "anon a 400", "write a 0 400 1", "file f 400", "write f 0 53 1", "fork w", "w: write a 0 79 2", "exit")
		_, stderr, code := runBinary(t, nil, append([]string{testkit.Binary(t)}, args...)...)
		if code != exitDone {
			t.Fatalf("%v: exit %d, stderr %q", how, code, stderr)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r audit.TraceReport
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		if err := audit.CheckTrace(&r); err != nil {
			t.Errorf("%v: %v", how, err)
		}
		// Beside the 79, the child copies what it runs on: stack, libraries' data.
		if r.Faults.Copied < 79 || r.Faults.Copied > 79+40 || r.Faults.File < 53 || r.Faults.Lost != 0 {
			t.Errorf("%v: %+v; want 79 copied and 53 private file pages, and few more", how, r.Faults)
		}
		// The command is over in some milliseconds, so its names may not have been read in time.
		for format, want := range map[string]string{"text": "copied pages: ", "folded": "pages-", "pprof": "\x1f\x8b", "json": `"kind": "trace"`} {
			stdout, stderr, code := runBinary(t, nil, testkit.Binary(t), "show", "--format", format, file)
			if code != exitDone || stderr != "" || !strings.Contains(stdout, want) {
				t.Errorf("%v: show --format %s: exit %d, stderr %q, no %q in %.200q", how, format, code, stderr, want, stdout)
			}
		}
	}
}

func TestTraceErrors(t *testing.T) {
	testkit.Require(t, "trace")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{}, exitUsage, "nothing to trace"},
		{[]string{"abc"}, exitUsage, "abc is not a PID"},
		{[]string{"4194304"}, exitNotMeasured, "no process 4194304"},
		{[]string{"1"}, exitUsage, "PID 1"},
		{[]string{"5", "--stacks"}, exitUsage, "options come first"},
		{[]string{"--gc-provider", "foo", "5"}, exitUsage, "one of auto, flag, symbols, usdt, none"},
		{[]string{"--", "no-such-program-here"}, exitNotMeasured, "start no-such-program-here"},
	} {
		stdout, stderr, code := runBinary(t, nil, append([]string{testkit.Binary(t), "trace"}, tt.args...)...)
		if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("trace %q: exit %d, stdout %q, stderr %q; want exit %d and %q", tt.args, code, stdout, stderr, tt.code, tt.want)
		}
	}
}
