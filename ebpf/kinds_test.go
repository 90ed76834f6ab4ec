package ebpf

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	probe "cowaudit/internal/host"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// in counts the faults of one process in a range of addresses, by kind, in faults.
func in(tr *Trace, pid int, r testkit.Range) (kinds [NKinds]int64) {
	for i := range tr.Faults {
		f := &tr.Faults[i]
		s := tr.SpaceByID(f.Space)
		if s != nil && s.Process.PID == pagemap.PID(pid) && f.Addr >= pagemap.Addr(r.Start) && f.Addr < pagemap.Addr(r.End) {
			kinds[f.Kind]++
		}
	}
	return kinds
}

func kindsText(k [NKinds]int64) string {
	var out []string
	for i, n := range k {
		if n != 0 {
			out = append(out, Kind(i).String()+" "+itoa(n))
		}
	}
	return strings.Join(out, ", ")
}

// TestKinds: each kind of fault in prime numbers, exactly, by every way to attach.
func TestKinds(t *testing.T) {
	testkit.Require(t, "gcc", "trace")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	zero, err := probe.ZeroPage()
	if err != nil {
		t.Fatal(err)
	}
	// Where a read of what was never written takes a page, a write to that page faults no more.
	zeroPages := map[bool]string{true: "zero 173"}[zero]
	for _, tt := range []struct {
		name       string
		statements []string // before the trace, "stage go", then what is traced
		want       map[string]string
	}{
		{"copies by the child", []string{"anon a 400", "write a 0 400 1", "fork w", "stage go", "w: write a 0 331 2"},
			map[string]string{"w a": "copied 331"}},
		{"copies by the parent", []string{"anon a 400", "write a 0 400 1", "fork w", "stage go", "write a 0 127 2"},
			map[string]string{"m a": "copied 127"}},
		{"a write that changes nothing", []string{"anon a 400", "write a 0 400 1", "fork w", "stage go", "w: words a 0 137 0"},
			map[string]string{"w a": "copied 137"}},
		{"both sides write the same pages", []string{"anon a 400", "write a 0 400 1", "fork w", "stage go", "w: write a 0 163 2", "write a 0 199 3"},
			map[string]string{"w a": "copied 163", "m a": "copied 36, reused 163"}},
		{"copies on huge pages", []string{"thp a 1", "fill a 0 512 1", "fork w", "stage go", "w: write a 0 211 2"},
			map[string]string{"w a": "copied 211"}},
		{"reuse after the sibling has ended", []string{"anon a 400", "write a 0 400 1", "fork w", "w: exit", "stage go", "write a 0 211 2"},
			map[string]string{"m a": "reused 211"}},
		{"first writes on the zero page", []string{"anon a 400", "fork w", "w: read a 0 400", "stage go", "w: write a 0 173 2"},
			map[string]string{"w a": zeroPages}},
		{"first touches", []string{"anon a 400", "fork w", "stage go", "w: write a 0 257 2"},
			map[string]string{"w a": "new 257"}},
		{"a new huge page", []string{"thp a 1", "fork w", "stage go", "w: write a 0 1 2"},
			map[string]string{"w a": "new 1"}},
		{"private file pages never read", []string{"file a 400", "fork w", "stage go", "w: write a 0 131 2"},
			map[string]string{"w a": "file 131"}},
		{"private file pages read before", []string{"file a 400", "fork w", "w: read a 0 400", "stage go", "w: write a 0 139 2"},
			map[string]string{"w a": "file 139"}},
		{"private file pages that the parent wrote", []string{"file a 400", "write a 0 400 1", "fork w", "stage go", "w: write a 0 149 2"},
			map[string]string{"w a": "copied 149"}},
		{"file pages given up right after such a copy", []string{"file a 400", "file b 400", "write a 0 400 1", "fork w", "w: read b 0 400", "stage go", "w: write a 0 1 2", "w: unmap b 0 400"},
			map[string]string{"w a": "copied 1"}},
		{"a system call writes to shared pages", []string{"anon a 400", "write a 0 400 1", "fork w", "stage go", "w: input a 0 199"},
			map[string]string{"w a": "copied 199"}},
		{"a system call writes to pages of its own", []string{"anon a 400", "write a 0 400 1", "fork w", "w: exit", "stage go", "input a 0 223"},
			map[string]string{"m a": "reused 223"}},
		{"a system call touches new pages", []string{"anon a 400", "fork w", "stage go", "w: input a 0 227"},
			map[string]string{"w a": "new 227"}},
		{"a system call writes to file pages", []string{"file a 400", "fork w", "stage go", "w: input a 0 229"},
			map[string]string{"w a": "file 229"}},
		{"brk heap", []string{"brk a 400", "write a 0 400 1", "fork w", "stage go", "w: write a 0 233 2"},
			map[string]string{"w a": "copied 233"}},
		{"shared memory", []string{"shm a 400", "fork w", "stage go", "w: write a 0 239 2"},
			map[string]string{"w a": "shared 239"}},
		{"refused writes", []string{"anon a 400", "write a 0 400 1", "fork w", "w: protect a 0 400 r", "stage go", "w: trap a 0 61"},
			map[string]string{"w a": "other 61"}},
		{"threads", []string{"anon a 808", "write a 0 808 1", "fork w", "stage go", "w: spread a 0 808 8"},
			map[string]string{"w a": "copied 808"}},
		{"a grandchild", []string{"anon a 400", "write a 0 400 1", "fork w", "stage go", "w: fork g", "g: write a 0 89 2", "w: write a 100 197 3"},
			map[string]string{"g a": "copied 89", "w a": "copied 97", "m a": ""}},
		{"a new mapping at an old place", []string{"anon a 400", "write a 0 400 1", "fork w", "stage go", "w: unmap a 0 400", "w: map a 300", "w: write a 0 241 2"},
			map[string]string{"w a": "new 241"}},
		{"pages given up and filled anew", []string{"anon a 400", "write a 0 400 1", "fork w", "stage go", "w: drop a 0 400", "w: write a 0 251 2"},
			map[string]string{"w a": "new 251"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, variant := range Variants() {
				t.Run(variant, func(t *testing.T) {
					s, tr := traced(t, Options{Faults: true, Variant: variant}, bin, tt.statements...)
					for key, want := range tt.want {
						who, region, _ := strings.Cut(key, " ")
						if got := kindsText(in(tr, s.named[who], s.regions[region])); got != want {
							t.Errorf("%s: %q, want %q", key, got, want)
						}
					}
					lost := tr.Lost
					if variant == VariantTracepoint {
						// There the kernel skips a program that comes in an interrupt of another one: the freeing of
						// a task, for instance.
						lost.Missed = 0
					}
					if strings.Contains(tt.name, "threads") {
						// A thread's first fault on its stack, while another one maps its own: the mappings are locked.
						lost.Regions = 0
					}
					if lost.Any() {
						t.Errorf("lost: %+v", lost)
					}
				})
			}
		})
	}
}

