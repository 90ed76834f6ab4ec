package oracle

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"cowaudit/ebpf"
	"cowaudit/internal/testkit"
)

// What the pair of libraries is made for, by the tracer: A's first major GC in a worker writes the caches of call sites that
// were never called, B's does not. The stripped library of Debian's package is A without its symbols: the same instruction
// is a place in it.
func TestTracePair(t *testing.T) {
	requireFrames(t)
	p := testkit.RubyPair(t)
	var stripped coldRuby
	for _, r := range coldRubies(t) {
		if r.name == "3.3" {
			stripped = r
		}
	}
	// store is the instruction of A that makes most of the marker's copies.
	var store, place ebpf.Frame
	for _, r := range []coldRuby{
		{"A", p.Argv, []string{p.EnvA}, []string{"flag", "symbols"}, true},
		{"B", p.Argv, []string{p.EnvB}, []string{"flag", "symbols"}, false},
		stripped,
	} {
		for run := range 3 {
			t.Run(fmt.Sprint(r.name, " ", run), func(t *testing.T) {
				w, copies := callCacheRun(t, &r)
				by := names(w.Trace, copies)
				top := topFrame(w.Trace, copies)
				share := 100 * float64(by[marker]) / float64(max(1, len(copies)))
				if p := percent(copies, inMajor); p < 99 && len(copies)*int(100-p) > 300 {
					t.Errorf("%.2f%% of %d copies in a major GC: %s", p, len(copies), phases(copies))
				}
				switch r.name {
				case "A":
					store = top
					var named []*ebpf.Fault
					for _, f := range copies {
						if w.Frames[f.Frame].Function == marker {
							named = append(named, f)
						}
					}
					if share < 95 || len(copies) < 5000 {
						t.Errorf("%.2f%% of %d copies by %s: %s", share, len(copies), marker, most(by))
					}
					if p := percent(named, marking); p < 99 {
						t.Errorf("%.2f%% of the copies by %s while a major GC marks: %s", p, marker, phases(named))
					}
					if top.Function != marker || filepath.Base(top.Path) != filepath.Base(p.A) {
						t.Errorf("most copies by %+v", top)
					}
				case "B":
					if share >= 2 {
						t.Errorf("%.2f%% of %d copies by %s", share, len(copies), marker)
					}
				default:
					place = top
					if want := fmt.Sprintf("libruby-3.3.so.3.3.8+%#x", store.Offset); store.Offset != 0 && top.Name != want {
						t.Errorf("most copies by %s, want %s", top.Name, want)
					}
					if p := percent(copies, marking); p < 99 {
						t.Errorf("%.2f%% of %d copies while a major GC marks: %s", p, len(copies), phases(copies))
					}
				}
				for name := range by {
					if r.name == stripped.name && strings.Contains(name, marker) {
						t.Errorf("a stripped library names %s", name)
					}
				}
			})
		}
	}
	t.Logf("%s+%#x (%s:%d), stripped %s", store.Module, store.Offset, store.File, store.Line, place.Name)
	if filepath.Base(store.File) != "iseq.c" || store.Line == 0 {
		t.Errorf("the store's source is %q, line %d", store.File, store.Line)
	}
	if store.Function == "" || place.Offset != store.Offset {
		t.Errorf("the store is %+v in A, %+v in the stripped library", store, place)
	}
}

// topFrame is the instruction with the most faults.
func topFrame(tr *ebpf.Trace, faults []*ebpf.Fault) (top ebpf.Frame) {
	n := map[uint64]int{}
	best := 0
	for _, f := range faults {
		fr := tr.Frames[f.Frame]
		if n[fr.Offset]++; n[fr.Offset] > best {
			best, top = n[fr.Offset], fr
		}
	}
	return top
}
