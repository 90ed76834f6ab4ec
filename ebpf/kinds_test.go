package ebpf

import (
	"path/filepath"
	"strings"
	"testing"

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
			map[string]string{"w a": "zero 173"}},
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
					s := testkit.Stages(t, append([]string{bin}, append(tt.statements, "stage done")...)...)
					st := s.To("go")
					tracer, err := Start(Options{Faults: true, Variant: variant})
					if err != nil {
						t.Fatal(err)
					}
					defer tracer.Close()
					if err := tracer.Add(pagemap.PID(st.Named["m"])); err != nil {
						t.Fatal(err)
					}
					for _, pid := range st.PIDs {
						if err := tracer.Add(pagemap.PID(pid)); err != nil && pid == st.PIDs[0] {
							t.Fatal(err)
						}
					}
					st = s.To("done")
					tr, err := tracer.Stop()
					if err != nil {
						t.Fatal(err)
					}
					for key, want := range tt.want {
						who, region, _ := strings.Cut(key, " ")
						if got := kindsText(in(tr, st.Named[who], st.Regions[region])); got != want {
							t.Errorf("%s: %q, want %q", key, got, want)
						}
					}
					if tr.Lost.Any() {
						t.Errorf("lost: %+v", tr.Lost)
					}
					s.Finish()
				})
			}
		})
	}
}
