package taskstats

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"cowaudit/pagemap"
)

// selfCommand runs one test of this package in a process of its own.
func selfCommand(test string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+test+"$")
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// at makes a thread that began some seconds after boot.
func at(tid int, seconds uint64, counts bool) thread {
	return thread{Identity: pagemap.Identity{PID: pagemap.PID(tid), Start: seconds * uint64(time.Second/tick)}, stats: stats{counts: counts}}
}

func TestJudge(t *testing.T) {
	ours := Accounting{On: true, OnSince: 100 * time.Second, OffSeen: 100 * time.Second}
	theirs := Accounting{On: true}
	again := Accounting{On: true, OffSeen: 100 * time.Second} // a cowaudit saw it off, then somebody else switched it on
	for _, tt := range []struct {
		name    string
		a       Accounting
		threads []thread
		want    bool
	}{
		{"counts are proof", ours, []thread{at(1, 50, true)}, true},
		{"older than the switch, no counts", ours, []thread{at(1, 50, false)}, false},
		{"begun right after the switch: its fork may be older", ours, []thread{at(1, 101, false)}, false},
		{"begun well after the switch", ours, []thread{at(1, 111, false)}, true},
		{"switched on by somebody, no counts", theirs, []thread{at(1, 111, false)}, false},
		{"switched on by somebody, counts", theirs, []thread{at(1, 50, true)}, true},
		{"a thread of a counted process", theirs, []thread{at(1, 50, true), at(2, 60, false)}, true},
		{"a thread of a process that was counted in a run before", ours, []thread{at(1, 50, true), at(2, 60, false)}, false},
		{"a thread begun in this run of such a process", ours, []thread{at(1, 50, true), at(2, 120, false)}, true},
		{"a thread right after the switch, in a process that is as new", ours, []thread{at(1, 101, true), at(2, 101, false)}, true},
		{"a counted thread of an older process", ours, []thread{at(1, 50, false), at(2, 120, true)}, false},
		{"off was seen since the process began", again, []thread{at(1, 50, true), at(2, 60, false)}, false},
		{"off was seen before", again, []thread{at(1, 110, true), at(2, 120, false)}, true},
		{"switched off", Accounting{OnSince: 0, OffSeen: 100 * time.Second}, []thread{at(1, 50, true)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Counts{Identity: tt.threads[0].Identity}
			c.judge(tt.a, tt.threads)
			if c.WPCopyKnown != tt.want || (c.Why == "") != tt.want {
				t.Errorf("known %v, %q", c.WPCopyKnown, c.Why)
			}
		})
	}
}

func TestSince(t *testing.T) {
	on := Accounting{On: true, OnSince: 100 * time.Second}
	reading := func(copies uint64, a Accounting, threads ...thread) *Counts {
		c := &Counts{Identity: threads[0].Identity, WPCopy: copies}
		c.judge(a, threads)
		return c
	}
	exit := &Counts{Identity: pagemap.Identity{PID: 1}, WPCopy: 11, Ended: true, epoch: on.OnSince}
	torn := reading(11, on, at(1, 120, true))
	torn.torn = true
	for _, tt := range []struct {
		name          string
		before, after *Counts
		want          uint64
		known         bool
	}{
		{"counted", reading(5, on, at(1, 120, true)), reading(11, on, at(1, 120, true)), 6, true},
		{"known only later", reading(0, on, at(1, 50, false)), reading(11, on, at(1, 50, true)), 11, true},
		{"never known", reading(0, on, at(1, 50, false)), reading(0, on, at(1, 50, false)), 0, false},
		{"a thread since", reading(5, on, at(1, 50, true)), reading(11, on, at(1, 50, true), at(2, 101, false)), 6, true},
		{"an older thread that is not counted", reading(5, on, at(1, 50, true), at(2, 60, false)), reading(11, on, at(1, 50, true), at(2, 60, false)), 0, false},
		{"such a thread has ended", reading(5, on, at(1, 50, true), at(2, 60, false)), reading(11, on, at(1, 50, true)), 0, false},
		{"a counted thread has ended", reading(5, on, at(1, 50, true), at(2, 60, true)), reading(11, on, at(1, 50, true)), 6, true},
		{"an exit record", reading(5, on, at(1, 50, true)), exit, 6, true},
		{"an exit record of one that was not known", reading(0, on, at(1, 50, false)), exit, 0, false},
		{"another process", reading(5, on, at(1, 120, true)), reading(11, on, at(1, 130, true)), 0, false},
		{"switched between", reading(5, on, at(1, 120, true)), reading(11, Accounting{On: true, OnSince: 130 * time.Second}, at(1, 120, true)), 0, false},
		{"off", reading(5, Accounting{}, at(1, 120, true)), reading(11, on, at(1, 120, true)), 0, false},
		{"torn", reading(5, on, at(1, 120, true)), torn, 0, false},
		{"fewer", reading(12, on, at(1, 120, true)), reading(11, on, at(1, 120, true)), 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, why := tt.after.Since(tt.before)
			if n != tt.want || (why == "") != tt.known {
				t.Errorf("%d, %q, want %d, known %v", n, why, tt.want, tt.known)
			}
		})
	}
}

func TestProbeWords(t *testing.T) {
	for _, tt := range []struct {
		name    string
		got     Probed
		outcome Outcome
		remedy  bool
	}{
		{"off", probed(16, Accounting{}, false), No, true},
		{"on", probed(16, Accounting{On: true}, false), Yes, false},
		{"on by a run", probed(16, Accounting{On: true, OnSince: 1}, false), Yes, false},
		{"left on", probed(16, Accounting{On: true, OnSince: 1}, true), Yes, true},
		{"an old kernel", probeError(fmt.Errorf("open: %w", pagemap.ErrNotSupported)), No, true},
		{"another /proc", probeError(fmt.Errorf("open: %w", errOtherProc)), No, true},
		{"refused", probeError(fmt.Errorf("ask: %w", syscall.EPERM)), Unknown, true},
		{"something else", probeError(fmt.Errorf("ask: %w", syscall.ENOMEM)), Unknown, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got.Outcome != tt.outcome || (tt.got.Remedy != "") != tt.remedy || tt.got.Detail == "" {
				t.Errorf("%+v", tt.got)
			}
		})
	}
}
