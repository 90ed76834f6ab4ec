package main

import (
	"strings"
	"testing"

	"cowaudit/forktest"
)

// Whoever looks for a scenario must find it, with what it measures, in the help.
func TestScenarioList(t *testing.T) {
	stdout, stderr, code := runProgram("forktest", "--list-scenarios")
	if code != exitDone || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	words := strings.Join(strings.Fields(stdout), " ")
	for _, s := range forktest.Scenarios() {
		if !strings.Contains("\n"+stdout, "\n"+s.Name+" ("+string(s.Runtime)+")\n") || !strings.Contains(words, s.Healthy) {
			t.Errorf("%s, or what is usual there, is not listed", s.Name)
		}
		for _, m := range s.Metrics {
			if !strings.Contains(words, m.Name+" ("+m.Unit) {
				t.Errorf("%s: metric %s is not listed", s.Name, m.Name)
			}
		}
	}
	for line := range strings.Lines(stdout) {
		if len(line) > helpWidth+1 {
			t.Errorf("longer than the terminal: %s", line)
		}
	}
	help, _, _ := runProgram("help", "forktest")
	if !strings.Contains(help, "--list-scenarios") || !strings.Contains(help, "--settle-hook") {
		t.Errorf("the help does not lead to the scenarios:\n%s", help)
	}
}
