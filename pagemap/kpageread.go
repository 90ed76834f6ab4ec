package pagemap

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// frameReader reads one of the per-frame files /proc/kpageflags (2.6.25) and /proc/kpagecount (2.6.25): one 8-byte word
// for each frame. Mode 0400; no capability is asked beyond opening it. Reads are joined over neighbouring frames: one
// read for each frame costs ten times as much.
type frameReader struct {
	fd  int // -1: could not be opened
	err error
}

func openFrameReader(path string) frameReader {
	fd, err := openRead(path)
	if err != nil {
		return frameReader{-1, fmt.Errorf("open %s: %w", path, err)}
	}
	return frameReader{fd, nil}
}

func (r *frameReader) close() {
	if r.fd >= 0 {
		unix.Close(r.fd)
		r.fd = -1
	}
}

// frameWant is one wanted word: frame number, row and page of the window it belongs to, packed so that sorting it sorts
// by frame. 40 bits of frame number are 4 PiB of memory at 4 KiB.
type frameWant uint64

const (
	wantRowBits  = 14
	wantPageBits = 10
)

func packWant(pfn PFN, row, page int) frameWant {
	return frameWant(uint64(pfn)<<(wantRowBits+wantPageBits) | uint64(row)<<wantPageBits | uint64(page))
}

func (w frameWant) pfn() PFN  { return PFN(w >> (wantRowBits + wantPageBits)) }
func (w frameWant) row() int  { return int(w>>wantPageBits) & (1<<wantRowBits - 1) }
func (w frameWant) page() int { return int(w) & (1<<wantPageBits - 1) }

// frameGap is how many unwanted frames are read along rather than begin another read.
const frameGap = 24

// read gives each wanted frame's word to set. buf is scratch of at least frameGap+1 words.
func (r *frameReader) read(want []frameWant, buf []uint64, set func(row, page int, word uint64)) error {
	if r.fd < 0 {
		return r.err
	}
	slices.Sort(want)
	for len(want) > 0 {
		first := want[0].pfn()
		n := 1
		for n < len(want) && want[n].pfn()-want[n-1].pfn() <= frameGap && int(want[n].pfn()-first) < len(buf) {
			n++
		}
		span := int(want[n-1].pfn()-first) + 1
		got, err := preadWords(r.fd, buf[:span], uint64(first))
		if err != nil {
			return fmt.Errorf("read %d frames from %#x: %w", span, uint64(first), err)
		}
		for _, w := range want[:n] {
			if i := int(w.pfn() - first); i < got {
				set(w.row(), w.page(), buf[i])
			}
		}
		want = want[n:]
	}
	return nil
}
