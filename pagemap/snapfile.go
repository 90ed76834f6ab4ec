package pagemap

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// The snapshot file, described in docs/format.md: the magic, then one zstd stream with the family as JSON and the windows
// in ascending order. The raw words are stored as read, so that an old file can be interpreted by newer rules.
const (
	snapMagic   = "COWSNAP"
	snapVersion = 1

	maxSnapHeader  = 1 << 28        // bytes of JSON
	maxSnapProcs   = 1 << 14        // as in a capture
	maxSnapEntries = int64(1) << 30 // 8 GiB in memory

	tagEnd    = 0
	tagWindow = 1
)

// Parts of a row that are there, as bits.
const (
	hasEntries = 1 << iota
	hasFlags
	hasCounts
	hasWords
	hasUnstable
)

// WriteSnapshot writes the file format of docs/format.md.
func WriteSnapshot(w io.Writer, s *Snapshot) error {
	if _, err := w.Write(append([]byte(snapMagic), snapVersion)); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	e := snapEncoder{w: bufio.NewWriterSize(z, 1<<16)}
	fam := s.Fam.mapText(EscapeBytes)
	head, err := json.Marshal(&fam)
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	e.uvarint(uint64(len(head)))
	e.bytes(head)
	for i := range s.Windows {
		e.window(&s.Windows[i])
	}
	e.uvarint(tagEnd)
	e.uvarint(uint64(len(s.Windows)))
	if e.err == nil {
		e.err = e.w.Flush()
	}
	if err := errors.Join(e.err, z.Close()); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// snapEncoder writes words and keeps the first error.
type snapEncoder struct {
	w   *bufio.Writer
	buf [binary.MaxVarintLen64]byte
	err error
}

func (e *snapEncoder) bytes(b []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

func (e *snapEncoder) uvarint(v uint64) { e.bytes(e.buf[:binary.PutUvarint(e.buf[:], v)]) }

func (e *snapEncoder) word(v uint64) {
	binary.LittleEndian.PutUint64(e.buf[:8], v)
	e.bytes(e.buf[:8])
}

// window writes the rows, each entry as its difference (exclusive or) from the first row that has entries: pages still
// shared become zeros.
func (e *snapEncoder) window(w *Window) {
	e.uvarint(tagWindow)
	e.word(uint64(w.Start))
	var base []Entry
	for i := range w.Rows {
		r := &w.Rows[i]
		mask := uint64(0)
		for bit, has := range []bool{r.Entries != nil, r.Flags != nil, r.Counts != nil, r.Words != nil, r.Unstable != nil} {
			if has {
				mask |= 1 << bit
			}
		}
		e.uvarint(mask)
		for k, x := range r.Entries {
			if base != nil {
				x ^= base[k]
			}
			e.word(uint64(x))
		}
		if base == nil {
			base = r.Entries
		}
		sparse(e, r.Flags, FlagsUnread, func(f KFlags) uint64 { return uint64(f) })
		sparse(e, r.Counts, CountUnread, func(n int32) uint64 { return uint64(n) })
		sparse(e, r.Words, WordsUnread, func(n int16) uint64 { return uint64(n) })
		sparse(e, r.Unstable, false, func(b bool) uint64 { return 1 })
	}
}

// sparse writes how many elements are not unread, then each one's index and value.
func sparse[T comparable](e *snapEncoder, s []T, unread T, value func(T) uint64) {
	if s == nil {
		return
	}
	n := 0
	for _, x := range s {
		if x != unread {
			n++
		}
	}
	e.uvarint(uint64(n))
	for k, x := range s {
		if x != unread {
			e.uvarint(uint64(k))
			e.uvarint(value(x))
		}
	}
}

// ReadSnapshot reads it. The file is foreign input: every length is checked; errors wrap ErrFormat.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	var magic [len(snapMagic) + 1]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return nil, fmt.Errorf("read snapshot: too short for its head: %w", ErrFormat)
	}
	if string(magic[:len(snapMagic)]) != snapMagic {
		return nil, fmt.Errorf("read snapshot: not a snapshot file: %w", ErrFormat)
	}
	if v := magic[len(snapMagic)]; v != snapVersion {
		return nil, fmt.Errorf("read snapshot: version %d, this cowaudit reads version %d: %w", v, snapVersion, ErrFormat)
	}
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<27))
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	defer z.Close()
	d := snapDecoder{r: bufio.NewReaderSize(z, 1<<16)}
	s, err := d.snapshot()
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w: %w", ErrFormat, err)
	}
	return s, nil
}

type snapDecoder struct {
	r       *bufio.Reader
	entries int64
}

