package taskstats

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

func scan(t *testing.T, line, format string, into ...any) {
	t.Helper()
	if _, err := fmt.Sscanf(line, format, into...); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
}

// fake is a setting in a folder of the test's.
func fake(t *testing.T, value string) switches {
	t.Helper()
	dir := t.TempDir()
	s := switches{sysctl: filepath.Join(dir, "task_delayacct"), dir: filepath.Join(dir, "run"), key: filepath.Join(dir, "boot_id")}
	for name, text := range map[string]string{s.sysctl: value + "\n", s.key: "b1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s switches) want(t *testing.T, when string, on, byUs bool) Accounting {
	t.Helper()
	// The fake is a plain file: a write does not shorten it as the kernel's does.
	a, err := s.read()
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if a.On != on || (a.OnSince != 0) != byUs {
		t.Errorf("%s: %+v, want on %v, by us %v", when, a, on, byUs)
	}
	return a
}

func (s switches) begin(t *testing.T) func() {
	t.Helper()
	restore, err := s.switchOn()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := restore(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSwitchOn(t *testing.T) {
	t.Run("on and off again", func(t *testing.T) {
		s := fake(t, "0")
		t0 := sinceBoot()
		end := s.begin(t)
		a := s.want(t, "switched on", true, true)
		if a.OnSince < t0 || a.OffSeen < t0 || a.OffSeen > a.OnSince {
			t.Errorf("%+v, begun at %v", a, t0)
		}
		end()
		b := s.want(t, "restored", false, false)
		if b.OffSeen <= a.OnSince {
			t.Errorf("%+v after %+v", b, a)
		}
		end()
		s.want(t, "restored twice", false, false)
	})
	t.Run("was on already", func(t *testing.T) {
		s := fake(t, "1")
		end := s.begin(t)
		s.want(t, "switched on", true, false)
		end()
		s.want(t, "restored", true, false)
	})
	t.Run("two runs, the first one ends first", func(t *testing.T) {
		s := fake(t, "0")
		first := s.begin(t)
		a := s.want(t, "the first", true, true)
		second := s.begin(t)
		if b := s.want(t, "the second", true, true); a != b {
			t.Errorf("%+v, then %+v", a, b)
		}
		first()
		s.want(t, "the first has ended", true, true)
		second()
		s.want(t, "both have ended", false, false)
	})
	t.Run("switched off by hand meanwhile", func(t *testing.T) {
		s := fake(t, "0")
		first := s.begin(t)
		a := s.want(t, "the first", true, true)
		if err := s.write("0"); err != nil {
			t.Fatal(err)
		}
		s.want(t, "by hand", false, false)
		second := s.begin(t)
		if b := s.want(t, "on again", true, true); b.OnSince <= a.OnSince {
			t.Errorf("%+v, then %+v", a, b)
		}
		second()
		first()
		s.want(t, "both have ended", false, false)
	})
	t.Run("after another boot", func(t *testing.T) {
		s := fake(t, "0")
		end := s.begin(t)
		defer end()
		if err := os.WriteFile(s.key, []byte("b2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if a := s.want(t, "on from the start", true, false); a.OffSeen != 0 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("no such setting", func(t *testing.T) {
		s := fake(t, "0")
		s.sysctl += "x"
		if _, err := s.switchOn(); !errors.Is(err, pagemap.ErrNotSupported) {
			t.Error(err)
		}
		if _, err := os.Stat(s.dir); err == nil {
			t.Error("a record was kept")
		}
	})
	t.Run("a setting of another kind", func(t *testing.T) {
		if _, err := fake(t, "2").read(); !errors.Is(err, pagemap.ErrFormat) {
			t.Error(err)
		}
	})
}

const childEnv = "COWAUDIT_TEST_SWITCHES"

// TestKilledHelper is the process that the next test kills.
func TestKilledHelper(t *testing.T) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		if _, err := fake(t, "0").read(); err != nil { // what the other process starts from
			t.Error(err)
		}
		return
	}
	s := switches{sysctl: filepath.Join(dir, "task_delayacct"), dir: filepath.Join(dir, "run"), key: filepath.Join(dir, "boot_id")}
	s.begin(t)
	fmt.Println("HELD")
	var line string
	_, _ = fmt.Scanln(&line) // until it is killed
}

// A run that is killed leaves the setting on, and the next one that ends takes it back.
func TestKilled(t *testing.T) {
	s := fake(t, "0")
	cmd := selfCommand("TestKilledHelper", childEnv+"="+filepath.Dir(s.sysctl))
	p := testkit.StartCmd(t, cmd)
	p.WaitLine("HELD")
	a := s.want(t, "held", true, true)
	if left, err := s.left(); err != nil || left {
		t.Errorf("left %v, %v", left, err)
	}
	p.Signal(9)
	if code := p.Wait(); code != -1 {
		t.Fatalf("exit code %d", code)
	}
	if b := s.want(t, "killed", true, true); a != b {
		t.Errorf("%+v, then %+v", a, b)
	}
	if left, err := s.left(); err != nil || !left {
		t.Errorf("left %v, %v", left, err)
	}
	end := s.begin(t)
	if b := s.want(t, "the next one", true, true); a != b {
		t.Errorf("%+v, then %+v", a, b)
	}
	end()
	s.want(t, "its end", false, false)
}

func TestParseRecord(t *testing.T) {
	here := record{Boot: "b1", Clock: "time:[1]"}
	kept := record{Boot: "b1", Clock: "time:[1]", OnSince: 5, OffSeen: 4}
	for _, tt := range []struct {
		name, text string
		want       record
		err        error
	}{
		{"this boot", `{"boot_id":"b1","time_namespace":"time:[1]","on_since_boot_ns":5,"off_seen_since_boot_ns":4}`, kept, nil},
		{"another boot", `{"boot_id":"b0","time_namespace":"time:[1]","on_since_boot_ns":5,"off_seen_since_boot_ns":4}`, here, nil},
		{"another clock", `{"boot_id":"b1","time_namespace":"time:[2]","on_since_boot_ns":5,"off_seen_since_boot_ns":4}`,
			record{Boot: "b1", Clock: "time:[1]", OnSince: time.Second, OffSeen: time.Second}, nil},
		{"cut", `{"boot_id":"b1"`, record{}, pagemap.ErrFormat},
		{"negative", `{"boot_id":"b1","on_since_boot_ns":-5}`, record{}, pagemap.ErrFormat},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseRecord([]byte(tt.text), here, time.Second)
			if diff := cmp.Diff(tt.want, got); diff != "" || !errors.Is(err, tt.err) {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// What was on before the real switch is on after it.
func TestSwitchOnForReal(t *testing.T) {
	testkit.Require(t, "taskstats")
	before, err := DelayAccounting()
	if err != nil {
		t.Fatal(err)
	}
	restore, err := SwitchOn()
	if err != nil {
		t.Fatal(err)
	}
	during, err := DelayAccounting()
	if err != nil || !during.On {
		t.Errorf("%+v, %v", during, err)
	}
	p := Probe()
	if p.Outcome != Yes || !strings.Contains(p.Detail, "taskstats version") {
		t.Errorf("%+v", p)
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	after, err := DelayAccounting()
	if err != nil {
		t.Fatal(err)
	}
	// Others may hold it too, and end at any time.
	if before.On && before.OnSince == 0 && !after.On {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if !before.On && after.On && after.OnSince == 0 {
		t.Errorf("before %+v, after %+v: left on, and nobody knows", before, after)
	}
}
