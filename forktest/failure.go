package forktest

import (
	"fmt"
	"strings"
)

// Failure is a run that did not come to its end: the subject crashed, hung, raised, could not fork, or did not speak the
// protocol. Error gives one line.
type Failure struct {
	Run    int      // 1 is the first; 0 the one of a comparison that does not count
	What   string   // what happened, and what the subject was doing
	Remedy string   // "" where there is none to give
	Last   string   // the line of the application's output that says most; "" where there is none, or What says it all
	Output []string // the last lines that the application wrote, oldest first
}

func (f *Failure) Error() string {
	s := runName(f.Run) + ": " + f.What
	if f.Last != "" {
		s += fmt.Sprintf("; its last output: %q", f.Last)
	}
	if f.Remedy != "" {
		s += ": " + f.Remedy
	}
	return s
}

// runName names a run in an error.
func runName(seq int) string {
	if seq == 0 {
		return "warm-up run"
	}
	return fmt.Sprintf("run %d", seq)
}

// ConfigError is a wish that cannot be fulfilled as it stands. Nothing was started.
type ConfigError struct{ Text string }

func (e *ConfigError) Error() string { return e.Text }

func configErrorf(format string, args ...any) error {
	return &ConfigError{fmt.Sprintf(format, args...)}
}

// firstLine gives the first line of a message that may have more, with what a terminal would obey left out.
func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return printable(s)
}
