package pagemap

import (
	"bytes"
	"errors"
	"unsafe"
)

// reader is one goroutine of a capture, with its buffers. One window takes 8 KiB for each process.
type reader struct {
	c      *Capture
	lo, hi Addr
	size   Addr // bytes of a window
	win    Window
	rows   [][]Entry // for each member, its buffer
	again  [][]Entry // for each member that is a reference, the second reading
	moved  [WindowPages]bool
	none   [WindowPages]Entry // stays empty: the row of a reference that maps nothing in the window
	want   []frameWant
	words  []uint64
	flags  [][]KFlags
	counts [][]int32
	change [][]int16
	jitter [][]bool
	bufs   [2][]byte // contents of two processes
	zero   PFN
}

func newReader(c *Capture, lo, hi Addr) *reader {
	n := len(c.members)
	r := &reader{c: c, lo: lo, hi: hi, size: Addr(c.page) * WindowPages,
		rows: make([][]Entry, n), again: make([][]Entry, n), words: make([]uint64, WindowPages),
		flags: make([][]KFlags, n), counts: make([][]int32, n), change: make([][]int16, n), jitter: make([][]bool, n)}
	for i, m := range c.members {
		r.rows[i] = make([]Entry, WindowPages)
		if len(m.children) > 0 {
			r.again[i] = make([]Entry, WindowPages)
		}
	}
	r.win.Rows = make([]Row, len(c.fam.Processes))
	if z := c.fam.Facts.ZeroFrames; len(z) > 0 {
		r.zero = z[0]
	}
	return r
}

// run reads spans until the plan has no more.
func (r *reader) run(p *plan, v Visitor) error {
	for {
		span, ok, err := p.next()
		if err != nil || !ok {
			return err
		}
		for at := span.start; at < span.end; at += r.size {
			if err := r.c.ctx.Err(); err != nil {
				return err
			}
			held, err := r.window(at)
			if err != nil {
				return err
			}
			if !held {
				continue
			}
			if err := v.Window(&r.win); err != nil {
				return err
			}
		}
	}
}

// row gives member i's row of the current window.
func (r *reader) row(i int) *Row { return &r.win.Rows[r.c.members[i].index] }

// window reads one window from all members; held is false when nobody holds anything in it.
func (r *reader) window(at Addr) (held bool, err error) {
	r.win.Start = at
	for i, m := range r.c.members {
		*r.row(i) = Row{}
		ok, err := r.readRow(m, at, r.rows[i])
		if err != nil {
			return false, err
		}
		if ok {
			r.row(i).Entries = r.rows[i]
			held = held || !allZero(r.rows[i])
		}
	}
	if !held {
		return false, nil
	}
	for i, m := range r.c.members {
		if r.again[i] == nil || r.row(i).Entries == nil {
			continue
		}
		if ok, err := r.readRow(m, at, r.again[i]); err != nil {
			return false, err
		} else if !ok {
			r.row(i).Entries = nil // gone: its children's rows are given up with it
		}
	}
	if err := r.settle(at); err != nil {
		return false, err
	}
	if err := r.needs(); err != nil {
		return false, err
	}
	r.contents()
	return true, nil
}

// readRow reads what member m maps of the window into dst. ok is false when it maps nothing there or is gone.
func (r *reader) readRow(m *member, at Addr, dst []Entry) (ok bool, err error) {
	if m.gone.Load() {
		return false, nil
	}
	lo, hi, mapped := m.mapped(max(at, r.lo), min(at+r.size, r.hi))
	if !mapped {
		return false, nil
	}
	page := Addr(r.c.page)
	a, b := int((lo-at)/page), int((hi-at+page-1)/page)
	clear(dst[:a])
	clear(dst[b:])
	err = m.read(dst[a:b], at+Addr(a)*page, r.c.page)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	r.c.entries.Add(int64(b - a))
	return err == nil, err
}

// maxRetries bounds how often a page that keeps moving is read again. Migration of one page takes microseconds.
const maxRetries = 8

