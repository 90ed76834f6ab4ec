package pagemap

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asleep starts a process that holds still, and waits until it does.
func asleep(t *testing.T) PID {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	pid := PID(cmd.Process.Pid)
	var last Rollup
	for range 500 {
		st, err := FS("").Stat(pid)
		if err != nil {
			t.Fatal(err)
		}
		r, err := FS("").Rollup(pid)
		if err == nil && st.State == 'S' && st.Comm == "sleep" && r == last {
			return pid
		}
		last = r
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("sleep does not sleep")
	return 0
}

func record(t *testing.T, pid PID, o Options) *Snapshot {
	t.Helper()
	procs, _, err := FS("").Family([]PID{pid}, FamilyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCapture(context.Background(), FS(""), procs, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := Record(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// However the pages are found and by how many goroutines they are read, a process that holds still gives the same windows.
func TestWaysToReadAgree(t *testing.T) {
	pid := asleep(t)
	for name, o := range map[string]Options{
		"without PAGEMAP_SCAN": {NoScan: true},
		"one goroutine":        {Threads: 1},
		"seven goroutines":     {Threads: 7},
		"with contents":        {Contents: true, Rollup: true},
	} {
		// The process sleeps, but the kernel may still migrate a page of it; then both readings are taken again.
		d := "not read"
		for try := 0; d != "" && try < 5; try++ {
			want, got := record(t, pid, Options{}), record(t, pid, o)
			if len(want.Windows) == 0 {
				t.Fatal("no windows")
			}
			d = cmp.Diff(want.Windows, got.Windows)
		}
		if d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

// A capture leaves no descriptor behind, whatever became of the processes.
func TestCaptureClosesDescriptors(t *testing.T) {
	open := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	pid := asleep(t)
	record(t, pid, Options{Contents: true})
	before := open()
	for range 20 {
		record(t, pid, Options{Contents: true, Rollup: true})
		procs, _, err := FS("").Family([]PID{pid}, FamilyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		procs[0].Start++ // another process with this PID
		c, err := NewCapture(context.Background(), FS(""), procs, Options{Contents: true})
		if err != nil {
			t.Fatal(err)
		}
		if s := c.Family().Processes[0].State; s != StateGone {
			t.Fatalf("a process whose start time does not fit is %q, want gone", s)
		}
		c.Close()
	}
	if after := open(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestCaptureStopsWhenCancelled(t *testing.T) {
	procs, _, err := FS("").Family([]PID{asleep(t)}, FamilyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c, err := NewCapture(ctx, FS(""), procs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := Record(c); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

func TestCaptureRefusesEmptyRange(t *testing.T) {
	if _, err := NewCapture(context.Background(), FS(""), nil, Options{Start: 8192, End: 4096}); err == nil {
		t.Error("no error")
	}
}

// smaps read up to an address tells the same as read whole.
func TestSmapsUntil(t *testing.T) {
	pid := asleep(t)
	whole, err := FS("").Smaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		got, err := FS("").smapsUntil(pid, whole[i].End-1)
		if err != nil {
			t.Fatal(err)
		}
		// Proportional and shared sizes change whenever another process maps the same library.
		if len(got) != i+1 {
			t.Fatalf("up to mapping %d: %d mappings", i, len(got))
		}
		for k := range got {
			if d := cmp.Diff(whole[k].Mapping, got[k].Mapping); d != "" {
				t.Fatalf("up to mapping %d:\n%s", i, d)
			}
			if d := cmp.Diff(whole[k].VmFlags, got[k].VmFlags); d != "" || whole[k].Anonymous != got[k].Anonymous {
				t.Fatalf("up to mapping %d: %+v, want %+v", i, got[k], whole[k])
			}
		}
	}
}
