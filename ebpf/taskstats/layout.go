package taskstats

import (
	"encoding/binary"
	"fmt"
	"time"

	"cowaudit/pagemap"
)

// stats is what is used of struct taskstats, of a task or of a process.
type stats struct {
	id      pagemap.PID // task or process, from the attribute beside it
	version int
	flags   uint8       // ac_flag; of a task only
	tgid    pagemap.PID // ac_tgid; of a task only
	copies  uint64
	delay   time.Duration
	counts  bool // one of the delay counts is not 0
}

// agroup is AGROUP of include/uapi/linux/acct.h in ac_flag: the last thread of its process (taskstats version 12, 5.15).
const agroup = 0x20

// layout is where the fields are, in bytes from the start of struct taskstats.
type layout struct {
	size           int
	grows          bool // later versions append, so a longer record may come
	tgid           int
	wpcopy, wpwait int
	counts         []int // all counts that only a task with counters has (kernel/delayacct.c, delayacct_add_tsk)
}

// layouts by the version that has it first. Fields are only appended, so that one table would do, were it not for version 15
// (6.14): it put a maximum and a minimum behind each count in the middle (commits 658eb5ab916d, f65c64f311ee, b016d0873777),
// and version 16 (0bf2d838de1f, also in the stable releases of 6.14) moved them to the end. Both have the same size.
//
//	offsets: blkio, swapin, freepages, thrashing, compact, wpcopy, irq
var layouts = map[int]layout{
	13: {size: 416, tgid: 368, wpcopy: 400, wpwait: 408, counts: []int{32, 48, 312, 328, 352, 400}},
	14: {size: 432, tgid: 368, wpcopy: 400, wpwait: 408, counts: []int{32, 48, 312, 328, 352, 400, 416}},
	15: {size: 560, tgid: 464, wpcopy: 496, wpwait: 504, counts: []int{48, 80, 360, 392, 432, 496, 528}},
	16: {size: 560, tgid: 368, wpcopy: 400, wpwait: 408, counts: []int{32, 48, 312, 328, 352, 400, 416}, grows: true},
}

const (
	firstVersion  = 13 // has wpcopy_count
	latestVersion = 16 // whose fields later ones keep
	offsetFlag    = 8  // ac_flag, in all versions
)

func parseStats(b []byte) (s stats, err error) {
	if len(b) < 2 {
		return s, fmt.Errorf("%w: taskstats: %d bytes", pagemap.ErrFormat, len(b))
	}
	s.version = int(binary.NativeEndian.Uint16(b))
	if s.version < firstVersion {
		return s, fmt.Errorf("%w: taskstats version %d counts no copies: version %d does, from Linux 5.19 on", pagemap.ErrNotSupported, s.version, firstVersion)
	}
	l := layouts[min(s.version, latestVersion)]
	if len(b) < l.size || len(b) > l.size && !l.grows {
		return s, fmt.Errorf("%w: taskstats version %d: %d bytes, want %d", pagemap.ErrFormat, s.version, len(b), l.size)
	}
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	s.flags = b[offsetFlag]
	s.tgid = pagemap.PID(binary.NativeEndian.Uint32(b[l.tgid:]))
	s.copies, s.delay = word(l.wpcopy), time.Duration(word(l.wpwait))
	for _, at := range l.counts {
		s.counts = s.counts || word(at) != 0
	}
	return s, nil
}
