// Package host finds out what this machine can measure, as the one who asks: each probe tries the very thing that a
// measurement uses, on memory and processes of its own where it can, and tells "no" from "could not tell".
package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// State is the outcome of a probe.
type State int

// Outcomes. A probe that was refused, or met an error that says nothing, is Unknown.
const (
	Unknown State = iota
	Yes
	No
)

// Groups of rows.
const (
	Pages     = "pages"     // facts about pages
	Processes = "processes" // access to the processes of others
	Host      = "host"      // what this machine does with memory
	Tracing   = "tracing"   // the fault tracer
	Programs  = "programs"
)

// Row is the outcome of one probe.
type Row struct {
	Name, Group string
	State       State
	Detail      string
	Remedy      string
	Since       string // first Linux that has it
}

// Facts is what the probes found.
type Facts struct {
	Name, Kernel, Machine string
	PageSize              pagemap.Bytes
	Rows                  []Row
}

// ErrNoProc: there is no /proc, without which nothing can be measured.
var ErrNoProc = errors.New("/proc is not mounted")

// Look runs all probes. What it changes is its own: some pages that it maps and unmaps. The error wraps ErrNoProc where
// there is nothing to look at.
func Look() (*Facts, error) {
	if _, err := os.Stat("/proc/self/maps"); err != nil {
		return nil, fmt.Errorf("look at this process: %w: %w", ErrNoProc, err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("ask for the kernel's name: %w", err)
	}
	f := &Facts{
		Name: unix.ByteSliceToString(u.Nodename[:]), Kernel: unix.ByteSliceToString(u.Release[:]),
		Machine: unix.ByteSliceToString(u.Machine[:]), PageSize: pagemap.Bytes(os.Getpagesize()),
	}
	p := &prober{release: f.Kernel, who: lookWho()}
	page, err := newPage()
	if err != nil {
		return nil, err
	}
	defer page.unmap()
	f.Rows = append(f.Rows, p.pages(page)...)
	f.Rows = append(f.Rows, p.processes()...)
	f.Rows = append(f.Rows, p.host(page)...)
	f.Rows = append(f.Rows, p.programs()...)
	return f, nil
}

// prober is what the probes know beforehand.
type prober struct {
	fs      pagemap.FS // /proc
	release string
	who     who
}

// before reports whether the kernel is older than a version such as "5.19". Distributions carry features back, so it only
// explains an absence that a probe has found.
func (p *prober) before(version string) bool {
	have, ok := parseVersion(p.release)
	want, _ := parseVersion(version)
	return ok && (have[0] < want[0] || have[0] == want[0] && have[1] < want[1])
}

// parseVersion reads the first two numbers of a release, "6.1.0-44-amd64".
func parseVersion(s string) (v [2]int, ok bool) {
	major, rest, _ := strings.Cut(s, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	var err1, err2 error
	v[0], err1 = strconv.Atoi(major)
	v[1], err2 = strconv.Atoi(rest[:end])
	return v, err1 == nil && err2 == nil
}

// absent is the row of something that this kernel does not have: too old, or built without it.
func (p *prober) absent(r Row, option string) Row {
	r.State = No
	if r.Since != "" && p.before(r.Since) {
		r.Detail = join(r.Detail, fmt.Sprintf("this kernel is %s", p.release))
		r.Remedy = "a kernel from Linux " + r.Since + " on"
		return r
	}
	if option != "" {
		r.Detail = join(r.Detail, "the kernel was built without "+option)
		r.Remedy = "a kernel with " + option
	}
	return r
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// cannotTell is the row of a probe that was refused or met an error that says nothing.
func (p *prober) cannotTell(r Row, err error) Row {
	r.State = Unknown
	r.Detail = err.Error()
	if r.Remedy == "" {
		r.Remedy = p.who.remedy()
	}
	return r
}
