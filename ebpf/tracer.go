package ebpf

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	cebpf "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// Tracer gathers the page faults of some processes and their children until it is stopped. What it attaches is held by
// descriptors of this process alone: when cowaudit ends, however it ends, the kernel takes everything away.
//
// Its methods may be called from several goroutines.
type Tracer struct {
	o      Options
	kernel *loaded
	reader *ringbuf.Reader
	began  time.Time
	mono   uint64 // the same moment on CLOCK_MONOTONIC, ns

	mark atomic.Uint32

	stop  chan struct{}
	hurry chan struct{} // a program is about to start
	done  chan struct{}

	mu         sync.Mutex
	g          *gatherer
	collectors *collectors
	nextSpace  SpaceID
	quiet      bool
	warnings   []pagemap.Warning
	failed     error // of the reading goroutine
	closed     bool
}

// Start loads the programs and attaches them; no process is traced yet. The error names the capability, mount or kernel
// option that is missing and wraps pagemap.ErrNotSupported where the kernel has no such thing.
func Start(o Options) (*Tracer, error) {
	if o.Interval == 0 {
		o.Interval = 20 * time.Millisecond
	}
	if o.emptyEvery == 0 {
		o.emptyEvery = emptyEvery
	}
	if err := hostPIDs(o.FS); err != nil {
		return nil, err
	}
	t := &Tracer{o: o, stop: make(chan struct{}), hurry: make(chan struct{}, 1), done: make(chan struct{})}
	var err error
	if t.collectors, err = newCollectors(t); err != nil {
		return nil, err
	}
	symbols, err := readKernelSymbols(o.FS)
	if o.noSymbols {
		symbols, err = kernelSymbols{}, errSymbolsHidden
	}
	if t.quiet = err == nil; !t.quiet {
		t.warnings = append(t.warnings, pagemap.Warning{
			Code:   "kernel_symbols_hidden",
			Text:   "copies made inside of system calls cannot be told from other allocations: " + err.Error(),
			Remedy: "run as root with kernel.kptr_restrict at most 1",
		})
	}
	if t.kernel, err = load(&o, symbols); err != nil {
		return nil, fmt.Errorf("load the fault tracer: %w", err)
	}
	if t.reader, err = ringbuf.NewReader(t.kernel.coll.Maps["records"]); err != nil {
		return nil, errors.Join(fmt.Errorf("read the ring buffer: %w", err), t.kernel.close())
	}
	t.began, t.mono = time.Now(), monotonic()
	t.g = newGatherer(t)
	go t.run()
	return t, nil
}

// HostPIDs reports whether this process is in the first PID namespace, whose thread ids the kernel's side sees. It has a
// fixed inode number (include/uapi/linux/nsfs.h, PROC_PID_INIT_INO; so since 3.8).
func HostPIDs(fs pagemap.FS) (bool, error) {
	name, err := os.Readlink(fs.Path("self", "ns", "pid"))
	if err != nil {
		return false, fmt.Errorf("which PID namespace this is: %w", err)
	}
	return name == "pid:[4026531836]", nil
}

// hostPIDs refuses another PID namespace.
func hostPIDs(fs pagemap.FS) error {
	first, err := HostPIDs(fs)
	if err == nil && !first {
		return fmt.Errorf("%w: the fault tracer sees the host's process ids, and this process is in another PID namespace: run it on the host, or with --pid=host", pagemap.ErrNotSupported)
	}
	return err
}

func monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("CLOCK_MONOTONIC: " + err.Error())
	}
	return uint64(ts.Nano())
}

// Variant says how the programs are attached.
func (t *Tracer) Variant() string { return t.kernel.variant }

// Now is the time since the trace began, on the clock of its faults. A fault's time is that of the last tick of the
// kernel's clock (1 to 10 ms), and yet never before a Now that came before the fault.
func (t *Tracer) Now() time.Duration {
	// Setting it cannot fail but for a map that is gone, and then there are no more faults.
	_ = t.kernel.coll.Variables["mark"].Set(t.mark.Add(1))
	return time.Duration(monotonic() - t.mono)
}

// clock is Now without a mark.
func (t *Tracer) clock() time.Duration { return time.Duration(monotonic() - t.mono) }

// A program that has just been started is looked at soon and often: it may end before the next reading, and its mappings
// and names with it.
const (
	soon    = time.Millisecond
	soonFor = 100 * time.Millisecond
)

// run reads the kernel's buffers until the tracer is stopped.
func (t *Tracer) run() {
	defer close(t.done)
	next := time.NewTimer(soon)
	defer next.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-t.hurry:
		case <-next.C:
		}
		err := t.Flush()
		t.mu.Lock()
		t.failed = err
		wait := t.o.Interval
		if len(t.g.waiting) > 0 || t.g.started != 0 && t.clock()-t.g.started < soonFor {
			wait = min(wait, soon)
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
		next.Reset(wait)
	}
}

// Flush takes in what the kernel has put out until now. A thread's last fault may still be undecided: it is settled by its
// next one, by its end, or by Stop.
func (t *Tracer) Flush() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return os.ErrClosed
	}
	return t.flush()
}

// ringHeader is the size of what is before each record in the ring buffer, which is aligned to 8 bytes: BPF_RINGBUF_HDR_SZ,
// include/uapi/linux/bpf.h.
const ringHeader = 8

