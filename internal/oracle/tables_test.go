package oracle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// A reader of page tables that shares no code with the product: maps split by hand, one pread of pagemap for each mapping,
// one pread of kpageflags for each frame (Documentation/admin-guide/mm/pagemap.rst).

type rawEntry uint64

func (e rawEntry) present() bool { return e>>63&1 == 1 }
func (e rawEntry) swapped() bool { return e>>62&3 == 1 && e>>58&1 == 0 && e&31 < 23 }
func (e rawEntry) file() bool    { return e>>61&1 == 1 }
func (e rawEntry) guard() bool   { return e>>58&1 == 1 && !e.present() }
func (e rawEntry) frame() uint64 { return uint64(e & (1<<55 - 1)) }

const (
	kpfKSM  = 1 << 21
	kpfZero = 1 << 24
)

// table is what a process has in its private mappings, by page number; and how many pages it has in shared ones.
type table struct {
	entries map[uint64]rawEntry
	shared  int64
	unfork  [][2]uint64 // page numbers, end excluded: what fork leaves out (VmFlags dc, wf)
}

func (t table) leftOut(page uint64) bool {
	for _, r := range t.unfork {
		if page >= r[0] && page < r[1] {
			return true
		}
	}
	return false
}

type tableReader struct {
	flags *os.File
	known map[uint64]uint64
}

func newTableReader(t *testing.T) *tableReader {
	t.Helper()
	f, err := os.Open("/proc/kpageflags")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &tableReader{flags: f, known: map[uint64]uint64{}}
}

// flagsOf gives a frame's flags. Those asked of here do not change while the processes hold still, so they are read once.
func (r *tableReader) flagsOf(frame uint64) uint64 {
	if v, ok := r.known[frame]; ok {
		return v
	}
	var b [8]byte
	if _, err := r.flags.ReadAt(b[:], int64(frame)*8); err != nil {
		panic(fmt.Sprintf("read kpageflags of frame %#x: %v", frame, err))
	}
	v := binary.NativeEndian.Uint64(b[:])
	r.known[frame] = v
	return v
}

func (r *tableReader) read(t *testing.T, pid pagemap.PID, rng *audit.Range) table {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	pm, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer pm.Close()
	tab := table{entries: map[uint64]rawEntry{}}
	for line := range strings.Lines(string(text)) {
		w := strings.Fields(line)
		lo, hi := addressRange(t, w[0])
		if rng != nil {
			lo, hi = max(lo, uint64(rng.Start)), min(hi, uint64(rng.End))
		}
		if lo >= hi || strings.Contains(line, "[vsyscall]") {
			continue
		}
		b := make([]byte, (hi-lo)/uint64(pageSize)*8)
		if _, err := pm.ReadAt(b, int64(lo/uint64(pageSize)*8)); err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("read pagemap of %d: %v", pid, err)
		}
		for i := 0; i < len(b); i += 8 {
			e := rawEntry(binary.NativeEndian.Uint64(b[i:]))
			switch {
			case w[1][3] == 'p' && (e.present() || e.swapped() || e.guard()):
				tab.entries[lo/uint64(pageSize)+uint64(i/8)] = e
			case w[1][3] == 's' && (e.present() || e.swapped()):
				tab.shared++
			}
		}
	}
	tab.unfork = unforked(t, pid)
	return tab
}

func unforked(t *testing.T, pid pagemap.PID) [][2]uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	var out [][2]uint64
	var lo, hi uint64
	for line := range strings.Lines(string(text)) {
		w := strings.Fields(line)
		switch {
		case w[0] == "VmFlags:":
			if slices.Contains(w, "dc") || slices.Contains(w, "wf") {
				out = append(out, [2]uint64{lo / uint64(pageSize), hi / uint64(pageSize)})
			}
		case !strings.HasSuffix(w[0], ":"):
			lo, hi = addressRange(t, w[0])
		}
	}
	return out
}

func addressRange(t *testing.T, s string) (lo, hi uint64) {
	t.Helper()
	a, b, _ := strings.Cut(s, "-")
	lo, err1 := strconv.ParseUint(a, 16, 64)
	hi, err2 := strconv.ParseUint(b, 16, 64)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatalf("range %q: %v", s, err)
	}
	return lo, hi
}

// tally is what two tables say of each other, page by page, at the same addresses only.
type tally struct {
	Same     int64 // one anonymous frame, or one swap slot, in both
	Differ   int64 // anonymous frames, different ones
	Only     int64 // the process has an anonymous page where the reference has none
	RefOnly  int64 // the reference has an anonymous page where the process has nothing
	File     int64
	Zero     int64
	Merged   int64
	Guard    int64
	SwapDiff int64 // in swap in one of them, not the same slot
	LeftOut  int64 // of the reference's: what fork left out
}

func (r *tableReader) anon(e rawEntry) bool {
	return e.present() && !e.file() && r.flagsOf(e.frame())&kpfZero == 0
}

