package main

import (
	"strings"
	"testing"

	"cowaudit/audit"
)

const gateFileGood = `scenarios = ["callcache-cold"]
workers = 2
[rounds]
min = 6
max = 20
[subjects.old]
ruby = "ruby3.1"
env = ["A=b"]
[[rules]]
name = "copies"
scenario = "callcache-cold"
region = "brk_heap"
max_bytes = "2 MiB"
max_increase_percent = 5
[[rules]]
name = "all"
max_increase_bytes = 4096
[[excuses]]
function = "f"
reason = "known"
expires = 2027-01-31
`

func TestGateFile(t *testing.T) {
	g, err := readGateFile("cowaudit.toml", strings.NewReader(gateFileGood))
	if err != nil {
		t.Fatal(err)
	}
	want := []audit.Limit{{Kind: audit.LimitMaxBytes, Value: 2 << 20}, {Kind: audit.LimitIncreasePercent, Value: 5}}
	if len(g.rules) != 2 || len(g.rules[0].Limits) != 2 || g.rules[0].Limits[0] != want[0] || g.rules[0].Limits[1] != want[1] {
		t.Errorf("%+v", g.rules)
	}
	if len(g.excuses) != 1 || g.excuses[0].Expires != "2027-01-31" || g.file.Subjects["old"].Ruby != "ruby3.1" || g.file.Rounds.Max != 20 {
		t.Errorf("%+v", g)
	}
}

// Each mistake is one line with its place, and wrong usage.
func TestGateFileErrors(t *testing.T) {
	rule := "[[rules]]\nname = \"r\"\n"
	for _, c := range []struct{ file, want string }{
		{"scenarios = [", "f.toml:1:"},
		{rule + "max_byte = 1\n", `f.toml:3:1: unknown key "rules.max_byte" (did you mean "max_bytes"?)`},
		{"sceanrios = []\n", `f.toml:1:1: unknown key "sceanrios" (did you mean "scenarios"?)`},
		{"workers = \"x\"\n", "f.toml:1:"},
		{"workers = -1\n" + rule + "max_bytes = 1\n", "f.toml:1: workers = -1: at least 1"},
		{"[rounds]\nmin = 7\nmax = 6\n", "f.toml:2: rounds.min = 7: at most rounds.max, 6"},
		{"[subjects.a]\nenv = []\n", `f.toml:1: subject "a" has no ruby`},
		{"[subjects.a]\nruby = \"r\"\nenv = [\"x\"]\n", `f.toml:3: env "x": write it as K=V`},
		{"workers = 1\n", "f.toml: no rule"},
		{rule, `f.toml:1: rule "r" has no limit`},
		{"[[rules]]\nmax_bytes = 1\n", "f.toml:1: a rule without a name"},
		{rule + "max_bytes = 1\n" + rule + "max_bytes = 1\n", `f.toml:5: rule "r": the name is taken, by the rule in line 1`},
		{rule + "max_bytes = -1\n", `f.toml:3: rule "r": max_bytes: -1 is not 0 or more`},
		{rule + "max_bytes = \"2 MB\"\n", `f.toml:3: rule "r": max_bytes: "2 MB" is no amount of memory`},
		{rule + "max_bytes = true\n", `f.toml:3: rule "r": max_bytes: true is no number`},
		{rule + "max = 1\n", `f.toml:3: rule "r": copied_bytes is in bytes: use max_bytes`},
		{rule + "max_increase_percent = nan\n", `f.toml:3: rule "r": max_increase_percent: NaN is not 0 or more`},
		{rule + "region = \"brk_haep\"\nmax_bytes = 1\n", `(did you mean "brk_heap"?)`},
		{rule + "metric = \"peak\"\nregion = \"stack\"\nmax = 1\n", "f.toml:4: rule \"r\": only copied_bytes and new_bytes"},
		{rule + "metric = \"new_bytes\"\nfunction = \"f\"\nmax_bytes = 1\n", "f.toml:4: rule \"r\": only copied_bytes is known by function"},
		{"scenarios = [\"callcache-cold\"]\n" + rule + "scenario = \"callcache-cool\"\nmax_bytes = 1\n", `f.toml:4: rule "r": scenario "callcache-cool" is not one of scenarios, which are callcache-cold (did you mean "callcache-cold"?)`},
		{rule + "max_bytes = 1\n[[excuses]]\nfunction = \"f\"\nexpires = 2027-01-31\n", "f.toml:4: the excuse for f has no reason"},
		{rule + "max_bytes = 1\n[[excuses]]\nfunction = \"f\"\nreason = \"x\"\n", "f.toml:4: the excuse for f has no expires"},
		{rule + "max_bytes = 1\n[[excuses]]\nreason = \"x\"\n", "f.toml:4: an excuse names a function or a region"},
		{rule + "max_bytes = 1\n[[excuses]]\nregion = \"x\"\nreason = \"x\"\nexpires = 2027-01-31\n", `f.toml:5: region "x": one of brk_heap`},
	} {
		_, err := readGateFile("f.toml", strings.NewReader(c.file))
		if err == nil {
			t.Errorf("%q: no error", c.file)
			continue
		}
		line := lineOf(err)
		if !strings.Contains(line, c.want) || strings.Contains(line, "\n") || codeOf(err) != exitUsage {
			t.Errorf("%q: %d, %s, want %s", c.file, codeOf(err), line, c.want)
		}
	}
}
