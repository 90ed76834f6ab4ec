package forktest

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// link is cowaudit's end of the control channel: a stream socket pair (unix(7)) whose other end is the subject's standard
// input, the one descriptor that wrappers pass on (sudo and Python's subprocess close all above 2).
//
// The kernel says who wrote each piece (SO_PASSCRED): the PID of the writing process as this process' pid namespace has
// it, whichever namespace, chroot or wrapper the writer is in.
type link struct {
	fd     int
	out    []byte // orders not yet taken by the socket
	parts  map[pagemap.PID][]byte
	inbox  []answer
	closed bool // no process holds the other end any more
}

// answer is a line and the process that wrote it. err is set where the line is not of the protocol.
type answer struct {
	message
	from pagemap.PID
	err  error
}

// newLink makes the channel; the file is the subject's end.
func newLink() (*link, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the control channel: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "control channel")
	err = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	if err == nil {
		err = unix.SetNonblock(pair[0], true)
	}
	if err != nil {
		unix.Close(pair[0])
		theirs.Close()
		return nil, nil, fmt.Errorf("set up the control channel: %w", err)
	}
	return &link{fd: pair[0], parts: map[pagemap.PID][]byte{}}, theirs, nil
}

func (l *link) close() {
	if l.fd >= 0 {
		unix.Close(l.fd)
		l.fd = -1
	}
}

// send queues bytes; flush hands them over.
func (l *link) send(b string) { l.out = append(l.out, b...) }

// flush writes what the socket takes. A subject that closed its end shows by its death or by closed.
func (l *link) flush() {
	for len(l.out) > 0 {
		n, err := unix.SendmsgN(l.fd, l.out, nil, nil, unix.MSG_NOSIGNAL)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			l.closed = true
			l.out = nil
			return
		}
		l.out = l.out[n:]
	}
	l.out = nil
}

// receive takes what is there, within reason, and puts whole lines into the inbox.
func (l *link) receive() error {
	buf := make([]byte, 1<<16)
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred)+64)
	for range 64 {
		n, oobn, flags, _, err := unix.Recvmsg(l.fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.ECONNRESET): // closed with orders unread
			l.closed = true
			return nil
		case err != nil:
			return fmt.Errorf("read the control channel: %w", err)
		case n == 0:
			l.closed = true
			return nil
		}
		pid, err := sender(oob[:oobn], flags)
		if err != nil {
			return err
		}
		l.take(pid, buf[:n])
	}
	return nil
}

// sender gives the PID in a message's credentials and closes descriptors that came along uninvited.
func sender(oob []byte, flags int) (pagemap.PID, error) {
	if flags&unix.MSG_CTRUNC != 0 {
		return 0, fmt.Errorf("%w: descriptors were sent along", errProtocol)
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, fmt.Errorf("read the sender of a message: %w", err)
	}
	pid := pagemap.PID(0)
	for i := range list {
		if cred, err := unix.ParseUnixCredentials(&list[i]); err == nil {
			pid = pagemap.PID(cred.Pid)
		} else if fds, err := unix.ParseUnixRights(&list[i]); err == nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
	}
	if pid <= 0 {
		return 0, errors.New("a process outside this pid namespace answered: run cowaudit in the namespace of its processes, or above it")
	}
	return pid, nil
}

func (l *link) take(pid pagemap.PID, b []byte) {
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		line := append(l.parts[pid], b[:i]...)
		delete(l.parts, pid)
		b = b[i+1:]
		m, err := parseMessage(string(line))
		l.inbox = append(l.inbox, answer{message: m, from: pid, err: err})
	}
	if len(b) == 0 {
		return
	}
	l.parts[pid] = append(l.parts[pid], b...)
	if len(l.parts[pid]) > maxLine {
		l.inbox = append(l.inbox, answer{from: pid, err: fmt.Errorf("%w: a line of more than %d bytes, which begins %.40q", errProtocol, maxLine, l.parts[pid])})
		delete(l.parts, pid)
	}
}

// next takes the oldest answer out of the inbox.
func (l *link) next() (answer, bool) {
	if len(l.inbox) == 0 {
		return answer{}, false
	}
	a := l.inbox[0]
	l.inbox = l.inbox[1:]
	return a, true
}