func (r *tableReader) compare(ref, p table) tally {
	c := tally{File: p.shared}
	for page, e := range p.entries {
		f := ref.entries[page]
		if ref.leftOut(page) {
			f = 0
		}
		switch {
		case e.guard():
			c.Guard++
		case e.swapped() && f.swapped() && e.frame() == f.frame():
			c.Same++
		case e.swapped() || (f.swapped() && r.anon(e)):
			c.SwapDiff++
		case r.flagsOf(e.frame())&kpfZero != 0:
			c.Zero++
		case e.file():
			c.File++
		case r.flagsOf(e.frame())&kpfKSM != 0:
			c.Merged++
		case !r.anon(f):
			c.Only++
		case e.frame() == f.frame():
			c.Same++
		default:
			c.Differ++
		}
	}
	for page, f := range ref.entries {
		if !f.swapped() && !r.anon(f) {
			continue
		}
		if ref.leftOut(page) {
			c.LeftOut++
		} else if _, ok := p.entries[page]; !ok {
			c.RefOnly++
		}
	}
	return c
}

// agrees holds a ledger that was judged against a reference against the same of the page tables read here. It holds for a
// single capture of processes that hold still, without moved pages.
func (c tally) agrees(p audit.Pages) []string {
	var out []string
	equal := func(what string, got, want int64) {
		if got != want {
			out = append(out, fmt.Sprintf("%s: ledger %d, page tables %d", what, got, want))
		}
	}
	equal("shared (same frame)", p.Shared-p.Moved, c.Same)
	equal("copied (both have one, not the same)", p.Copied, c.Differ)
	equal("new, kept or moved (the process alone)", p.New+p.Kept+p.Moved, c.Only)
	equal("dropped or the reference's own", p.Dropped+p.ReferenceOnly+p.Moved, c.RefOnly)
	equal("not forked", p.NotForked, c.LeftOut)
	equal("file", p.File, c.File)
	equal("zero", p.Zero, c.Zero)
	equal("merged", p.Merged, c.Merged)
	equal("guard", p.Guard, c.Guard)
	return out
}

// change is what became of a process' pages between two readings of its table and its reference's.
type change struct {
	Before, Still, Copied, Dropped, Kept, Replaced int64 // of the pages that it shared before
	Worker, Reference, Both                        int64 // of copied: whose frame is another one now
	New, Freed                                     int64
}

func (r *tableReader) since(refBefore, before, refNow, now table) change {
	var c change
	held := func(e rawEntry) bool { return e.present() || e.swapped() }
	shared := func(a, b rawEntry) bool {
		return a.frame() == b.frame() && ((r.anon(a) && r.anon(b)) || (a.swapped() && b.swapped()))
	}
	private := func(e rawEntry) bool { return e.swapped() || r.anon(e) }
	for page, e := range before.entries {
		f, e2, f2 := refBefore.entries[page], now.entries[page], refNow.entries[page]
		if !shared(e, f) {
			if private(e) && !held(e2) {
				c.Freed++
			}
			continue
		}
		c.Before++
		switch {
		case !held(e2):
			c.Dropped++
		case !private(e2):
			c.Replaced++
		case shared(e2, f2):
			c.Still++
		case !private(f2):
			c.Kept++
		default:
			c.Copied++
			switch worker, ref := e.frame() != e2.frame(), f.frame() != f2.frame(); {
			case worker && ref:
				c.Both++
			case worker:
				c.Worker++
			default:
				c.Reference++
			}
		}
	}
	for page, e := range now.entries {
		if private(e) && !private(before.entries[page]) && !shared(e, refNow.entries[page]) {
			c.New++
		}
	}
	return c
}

// agrees holds a diff against it.
func (c change) agrees(d audit.Copied) []string {
	var out []string
	equal := func(what string, got, want int64) {
		if got != want {
			out = append(out, fmt.Sprintf("%s: diff %d, page tables %d", what, got, want))
		}
	}
	equal("shared before", d.SharedBefore, c.Before)
	equal("still shared", d.StillShared, c.Still)
	equal("copied", d.CopiedPages, c.Copied)
	equal("dropped", d.DroppedPages, c.Dropped)
	equal("kept", d.KeptPages, c.Kept)
	equal("replaced", d.ReplacedPages, c.Replaced)
	equal("new", d.NewPages, c.New)
	equal("freed", d.FreedPages, c.Freed)
	// Where both frames changed, the flags may tell a migration from a copy, and diff uses them.
	if d.CopiedByWorker < c.Worker || d.CopiedByReference < c.Reference || d.CopiedByWorker+d.CopiedByReference > c.Copied {
		out = append(out, fmt.Sprintf("who copied: diff %d, %d, both %d; page tables %d, %d, both %d",
			d.CopiedByWorker, d.CopiedByReference, d.CopiedByBoth, c.Worker, c.Reference, c.Both))
	}
	return out
}

// checkTables compares the ledger of a process with its page tables.
func checkTables(t *testing.T, r *tableReader, what string, ref, pid pagemap.PID, rng *audit.Range, p audit.Pages) {
	t.Helper()
	for _, d := range r.compare(r.read(t, ref, rng), r.read(t, pid, rng)).agrees(p) {
		t.Errorf("%s: %s", what, d)
	}
}
