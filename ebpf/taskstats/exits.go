package taskstats

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// Exits receives the last counts of every process of the machine that ends, so that the count of one that ended inside of a
// window is known.
type Exits struct {
	// C delivers the processes that ended. It is closed after Close, or when the socket fails.
	C <-chan Counts

	file   *os.File
	queue  chan Counts
	done   chan struct{}
	once   sync.Once
	lost   atomic.Int64
	failed error // set before C is closed
}

// Bounds of what waits to be taken: records in the channel, and bytes in the socket before that.
const (
	exitQueue  = 4096
	exitBuffer = 4 << 20
	arrival    = 5 * time.Second // of the first record, which takes microseconds
)

// Exits registers for the exit records of all CPUs (TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, kernel/taskstats.c,
// taskstats_exit). Only processes are delivered: for one that has had several threads the kernel sends the sum with its last
// thread, for others the one thread's record is it, marked as the last of its group (AGROUP, Linux 5.15).
//
// PIDs are those of the initial pid namespace. Asking is refused outside of the initial pid or user namespace, and in
// another network namespace nothing would arrive; the error then wraps pagemap.ErrNotSupported.
//
// A record tells neither start time nor threads. Its WPCopyKnown is true where the process had one thread and counted
// something. For one that was there at the beginning of the window, [Counts.Since] an earlier reading is exact; one that was
// forked after accounting was switched on has all of its copies in WPCopy whatever WPCopyKnown says.
func (c *Client) Exits() (*Exits, error) {
	e, err := c.listen()
	if err == nil {
		go e.receive(c.family)
	}
	return e, err
}

// listen registers, and receives nothing yet.
func (c *Client) listen() (*Exits, error) {
	fd, family, err := dial(unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	// From here on the socket belongs to the poller, so that Close ends a read.
	e := &Exits{file: os.NewFile(uintptr(fd), "taskstats"), queue: make(chan Counts, exitQueue), done: make(chan struct{})}
	e.C = e.queue
	err = register(fd, family)
	if err == nil {
		err = e.arrives(family)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask for exit records: %w", err), e.file.Close())
	}
	return e, nil
}

func register(fd int, family uint16) error {
	cpus, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return err
	}
	// SO_RCVBUFFORCE needs CAP_NET_ADMIN, which the family asks for anyway. With NETLINK_NO_ENOBUFS the socket goes on after an
	// overrun; what was dropped is counted all the same (net/netlink/af_netlink.c, netlink_overrun).
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, exitBuffer); err != nil {
		return fmt.Errorf("make room for them: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return err
	}
	list := append([]byte(strings.TrimSpace(string(cpus))), 0)
	const seq = 1 << 31 // exit records are numbered from 0 (taskstats_seqnum)
	_, err = ask(fd, make([]byte, 8192), request(family, unix.NLM_F_ACK, seq, cmdGet, 1, attrRegister, list))
	switch {
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: needs CAP_NET_ADMIN in the initial user namespace", err)
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("%w: not in the initial pid and user namespaces: %w", pagemap.ErrNotSupported, err)
	case err != nil:
		return err
	}
	return nil
}

// arrives sees to it that records come here: a thread of this process ends, and its record is waited for. Nothing else tells the
// initial network namespace from others in every kernel.
func (e *Exits) arrives(family uint16) error {
	if err := e.file.SetReadDeadline(time.Now().Add(arrival)); err != nil {
		return err
	}
	go endThread()
	buf := make([]byte, 64<<10)
	for {
		n, err := e.file.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%w: none comes: they are sent to the initial network namespace only", pagemap.ErrNotSupported)
		}
		if err != nil {
			return err
		}
		m, _, err := nextMessage(buf[:n])
		if err != nil {
			return err
		}
		if m.kind != family || m.cmd != cmdNew {
			continue
		}
		r, err := parseRecords(m.body)
		if err != nil {
			return err
		}
		if r.hasTask && int(r.task.tgid) == os.Getpid() {
			return e.file.SetReadDeadline(time.Time{})
		}
	}
}

// endThread is a goroutine's: a thread that is still locked when it returns ends with it. The main thread does not, so that is
// kept busy meanwhile.
func endThread() {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
	}()
	<-done
	runtime.UnlockOSThread()
}

func (e *Exits) receive(family uint16) {
	defer close(e.done)
	defer close(e.queue)
	buf := make([]byte, 64<<10)
	for {
		n, err := e.file.Read(buf)
		if errors.Is(err, fs.ErrClosed) {
			return
		}
		if err != nil {
			e.failed = fmt.Errorf("receive exit records: %w", err)
			return
		}
		a, err := DelayAccounting()
		if err == nil {
			err = e.datagram(buf[:n], family, a)
		}
		if err != nil {
			e.failed = fmt.Errorf("receive exit records: %w", err)
			return
		}
	}
}

// datagram takes the processes out of what arrived.
func (e *Exits) datagram(b []byte, family uint16, a Accounting) error {
	for len(b) > 0 {
		m, rest, err := nextMessage(b)
		if err != nil {
			return err
		}
		b = rest
		if m.kind != family || m.cmd != cmdNew {
			continue
		}
		r, err := parseRecords(m.body)
		if err != nil {
			return err
		}
		if c, ok := exitCounts(r, a); ok {
			select {
			case e.queue <- c:
			default:
				e.lost.Add(1)
			}
		}
	}
	return nil
}

// exitCounts makes the counts of a process of a record, if it is the last of one.
func exitCounts(r records, a Accounting) (Counts, bool) {
	var c Counts
	switch {
	case r.hasProcess:
		c = Counts{Version: r.process.version, WPCopy: r.process.copies, WPCopyDelay: r.process.delay}
		c.PID = r.process.id
		c.Why = "the process had several threads: its exit record does not tell which of them were counted"
	case r.hasTask && r.task.flags&agroup != 0:
		c = Counts{Version: r.task.version, WPCopy: r.task.copies, WPCopyDelay: r.task.delay, WPCopyKnown: a.On && r.task.counts}
		c.PID = r.task.tgid
		if !c.WPCopyKnown {
			c.Why = "the process may be older than delay accounting"
		}
	default:
		return c, false
	}
	c.Ended, c.off, c.epoch = true, !a.On, a.OnSince
	if c.off {
		c.Why = whyOff
	}
	return c, true
}

// Lost counts the records that were dropped since the beginning, by the kernel for want of room in the socket (SO_MEMINFO, Linux
// 4.12, include/uapi/linux/sock_diag.h) or here since C was not read: one for each thread there, one for each process here. It
// must be asked before Close.
func (e *Exits) Lost() (int64, error) {
	const drops = 8 // SK_MEMINFO_DROPS
	raw, err := e.file.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("count lost exit records: %w", err)
	}
	var info [drops + 1]uint32
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = memInfo(int(fd), info[:]) }); err != nil {
		return 0, fmt.Errorf("count lost exit records: %w", err)
	}
	if serr != nil {
		return 0, fmt.Errorf("count lost exit records: %w", serr)
	}
	return int64(info[drops]) + e.lost.Load(), nil
}

// Close ends the registration, which the kernel drops with the socket at the next record, and closes C. The error is that of a
// socket that failed before.
func (e *Exits) Close() error {
	var err error
	e.once.Do(func() { err = e.file.Close() })
	<-e.done
	return errors.Join(err, e.failed)
}
