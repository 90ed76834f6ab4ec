package pagemap

import (
	"bytes"
	"encoding/binary"
)

// contents compares each page of the window that differs from the reference's, both present and anonymous, with the
// reference's page at the same address. It reads /proc/PID/mem and not process_vm_readv: the latter pins pages, and a
// read-only pin of a page that is not exclusive makes the kernel copy it (mm/gup.c, gup_must_unshare, 5.17). Only pages
// seen present are read, since reading an absent one would map it. Bytes live in two buffers until the next comparison.
func (r *reader) contents() {
	if !r.c.fam.Facts.Contents {
		return
	}
	for i, m := range r.c.members {
		e := r.row(i).Entries
		if m.ref < 0 || e == nil || r.row(m.ref).Entries == nil {
			continue
		}
		f := r.row(m.ref).Entries
		for k := 0; k < WindowPages; {
			n := 0
			for k+n < WindowPages && n < compareBatch && r.comparable(i, k+n, e[k+n], f[k+n]) {
				n++
			}
			if n == 0 {
				k++
				continue
			}
			r.compare(i, m, k, n)
			k += n
		}
	}
}

// compareBatch is the number of neighbouring pages compared with one read on each side.
const compareBatch = 64

func (r *reader) comparable(i, k int, x, y Entry) bool {
	if (x^y)&sameMask == 0 || !r.anon(x) || !r.anon(y) {
		return false
	}
	if f := r.row(i).Flags; f != nil && f[k].Known() && f[k]&KFlagKSM != 0 {
		return false
	}
	u := r.row(i).Unstable
	return u == nil || !u[k]
}

// compare counts the differing words of pages [k, k+n) of the window.
func (r *reader) compare(i int, m *member, k, n int) {
	page := int(r.c.page)
	for b := range r.bufs {
		if r.bufs[b] == nil {
			r.bufs[b] = make([]byte, compareBatch*page)
		}
	}
	at := int64(r.win.Start) + int64(k*page)
	got := n * page
	for b, who := range []*member{m, r.c.members[m.ref]} {
		// What cannot be read (gone meanwhile, or mapped without pages of its own) stays not compared.
		g, err := who.mem.ReadAt(r.bufs[b][:n*page], at)
		if err != nil && g == n*page {
			g = 0
		}
		got = min(got, g)
	}
	done := got / page
	words := r.wordsOf(i)
	for p := range done {
		words[k+p] = countWords(r.bufs[0][p*page:(p+1)*page], r.bufs[1][p*page:(p+1)*page])
	}
	for b := range r.bufs {
		clear(r.bufs[b][:n*page])
	}
	if n == 1 {
		return
	}
	for p := done; p < n; p++ { // behind a page that could not be read, one by one
		r.compare(i, m, k+p, 1)
	}
}

func (r *reader) wordsOf(i int) []int16 {
	row := r.row(i)
	if row.Words == nil {
		if r.change[i] == nil {
			r.change[i] = make([]int16, WindowPages)
		}
		for k := range r.change[i] {
			r.change[i][k] = WordsUnread
		}
		row.Words = r.change[i]
	}
	return row.Words
}

// countWords counts the 8-byte words in which two pages differ, at most 32,767.
func countWords(a, b []byte) int16 {
	if bytes.Equal(a, b) {
		return 0
	}
	n := 0
	for i := 0; i+8 <= len(a); i += 8 {
		if binary.NativeEndian.Uint64(a[i:]) != binary.NativeEndian.Uint64(b[i:]) {
			n++
		}
	}
	return int16(min(n, 1<<15-1))
}