func (d *snapDecoder) snapshot() (*Snapshot, error) {
	n, err := binary.ReadUvarint(d.r)
	if err != nil || n > maxSnapHeader {
		return nil, fmt.Errorf("length of the head (%d): %w", n, orRange(err))
	}
	head, err := io.ReadAll(io.LimitReader(d.r, int64(n)))
	if err != nil || uint64(len(head)) != n {
		return nil, fmt.Errorf("head cut short: %w", orRange(err))
	}
	s := &Snapshot{}
	if err := json.Unmarshal(head, &s.Fam); err != nil {
		return nil, fmt.Errorf("head: %w", err)
	}
	s.Fam = s.Fam.mapText(UnescapeBytes)
	if err := checkFamily(&s.Fam); err != nil {
		return nil, err
	}
	size := Addr(s.Fam.Facts.PageSize) * WindowPages
	for {
		tag, err := binary.ReadUvarint(d.r)
		if err != nil {
			return nil, fmt.Errorf("cut short after %d windows: %w", len(s.Windows), err)
		}
		if tag == tagEnd {
			break
		}
		if tag != tagWindow {
			return nil, fmt.Errorf("unknown tag %d after %d windows", tag, len(s.Windows))
		}
		w, err := d.window(len(s.Fam.Processes))
		if err != nil {
			return nil, fmt.Errorf("window %d: %w", len(s.Windows), err)
		}
		if w.Start%size != 0 || (len(s.Windows) > 0 && w.Start <= s.Windows[len(s.Windows)-1].Start) {
			return nil, fmt.Errorf("window %d starts at %#x: out of order", len(s.Windows), uint64(w.Start))
		}
		s.Windows = append(s.Windows, w)
	}
	if n, err := binary.ReadUvarint(d.r); err != nil || n != uint64(len(s.Windows)) {
		return nil, fmt.Errorf("%d windows found, the file speaks of %d: %w", len(s.Windows), n, orRange(err))
	}
	if _, err := d.r.ReadByte(); err != io.EOF {
		return nil, errors.New("bytes after the end")
	}
	return s, nil
}

var errRange = errors.New("out of range")

func orRange(err error) error {
	if err == nil {
		return errRange
	}
	return err
}

// checkFamily refuses what no capture can have written.
func checkFamily(f *Family) error {
	page := f.Facts.PageSize
	if page < 512 || page > 1<<24 || page&(page-1) != 0 {
		return fmt.Errorf("page size of %d bytes: %w", page, errRange)
	}
	if len(f.Processes) >= maxSnapProcs {
		return fmt.Errorf("%d processes: %w", len(f.Processes), errRange)
	}
	for i := range f.Processes {
		end := Addr(0)
		for _, m := range f.Processes[i].Mappings {
			if m.Start >= m.End || m.Start < end || (m.Start|m.End)%Addr(page) != 0 {
				return fmt.Errorf("mappings of process %d: %#x-%#x: %w", f.Processes[i].PID, uint64(m.Start), uint64(m.End), errRange)
			}
			end = m.End
		}
	}
	return nil
}

func (d *snapDecoder) word() (uint64, error) {
	var b [8]byte
	_, err := io.ReadFull(d.r, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

func (d *snapDecoder) window(rows int) (w Window, err error) {
	start, err := d.word()
	if err != nil {
		return w, err
	}
	w = Window{Start: Addr(start), Rows: make([]Row, rows)}
	var base []Entry
	for i := range w.Rows {
		if err := d.row(&w.Rows[i], base); err != nil {
			return w, fmt.Errorf("row %d: %w", i, err)
		}
		if base == nil {
			base = w.Rows[i].Entries
		}
	}
	return w, nil
}

func (d *snapDecoder) row(r *Row, base []Entry) error {
	mask, err := binary.ReadUvarint(d.r)
	if err != nil {
		return err
	}
	if mask >= hasUnstable<<1 || (mask != 0 && mask&hasEntries == 0) {
		return fmt.Errorf("parts %#x: %w", mask, errRange)
	}
	if mask&hasEntries != 0 {
		if d.entries += WindowPages; d.entries > maxSnapEntries {
			return fmt.Errorf("more than %d entries: %w", maxSnapEntries, errRange)
		}
		r.Entries = make([]Entry, WindowPages)
		for k := range r.Entries {
			x, err := d.word()
			if err != nil {
				return err
			}
			if base != nil {
				x ^= uint64(base[k])
			}
			r.Entries[k] = Entry(x)
		}
	}
	if mask&hasFlags != 0 {
		r.Flags, err = unsparse(d, FlagsUnread, func(v uint64) KFlags { return KFlags(v) &^ FlagsUnread })
	}
	if err == nil && mask&hasCounts != 0 {
		r.Counts, err = unsparse(d, CountUnread, func(v uint64) int32 { return int32(min(v, 1<<31-1)) })
	}
	if err == nil && mask&hasWords != 0 {
		r.Words, err = unsparse(d, WordsUnread, func(v uint64) int16 { return int16(min(v, 1<<15-1)) })
	}
	if err == nil && mask&hasUnstable != 0 {
		r.Unstable, err = unsparse(d, false, func(uint64) bool { return true })
	}
	return err
}

func unsparse[T any](d *snapDecoder, unread T, value func(uint64) T) ([]T, error) {
	n, err := binary.ReadUvarint(d.r)
	if err != nil || n > WindowPages {
		return nil, fmt.Errorf("%d values: %w", n, orRange(err))
	}
	s := make([]T, WindowPages)
	for k := range s {
		s[k] = unread
	}
	for range n {
		k, err := binary.ReadUvarint(d.r)
		if err != nil || k >= WindowPages {
			return nil, fmt.Errorf("index %d: %w", k, orRange(err))
		}
		v, err := binary.ReadUvarint(d.r)
		if err != nil {
			return nil, err
		}
		s[k] = value(v)
	}
	return s, nil
}