// workload is what a traced program said of itself.
type workload struct {
	named   map[string]int
	regions map[string]testkit.Range
}

// traced runs a program of statements and traces it from its stage "go" on, all processes that there are then.
func traced(t *testing.T, o Options, bin string, statements ...string) (workload, *Trace) {
	t.Helper()
	s := testkit.Stages(t, append([]string{bin}, append(statements, "stage done")...)...)
	st := s.To("go")
	tracer, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	for _, pid := range st.PIDs {
		// One that has ended is no longer in /proc.
		if err := tracer.Add(pagemap.PID(pid)); err != nil && !errors.Is(err, pagemap.ErrGone) {
			t.Fatal(err)
		}
	}
	st = s.To("done")
	tr, err := tracer.Stop()
	if err != nil {
		t.Fatal(err)
	}
	s.Finish()
	check(t, tr)
	return workload{st.Named, st.Regions}, tr
}

// check holds what is true of every trace: counts sum to the totals less what was lost.
func check(t *testing.T, tr *Trace) {
	t.Helper()
	var sums [NKinds]Tally
	for i := range tr.Counts {
		c := &tr.Counts[i]
		sums[c.Kind].Faults += c.Faults
		sums[c.Kind].Pages += c.Pages
		if c.Frame >= FrameID(len(tr.Frames)) || c.Stack >= StackID(len(tr.Stacks)) || tr.SpaceByID(c.Space) == nil {
			t.Errorf("count %+v names what is not there", *c)
		}
	}
	// Read faults are only in the totals.
	sums[KindRead] = tr.Totals[KindRead]
	if sums != tr.Totals && !tr.Lost.Any() {
		t.Errorf("counts sum to %v, the totals are %v", sums, tr.Totals)
	}
}

