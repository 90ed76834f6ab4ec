package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"cowaudit/audit"
)

// Folded writes the copied pages of a trace, or of a traced fork test, as folded stacks, for flamegraph.pl and speedscope:
// a line for each chain of calls, outermost first, and the number of pages:
//
//	program;[phase of GC];outermost;…;innermost 8061
//
// The program is the process' name without its PID, so that workers add up (of a fork test it is the event). "[cut]" stands
// where the stack does not reach the start of the thread, "[system call]" below a function whose system call wrote. A ";" in
// a name is written ":".
func Folded(w io.Writer, v any) error {
	p, err := profileOf(v)
	if err != nil {
		return err
	}
	sums := map[string]int64{}
	for i := range p.parts {
		part := &p.parts[i]
		for k := range part.profile.Samples {
			s := &part.profile.Samples[k]
			sums[p.folded(part, s)] += s.CopiedPages
		}
	}
	lines := make([]string, 0, len(sums))
	for l := range sums {
		lines = append(lines, l)
	}
	slices.Sort(lines)
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s %d\n", l, sums[l])
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write folded stacks: %w", err)
	}
	return nil
}

// folded is the line of a sample without its number.
func (p *profile) folded(part *profilePart, s *audit.Sample) string {
	root := part.program(s.PID)
	switch {
	case part.event != "":
		root = audit.EventLabel(part.event)
	case root == "":
		root = "[unknown]"
	}
	names := []string{root, "[" + s.Phase.Label() + "]"}
	st := &part.profile.Stacks[s.Stack]
	if p.stacks && st.Cut {
		names = append(names, "[cut]")
	}
	for _, f := range slices.Backward(st.Frames) {
		names = append(names, part.profile.Frames[f].Name)
	}
	if s.KernelMode {
		names = append(names, "[system call]")
	}
	for i, n := range names {
		names[i] = strings.ReplaceAll(printable(n), ";", ":")
	}
	return strings.Join(names, ";")
}
