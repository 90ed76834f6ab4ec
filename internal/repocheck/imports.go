package repocheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is the path of the project's module.
const module = "cowaudit"

// room is a top-level part of the project and what it may import. Imports run one way:
// pagemap <- ebpf <- audit <- forktest, report <- cmd.
type room struct {
	dir      string   // and all below it
	rooms    []string // of the project
	modules  []string // of others; nil: any that go.mod has
	pure     bool     // no files, network, clock or log
	testOnly bool     // for tests: programs must not import it
}

// rooms are in the order in which a folder is looked up: the more special one first.
var rooms = []room{
	{dir: "pagemap", modules: []string{"golang.org/x/sys/unix", "github.com/klauspost/compress/zstd"}},
	{dir: "ebpf", rooms: []string{"pagemap", "internal"}, modules: []string{"golang.org/x/sys/unix", "golang.org/x/arch/x86/x86asm", "github.com/cilium/ebpf"}},
	{dir: "audit", rooms: []string{"pagemap", "ebpf"}, modules: []string{"golang.org/x/perf", "github.com/aclements/go-moremath"}, pure: true},
	{dir: "report", rooms: []string{"audit", "pagemap", "ebpf"}, pure: true},
	{dir: "forktest", rooms: []string{"audit", "pagemap", "ebpf", "internal"}},
	{dir: "internal/testkit", modules: []string{"golang.org/x/sys/unix"}, testOnly: true},
	{dir: "internal/repocheck", testOnly: true},
	{dir: "internal/oracle", rooms: []string{"audit", "pagemap", "ebpf", "internal"}, testOnly: true},
	{dir: "internal/storm", rooms: []string{"audit", "pagemap", "ebpf", "internal"}, testOnly: true},
	{dir: "internal", rooms: []string{"pagemap", "internal"}},
	{dir: "bench", rooms: []string{"audit", "forktest", "pagemap", "ebpf", "internal"}},
	{dir: "cmd", rooms: []string{"pagemap", "ebpf", "audit", "forktest", "report", "internal"}},
}

func roomOf(dir string) (room, bool) {
	for _, r := range rooms {
		if dir == r.dir || strings.HasPrefix(dir, r.dir+"/") {
			return r, true
		}
	}
	return room{}, false
}

// impure are packages that reach outside of the program, or write past the writer that was given.
var impure = []string{"os", "os/exec", "os/signal", "os/user", "net", "net/http", "log", "log/slog", "syscall", "io/ioutil", "runtime/pprof", "golang.org/x/sys/unix", "golang.org/x/term"}

// clock are the functions of package time that read the clock or wait.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// GoFile checks one Go file against the rules of imports and of source. name is its path in the tree, with slashes.
func GoFile(name string, src []byte) ([]Finding, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &goFile{name: name, set: set, ast: file, test: strings.HasSuffix(name, "_test.go"), lines: strings.Count(string(src), "\n")}
	f.imports()
	f.source()
	return f.found, nil
}

type goFile struct {
	name  string
	set   *token.FileSet
	ast   *ast.File
	test  bool
	lines int
	found []Finding
}

func (f *goFile) add(at token.Pos, text string) {
	f.found = append(f.found, Finding{f.name, f.set.Position(at).Line, text})
}

func (f *goFile) imports() {
	dir := path.Dir(f.name)
	own, ok := roomOf(dir)
	if !ok {
		f.found = append(f.found, Finding{f.name, 0, "in a folder that is none of the rooms of the project"})
		return
	}
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			f.add(spec.Pos(), "import path: "+err.Error())
			continue
		}
		if spec.Name != nil && spec.Name.Name == "." {
			f.add(spec.Pos(), "dot import of "+p)
		}
		if inner, ok := strings.CutPrefix(p, module+"/"); ok {
			f.inner(spec, own, dir, inner)
			continue
		}
		if f.test {
			continue
		}
		if own.pure && slices.Contains(impure, p) {
			f.add(spec.Pos(), own.dir+" is pure and imports "+p)
		}
		if own.modules != nil && strings.Contains(strings.SplitN(p, "/", 2)[0], ".") && !slices.ContainsFunc(own.modules, func(m string) bool {
			return p == m || strings.HasPrefix(p, m+"/")
		}) {
			f.add(spec.Pos(), own.dir+" may not import "+p)
		}
	}
}

// inner checks an import of the project itself.
func (f *goFile) inner(spec *ast.ImportSpec, own room, dir, inner string) {
	other, ok := roomOf(inner)
	switch {
	case !ok:
		f.add(spec.Pos(), "import of "+inner+", which is none of the rooms of the project")
	case other.testOnly && (other.dir != own.dir) && !f.test:
		f.add(spec.Pos(), other.dir+" is for tests")
	case other.dir == own.dir, other.testOnly && f.test:
	case f.test && strings.HasPrefix(own.dir, "internal") && other.dir != "cmd": // a test from outside of the room
	case !slices.Contains(own.rooms, other.dir) && !slices.Contains(own.rooms, strings.SplitN(other.dir, "/", 2)[0]):
		f.add(spec.Pos(), own.dir+" may not import "+inner+": imports run pagemap <- ebpf <- audit <- forktest, report <- cmd")
	}
}
