package gc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

const pythonScript = `
import gc, sys
gc.disable()
keep = [[i] for i in range(100000)]
def answer(word):
    print(word, gc.get_stats()[2]["collections"], flush=True)
answer("ready")
for line in sys.stdin:
    for i in range(int(line)):
        gc.collect(2)
    answer("done")
`

// pythons gives the machine's own CPython and those that pyenv holds, as far as they are there.
func pythons(t *testing.T) []string {
	list := []string{testkit.Program(t, "python3")}
	if home, err := os.UserHomeDir(); err == nil {
		more, err := filepath.Glob(filepath.Join(home, ".pyenv", "versions", "3.*", "bin", "python3"))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, more...)
	}
	return list
}

func TestPythonFlag(t *testing.T) {
	testkit.Require(t, "root")
	for _, python := range pythons(t) {
		t.Run(python, func(t *testing.T) {
			p := testkit.Start(t, python, "-c", pythonScript)
			p.WaitLine("ready")
			pid := pagemap.PID(p.PID())
			plan := find(t, pid, ProviderFlag)
			if plan.Runtime != "python" {
				t.Fatalf("%+v, want python", plan)
			}
			if !slices.Contains([]string{"3.8", "3.9", "3.10", "3.11", "3.12", "3.13"}, series(plan.Version)) {
				if plan.Provider != ProviderNone {
					t.Errorf("%+v: a version that is not known", plan)
				}
				return
			}
			f := plan.Flag
			if plan.Provider != ProviderFlag || f.Minor != nil {
				t.Fatalf("%+v, want a flag that does not tell minor from major", plan)
			}
			mem, err := openMemory("", pid)
			if err != nil {
				t.Fatal(err)
			}
			defer mem.Close()
			during := func() bool {
				t.Helper()
				w, err := word(mem, f.Addr, int(f.Size))
				if err != nil {
					t.Fatal(err)
				}
				return f.During.Holds(w)
			}
			if during() {
				t.Error("at rest: a collection")
			}
			p.Send("20")
			seen, done := 0, make(chan string)
			go func() { done <- p.WaitLine("done") }()
			var answer string
			for answer == "" {
				select {
				case answer = <-done:
				default:
					if during() {
						seen++
					}
				}
			}
			if seen == 0 {
				t.Error("in 20 collections: none seen")
			}
			var full uint64
			if _, err := fmt.Sscanf(answer, "done %d", &full); err != nil {
				t.Fatal(err)
			}
			if n, err := word(mem, f.MajorCount, 8); err != nil || n != full {
				t.Errorf("%d full collections, %v, want %d", n, err, full)
			}
		})
	}
}

// Every CPython is given some way, and one with notes or symbols the one that tells the generation.
func TestPythonBest(t *testing.T) {
	testkit.Require(t, "root")
	p := testkit.Start(t, testkit.Program(t, "python3"), "-c", pythonScript)
	p.WaitLine("ready")
	plan := find(t, pagemap.PID(p.PID()), ProviderUnknown)
	switch plan.Provider {
	case ProviderFlag:
	case ProviderUSDT, ProviderSymbols:
		tells := 0
		for _, probe := range plan.Probes {
			if probe.Rule == RuleAtLeast && probe.Operand == 2 && probe.Event == GCBegin && probe.Arg.Kind != ArgNone {
				tells++
			}
		}
		if tells == 0 {
			t.Errorf("%+v: nothing tells the generation", plan)
		}
	default:
		t.Errorf("%+v, want a way", plan)
	}
}
