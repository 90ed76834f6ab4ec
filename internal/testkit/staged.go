package testkit

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Range is a part of an address space, end excluded.
type Range struct{ Start, End uint64 }

// Stage is a moment at which a program holds still.
type Stage struct {
	Name    string
	PIDs    []int            // the fork parent first, unless the program says otherwise
	Named   map[string]int   // PIDs by name, where the program gives names
	Regions map[string]Range // those printed up to now
}

// Truth is what a program measured of itself.
type Truth struct {
	Label string
	Got   string
	OK    bool
}

// Staged is a running program that speaks the stage protocol, with HOLD=1: it prints
//
//	REGION label start-end pages=N
//	STAGE name pids=P,P,... [region=start-end] [names=n,n,...]
//	TRUTH label = got (want w) ok|FAIL
//
// and holds still at each STAGE until it reads a line. It exits with 0 when all of its truths held, 77 when it cannot be
// shown here.
type Staged struct {
	*Process
	regions map[string]Range
	truths  []Truth
	notes   []string
	held    bool
}

// Stages starts a program that speaks the stage protocol.
func Stages(t testing.TB, argv ...string) *Staged {
	t.Helper()
	return StagesCmd(t, exec.Command(argv[0], argv[1:]...))
}

// StagesCmd is [Stages] for a command with a folder or an environment of its own.
func StagesCmd(t testing.TB, cmd *exec.Cmd) *Staged {
	t.Helper()
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(slices.Clone(cmd.Env), "HOLD=1")
	return &Staged{Process: StartCmd(t, cmd), regions: map[string]Range{}}
}

var (
	stageLine  = regexp.MustCompile(`^STAGE (\S+) pids=([\d,]+)(.*)$`)
	regionLine = regexp.MustCompile(`^REGION (.+) ([0-9a-f]+)-([0-9a-f]+) pages=\d+`)
	truthLine  = regexp.MustCompile(`^TRUTH (.+?) = (.+) (ok|FAIL)$`)
	stageAttr  = regexp.MustCompile(`\b(region|names)=(\S+)`)
)

// Next lets the program go on and gives the next stage; ok is false when there is none.
func (s *Staged) Next() (st Stage, ok bool) {
	s.t.Helper()
	s.Continue()
	for {
		line, more := s.Line()
		if !more {
			return Stage{}, false
		}
		st, ok, err := s.parse(line)
		if err != nil {
			s.fail(fmt.Sprintf("line %q: %v", line, err))
		}
		if ok {
			s.held = true
			return st, true
		}
	}
}

// To goes on to the stage with a name.
func (s *Staged) To(name string) Stage {
	s.t.Helper()
	for {
		st, ok := s.Next()
		if !ok {
			s.fail("ended before stage " + name)
		}
		if st.Name == name {
			return st
		}
	}
}

// Continue lets the program go on from the stage at which it is held. Without one it does nothing.
func (s *Staged) Continue() {
	s.t.Helper()
	if s.held {
		s.held = false
		s.Send("")
	}
}

// Notes are the lines up to now that are none of the protocol's.
func (s *Staged) Notes() []string { return s.notes }

// Finish lets the program run to its end, through all stages, and gives its truths. It fails the test when one did not hold
// or the program says so by its exit code; a program that cannot be shown here is [Missing].
func (s *Staged) Finish() []Truth {
	s.t.Helper()
	return s.FinishFailing()
}

// FinishFailing is [Staged.Finish] where some of the program's truths cannot hold, by their labels: it fails the test when one
// of these holds, or another one does not.
func (s *Staged) FinishFailing(labels ...string) []Truth {
	s.t.Helper()
	for {
		if _, ok := s.Next(); !ok {
			break
		}
	}
	code := s.Wait()
	if code == 77 {
		Missing(s.t, strings.Join(s.cmd.Args, " ")+": "+strings.Join(s.notes, "; "))
	}
	for _, tr := range s.truths {
		switch expected := slices.Contains(labels, tr.Label); {
		case !tr.OK && !expected:
			s.t.Errorf("%s: its own truth fails: %s = %s", strings.Join(s.cmd.Args, " "), tr.Label, tr.Got)
		case tr.OK && expected:
			s.t.Errorf("%s: holds, and should not: %s = %s", strings.Join(s.cmd.Args, " "), tr.Label, tr.Got)
		}
	}
	for _, l := range labels {
		if !slices.ContainsFunc(s.truths, func(tr Truth) bool { return tr.Label == l }) {
			s.t.Errorf("%s: says nothing of %q", strings.Join(s.cmd.Args, " "), l)
		}
	}
	if want := min(len(labels), 1); code != want {
		s.fail(fmt.Sprintf("exit code %d", code))
	}
	return s.truths
}

func (s *Staged) parse(line string) (st Stage, ok bool, err error) {
	if m := truthLine.FindStringSubmatch(line); m != nil {
		s.truths = append(s.truths, Truth{Label: m[1], Got: m[2], OK: m[3] == "ok"})
		return st, false, nil
	}
	if m := regionLine.FindStringSubmatch(line); m != nil {
		s.regions[m[1]], err = parseRange(m[2] + "-" + m[3])
		return st, false, err
	}
	m := stageLine.FindStringSubmatch(line)
	if m == nil {
		s.notes = append(s.notes, line)
		return st, false, nil
	}
	st = Stage{Name: m[1], Named: map[string]int{}}
	for _, w := range strings.Split(m[2], ",") {
		n, err := strconv.Atoi(w)
		if err != nil {
			return st, false, err
		}
		st.PIDs = append(st.PIDs, n)
	}
	for _, a := range stageAttr.FindAllStringSubmatch(m[3], -1) {
		switch a[1] {
		case "region":
			if s.regions["region"], err = parseRange(a[2]); err != nil {
				return st, false, err
			}
		case "names":
			list := strings.Split(a[2], ",")
			if len(list) > len(st.PIDs) {
				return st, false, fmt.Errorf("%d names for %d processes", len(list), len(st.PIDs))
			}
			for i, n := range list {
				st.Named[n] = st.PIDs[i]
			}
		}
	}
	st.Regions = maps.Clone(s.regions)
	return st, true, nil
}

func parseRange(s string) (r Range, err error) {
	lo, hi, _ := strings.Cut(s, "-")
	if r.Start, err = strconv.ParseUint(lo, 16, 64); err != nil {
		return r, err
	}
	r.End, err = strconv.ParseUint(hi, 16, 64)
	return r, err
}
