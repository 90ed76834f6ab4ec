package taskstats

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// Commands and attributes of the family (include/uapi/linux/taskstats.h).
const (
	cmdGet = 1 // TASKSTATS_CMD_GET
	cmdNew = 2 // TASKSTATS_CMD_NEW

	attrPID      = 1 // TASKSTATS_CMD_ATTR_PID
	attrTGID     = 2 // TASKSTATS_CMD_ATTR_TGID
	attrRegister = 3 // TASKSTATS_CMD_ATTR_REGISTER_CPUMASK

	typePID      = 1 // TASKSTATS_TYPE_PID
	typeTGID     = 2 // TASKSTATS_TYPE_TGID
	typeStats    = 3 // TASKSTATS_TYPE_STATS
	typeAggrPID  = 4 // TASKSTATS_TYPE_AGGR_PID
	typeAggrTGID = 5 // TASKSTATS_TYPE_AGGR_TGID
)

const (
	headerSize = unix.NLMSG_HDRLEN
	genlSize   = 4 // struct genlmsghdr
	attrSize   = 4 // struct nlattr
)

func align(n int) int { return (n + 3) &^ 3 }

// request makes one message with one attribute. Netlink has the byte order of the machine (struct nlmsghdr, struct
// genlmsghdr, struct nlattr).
func request(family uint16, flags uint16, seq uint32, cmd, version uint8, attr uint16, value []byte) []byte {
	n := headerSize + genlSize + attrSize + len(value)
	b := make([]byte, align(n))
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], family)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(b[8:], seq)
	b[headerSize], b[headerSize+1] = cmd, version
	binary.NativeEndian.PutUint16(b[headerSize+genlSize:], uint16(attrSize+len(value)))
	binary.NativeEndian.PutUint16(b[headerSize+genlSize+2:], attr)
	copy(b[headerSize+genlSize+attrSize:], value)
	return b
}

// message is one netlink message: its attributes, or the error that it carries (nil for an acknowledgement).
type message struct {
	kind uint16
	seq  uint32
	cmd  uint8
	body []byte // attributes
	err  error  // with kind NLMSG_ERROR
}

// nextMessage takes the first message off a datagram.
func nextMessage(b []byte) (m message, rest []byte, err error) {
	if len(b) < headerSize {
		return m, nil, fmt.Errorf("%w: netlink: %d bytes are no message", pagemap.ErrFormat, len(b))
	}
	n := int(binary.NativeEndian.Uint32(b))
	if n < headerSize || n > len(b) {
		return m, nil, fmt.Errorf("%w: netlink: a message of %d bytes in %d", pagemap.ErrFormat, n, len(b))
	}
	m.kind, m.seq = binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:])
	body := b[headerSize:n]
	rest = b[min(align(n), len(b)):]
	if m.kind == unix.NLMSG_ERROR {
		if len(body) < 4 {
			return m, nil, fmt.Errorf("%w: netlink: an error of %d bytes", pagemap.ErrFormat, len(body))
		}
		if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
			m.err = syscall.Errno(-code)
		}
		return m, rest, nil
	}
	if len(body) < genlSize {
		return m, nil, fmt.Errorf("%w: generic netlink: a message of %d bytes", pagemap.ErrFormat, len(body))
	}
	m.cmd, m.body = body[0], body[genlSize:]
	return m, rest, nil
}

// attributes calls f with each attribute in order, without the flags of its type.
func attributes(b []byte, f func(kind uint16, value []byte) error) error {
	const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
	for len(b) > 0 {
		if len(b) < attrSize {
			return fmt.Errorf("%w: netlink: %d bytes are no attribute", pagemap.ErrFormat, len(b))
		}
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrSize || n > len(b) {
			return fmt.Errorf("%w: netlink: an attribute of %d bytes in %d", pagemap.ErrFormat, n, len(b))
		}
		if err := f(binary.NativeEndian.Uint16(b[2:])&^flags, b[attrSize:n]); err != nil {
			return err
		}
		b = b[min(align(n), len(b)):]
	}
	return nil
}

// records is what one TASKSTATS_CMD_NEW holds: a task, and with the last of several threads also the sum of its process.
type records struct {
	task, process       stats
	hasTask, hasProcess bool
}

func parseRecords(body []byte) (r records, err error) {
	err = attributes(body, func(kind uint16, value []byte) error {
		switch kind {
		case typeAggrPID:
			r.hasTask = true
			return parseAggregate(value, typePID, &r.task)
		case typeAggrTGID:
			r.hasProcess = true
			return parseAggregate(value, typeTGID, &r.process)
		}
		return nil // TASKSTATS_TYPE_NULL aligns, and later kernels may have more
	})
	return r, err
}

func parseAggregate(b []byte, idType uint16, out *stats) error {
	var seen bool
	var id uint32
	err := attributes(b, func(kind uint16, value []byte) (err error) {
		switch kind {
		case idType:
			if len(value) != 4 {
				return fmt.Errorf("%w: taskstats: an id of %d bytes", pagemap.ErrFormat, len(value))
			}
			id = binary.NativeEndian.Uint32(value)
		case typeStats:
			seen = true
			*out, err = parseStats(value)
			return err
		}
		return nil
	})
	if err == nil && !seen {
		err = fmt.Errorf("%w: taskstats: a record without counts", pagemap.ErrFormat)
	}
	out.id = pagemap.PID(id)
	return err
}
