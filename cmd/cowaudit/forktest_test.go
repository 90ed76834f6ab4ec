package main

import (
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

func TestForktestRefuses(t *testing.T) {
	bin := testkit.Binary(t)
	tests := []struct {
		name string
		args []string
		want string // the whole of standard error
	}{
		{"argument", []string{"ruby3.4"}, "forktest: ruby3.4 is one argument too many: the Ruby is named with --ruby ruby3.4"},
		{"settle", []string{"--settle", "often"}, `--settle "often": until-quiet, or a number of collections from 0 to 1000`},
		{"no runs", []string{"--runs", "0"}, "--runs 0: at least 1"},
		{"too many workers", []string{"--workers", "100"}, "forktest: 100 workers: from 1 to 64"},
		{"timeout", []string{"--timeout", "0s"}, "--timeout 0s: more than nothing"},
		{"empty subject", []string{"--ruby", " "}, "--ruby: a value that is not empty"},
		{"quotes", []string{"--ruby", "ruby 'x"}, `forktest: split "ruby 'x" into words: a quote (') is not closed`},
		{"runtime", []string{"--runtime", "perl"}, "--runtime perl: one of auto, ruby, python, script"},
		{"environment", []string{"--env", "A=1,2", "--env", "B"}, `forktest: environment "B": K=V`},
		{"scenario", []string{"--scenario", "hot"}, "forktest: there is no scenario hot for ruby: it has callcache-cold, callcache-warm, inline-cache, coderange, compact-each-fork, exit, alloc-debt, fragmentation, retention, leak-or-plateau"},
		{"no such application", []string{"--app", "/nowhere/app.rb"}, "forktest: application /nowhere/app.rb: no such file or directory: one that only the subject's own root has is loaded with --preload"},
		{"sizes of another scenario", []string{"--preload", "1", "--methods", "5"}, "forktest: methods and call sites are sizes of the scenarios callcache-cold, callcache-warm and inline-cache"},
		{"chroot as a user", []string{"--ruby", "chroot /srv/r ruby3.3", "--user", "65534"}, "forktest: chroot /srv/r ruby3.3: only root may chroot, and the application runs as nobody: give --user root"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "chroot as a user" {
				testkit.Require(t, "root")
			}
			stdout, stderr, code := runBinary(t, nil, append([]string{bin, "forktest"}, tt.args...)...)
			if code != exitUsage || stdout != "" || stderr != "cowaudit: "+tt.want+"\n" {
				t.Errorf("exit %d, stdout %q, stderr\n%s\nwant\ncowaudit: %s", code, stdout, stderr, tt.want)
			}
		})
	}
}

func TestForktestJSON(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "ruby")
	file := filepath.Join(t.TempDir(), "result.json")
	stdout, stderr, code := runBinary(t, []string{"SUDO_UID="}, testkit.Binary(t), "forktest", "--runs", "2", "--workers", "2", "--methods", "100",
		"--env", "GREETING=hello, world", "--preload", "raise unless ENV['GREETING'] == 'hello, world'", "--scenario", "callcache-cold",
		"--settle", "4", "--format", "json", "-o", file)
	if code != exitDone || stdout != "" || stderr != "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r audit.ForktestReport
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if err := audit.CheckForktest(&r); err != nil {
		t.Error(err)
	}
	want := audit.Scenario{Name: "callcache-cold", AppSHA256: r.Scenario.AppSHA256, Methods: 100, CallSites: 2000, SettleRuns: 4, SettleLimit: "4", Workers: 2}
	if r.Scenario != want || r.Kind != "forktest" || r.Subject.Name != "ruby" || len(want.AppSHA256) != 64 || len(r.Runs) != 2 || len(r.Runs[1].Events) != 6 || len(r.Summary.Events) != 3 {
		t.Errorf("%+v %+v, %d runs", r.Subject, r.Scenario, len(r.Runs))
	}
	// What was saved can be shown.
	stdout, stderr, code = runBinary(t, nil, testkit.Binary(t), "show", file)
	if code != exitDone || stderr != "" || !strings.Contains(stdout, "first major GC") {
		t.Errorf("show: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// A failure is exit 3: the application's last output, then one line.
func TestForktestFailure(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "ruby")
	app := filepath.Join(t.TempDir(), "app.rb")
	if err := os.WriteFile(app, []byte("puts \"connecting\"\nwarn \"\\e[31mrefused\\e[0m\"\nexit! 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const line = "cowaudit: forktest: run 1: ruby ended with status 7 while loading the application; its last output: \"[31mrefused[0m\"\n"
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"quiet":   {nil, "The application's last output:\n  | connecting\n  | [31mrefused[0m\n" + line},
		"verbose": {[]string{"--verbose"}, "connecting\n\x1b[31mrefused\x1b[0m\n" + line},
	} {
		stdout, stderr, code := runBinary(t, []string{"SUDO_UID="}, append([]string{testkit.Binary(t), "forktest", "--app", app}, tt.args...)...)
		if code != exitNotMeasured || stdout != "" || stderr != tt.want {
			t.Errorf("%s: exit %d, stdout %q, stderr\n%q\nwant\n%q", name, code, stdout, stderr, tt.want)
		}
	}
}

// Without frame numbers nothing is started.
func TestForktestWithoutPrivilege(t *testing.T) {
	testkit.Require(t, "root", "setpriv")
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(os.TempDir(), "cowaudit-forktest-started-"+filepath.Base(filepath.Dir(dir)))
	stdout, stderr, code := runBinary(t, []string{"SUDO_UID="}, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
		testkit.Binary(t), "forktest", "--ruby", "touch "+mark)
	if code != exitNotMeasured || stdout != "" || !strings.Contains(stderr, "frame numbers are hidden") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if _, err := os.Stat(mark); err == nil {
		os.Remove(mark)
		t.Error("the subject was started")
	}
}

// An interrupt ends the subject too.
func TestForktestInterrupted(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "ruby")
	cmd := exec.Command(testkit.Binary(t), "forktest", "--verbose", "--preload", "$stderr.puts 'READY'; sleep")
	cmd.Env = append(os.Environ(), "SUDO_UID=")
	var errs strings.Builder
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer r.Close()
	buf := make([]byte, 4096)
	signalled := false
	for {
		n, err := r.Read(buf)
		errs.Write(buf[:n])
		if !signalled && strings.Contains(errs.String(), "READY\n") {
			signalled = true
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
		if err != nil {
			break // the end: nobody holds the other end any more, the subject neither
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitNotMeasured || errs.String() != "READY\ncowaudit: interrupted\n" {
		t.Errorf("%v, stderr %q", err, errs.String())
	}
}
