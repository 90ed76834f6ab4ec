package taskstats

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"cowaudit/pagemap"
)

const (
	flagExiting = 0x4 // PF_EXITING (include/linux/sched.h), in field 9 of stat
	// attempts and pause bound how long threads on their way out are waited for. Nothing tells when they are gone.
	attempts = 20
	pause    = time.Millisecond
)

// Process gives the counts of a process, by its PID in the caller's pid namespace: of all its threads, also those that have
// ended (TASKSTATS_CMD_GET by TGID, kernel/taskstats.c, fill_stats_for_tgid). A zombie still has its counts. The error wraps
// pagemap.ErrGone where there is no such process.
//
// The kernel's sum has two gaps that are closed here by asking for each thread too. A process that never had a second thread
// reads as 0 once it is a zombie; its main thread's own count is taken. A thread on its way out is in the sum of the dead and
// among the living for a moment; the reading is repeated, and where threads never stop to end, the count is not known.
// A thread that copies a page after the kernel has closed its account (the word that says it has ended, on a shared page) is
// missing from the sum: one page for each ended thread at most.
func (c *Client) Process(pid pagemap.PID) (Counts, error) {
	for attempt := 1; ; attempt++ {
		before, err := DelayAccounting()
		if err != nil {
			return Counts{}, err
		}
		counts, threads, err := c.read(pid)
		if err != nil {
			return Counts{}, err
		}
		after, err := DelayAccounting()
		if err != nil {
			return Counts{}, err
		}
		if (counts.torn || before != after) && attempt < attempts {
			time.Sleep(pause)
			continue
		}
		after.On = after.On && before.On
		counts.judge(after, threads)
		return counts, nil
	}
}

// read takes one reading, and marks it as torn where it may not be exact.
func (c *Client) read(pid pagemap.PID) (Counts, []thread, error) {
	before, err := living(pid)
	if err != nil {
		return Counts{}, nil, err
	}
	sum, err := c.get(attrTGID, pid)
	if err != nil {
		return Counts{}, nil, err
	}
	out := Counts{Version: sum.version, WPCopy: sum.copies, WPCopyDelay: sum.delay}
	for i := range before {
		t := &before[i]
		if t.stats, err = c.get(attrPID, t.PID); errors.Is(err, pagemap.ErrGone) {
			out.torn = true
		} else if err != nil {
			return Counts{}, nil, err
		}
		out.torn = out.torn || t.exiting
		if t.PID == pid {
			out.Identity = t.Identity
			out.Ended = t.zombie && len(before) == 1
		}
		if !t.zombie {
			out.Threads++
		}
	}
	if out.Start == 0 {
		return Counts{}, nil, fmt.Errorf("list the threads of %d: %w", pid, pagemap.ErrGone)
	}
	if out.Ended {
		out.WPCopy, out.WPCopyDelay = max(sum.copies, before[0].stats.copies), max(sum.delay, before[0].stats.delay)
	}
	after, err := living(pid)
	if err != nil {
		return Counts{}, nil, err
	}
	if !slices.EqualFunc(before, after, func(a, b thread) bool {
		return a.Identity == b.Identity && a.zombie == b.zombie && a.exiting == b.exiting
	}) {
		out.torn = true
	}
	return out, before, nil
}

// living lists the threads in /proc/PID/task. A main thread that has ended is among them as long as the process is there.
func living(pid pagemap.PID) ([]thread, error) {
	tids, err := pagemap.FS("").Threads(pid)
	if err != nil {
		return nil, err
	}
	task := pagemap.FS(pagemap.FS("").Path(fmt.Sprint(pid), "task"))
	var out []thread
	for _, tid := range tids {
		s, err := task.Stat(tid)
		if errors.Is(err, pagemap.ErrGone) {
			// Seen in the list and gone: kept, so that the two lists differ.
			out = append(out, thread{Identity: pagemap.Identity{PID: tid}, exiting: true})
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, thread{Identity: s.Identity(), exiting: s.Flags&flagExiting != 0 && !s.Zombie(), zombie: s.Zombie()})
	}
	return out, nil
}
