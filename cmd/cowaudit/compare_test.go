package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
)

// Each mistake and each failure is one line, after what the application said itself, with the exit code that is documented.
func TestCompareFailures(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "ruby")
	bin := testkit.Binary(t)
	hangs := "Main = Process.pid; GC.singleton_class.prepend(Module.new { def start(**) = Process.pid == Main ? super : loop {} })"
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"one subject", []string{"ruby"}, exitUsage, "compare: two subjects, and not 1: give A and B"},
		{"empty subject", []string{"ruby", " "}, exitUsage, "compare: subject 2 is empty"},
		{"no rounds", []string{"--rounds", "0", "ruby", "ruby"}, exitUsage, "--rounds 0: at least 1"},
		{"no such file", []string{"missing.json", "ruby"}, exitUsage, "compare: missing.json: no such file"},
		{"no such scenario", []string{"--scenario", "hot", "ruby", "ruby"}, exitUsage, "there is no scenario hot for ruby"},
		{"no such Ruby", []string{"ruby", "ruby9.9"}, exitNotMeasured, "compare: B: no such command: ruby9.9"},
		{"no such root", []string{"ruby", "chroot /nowhere ruby"}, exitNotMeasured, "compare: B: warm-up run: chroot /nowhere ruby ended with status 125 while starting"},
		{"application raises", []string{"--preload", "raise 'no database'", "ruby", "ruby"}, exitNotMeasured, "compare: A: warm-up run: RuntimeError at --preload:1 while evaluating the preload expression: no database"},
		{"application raises on one side", []string{"--preload", "raise 'no cache' if ENV['B']", "--env-b", "B=1", "ruby", "ruby"}, exitNotMeasured, "compare: B: warm-up run: RuntimeError at --preload:1"},
		{"hangs in GC", []string{"--timeout", "2s", "--preload", hangs, "ruby", "ruby"}, exitNotMeasured, "compare: A: warm-up run: ruby did not answer within 2s while running the event first_major_gc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, code := runBinary(t, []string{"SUDO_UID="}, append([]string{bin, "compare"}, tt.args...)...)
			lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
			said := lines[:len(lines)-1]
			if code != tt.code || stdout != "" || !strings.Contains(lines[len(lines)-1], tt.want) || !strings.HasPrefix(lines[len(lines)-1], "cowaudit: ") {
				t.Errorf("exit %d, stdout %q, stderr\n%s\nwant %d and %q", code, stdout, stderr, tt.code, tt.want)
			}
			for i, l := range said {
				if i == 0 && l != "The application's last output:" || i > 0 && !strings.HasPrefix(l, "  | ") {
					t.Errorf("before the line: %q", l)
				}
			}
		})
	}
}

func readComparison(t *testing.T, file string) *audit.CompareReport {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := new(audit.CompareReport)
	if err := json.Unmarshal(b, r); err != nil {
		t.Fatal(err)
	}
	if err := audit.CheckCompare(r); err != nil {
		t.Error(err)
	}
	return r
}

// Interrupted in round 3, with two rounds saved: nothing of the subjects is left, the result says that it did not end, and it
// goes on from there.
func TestCompareInterruptedAndResumed(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "ruby")
	dir := t.TempDir()
	file, runs := filepath.Join(dir, "c.json"), filepath.Join(dir, "runs")
	// The sixth load of the application is the first one of round 3, after two that do not count.
	app := `n = File.exist?(ENV["RUNS"]) ? File.size(ENV["RUNS"]) : 0
	File.write(ENV["RUNS"], "x", mode: "a")
	if n == 6 then $stderr.puts "ROUND 3"; sleep end`
	args := []string{"compare", "--preload", app, "--env", "RUNS=" + runs, "--settle", "1", "--rounds", "4", "--trace", "never", "--format", "json", "-o", file}
	cmd := exec.Command(testkit.Binary(t), append(append([]string{}, args...), "--verbose", "ruby", "ruby")...)
	cmd.Env = append(os.Environ(), "SUDO_UID=")
	errs, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer errs.Close()
	var said []string
	// The end comes when nobody holds the other end any more, the subjects neither.
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		said = append(said, lines.Text())
		if lines.Text() == "ROUND 3" {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitNotMeasured || len(said) != 2 || said[1] != "cowaudit: interrupted: go on with --resume "+file {
		t.Fatalf("%v, stderr %q", err, said)
	}
	first := readComparison(t, file)
	if first.Rounds.Done != 2 || first.Rounds.Ended || len(first.A.Runs) != 2 || len(first.B.Runs) != 2 {
		t.Errorf("after the interrupt: %+v, %d and %d runs", first.Rounds, len(first.A.Runs), len(first.B.Runs))
	}
	stdout, stderr, code := runBinary(t, nil, testkit.Binary(t), "show", file)
	if code != exitDone || stderr != "" || !strings.Contains(stdout, "2 rounds") {
		t.Errorf("show: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if _, stderr, code = runBinary(t, []string{"SUDO_UID="}, append(append([]string{testkit.Binary(t)}, args...), "--resume", file, "ruby", "ruby -W0")...); code != exitUsage || !strings.Contains(stderr, `resume: B was "ruby"`) {
		t.Errorf("resumed with another subject: exit %d, %s", code, stderr)
	}
	_, stderr, code = runBinary(t, []string{"SUDO_UID="}, append(append([]string{testkit.Binary(t)}, args...), "--resume", file, "ruby", "ruby")...)
	if code != exitDone && code != exitNotMeasured {
		t.Fatalf("resumed: exit %d, %s", code, stderr)
	}
	last := readComparison(t, file)
	if last.Rounds.Done != 4 || !last.Rounds.Ended || len(last.A.Runs) != 4 {
		t.Errorf("resumed: %+v, %d runs, stderr %s", last.Rounds, len(last.A.Runs), stderr)
	}
	for i := range first.A.Runs {
		if first.A.Runs[i].Events[0].PID != last.A.Runs[i].Events[0].PID || last.A.Runs[i].Seq != i+1 {
			t.Errorf("round %d was measured again", i+1)
		}
	}
}

// What the tool is bought for, on the two builds of libruby that differ by one patch: the sentence names the event, the size, the
// region, what the writes changed and the function.
func TestComparePair(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "ruby-pair", "trace")
	pair := testkit.RubyPair(t)
	file := filepath.Join(t.TempDir(), "c.json")
	_, stderr, code := runBinary(t, []string{"SUDO_UID="}, testkit.Binary(t), "compare", "--env-a", pair.EnvA, "--env-b", pair.EnvB,
		"--trace", "always", "--format", "json", "-o", file, pair.Command, pair.Command)
	if code != exitDone {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	r := readComparison(t, file)
	t.Log(r.Conclusion)
	if r.Verdict != audit.VerdictBetter || r.SameBuild || !strings.HasPrefix(r.Conclusion, "B copies ") || !strings.Contains(r.Conclusion, " MiB less in the first major GC (") ||
		!strings.HasSuffix(r.Conclusion, "; the whole difference is in the brk heap, identical pages written by rb_iseq_mark_and_move.") {
		t.Errorf("%s: %s", r.Verdict, r.Conclusion)
	}
}
