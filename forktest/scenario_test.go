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
		{ScenarioCompactEachFork, "parent_compaction", "null", 1000},
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

// The user's own events: what the hooks leave, and what the event does, must be where they say.
func TestHooks(t *testing.T) {
	testkit.Require(t, "pagemap", "ruby")
	app := t.TempDir() + "/app.rb"
	if err := os.WriteFile(app, []byte("module App; def self.table; @table ||= 'x' * 4_000_000; end; end\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := Config{Version: "test", App: app, SettleHook: "App.table # filled before the fork", Runs: 1,
		Event: "1000.times { |i| App.table.setbyte(i * 4000, 1) }\nCowauditHarness.metric('touched_bytes', 1000)"}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range r.Runs[0].Events {
		names = append(names, e.Name)
	}
	if got := strings.Join(names, " "); got != "null app_event first_major_gc second_major_gc" {
		t.Errorf("events %s", got)
	}
	e := r.Runs[0].Events[1]
	if e.CopiedPages < 970 || e.CopiedPages > 1100 {
		t.Errorf("the event copies %d pages, not about 977", e.CopiedPages)
	}
	if len(e.Metrics) != 2 || e.Metrics[0].Name != "rss_growth_bytes" || e.Metrics[1].Name != "touched_bytes" || e.Metrics[1].Value != 1000 {
		t.Errorf("metrics %+v", e.Metrics)
	}
	for _, bad := range []struct {
		c    Config
		want string
	}{
		{Config{Event: "raise 'no'"}, "RuntimeError at --event:1 while running the event app_event: no"},
		{Config{Event: "def ("}, "SyntaxError"},
		{Config{SettleHook: "raise 'no'"}, "RuntimeError at --settle-hook:1 while evaluating the settle-hook expression: no"},
		{Config{Event: "CowauditHarness.metric('rss_growth_bytes', 1)"}, "rss_growth_bytes in app_event, which cowaudit measures"},
		{Config{Event: "CowauditHarness.metric('A b', 1)"}, "is no name of a metric"},
	} {
		bad.c.Preload, bad.c.Runs = "1", 1
		if _, err := Run(t.Context(), bad.c); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%q%q: %v", bad.c.Event, bad.c.SettleHook, err)
		}
	}
}

func TestPythonHooks(t *testing.T) {
	testkit.Require(t, "pagemap", "python3")
	c := Config{Version: "test", Subject: "python3", Preload: "table = bytearray(4_000_000)", SettleHook: "table[0] = 1",
		Event: "for i in range(0, len(table), 4000): table[i] += 1", Runs: 1}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if e := event(t, r, "app_event"); e.CopiedBytes.Median < 900*4096 {
		t.Errorf("the event copies %d bytes", e.CopiedBytes.Median)
	}
}
