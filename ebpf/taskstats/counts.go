package taskstats

import (
	"fmt"
	"time"

	"cowaudit/pagemap"
)

// Counts is what the kernel has counted for a process since it was forked.
type Counts struct {
	pagemap.Identity     // Start is 0 in an exit record, which does not carry it
	Version          int // of the kernel's struct taskstats
	Threads          int // living ones
	Ended            bool
	// WPCopy counts the copies (see the package's comment for what that is), of all threads, living and dead. It is of use
	// only where WPCopyKnown, or in a difference that [Counts.Since] allows: a thread without counters adds nothing to it.
	WPCopy uint64
	// WPCopyDelay is the time that those copies took, by the clock.
	WPCopyDelay time.Duration
	// WPCopyKnown: every living thread has counters. Why says why not, where it is false.
	WPCopyKnown bool
	Why         string

	epoch   time.Duration      // Accounting.OnSince at the reading
	off     bool               // accounting was off at the reading
	torn    bool               // threads came or went while it was read
	threads []pagemap.Identity // of the living threads...
	counted []bool             // ...whether it is known to have counters
}

// Since gives the copies that the kernel counted between an earlier reading of the same process and this one, which may be
// its exit record. why is empty where that number is exact; else it says why there is none, and the number is 0.
//
// What was on at both readings is taken to have been on between them, so that threads which began meanwhile have counters. One
// that was not known to have them at the earlier reading may be known by now; if it has ended meanwhile, nothing is.
func (c *Counts) Since(before *Counts) (copies uint64, why string) {
	switch {
	case c.PID != before.PID || c.Start != before.Start && c.Start != 0 && before.Start != 0:
		return 0, fmt.Sprintf("process %d is not process %d of the earlier reading", c.PID, before.PID)
	case c.off || before.off:
		return 0, whyOff
	case c.torn || before.torn:
		return 0, whyTorn
	case c.epoch != before.epoch:
		return 0, "delay accounting was switched between the two readings"
	case c.WPCopy < before.WPCopy:
		return 0, "the kernel's count went down"
	}
	for i, t := range before.threads {
		if !before.counted[i] && !c.has(t) {
			return 0, before.Why
		}
	}
	return c.WPCopy - before.WPCopy, ""
}

// has reports whether a thread is known to have counters.
func (c *Counts) has(t pagemap.Identity) bool {
	for i := range c.threads {
		if c.threads[i] == t {
			return c.counted[i]
		}
	}
	return false
}

const (
	whyOff  = "delay accounting is switched off (kernel.task_delayacct=0)"
	whyTorn = "threads ended while the count was read"
)

// thread is one living thread at a reading, or the main thread of a process that has ended.
type thread struct {
	pagemap.Identity
	exiting bool // PF_EXITING, and not yet a zombie: the kernel may count it twice
	zombie  bool
	stats   stats
}

// forkTime bounds how long a fork may take. A task gets its counters at the start of its fork, and its start time at the
// end, after the page tables were copied (copy_process, kernel/fork.c): seconds where they map hundreds of GiB.
const forkTime = 10 * time.Second

// tick is the unit of start times in stat files, 1/USER_HZ on every architecture that Go knows (include/asm-generic/param.h).
const tick = time.Second / 100

func started(t pagemap.Identity) time.Duration { return time.Duration(t.Start) * tick }

// judge says which threads are known to have counters; the main thread is the one with the PID of the process.
func (c *Counts) judge(a Accounting, threads []thread) {
	c.off, c.epoch = !a.On, a.OnSince
	mainSince, mainHas := time.Duration(0), false
	for i := range threads {
		if t := &threads[i]; t.PID == c.PID {
			mainSince, mainHas = started(t.Identity), t.stats.counts
		}
	}
	// The main thread is older than all others, and has counters, so accounting was on when it began. It was still on when the
	// others began, unless it was switched off in between: not by a cowaudit, if that was before.
	lasting := mainHas && mainSince > max(a.OnSince, a.OffSeen)
	var unknown int
	for i := range threads {
		t := &threads[i]
		known := t.stats.counts || lasting || a.OnSince != 0 && started(t.Identity) > a.OnSince+forkTime
		c.threads = append(c.threads, t.Identity)
		c.counted = append(c.counted, known)
		if !known {
			unknown++
		}
	}
	switch {
	case c.off:
		c.Why = whyOff
	case c.torn:
		c.Why = whyTorn
	case unknown == 0:
		c.WPCopyKnown = true
	case len(threads) == 1:
		c.Why = "the process may be older than delay accounting, which counts only what is forked after it is switched on (kernel.task_delayacct=1)"
	default:
		c.Why = fmt.Sprintf("%d of its %d threads may be older than delay accounting, which counts only what begins after it is switched on (kernel.task_delayacct=1)", unknown, len(threads))
	}
}
