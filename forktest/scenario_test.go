package forktest

import (
	"os"
	"strings"
	"testing"

	"cowaudit/internal/testkit"
)

// Every scenario must be explained where a user looks for it.
func TestScenariosAreExplained(t *testing.T) {
	b, err := os.ReadFile("../docs/method.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Scenarios() {
		if !strings.Contains(string(b), "\n### Scenario: "+s.Name+"\n") {
			t.Errorf("docs/method.md has no section on %s", s.Name)
		}
		if s.Purpose == "" || s.Healthy == "" || len(s.Sizes) == 0 || harnesses[s.Runtime].program == "" {
			t.Errorf("%+v is not complete", s)
		}
	}
	for _, r := range []Runtime{RuntimeRuby, RuntimePython} {
		if findScenario(r, harnesses[r].scenario) == nil {
			t.Errorf("the default of %s, %q, is none of its scenarios", r, harnesses[r].scenario)
		}
	}
}

// What the parent called after its last collection is what the caches show: the worker's first collection must meet them.
func TestCallcacheWarm(t *testing.T) {
	testkit.Require(t, "pagemap", "ruby")
	r, err := Run(t.Context(), Config{Version: "test", Scenario: ScenarioCallcacheWarm, Methods: 2000, Runs: 1})
	if err != nil {
		t.Fatal(err)
	}
	cold, err := Run(t.Context(), Config{Version: "test", Scenario: ScenarioCallcacheCold, Methods: 2000, Runs: 1})
	if err != nil {
		t.Fatal(err)
	}
	warm, was := event(t, r, "first_major_gc"), event(t, cold, "first_major_gc")
	if warm.SharedBefore.Median <= was.SharedBefore.Median {
		t.Errorf("the caches that were filled take no memory: %v pages are shared, %v where nothing was called", warm.SharedBefore.Median, was.SharedBefore.Median)
	}
	if r.Scenario.Name != ScenarioCallcacheWarm || r.Scenario.CallSites != 40_000 {
		t.Errorf("scenario %+v", r.Scenario)
	}
}

// Each scenario's own event copies, and doing it once more does not.
func TestScenarioEvents(t *testing.T) {
	testkit.Require(t, "pagemap", "ruby")
	for _, c := range []struct {
		scenario, copies, quiet string
		least                   float64 // pages
	}{
		{ScenarioCoderange, "first_scan", "second_scan", 2000},
		{ScenarioCompactEachFork, "parent_compacts", "null", 1000},
		{ScenarioExit, "teardown", "null", 500},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			r, err := Run(t.Context(), Config{Version: "test", Scenario: c.scenario, Runs: 1})
			if err != nil {
				t.Fatal(err)
			}
			for i, name := range findScenario(RuntimeRuby, c.scenario).Events {
				if got := r.Runs[0].Events[i].Name; got != name {
					t.Errorf("event %d is %s, not %s", i, got, name)
				}
			}
			page := float64(r.Capture.PageSize)
			if n := float64(event(t, r, c.copies).CopiedBytes.Median) / page; n < c.least {
				t.Errorf("%s copies %v pages, not %v or more", c.copies, n, c.least)
			}
			if n := float64(event(t, r, c.quiet).CopiedBytes.Median) / page; n > c.least/20 {
				t.Errorf("%s copies %v pages", c.quiet, n)
			}
		})
	}
}
