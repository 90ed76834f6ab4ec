package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) { Main(m) }

// fake stands in for a test: it notes how it was ended.
type fake struct {
	testing.TB
	skipped, failed string
	errors          []string
}

func (f *fake) Helper()                   {}
func (f *fake) Cleanup(func())            {}
func (f *fake) Skip(a ...any)             { f.skipped = fmt.Sprint(a...); runtime.Goexit() }
func (f *fake) Fatal(a ...any)            { f.failed = fmt.Sprint(a...); runtime.Goexit() }
func (f *fake) Fatalf(s string, a ...any) { f.Fatal(fmt.Sprintf(s, a...)) }
func (f *fake) Errorf(s string, a ...any) { f.errors = append(f.errors, fmt.Sprintf(s, a...)) }

// try runs what may end the test before it returns.
func try(run func(t testing.TB)) *fake {
	f := &fake{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(f)
	}()
	<-done
	return f
}

func TestRequire(t *testing.T) {
	t.Setenv(RequireEnv, "")
	missing := func(t testing.TB) { Missing(t, "a thing") }
	if f := try(missing); f.skipped != "not here: a thing" || f.failed != "" {
		t.Errorf("without %s: skipped %q, failed %q", RequireEnv, f.skipped, f.failed)
	}
	if f := try(func(t testing.TB) { Require(t, "no such feature") }); !strings.Contains(f.failed, `no feature "no such feature"`) {
		t.Errorf("a misspelled feature: skipped %q, failed %q", f.skipped, f.failed)
	}
	t.Setenv(RequireEnv, "1")
	if f := try(missing); f.skipped != "" || !strings.Contains(f.failed, "a thing") {
		t.Errorf("with %s: skipped %q, failed %q", RequireEnv, f.skipped, f.failed)
	}
	const name = "a feature of this test"
	for _, c := range []struct {
		why             error
		skipped, failed string
	}{
		{nil, "", ""},
		{errors.New("no such thing"), "", "needed here (" + RequireEnv + " is set): " + name + ": no such thing"},
	} {
		table()[name] = feature{func() error { return c.why }}
		if f := try(func(t testing.TB) { Require(t, name) }); f.skipped != c.skipped || f.failed != c.failed {
			t.Errorf("a complete run, the feature: %v: skipped %q, failed %q", c.why, f.skipped, f.failed)
		}
	}
	delete(table(), name)
}

// Every feature gives an answer, and those that can be told by other means the right one.
func TestProbes(t *testing.T) {
	for _, name := range names() {
		if name != "rubies" { // slow, and the subject of other tests
			t.Logf("%s: %v", name, table()[name].probe())
		}
	}
	if got, want := table()["root"].probe() == nil, os.Getuid() == 0; got != want {
		t.Errorf("root: %v, want %v", got, want)
	}
	_, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	_, err = exec.LookPath("gcc")
	if got, want := table()["gcc"].probe() == nil, err == nil; got != want {
		t.Errorf("gcc: %v, want %v", got, want)
	}
}

const stagedSource = `#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
	char c;
	printf("REGION a b 1000-3000 pages=2\nTRUTH first = 3 (want 3) ok\nSTAGE one pids=%d\n", (int)getpid());
	fflush(stdout);
	while (read(0, &c, 1) == 1 && c != '\n') {}
	printf("a note\nTRUTH second = 4 (want 5) %s\nSTAGE two pids=%d,7 names=p,q region=5000-6000\n", argv[1], (int)getpid());
	fflush(stdout);
	while (read(0, &c, 1) == 1 && c != '\n') {}
	return atoi(argv[2]);
}
`

func staged(t *testing.T) string {
	t.Helper()
	src := filepath.Join(t.TempDir(), "staged.c")
	if err := os.WriteFile(src, []byte(stagedSource), 0o644); err != nil {
		t.Fatal(err)
	}
	return CC(t, src)
}

