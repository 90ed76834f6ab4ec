package oracle

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// command runs the binary and decodes its JSON. The exit code is checked; standard error is returned.
func command(t *testing.T, result any, code int, user *syscall.Credential, args ...string) string {
	t.Helper()
	cmd := exec.Command(testkit.Binary(t), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("cowaudit %v: exit code %d, want %d\n%s%s", args, got, code, &stdout, &stderr)
	}
	if result != nil {
		if err := json.Unmarshal([]byte(stdout.String()), result); err != nil {
			t.Fatalf("cowaudit %v: %v\n%s", args, err, &stdout)
		}
	}
	return stderr.String()
}

func pidArgs(pids []pagemap.PID) []string {
	var out []string
	for _, p := range pids {
		out = append(out, fmt.Sprint(p))
	}
	return out
}

// From the command line to the JSON, on case 12: the ledger from one capture, and what a capture from before adds.
func TestCommandsOnCase12(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	s := caseC(t, "12-remap-same-address.c")
	dir := t.TempDir()
	file := func(st stage) string { return filepath.Join(dir, strings.Map(plain, st.name)) }
	take := func(st stage) {
		command(t, nil, 0, nil, append([]string{"snapshot", "-o", file(st)}, pidArgs(st.pids)...)...)
	}
	forked := s.to("after-fork")
	take(forked)
	remapped := s.to("child-remapped-50..149")
	take(remapped)
	wrote := s.to("child-wrote-50..89-and-0..9")
	take(wrote)
	rng := rangeArg(wrote.regions["R"])

	var r audit.Report
	command(t, &r, 0, nil, append([]string{"audit", "--format", "json", "--range", rng}, pidArgs(wrote.pids)...)...)
	conserved(t, &r)
	if r.Kind != audit.KindAudit || r.SchemaVersion != audit.SchemaVersion || r.Capture.Basis != audit.BasisSingle {
		t.Errorf("kind %s, schema %d, basis %s", r.Kind, r.SchemaVersion, r.Capture.Basis)
	}
	samePages(t, "audit", process(t, &r, wrote.pids[1]).Pages,
		sums(audit.Pages{Shared: 90, Copied: 50, CopiedByWorker: 50, Dropped: 60, Private: 50}))

	for _, c := range []struct {
		from, to stage
		want     audit.Copied
	}{
		{forked, remapped, audit.Copied{StillShared: 100, DroppedPages: 100}},
		// The case writes bytes 0 and 8 to 10 of each page.
		{remapped, wrote, audit.Copied{StillShared: 90, CopiedPages: 10, CopiedByWorker: 10, NewPages: 40, Change: audit.Change{FewWords: 10}}},
	} {
		var d audit.DiffReport
		command(t, &d, 0, nil, "diff", "--format", "json", "--range", rng, file(c.from), file(c.to))
		conservedDiff(t, &d)
		if d.Kind != audit.KindDiff {
			t.Errorf("kind %s", d.Kind)
		}
		sameCopied(t, c.from.name+" to "+c.to.name, processDiff(t, &d, wrote.pids[1]).Copied, copied(c.want))
	}
	s.finish()
}

func plain(r rune) rune {
	if r == '.' || r == '-' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') {
		return r
	}
	return '_'
}

// What cannot be measured at all ends with exit code 3 and a line that says why, never with "0 copied".
func TestCommandOnWhatCannotBeRead(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	s := pages(t, "anon A 97", "write A 0 97 1", "fork z", "z: die", "stage dead")
	st := s.to("dead")
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		pid  int
		says string
	}{
		{"zombie", int(st.names["z"]), "zombie"},
		{"kernel thread", 2, "kernel thread"},
		{"gone", gone.Process.Pid, "gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "kernel thread" {
				if k, err := proc.Stat(2); err != nil || !k.KernelThread() {
					testkit.Missing(t, "a kernel thread with PID 2")
				}
			}
			if out := command(t, nil, 3, nil, "audit", fmt.Sprint(c.pid)); !strings.Contains(out, c.says) {
				t.Errorf("does not say %q: %s", c.says, out)
			}
		})
	}
	// Beside a process that can be read it is said, and the rest is audited.
	var r audit.Report
	command(t, &r, 0, nil, append([]string{"audit", "--format", "json"}, pidArgs(st.pids)...)...)
	if p := process(t, &r, st.names["z"]); p.State != pagemap.StateZombie {
		t.Errorf("zombie: state %s", p.State)
	}
	out, err := exec.Command(testkit.Binary(t), append([]string{"audit"}, pidArgs(st.pids)...)...).Output()
	if err != nil || !strings.Contains(string(out), "zombie") {
		t.Errorf("the text does not name the zombie: %v\n%s", err, out)
	}
	s.finish()
}

// Case 21: without CAP_SYS_ADMIN every frame number reads 0, which is "cannot be told" and never "the same frame".
func TestCase21NoPrivilege(t *testing.T) {
	requireFrames(t)
	t.Parallel()
	s := casePython(t, "21-no-privilege.py")
	st, ok := s.next()
	if !ok {
		s.finish()
		t.Fatal("no stage")
	}
	var r audit.Report
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	// Measured in part, which is said on standard output and by the exit code.
	command(t, &r, 3, nobody, append([]string{"audit", "--format", "json", "--range", rangeArg(st.regions["region"])}, pidArgs(st.pids)...)...)
	conserved(t, &r)
	if r.Capture.FramesVisible {
		t.Error("frames are said to be visible")
	}
	samePages(t, "worker", process(t, &r, st.pids[1]).Pages, sums(audit.Pages{Unknown: 64, Private: 40}))
	if len(r.Warnings) == 0 || !strings.Contains(fmt.Sprint(r.Warnings), "CAP_SYS_ADMIN") {
		t.Errorf("no warning names CAP_SYS_ADMIN: %+v", r.Warnings)
	}
	s.finish()
}
