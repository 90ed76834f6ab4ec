package repocheck

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// maxLines is the length from which a file that is neither a test nor generated has more than one subject.
const maxLines = 500

// vagueNames are names of packages that say nothing of what is in them.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "lib", "base"}

// source checks what is in a file beside its imports.
func (f *goFile) source() {
	if f.lines > maxLines && !f.test && !ast.IsGenerated(f.ast) {
		f.found = append(f.found, Finding{f.name, 0, fmt.Sprintf("%d lines: more than %d have more than one subject", f.lines, maxLines)})
	}
	if slices.Contains(vagueNames, strings.TrimSuffix(f.ast.Name.Name, "_test")) {
		f.add(f.ast.Name.Pos(), "package "+f.ast.Name.Name+" is named for nothing that is in it")
	}
	own, _ := roomOf(strings.TrimSuffix(f.name, "/"+f.name[strings.LastIndexByte(f.name, '/')+1:]))
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				f.add(n.Pos(), "func init: what is needed is made where it is needed")
			}
		case *ast.CallExpr:
			f.call(own, n)
		case *ast.SelectorExpr:
			if p, ok := n.X.(*ast.Ident); ok && own.pure && !f.test && p.Name == "time" && slices.Contains(clock, n.Sel.Name) {
				f.add(n.Pos(), own.dir+" is pure and uses time."+n.Sel.Name+": the time is handed in")
			}
		}
		return true
	})
}

// call checks a function call.
func (f *goFile) call(own room, n *ast.CallExpr) {
	if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") && len(n.Args) > 0 && own.dir != "cmd" {
		f.add(n.Pos(), "builtin "+id.Name)
	}
	sel, ok := n.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	x, _ := sel.X.(*ast.Ident)
	switch name := sel.Sel.Name; {
	case f.test && own.dir != "internal/testkit" && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, name):
		f.add(n.Pos(), name+": testkit.Require and testkit.Missing are the only skips")
	case x == nil || f.test:
	case own.pure && x.Name == "fmt" && slices.Contains([]string{"Print", "Printf", "Println"}, name):
		f.add(n.Pos(), own.dir+" is pure and prints")
	case x.Name == "os" && name == "Exit" && !slices.Contains(exits, f.name):
		f.add(n.Pos(), "os.Exit: only main ends the program")
	case x.Name == "log" && strings.HasPrefix(name, "Fatal"):
		f.add(n.Pos(), "log."+name+" ends the program")
	}
}

// exits are the files that end the program.
var exits = []string{"cmd/cowaudit/main.go", "bench/main.go", "bench/reference/main.go", "bench/verdicts/main.go", "internal/testkit/main.go", "internal/demoserver/child/child.go"}