func TestStages(t *testing.T) {
	bin := staged(t)
	if again := staged(t); again != bin {
		t.Errorf("the same source gives %s and %s", bin, again)
	}
	s := Stages(t, bin, "ok", "0")
	one, ok := s.Next()
	want := Stage{Name: "one", PIDs: []int{s.PID()}, Named: map[string]int{}, Regions: map[string]Range{"a b": {0x1000, 0x3000}}}
	if diff := cmp.Diff(want, one); !ok || diff != "" {
		t.Errorf("first stage (-want +got):\n%s", diff)
	}
	two := s.To("two")
	want = Stage{Name: "two", PIDs: []int{s.PID(), 7}, Named: map[string]int{"p": s.PID(), "q": 7},
		Regions: map[string]Range{"a b": {0x1000, 0x3000}, "region": {0x5000, 0x6000}}}
	if diff := cmp.Diff(want, two); diff != "" {
		t.Errorf("second stage (-want +got):\n%s", diff)
	}
	truths := s.Finish()
	if diff := cmp.Diff([]Truth{{"first", "3 (want 3)", true}, {"second", "4 (want 5)", true}}, truths); diff != "" {
		t.Errorf("truths (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a note"}, s.Notes()); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// What a program says of itself against itself fails the test, and 77 is "cannot be shown here".
func TestStagesThatFail(t *testing.T) {
	t.Setenv(RequireEnv, "")
	bin := staged(t)
	for _, c := range []struct {
		name, truth, code string
		skipped, failed   string
		errors            int
	}{
		{"a truth fails", "FAIL", "1", "", "exit code 1", 1},
		{"exit code", "ok", "3", "", "exit code 3", 0},
		{"not here", "ok", "77", "a note", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := try(func(tb testing.TB) {
				s := Stages(tb, bin, c.truth, c.code)
				defer s.End() // a fake test cleans nothing up
				s.Finish()
			})
			if !strings.Contains(f.failed, c.failed) || (c.failed == "") != (f.failed == "") || !strings.Contains(f.skipped, c.skipped) || len(f.errors) != c.errors {
				t.Errorf("skipped %q, failed %q, errors %q", f.skipped, f.failed, f.errors)
			}
		})
	}
}

// End leaves nothing of a process that will not go, nor of its children.
func TestEnd(t *testing.T) {
	p := Start(t, "sh", "-c", `trap "" TERM; sleep 1000 & echo $!; while :; do read x || sleep 1000; done`)
	child, ok := p.Line()
	if !ok {
		t.Fatal("no line")
	}
	pid := p.PID()
	p.End()
	for _, id := range []string{fmt.Sprint(pid), child} {
		stat, err := os.ReadFile("/proc/" + id + "/stat")
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("process %s is still there: %s", id, stat)
		}
	}
}

// What Main looks for is found: a process that left its group and its parent, and an open descriptor.
func TestLeft(t *testing.T) {
	mark := os.Getenv(runEnv)
	p := Start(t, "sh", "-c", `setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' & read x`)
	id := p.WaitLine("")
	p.Send("go on")
	if code := p.Wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	left := leftProcesses(mark, 0)
	if len(left) != 1 || !strings.HasPrefix(left[0], id+" (") {
		t.Errorf("left behind: %q, want process %s", left, id)
	}
	before := descriptors()
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	if got := leftDescriptors(before, 0); len(got) != 1 || !strings.HasSuffix(got[0], " /dev/null") {
		t.Errorf("left open: %q", got)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := leftDescriptors(before, patience); len(got) != 0 {
		t.Errorf("left open after Close: %q", got)
	}
}

func TestBinary(t *testing.T) {
	out, err := exec.Command(Binary(t), "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "cowaudit ") {
		t.Errorf("%q, %v", out, err)
	}
	info, err := os.Stat(Binary(t))
	if err != nil || info.Mode().Perm()&0o005 != 0o005 {
		t.Errorf("mode %v, %v: not for every user", info.Mode(), err)
	}
}
