package symbols

import (
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// cc compiles a program or library of testdata.
func cc(t testing.TB, src string, flags ...string) string {
	t.Helper()
	return testkit.CC(t, filepath.Join("testdata", src), flags...)
}

// library compiles a shared library into a folder.
func library(t testing.TB, dir, name, src string, flags ...string) string {
	t.Helper()
	to := filepath.Join(dir, name)
	copyFile(t, cc(t, src, append([]string{"-shared", "-fPIC", "-g", "-fno-toplevel-reorder", "-Wl,--build-id"}, flags...)...), to)
	return to
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// run runs a tool of binutils, which are there where gcc is.
func run(t testing.TB, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

// symbolOf reads a symbol of a file, as debug/elf does it.
func symbolOf(t testing.TB, file, name string) elf.Symbol {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("%s has no %s", file, name)
	return elf.Symbol{}
}

func buildIDOf(t testing.TB, file string) string {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return readBuildID(f).String()
}

// resolver makes a resolver that the test closes.
func resolver(t testing.TB, o Options) *Resolver {
	t.Helper()
	if o.DebugDirs == nil {
		o.DebugDirs = []string{} // not the machine's
	}
	r := New(o)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func space(t testing.TB, r *Resolver, pid int) *Space {
	t.Helper()
	s, err := r.Space(pagemap.PID(pid))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// holder is a running testdata/hold.c.
type holder struct {
	*testkit.Process
	t    testing.TB
	main uint64
}

func hold(t testing.TB) *holder {
	t.Helper()
	testkit.Require(t, "root") // map_files
	p := testkit.Start(t, cc(t, "hold.c", "-ldl", "-fno-omit-frame-pointer"))
	return &holder{p, t, number(t, p.WaitLine("READY "))}
}

// number reads the last word of a line as an address.
func number(t testing.TB, line string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(line[strings.LastIndexByte(line, ' ')+1:], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// load loads a library and gives the address of a symbol.
func (h *holder) load(file, symbol string) uint64 {
	h.t.Helper()
	h.Send("load " + file + " " + symbol)
	line, _ := h.Line()
	if !strings.HasPrefix(line, "AT ") {
		h.t.Fatal(line)
	}
	return number(h.t, line)
}

func (h *holder) code() uint64 {
	h.t.Helper()
	h.Send("code")
	return number(h.t, h.WaitLine("AT "))
}

func (h *holder) close() {
	h.t.Helper()
	h.Send("close")
	if line, _ := h.Line(); line != "CLOSED 0" {
		h.t.Fatal(line)
	}
}

func (h *holder) fork() int {
	h.t.Helper()
	h.Send("fork")
	pid, err := strconv.Atoi(strings.TrimPrefix(h.WaitLine("PID "), "PID "))
	if err != nil {
		h.t.Fatal(err)
	}
	return pid
}

// noProblems fails the test where something could not be read.
func noProblems(t testing.TB, r *Resolver) {
	t.Helper()
	for _, p := range r.Problems() {
		t.Errorf("problem with %s: %v", p.Path, p.Err)
	}
}

func hexOf(v uint64) string { return strconv.FormatUint(v, 16) }
