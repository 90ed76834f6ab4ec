// Package repocheck holds the source tree against the project's own rules: which package may import which, what analysis
// and rendering must not touch, how large files are, and that what the documents tell the reader to type exists. Its tests
// check the tree; `make check` runs them.
//
// Each rule is a function from a file to findings, so that the tests can show each of them failing.
package repocheck

import "fmt"

// Finding is one place that breaks a rule.
type Finding struct {
	File string
	Line int // 0: the whole file
	Text string
}

func (f Finding) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
}
