package taskstats

import (
	"errors"
	"maps"
	"os/exec"
	"path/filepath"
	"testing"

	"cowaudit/internal/host"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// counting opens a client and switches accounting on for the length of the test.
func counting(t *testing.T) *Client {
	t.Helper()
	testkit.Require(t, "taskstats")
	restore, err := SwitchOn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
	return open(t)
}

func open(t *testing.T) *Client {
	t.Helper()
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func pages(t *testing.T, statements ...string) *testkit.Staged {
	t.Helper()
	testkit.Require(t, "gcc")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	return testkit.Stages(t, append([]string{bin}, statements...)...)
}

// readAll reads the processes of a stage by their names.
func readAll(t *testing.T, c *Client, st testkit.Stage) map[string]Counts {
	t.Helper()
	out := map[string]Counts{}
	for name, pid := range st.Named {
		n, err := c.Process(pagemap.PID(pid))
		if errors.Is(err, pagemap.ErrGone) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		out[name] = n
	}
	return out
}

// Prime numbers of pages, exactly. Each kind of statement runs once before the window, so that what the process copies of its
// own (stack, data) is copied by then; also in a child that does nothing in the window, which after its first answer still
// goes back to reading.
func TestProcess(t *testing.T) {
	c := counting(t)
	warm := []string{"anon warm 8", "write warm 0 8 1"}
	zero, err := host.ZeroPage()
	if err != nil {
		t.Fatal(err)
	}
	// Where a read of what was never written takes a page, a write to that page faults no more.
	zeroPages := map[bool]uint64{true: 173}[zero]
	for _, tt := range []struct {
		name   string
		before []string
		window []string
		want   map[string]uint64
	}{
		{"copies by the child",
			[]string{"anon a 400", "write a 0 400 1", "fork w", "w: write warm 0 1 2"}, []string{"w: write a 0 101 2"},
			map[string]uint64{"m": 0, "w": 101}},
		{"copies by the parent",
			[]string{"anon a 400", "write a 0 400 1", "fork w", "w: write warm 1 2 2", "write warm 0 1 2"}, []string{"write a 0 127 2"},
			map[string]uint64{"m": 127, "w": 0}},
		{"reuse after the sibling has ended",
			[]string{"anon a 400", "write a 0 400 1", "fork w", "w: exit", "write warm 0 1 2"}, []string{"write a 0 211 2"},
			map[string]uint64{"m": 0}},
		{"a system call writes to shared pages",
			[]string{"anon a 400", "write a 0 400 1", "fork w", "w: input warm 0 1"}, []string{"w: input a 0 199"},
			map[string]uint64{"m": 0, "w": 199}},
		{"first writes on the zero page",
			[]string{"anon a 400", "anon b 2", "fork w", "w: read a 0 400", "w: read b 0 2", "w: write b 0 1 1"}, []string{"w: write a 0 173 2"},
			map[string]uint64{"m": 0, "w": zeroPages}},
		{"first touches",
			[]string{"anon a 400", "fork w", "w: write warm 0 1 2"}, []string{"w: write a 0 257 2"},
			map[string]uint64{"m": 0, "w": 0}},
		{"private file pages read before",
			[]string{"file a 400", "fork w", "w: read a 0 400", "w: write warm 0 1 2"}, []string{"w: write a 0 139 2"},
			map[string]uint64{"m": 0, "w": 139}},
		{"another process is reaped",
			[]string{"anon a 400", "write a 0 400 1", "fork w", "w: write warm 0 1 2"}, []string{"w: write a 0 103 2", "w: exit"},
			map[string]uint64{"m": 0}},
		{"the child becomes a zombie",
			[]string{"anon a 400", "write a 0 400 1", "fork w", "w: write warm 0 1 2"}, []string{"w: write a 0 113 2", "w: die"},
			map[string]uint64{"m": 0, "w": 113}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			statements := append(append(append([]string{}, warm...), tt.before...), "stage go")
			s := pages(t, append(append(statements, tt.window...), "stage done")...)
			before := readAll(t, c, s.To("go"))
			after := readAll(t, c, s.To("done"))
			s.Finish()
			got := map[string]uint64{}
			for name, b := range before {
				a, ok := after[name]
				if !ok {
					continue
				}
				n, why := a.Since(&b)
				if why != "" {
					t.Errorf("%s: %s", name, why)
				}
				got[name] = n
				if n > 0 && a.WPCopyDelay <= b.WPCopyDelay {
					t.Errorf("%s: %d copies took no time: %v to %v", name, n, b.WPCopyDelay, a.WPCopyDelay)
				}
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("copies %v, want %v", got, tt.want)
			}
		})
	}
}

// Threads that write and end are in the sum with the ones that live.
func TestProcessThreads(t *testing.T) {
	c := counting(t)
	s := pages(t, "anon warm 8", "write warm 0 8 1", "anon a 808", "write a 0 808 1", "fork w", "w: threads r 3 1", "stage go",
		"w: spread a 0 808 8", "stage done")
	before := readAll(t, c, s.To("go"))["w"]
	after := readAll(t, c, s.To("done"))["w"]
	s.Finish()
	if before.Threads != 4 || after.Threads != 4 {
		t.Errorf("%d and %d threads, want 4", before.Threads, after.Threads)
	}
	n, why := after.Since(&before)
	// What starting threads copies beside: pages of the C library's data and of its heap, some.
	if why != "" || n < 808 || n > 808+16 {
		t.Errorf("%d copies, %q, want 808 and few more", n, why)
	}
	if !after.WPCopyKnown || after.Ended {
		t.Errorf("%+v", after)
	}
}

// A process without counters is not taken for one that copied nothing.
func TestProcessOlderThanAccounting(t *testing.T) {
	testkit.Require(t, "taskstats")
	c := open(t)
	was, err := DelayAccounting()
	if err != nil {
		t.Fatal(err)
	}
	s := pages(t, "anon a 400", "write a 0 400 1", "fork w", "stage go", "w: write a 0 107 2", "stage done")
	st := s.To("go")
	is, err := DelayAccounting()
	if err != nil {
		t.Fatal(err)
	}
	off := readAll(t, c, st)["w"]
	counting(t)
	before := readAll(t, c, st)["w"]
	after := readAll(t, c, s.To("done"))["w"]
	s.Finish()
	if was.On || is.On { // somebody else wants it on: then this one is counted
		if n, why := after.Since(&before); n < 107 || why != "" {
			t.Errorf("forked with accounting on: %d copies, %q", n, why)
		}
		return
	}
	if off.WPCopyKnown || off.Why != whyOff {
		t.Errorf("with accounting off: %+v", off)
	}
	for _, n := range []Counts{before, after} {
		if n.WPCopyKnown || n.Why == "" || n.WPCopy != 0 {
			t.Errorf("a process forked before the switch: %+v", n)
		}
	}
	if n, why := after.Since(&before); n != 0 || why == "" {
		t.Errorf("%d copies, %q: want a reason why it is not known", n, why)
	}
	if n, why := after.Since(&off); n != 0 || why == "" {
		t.Errorf("%d copies, %q: want a reason why it is not known", n, why)
	}
}

func TestProcessGone(t *testing.T) {
	c := counting(t)
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Process(pagemap.PID(cmd.Process.Pid)); !errors.Is(err, pagemap.ErrGone) {
		t.Errorf("%+v, %v", n, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.get(attrPID, 1); err == nil {
		t.Error("a closed client answers")
	}
}

// One reading of a process of one thread.
func BenchmarkProcess(b *testing.B) {
	testkit.Require(b, "taskstats")
	c, err := Open()
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	}()
	for b.Loop() {
		if _, err := c.Process(1); err != nil {
			b.Fatal(err)
		}
	}
}