// TestWithoutFault: copies that the kernel makes through pages that it has pinned have no address, and are counted.
func TestWithoutFault(t *testing.T) {
	testkit.Require(t, "gcc", "trace")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	for _, tt := range []struct {
		name       string
		statements []string
		want       int64
	}{
		{"O_DIRECT into shared pages", []string{"anon a 400", "write a 0 400 1", "fork w", "stage go", "w: direct a 0 149"}, 149},
		{"O_DIRECT into pages of its own", []string{"anon a 400", "write a 0 400 1", "fork w", "w: write a 0 400 2", "stage go", "w: direct a 0 151"}, 0},
		{"populated by madvise", []string{"anon a 400", "write a 0 400 1", "fork w", "stage go", "w: advise a 0 157 populate_write"}, 157},
	} {
		for _, variant := range Variants() {
			t.Run(tt.name+"/"+variant, func(t *testing.T) {
				s, tr := traced(t, Options{Faults: true, Variant: variant}, bin, tt.statements...)
				var n int64
				for i := range tr.Faults {
					f := &tr.Faults[i]
					if f.Detail&DetailNoFault != 0 && f.Kind == KindCopied && tr.SpaceByID(f.Space).Process.PID == pagemap.PID(s.named["w"]) {
						n++
						if f.Addr != 0 {
							t.Errorf("a copy without a fault at %x: the address is not known", f.Addr)
						}
					}
				}
				if n != tt.want {
					t.Errorf("%d copies without a fault, want %d", n, tt.want)
				}
			})
		}
	}
}

// TestWithoutSymbols: what a system call wrote cannot be told then, and is not called a reuse; all else can.
func TestWithoutSymbols(t *testing.T) {
	testkit.Require(t, "gcc", "trace")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	s, tr := traced(t, Options{Faults: true, noSymbols: true}, bin,
		"anon a 400", "write a 0 400 1", "fork w", "stage go", "w: input a 0 101", "w: write a 101 204 2", "w: direct a 204 400")
	if got := kindsText(in(tr, s.named["w"], s.regions["a"])); got != "unknown 101, copied 103" {
		t.Errorf("%q, want 101 unknown and 103 copied", got)
	}
	if tr.Quiet || len(tr.Warnings) == 0 || tr.Warnings[0].Code != "kernel_symbols_hidden" {
		t.Errorf("nothing says that copies without a fault are not seen: %+v", tr.Warnings)
	}
}

// TestCounts: the counts that the kernel keeps are those of the records.
func TestCounts(t *testing.T) {
	testkit.Require(t, "gcc", "trace")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	s, tr := traced(t, Options{}, bin, "anon a 400", "write a 0 400 1", "anon b 400", "fork w", "stage go", "w: write a 0 331 2", "w: write b 0 173 1")
	if len(tr.Faults) != 0 {
		t.Errorf("%d records", len(tr.Faults))
	}
	for name, want := range map[string]struct {
		kind Kind
		n    int64
	}{"a": {KindCopied, 331}, "b": {KindNew, 173}} {
		var n int64
		for i := range tr.Counts {
			c := &tr.Counts[i]
			r := tr.RegionByID(c.Region)
			if r != nil && c.Kind == want.kind && r.Mapping.Start == pagemap.Addr(s.regions[name].Start) && tr.SpaceByID(c.Space).Process.PID == pagemap.PID(s.named["w"]) {
				n += c.Faults
			}
		}
		if n != want.n {
			t.Errorf("%s: %d faults %s, want %d", name, n, want.kind, want.n)
		}
	}
}

// TestCountsEmptied: nothing is lost or counted twice while the tables change places all the time.
func TestCountsEmptied(t *testing.T) {
	testkit.Require(t, "gcc", "trace")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	s, tr := traced(t, Options{Interval: time.Millisecond, emptyEvery: time.Millisecond}, bin,
		"anon a 50000", "write a 0 50000 1", "fork w", "stage go", "w: spread a 0 49999 4")
	var n int64
	for i := range tr.Counts {
		c := &tr.Counts[i]
		if r := tr.RegionByID(c.Region); r != nil && c.Kind == KindCopied && r.Mapping.Start == pagemap.Addr(s.regions["a"].Start) {
			n += c.Faults
		}
	}
	if n != 49999 {
		t.Errorf("%d copies, want 49999", n)
	}
}