func (t *Tracer) flush() error {
	if err := t.reader.Flush(); err != nil {
		return fmt.Errorf("read the ring buffer: %w", err)
	}
	var rec ringbuf.Record
	rec.RawSample = t.g.buf
	// No more than there is now: more may come faster than it is read, and the lock would never be let go.
	for left := t.reader.AvailableBytes(); left > 0; left -= ringHeader + (len(rec.RawSample)+7)&^7 {
		err := t.reader.ReadInto(&rec)
		if errors.Is(err, ringbuf.ErrFlushed) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the ring buffer: %w", err)
		}
		t.g.record(rec.RawSample)
	}
	t.g.buf = rec.RawSample
	if err := t.g.turnCounts(); err != nil {
		return err
	}
	t.g.visit()
	return nil
}

// Add traces processes from now on: all their threads and, unless Options.NoFollow, all their children to come. It is no
// error that one is traced already. A process that has ended is pagemap.ErrGone; the others are added all the same.
func (t *Tracer) Add(pids ...pagemap.PID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return os.ErrClosed
	}
	var errs []error
	for _, pid := range pids {
		if err := t.add(pid); err != nil {
			errs = append(errs, fmt.Errorf("trace process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// AddAtExec traces a process, with all its threads, from its next exec on, and what it then becomes as if it had been there
// from the start: nothing of a program that waits to become the one to be traced is counted.
func (t *Tracer) AddAtExec(pid pagemap.PID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return os.ErrClosed
	}
	t.nextSpace++
	t.g.waiting[t.nextSpace] = true
	defer func() {
		select {
		case t.hurry <- struct{}{}:
		default:
		}
	}()
	for range 2 { // a thread that was started meanwhile by one not entered yet is in the second listing
		tids, err := t.o.FS.Threads(pid)
		if err != nil {
			return fmt.Errorf("trace process %d: %w", pid, err)
		}
		for _, tid := range tids {
			if _, err := t.enter(tid, pid, t.nextSpace, true); err != nil {
				return fmt.Errorf("trace process %d: %w", pid, err)
			}
		}
	}
	return nil
}

// add enters every thread of a process. A thread that is started meanwhile by one that is entered already is entered by
// the kernel's side; one that was started before that is in the next listing.
func (t *Tracer) add(pid pagemap.PID) error {
	tids, err := t.o.FS.Threads(pid)
	if err != nil {
		return err
	}
	id, fresh := t.sharedSpace(pid), false
	if id == 0 {
		t.nextSpace++
		id, fresh = t.nextSpace, true
		t.g.newSpace(Space{ID: id, Cause: CauseStart, Process: pagemap.Identity{PID: pid}, Began: t.clock()})
	}
	seen := map[pagemap.PID]bool{}
	for more := true; more; {
		more = false
		for _, tid := range tids {
			if seen[tid] {
				continue
			}
			seen[tid], more = true, true
			was, err := t.enter(tid, pid, id, false)
			if err != nil {
				return err
			}
			if was && fresh && tid == pagemap.PID(pid) {
				// Traced already, as a child: the space that it has stays.
				delete(t.g.spaces, id)
				delete(t.g.fresh, id)
				return nil
			}
		}
		if tids, err = t.o.FS.Threads(pid); err != nil {
			return err
		}
	}
	// Now, not at the next reading: probes write to the target, which is to be over when Add returns.
	t.g.look(t.g.spaces[id])
	return nil
}

// enter has the kernel's side trace a thread, and reports whether it did so before.
func (t *Tracer) enter(tid, pid pagemap.PID, id SpaceID, atExec bool) (was bool, err error) {
	e := faultsEntry{Tid: uint32(tid), Tgid: uint32(pid), Space: uint32(id), AtExec: uint32(flag(atExec))}
	if _, err := t.kernel.coll.Programs[enterProgram].Run(&cebpf.RunOptions{Context: &e, ContextOut: &e}); err != nil {
		return false, fmt.Errorf("enter thread %d: %w", tid, err)
	}
	switch e.Done {
	case 0:
		return false, fmt.Errorf("enter thread %d: no room for more than %d threads", tid, t.kernel.coll.Maps["threads"].MaxEntries()-1)
	case 2:
		return true, nil
	}
	return false, nil
}

// sharedSpace finds the space of a traced process whose address space this one uses too (CLONE_VM without CLONE_THREAD);
// 0: there is none.
func (t *Tracer) sharedSpace(pid pagemap.PID) SpaceID {
	t.g.ends()
	for _, s := range t.g.spaces {
		if s.Ended != 0 || s.Process.PID == pid {
			continue
		}
		if same, err := t.o.FS.SharesMM(pid, s.Process.PID); err == nil && same {
			return s.ID
		}
	}
	return 0
}

// Close takes everything out of the kernel. Stop does it too.
func (t *Tracer) Close() error {
	_, err := t.Stop()
	return err
}

// Stop detaches the programs and gives what was seen, with names. A second call gives nil and no error.
func (t *Tracer) Stop() (*Trace, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, nil
	}
	t.mu.Unlock()
	close(t.stop)
	<-t.done
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	end := t.clock()
	errs := []error{t.failed}
	// The programs go first, so that nothing changes any more; the maps stay for the last reading.
	missed, err := t.kernel.detach()
	errs = append(errs, err, t.collectors.close(), t.flush())
	trace, err := t.g.finish(end, missed)
	errs = append(errs, err, t.reader.Close(), t.kernel.close(), t.g.names.close())
	if err := errors.Join(errs...); err != nil {
		return trace, err
	}
	return trace, nil
}
