package pagemap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Options of a capture.
type Options struct {
	// Start and End bound the addresses read; both 0: all.
	Start, End Addr
	// Contents compares the contents of differing pages, in memory (needs PTRACE_MODE_ATTACH on each process).
	Contents bool
	// Rollup reads smaps_rollup of each process right after its pages.
	Rollup bool
	// Threads is the number of reading goroutines; 0: one for each processor, at most 4.
	Threads int
	// NoScan leaves PAGEMAP_SCAN unused, as on kernels before 6.7.
	NoScan bool
}

// Capture reads the pages of a family; it is a [Source]. It holds one pagemap descriptor for each process, never stops
// or traces a process, and writes nothing anywhere.
type Capture struct {
	ctx     context.Context
	fs      FS
	opt     Options
	fam     Family
	page    Bytes
	members []*member // audited processes; a member's place is its row's place in compact windows
	flags   frameReader
	counts  frameReader
	scan    bool
	retries atomic.Int64
	entries atomic.Int64
	walked  bool
}

// NewCapture opens the processes of a family, as [FS.Family] describes them, for reading. A process that has gone since
// stays in the family with its state and a warning. Frame numbers need CAP_SYS_ADMIN in the initial user namespace,
// opening another user's pagemap needs PTRACE_MODE_READ on it (fs/proc/task_mmu.c, pagemap_open). Close it in any case.
func NewCapture(ctx context.Context, fs FS, procs []Process, o Options) (*Capture, error) {
	c := &Capture{ctx: ctx, fs: fs, opt: o, page: Bytes(os.Getpagesize())}
	c.fam.Processes = slices.Clone(procs)
	if len(procs) >= 1<<wantRowBits {
		return nil, fmt.Errorf("capture %d processes: at most %d", len(procs), 1<<wantRowBits-1)
	}
	if o.End != 0 && o.Start >= o.End {
		return nil, fmt.Errorf("capture of addresses %#x-%#x: the range is empty", uint64(o.Start), uint64(o.End))
	}
	c.flags = openFrameReader(fs.Path("kpageflags"))
	c.counts = openFrameReader(fs.Path("kpagecount"))
	if err := c.openMembers(); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.facts(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes every descriptor.
func (c *Capture) Close() error {
	for _, m := range c.members {
		m.close()
	}
	c.members = nil
	c.flags.close()
	c.counts.close()
	return nil
}

// Family implements Source.
func (c *Capture) Family() *Family { return &c.fam }

func (c *Capture) openMembers() error {
	at := map[PID]int{}
	for i := range c.fam.Processes {
		p := &c.fam.Processes[i]
		if p.State != StateAudited {
			continue
		}
		m, err := openMember(c.fs, p, c.opt)
		if err != nil {
			if err := c.lost(p, err); err != nil {
				return err
			}
			continue
		}
		m.index = i
		p.Mappings = m.maps
		if c.opt.NoScan {
			if err := m.dropEmptyMappings(c.fs); err != nil {
				m.close()
				if err := c.lost(p, err); err != nil {
					return err
				}
				continue
			}
		}
		at[p.PID] = len(c.members)
		c.members = append(c.members, m)
	}
	for i, m := range c.members {
		p := &c.fam.Processes[m.index]
		if p.Reference == 0 {
			continue
		}
		r, ok := at[p.Reference]
		if !ok {
			c.warn("reference_gone", p.PID, fmt.Sprintf("the reference %d of process %d could not be read, so nothing says what it shares", p.Reference, p.PID),
				"run again; if the master is gone for good, name the workers and one of them as --reference")
			p.Reference, p.Basis = 0, ReferenceNone
			continue
		}
		m.ref = r
		for _, k := range c.members[r].children {
			if len(m.older) < maxOlder && OlderSibling(&c.fam.Processes[c.members[k].index], p) {
				m.older = append(m.older, k)
			}
		}
		c.members[r].children = append(c.members[r].children, i)
	}
	return nil
}

// maxOlder bounds the siblings that are looked at for one page.
const maxOlder = 4

// OlderSibling reports that both processes were forked from the same parent, which is their reference, and a before b. What
// a still shares with the parent, the parent then had since before b was forked: where b has another page, b copied it.
func OlderSibling(a, b *Process) bool {
	return a.Basis == ReferenceParent && b.Basis == ReferenceParent && a.Reference == b.Reference && a.Start < b.Start
}

// lost records why a process could not be read; an error that is not about the process ends the capture.
func (c *Capture) lost(p *Process, err error) error {
	switch {
	case errors.Is(err, ErrGone):
		p.State = StateGone
		c.warn("gone", p.PID, fmt.Sprintf("process %d ended before it could be read", p.PID), "run again for the family as it is now")
	case errors.Is(err, ErrNoMM):
		p.State = StateZombie
		c.warn("no_address_space", p.PID, fmt.Sprintf("process %d has no address space any more", p.PID), "run again for the family as it is now")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		p.State = StateUnreadable
		c.warn("unreadable", p.PID, fmt.Sprintf("process %d may not be read: %v", p.PID, err), "run as root, or as the user of the process with CAP_SYS_PTRACE")
	default:
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}
	return nil
}

func (c *Capture) warn(code string, pid PID, text, remedy string) {
	c.fam.Warnings = append(c.fam.Warnings, Warning{Code: code, PID: pid, Text: text, Remedy: remedy})
}

// facts fills in the circumstances of the capture.
func (c *Capture) facts() error {
	f := &c.fam.Facts
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	f.Host = unix.ByteSliceToString(u.Nodename[:])
	f.Kernel = unix.ByteSliceToString(u.Release[:])
	f.PageSize = c.page
	zero, err := zeroFrame(c.fs, c.page)
	if err != nil {
		return fmt.Errorf("find the zero page: %w", err)
	}
	if f.FramesVisible = zero != 0; f.FramesVisible {
		f.ZeroFrames = []PFN{zero}
	}
	f.FlagsVisible = c.flags.fd >= 0
	f.CountsVisible = c.counts.fd >= 0
	f.PageMapcount = pageMapcount(c.fs, f.Kernel)
	f.Contents = c.opt.Contents && f.FramesVisible
	if !c.opt.NoScan && len(c.members) > 0 {
		m := c.members[0]
		if lo, _, ok := m.mapped(0, ^Addr(0)); ok {
			c.scan = scanSupported(m.fd, lo, c.page)
		}
	}
	f.Scan = c.scan
	if err := c.inferReferences(); err != nil {
		return err
	}
	if err := c.markHugeTLB(); err != nil {
		return err
	}
	return c.learnShapes()
}

// Walk implements Source. It may be called once.
func (c *Capture) Walk(newVisitor func() Visitor) error {
	if c.walked {
		return errors.New("a capture can be walked once")
	}
	c.walked = true
	f := &c.fam.Facts
	start := time.Now()
	f.TimeUnixNano = start.UnixNano()
	lo, hi := c.opt.Start, c.opt.End
	if hi == 0 {
		hi = ^Addr(0)
	}
	size := Addr(c.page) * WindowPages
	p := newPlan(c.members, size, lo, hi, c.scan)
	threads := c.opt.Threads
	if threads == 0 {
		threads = min(runtime.NumCPU(), 4)
	}
	var wg sync.WaitGroup
	errs := make([]error, threads)
	for t := range threads {
		r := newReader(c, lo, hi)
		v := newVisitor()
		wg.Go(func() { errs[t] = r.run(p, v) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.Retries, f.EntriesRead = c.retries.Load(), c.entries.Load()
	err := c.finish()
	f.DurationNano = time.Since(start).Nanoseconds()
	return err
}

// finish looks at every process once more: who has gone meanwhile, whose mappings changed.
func (c *Capture) finish() error {
	for _, m := range c.members {
		p := &c.fam.Processes[m.index]
		if m.gone.Load() {
			p.State = StateGone
			if st, err := c.fs.Stat(p.PID); err == nil && st.Start == p.Start && st.State != 'Z' && st.State != 'X' {
				p.State = StateChanged
			}
			c.warn("gone", p.PID, fmt.Sprintf("process %d ended or exec'd while it was read; what it held is not counted", p.PID), "run again for the family as it is now")
			continue
		}
		if err := c.finishMember(m, p); err != nil {
			return err
		}
	}
	for _, m := range c.members {
		p := &c.fam.Processes[m.index]
		if m.ref < 0 || m.gone.Load() || !c.members[m.ref].gone.Load() {
			continue
		}
		p.State = StateChanged
		c.warn("reference_gone", p.PID, fmt.Sprintf("the reference %d of process %d ended while it was read, so nothing says what it shares", p.Reference, p.PID), "run again for the family as it is now")
	}
	return nil
}

func (c *Capture) finishMember(m *member, p *Process) error {
	if c.opt.Rollup {
		r, err := c.fs.Rollup(p.PID)
		switch {
		case err == nil:
			p.Rollup = &r
		case !errors.Is(err, ErrGone) && !errors.Is(err, ErrNoMM):
			c.warn("no_rollup", p.PID, fmt.Sprintf("smaps_rollup of process %d could not be read: %v", p.PID, err), "the ledger stands without this check")
		}
	}
	now, err := c.fs.Maps(p.PID)
	if err != nil {
		if errors.Is(err, ErrGone) || errors.Is(err, ErrNoMM) {
			return nil // it ended after its pages had been read: they are complete
		}
		return fmt.Errorf("read the mappings of %d again: %w", p.PID, err)
	}
	if n := countChanged(m.kernel, now); n > 0 {
		c.warn("mappings_changed", p.PID, fmt.Sprintf("%d mappings of process %d changed while it was read; pages mapped since are not counted", n, p.PID),
			"run again, or when the process is idle, for a reading of one moment")
	}
	return nil
}

// countChanged counts the mappings that are in only one of two lists.
func countChanged(a, b []Mapping) int {
	n, i, j := 0, 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case j == len(b) || (i < len(a) && a[i].Start < b[j].Start):
			n, i = n+1, i+1
		case i == len(a) || b[j].Start < a[i].Start:
			n, j = n+1, j+1
		default:
			x, y := &a[i], &b[j]
			if !sameMapping(x, y) {
				n++
			}
			i, j = i+1, j+1
		}
	}
	return n
}