// TestAtExec: what waits to become the program to be traced is no part of the trace.
func TestAtExec(t *testing.T) {
	testkit.Require(t, "gcc", "trace")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	p := testkit.Start(t, "sh", "-c", `read go; exec "$@"`, "sh", bin, "anon a 400", "write a 0 400 1", "fork w", "w: write a 0 79 2", "exit")
	tracer, err := Start(Options{Faults: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	if err := tracer.AddAtExec(pagemap.PID(p.PID())); err != nil {
		t.Fatal(err)
	}
	p.Send("go")
	p.Wait()
	tr, err := tracer.Stop()
	if err != nil {
		t.Fatal(err)
	}
	check(t, tr)
	var copied, first int
	for i := range tr.Faults {
		f := &tr.Faults[i]
		if s := tr.SpaceByID(f.Space); f.Kind == KindNew && s.Cause == CauseStart && f.Addr >= 0x100000000000 && f.Addr < 0x200000000000 {
			first++
		} else if f.Kind == KindCopied && s.Cause == CauseFork && f.Addr >= 0x100000000000 && f.Addr < 0x200000000000 {
			copied++
		}
	}
	if first != 400 || copied != 79 {
		t.Errorf("%d first touches and %d copies, want 400 and 79", first, copied)
	}
	for i := range tr.Spaces {
		if s := &tr.Spaces[i]; s.Cause == CauseExec || s.Cause == CauseStart && s.Parent != 0 {
			t.Errorf("a space of the program that waited: %+v", *s)
		}
	}
}

// TestNoFollow leaves children out.
func TestNoFollow(t *testing.T) {
	testkit.Require(t, "gcc", "trace")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	statements := []string{"anon a 400", "write a 0 400 1", "stage go", "fork w", "w: write a 0 109 2", "write a 200 313 3"}
	for _, follow := range []bool{true, false} {
		s, tr := traced(t, Options{Faults: true, NoFollow: !follow}, bin, statements...)
		want := map[string]string{"m": "copied 113", "w": "copied 109"}
		if !follow {
			want["w"] = ""
		}
		for who, w := range want {
			if got := kindsText(in(tr, s.named[who], s.regions["a"])); got != w {
				t.Errorf("follow %v: %s: %q, want %q", follow, who, got, w)
			}
		}
	}
}

// TestLost: a buffer that is too small loses records, and every one of them is counted.
func TestLost(t *testing.T) {
	testkit.Require(t, "gcc", "trace")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	_, tr := traced(t, Options{Faults: true, RingBytes: 4096, Interval: time.Minute}, bin, "anon a 4000", "write a 0 4000 1", "fork w", "stage go", "w: write a 0 3989 2")
	if got := int64(len(tr.Faults)) + tr.Lost.Records; tr.Lost.Records == 0 || tr.Totals[KindCopied].Faults < 3989 || got < 3989 {
		t.Errorf("%d records, %d lost, %d copies in the totals; want 3989 or more", len(tr.Faults), tr.Lost.Records, tr.Totals[KindCopied].Faults)
	}
}

// TestExec: a process that calls exec is another address space, and is followed.
func TestExec(t *testing.T) {
	testkit.Require(t, "gcc", "trace")
	bin := testkit.CC(t, filepath.Join(testkit.Root(t), "testdata", "workloads", "pages.c"), "-pthread")
	s, tr := traced(t, Options{Faults: true}, bin, "anon a 400", "write a 0 400 1", "fork w", "stage go", "w: write a 0 83 2", "w: exec")
	var spaces []*Space
	for i := range tr.Spaces {
		if tr.Spaces[i].Process.PID == pagemap.PID(s.named["w"]) {
			spaces = append(spaces, &tr.Spaces[i])
		}
	}
	if len(spaces) != 2 || spaces[1].Cause != CauseExec || spaces[1].Parent != spaces[0].ID || spaces[0].Ended == 0 || spaces[1].Began != spaces[0].Ended {
		t.Fatalf("spaces of the process that called exec: %+v", spaces)
	}
	if got := kindsText(in(tr, s.named["w"], s.regions["a"])); got != "copied 83" {
		t.Errorf("%q, want 83 copied", got)
	}
}