// settle compares the two readings of each reference and reads again, closely, the pages that moved between them, for the
// reference and all that are judged against it. What does not settle is marked unstable. Members stand parents before
// children, so a reference that is itself judged is settled before its own children are.
func (r *reader) settle(at Addr) error {
	for i, m := range r.c.members {
		if m.ref >= 0 && len(m.children) == 0 {
			continue // read again with its reference
		}
		ref := r.row(i)
		any := false
		clear(r.moved[:])
		mark := func(e []Entry) {
			for k, x := range e {
				if x.Transient() {
					r.moved[k], any = true, true
				}
			}
		}
		if again := r.again[i]; ref.Entries != nil && again != nil && !bytes.Equal(entryBytes(ref.Entries), entryBytes(again)) {
			for k := range again {
				if (ref.Entries[k]^again[k])&sameMask != 0 {
					r.moved[k], any = true, true
				}
			}
			copy(ref.Entries, again)
		}
		mark(ref.Entries)
		for _, k := range m.children {
			if e := r.row(k).Entries; e != nil && r.hasTransient(e) {
				mark(e)
			}
		}
		if !any {
			continue
		}
		if err := r.reread(i, at); err != nil {
			return err
		}
	}
	return nil
}

// hasTransient looks for the one pattern of bits that a page under migration may have, fast.
func (r *reader) hasTransient(e []Entry) bool {
	for _, x := range e {
		if x>>62 == 1 && x.Transient() {
			return true
		}
	}
	return false
}

// reread reads the marked pages of member i and its children again until two readings of member i around its children's
// agree.
func (r *reader) reread(i int, at Addr) error {
	page := Addr(r.c.page)
	for k := 0; k < WindowPages; k++ {
		if !r.moved[k] {
			continue
		}
		stable := false
		for range maxRetries {
			ok, err := r.rereadPage(i, k, at+Addr(k)*page)
			if err != nil {
				return err
			}
			if stable = ok; ok {
				break
			}
		}
		if !stable {
			r.unstable(i, k)
			for _, c := range r.c.members[i].children {
				r.unstable(c, k)
			}
		}
	}
	return nil
}

func (r *reader) unstable(i, k int) {
	row := r.row(i)
	if row.Entries == nil {
		return
	}
	if row.Unstable == nil {
		if r.jitter[i] == nil {
			r.jitter[i] = make([]bool, WindowPages)
		}
		clear(r.jitter[i])
		row.Unstable = r.jitter[i]
	}
	row.Unstable[k] = true
}

// rereadPage reads page k of member i, of its children, and of member i again; stable reports that both agree and that
// nothing is under migration.
func (r *reader) rereadPage(i, k int, addr Addr) (stable bool, err error) {
	one := func(i int) (Entry, error) {
		m := r.c.members[i]
		var e [1]Entry
		r.c.retries.Add(1)
		if lo, _, ok := m.mapped(addr, addr+Addr(r.c.page)); !ok || lo != addr || m.gone.Load() {
			return 0, nil
		}
		err := m.read(e[:], addr, r.c.page)
		if errors.Is(err, ErrGone) {
			r.row(i).Entries = nil
			return 0, nil
		}
		return e[0], err
	}
	before, err := one(i)
	if err != nil {
		return false, err
	}
	stable = !before.Transient()
	for _, c := range r.c.members[i].children {
		if r.row(c).Entries == nil {
			continue
		}
		e, err := one(c)
		if err != nil {
			return false, err
		}
		// A child that is itself a reference is settled in its turn: where this value differs from its second reading, the
		// page counts as moved there too.
		if row := r.row(c); row.Entries != nil {
			row.Entries[k] = e
		}
		stable = stable && !e.Transient()
	}
	after, err := one(i)
	if err != nil {
		return false, err
	}
	if row := r.row(i); row.Entries != nil {
		row.Entries[k] = after
	}
	return stable && (before^after)&sameMask == 0, nil
}

func entryBytes(e []Entry) []byte {
	if len(e) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&e[0])), len(e)*8)
}

// allZero reports whether no entry says anything.
func allZero(e []Entry) bool {
	var or Entry
	for len(e) >= 8 {
		or |= e[0] | e[1] | e[2] | e[3] | e[4] | e[5] | e[6] | e[7]
		if or != 0 {
			return false
		}
		e = e[8:]
	}
	for _, x := range e {
		or |= x
	}
	return or == 0
}
