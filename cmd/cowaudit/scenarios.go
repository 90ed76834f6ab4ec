package main

import (
	"fmt"
	"io"
	"strings"

	"cowaudit/forktest"
)

// listScenarios writes what each built-in scenario is for, what it measures and what is usual.
func listScenarios(w io.Writer) error {
	var b strings.Builder
	for i, s := range forktest.Scenarios() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s (%s)\n", s.Name, s.Runtime)
		wrapTo(&b, "  ", "  ", sentence(s.Purpose))
		var sizes []string
		for _, size := range s.Sizes {
			sizes = append(sizes, fmt.Sprintf("%d %s", size.Value, strings.ReplaceAll(size.Name, "_", " ")))
		}
		wrapTo(&b, "  sizes    ", "           ", strings.Join(sizes, ", "))
		if s.Events != nil {
			wrapTo(&b, "  events   ", "           ", strings.Join(s.Events, ", "))
		}
		for _, m := range s.Metrics {
			wrapTo(&b, "  metric   ", "           ", fmt.Sprintf("%s (%s, in %s): %s", m.Name, m.Unit, strings.Join(m.Events, ", "), m.Meaning))
		}
		wrapTo(&b, "  usual    ", "           ", s.Healthy)
	}
	b.WriteString("\nFigures: Debian's Ruby 3.1.2, 3.3.8 and 3.4.11; see docs/method.md.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// sentence begins with a capital and ends with a full stop.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }
