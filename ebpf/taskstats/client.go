package taskstats

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// Client asks the kernel for counts. Its methods may be called by several goroutines.
type Client struct {
	mu      sync.Mutex
	fd      int
	seq     uint32
	family  uint16
	version int
	buf     []byte
}

// errOtherProc: the PIDs of the kernel's answers would not be those of /proc.
var errOtherProc = fmt.Errorf("%w: /proc is mounted for another pid namespace", pagemap.ErrNotSupported)

// Open connects to the kernel's TASKSTATS family (CONFIG_TASKSTATS) and tries it on this process. It needs CAP_NET_ADMIN in
// the initial user namespace. The error wraps pagemap.ErrNotSupported where the family is not there, or is of a kernel before
// 5.19 that counts no copies, or where /proc is that of another pid namespace than the caller's; and fs.ErrPermission where
// asking is refused.
func Open() (*Client, error) {
	if self, err := os.Readlink("/proc/self"); err != nil {
		return nil, fmt.Errorf("open taskstats: %w", err)
	} else if self != strconv.Itoa(os.Getpid()) {
		return nil, fmt.Errorf("open taskstats: %w: this process is %d, and %s in /proc", errOtherProc, os.Getpid(), self)
	}
	fd, family, err := dial(0)
	if err != nil {
		return nil, err
	}
	c := &Client{fd: fd, family: family, seq: 1, buf: make([]byte, 8192)}
	s, err := c.get(attrPID, pagemap.PID(os.Getpid()))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.version = s.version
	return c, nil
}

// Version is that of the kernel's struct taskstats, 13 at least.
func (c *Client) Version() int { return c.version }

// Close gives the socket back.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return nil
	}
	fd := c.fd
	c.fd = -1
	return unix.Close(fd)
}

// dial opens a socket and finds the number of the family. The kernel answers within the call that asks, so the timeout
// only bounds what cannot happen.
func dial(flags int) (fd int, family uint16, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
			return -1, 0, fmt.Errorf("open taskstats: %w: no generic netlink: %w", pagemap.ErrNotSupported, err)
		}
		return -1, 0, fmt.Errorf("open taskstats: open a netlink socket: %w", err)
	}
	family, err = connect(fd)
	if err == nil && flags != 0 {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return -1, 0, errors.Join(fmt.Errorf("open taskstats: %w", err), unix.Close(fd))
	}
	return fd, family, nil
}

func connect(fd int) (uint16, error) {
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return 0, fmt.Errorf("set a time limit: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("bind the netlink socket: %w", err)
	}
	m, err := ask(fd, make([]byte, 8192), request(unix.GENL_ID_CTRL, 0, 0, unix.CTRL_CMD_GETFAMILY, 1, unix.CTRL_ATTR_FAMILY_NAME, []byte("TASKSTATS\x00")))
	if errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("%w: the kernel was built without CONFIG_TASKSTATS", pagemap.ErrNotSupported)
	}
	if err != nil {
		return 0, fmt.Errorf("look up the TASKSTATS family: %w", err)
	}
	var family uint16
	err = attributes(m.body, func(kind uint16, value []byte) error {
		if kind == unix.CTRL_ATTR_FAMILY_ID && len(value) == 2 {
			family = binary.NativeEndian.Uint16(value)
		}
		return nil
	})
	if err == nil && family == 0 {
		err = fmt.Errorf("%w: the TASKSTATS family has no number", pagemap.ErrFormat)
	}
	return family, err
}

// ask sends a request and gives the answer to it, which may be an acknowledgement.
func ask(fd int, buf, req []byte) (message, error) {
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return message{}, err
	}
	seq := binary.NativeEndian.Uint32(req[8:])
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return message{}, err
		}
		if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != 0 {
			continue // not from the kernel
		}
		for b := buf[:n]; len(b) > 0; {
			m, rest, err := nextMessage(b)
			if err != nil {
				return message{}, err
			}
			if m.seq == seq {
				return m, m.err
			}
			b = rest
		}
	}
}

// get asks for one task (attrPID) or one process (attrTGID).
func (c *Client) get(attr uint16, pid pagemap.PID) (stats, error) {
	what := "task"
	if attr == attrTGID {
		what = "process"
	}
	s, err := c.query(attr, pid)
	switch {
	case errors.Is(err, syscall.ESRCH):
		err = fmt.Errorf("%w: %w", pagemap.ErrGone, syscall.ESRCH)
	case errors.Is(err, syscall.EPERM):
		err = fmt.Errorf("%w: needs CAP_NET_ADMIN in the initial user namespace (root has it, a container's root mostly not)", syscall.EPERM)
	}
	if err != nil {
		return stats{}, fmt.Errorf("ask taskstats for %s %d: %w", what, pid, err)
	}
	return s, nil
}

func (c *Client) query(attr uint16, pid pagemap.PID) (stats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return stats{}, os.ErrClosed
	}
	c.seq++
	var id [4]byte
	binary.NativeEndian.PutUint32(id[:], uint32(pid))
	m, err := ask(c.fd, c.buf, request(c.family, 0, c.seq, cmdGet, 1, attr, id[:]))
	if err != nil {
		return stats{}, err
	}
	if m.kind != c.family || m.cmd != cmdNew {
		return stats{}, fmt.Errorf("%w: an answer of type %d, command %d", pagemap.ErrFormat, m.kind, m.cmd)
	}
	r, err := parseRecords(m.body)
	if err != nil {
		return stats{}, err
	}
	s, ok := r.task, r.hasTask
	if attr == attrTGID {
		s, ok = r.process, r.hasProcess
	}
	if !ok || s.id != pid {
		return stats{}, fmt.Errorf("%w: an answer about %d", pagemap.ErrFormat, s.id)
	}
	return s, nil
}
