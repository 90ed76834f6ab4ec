package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"cowaudit/audit"
	"cowaudit/forktest"
)

// check turns a decoded file into rules and excuses. The first thing that is wrong is the error.
func (g *gateRules) check(p *gatePlaces) error {
	f := &g.file
	for _, n := range []struct {
		key   string
		value int
	}{{"rounds.min", f.Rounds.Min}, {"rounds.max", f.Rounds.Max}, {"workers", f.Workers}} {
		if _, given := p.lines[n.key]; n.value < 0 || given && n.value == 0 {
			return p.errorf([]string{n.key, "rounds"}, "%s = %d: at least 1", n.key, n.value)
		}
	}
	if f.Rounds.Max > 0 && f.Rounds.Min > f.Rounds.Max {
		return p.errorf([]string{"rounds.min", "rounds"}, "rounds.min = %d: at most rounds.max, %d", f.Rounds.Min, f.Rounds.Max)
	}
	var known []string
	for _, s := range forktest.Scenarios() {
		known = append(known, s.Name)
	}
	for _, s := range f.Scenarios {
		if !slices.Contains(known, s) {
			return p.errorf([]string{"scenarios"}, "scenario %q: one of %s%s", s, strings.Join(known, ", "), didYouMean(s, known))
		}
	}
	if err := g.checkApplication(p); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f.Subjects)) {
		s, at := f.Subjects[name], "subjects."+name
		if strings.TrimSpace(s.Ruby) == "" {
			return p.errorf([]string{at + ".ruby", at}, "subject %q has no ruby: give its command", name)
		}
		for _, e := range s.Env {
			if k, _, ok := strings.Cut(e, "="); !ok || k == "" {
				return p.errorf([]string{at + ".env", at}, "env %q: write it as K=V", e)
			}
		}
	}
	if len(f.Rules) == 0 {
		return p.errorf(nil, "no rule: write at least one under [[rules]]")
	}
	seen := map[string]int{}
	for i := range f.Rules {
		r, err := g.rule(p, i, seen)
		if err != nil {
			return err
		}
		g.rules = append(g.rules, r)
	}
	for i := range f.Excuses {
		e, err := g.excuse(p, i)
		if err != nil {
			return err
		}
		g.excuses = append(g.excuses, e)
	}
	return nil
}

// checkApplication checks what the file says of the user's own application.
func (g *gateRules) checkApplication(p *gatePlaces) error {
	f := &g.file
	for _, n := range []struct{ key, value string }{{"app", f.App}, {"preload", f.Preload}, {"settle_hook", f.SettleHook}, {"event", f.Event}, {"user", f.User}, {"timeout", f.Timeout}} {
		if _, given := p.lines[n.key]; given && strings.TrimSpace(n.value) == "" {
			return p.errorf([]string{n.key}, "%s: a value that is not empty", n.key)
		}
	}
	if own := f.App != "" || f.Preload != ""; own && len(f.Scenarios) > 0 {
		return p.errorf([]string{"app", "preload"}, "app and preload load an application of your own: leave out scenarios, which load others")
	}
	if f.Timeout != "" {
		d, err := time.ParseDuration(f.Timeout)
		if err != nil || d <= 0 {
			return p.errorf([]string{"timeout"}, "timeout = %q: a time such as \"60s\" or \"5m\"", f.Timeout)
		}
		g.timeout = d
	}
	return nil
}

func (g *gateRules) rule(p *gatePlaces, i int, seen map[string]int) (audit.Rule, error) {
	w := &g.file.Rules[i]
	table := fmt.Sprintf("rules[%d]", i)
	bad := func(key, format string, args ...any) (audit.Rule, error) {
		return audit.Rule{}, p.errorf([]string{table + "." + key, table, "rules"}, format, args...)
	}
	r := audit.Rule{Name: w.Name, Scenario: w.Scenario, Event: w.Event, Metric: w.Metric, Region: audit.RegionKind(w.Region), Function: w.Function}
	if w.Name == "" {
		return bad("name", "a rule without a name: give it one")
	}
	if line, ok := seen[w.Name]; ok {
		return bad("name", "rule %q: the name is taken, by the rule in line %d", w.Name, line)
	}
	seen[w.Name] = p.lines[table]
	if w.Scenario != "" && !slices.Contains(g.file.Scenarios, w.Scenario) && len(g.file.Scenarios) > 0 {
		return bad("scenario", "rule %q: scenario %q is not one of scenarios, which are %s%s", w.Name, w.Scenario,
			strings.Join(g.file.Scenarios, ", "), didYouMean(w.Scenario, g.file.Scenarios))
	}
	if err := checkRegion(w.Region); err != nil {
		return bad("region", "rule %q: %w", w.Name, err)
	}
	copies := w.Metric == "" || w.Metric == audit.DefaultRuleMetric
	if w.Function != "" && !copies {
		return bad("function", "rule %q: only copied_bytes is known by function", w.Name)
	}
	if w.Region != "" && !copies && w.Metric != "new_bytes" {
		return bad("region", "rule %q: only copied_bytes and new_bytes are known by region", w.Name)
	}
	if w.Max != nil && (copies || w.Metric == "new_bytes") {
		return bad("max", "rule %q: %s is in bytes: use max_bytes", w.Name, cmp.Or(w.Metric, audit.DefaultRuleMetric))
	}
	for _, l := range []struct {
		kind  audit.LimitKind
		value any
	}{{audit.LimitMax, number(w.Max)}, {audit.LimitMaxBytes, w.MaxBytes}, {audit.LimitIncreaseBytes, w.MaxIncrease}, {audit.LimitIncreasePercent, number(w.MaxPercent)}} {
		if l.value == nil {
			continue
		}
		v, err := parseLimit(l.value)
		if err != nil {
			return bad(string(l.kind), "rule %q: %s: %w", w.Name, l.kind, err)
		}
		r.Limits = append(r.Limits, audit.Limit{Kind: l.kind, Value: v})
	}
	if len(r.Limits) == 0 {
		return bad("", "rule %q has no limit: give max_bytes, max, max_increase_bytes or max_increase_percent", w.Name)
	}
	return r, nil
}

// number gives a value that may be missing as parseLimit wants it.
func number(v *float64) any {
	if v == nil {
		return nil
	}
	return *v
}

func checkRegion(region string) error {
	if region == "" || slices.Contains(audit.RegionKinds(), audit.RegionKind(region)) {
		return nil
	}
	var names []string
	for _, k := range audit.RegionKinds() {
		names = append(names, string(k))
	}
	return fmt.Errorf("region %q: one of %s%s", region, strings.Join(names, ", "), didYouMean(region, names))
}

func (g *gateRules) excuse(p *gatePlaces, i int) (audit.Excuse, error) {
	w := &g.file.Excuses[i]
	table := fmt.Sprintf("excuses[%d]", i)
	bad := func(key, format string, args ...any) (audit.Excuse, error) {
		return audit.Excuse{}, p.errorf([]string{table + "." + key, table, "excuses"}, format, args...)
	}
	switch {
	case (w.Function == "") == (w.Region == ""):
		return bad("function", "an excuse names a function or a region, and not both")
	case strings.TrimSpace(w.Reason) == "":
		return bad("reason", "the excuse for %s has no reason: say why it is excused", w.Function+w.Region)
	case w.Expires == nil:
		return bad("expires", "the excuse for %s has no expires: give its last day, as in expires = 2027-01-31", w.Function+w.Region)
	}
	if err := checkRegion(w.Region); err != nil {
		return bad("region", "%w", err)
	}
	return audit.Excuse{Function: w.Function, Region: audit.RegionKind(w.Region), Reason: w.Reason, Expires: w.Expires.String()}, nil
}

// byteUnits are what a limit in bytes may be written in, the longest names first.
var byteUnits = []struct {
	name string
	size float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}}

// parseLimit reads a number, or an amount of memory such as "2 MiB".
func parseLimit(v any) (float64, error) {
	var n float64
	switch v := v.(type) {
	case int64:
		n = float64(v)
	case float64:
		n = v
	case string:
		text, size := strings.TrimSpace(v), 1.0
		for _, u := range byteUnits {
			if rest, ok := strings.CutSuffix(text, u.name); ok {
				text, size = strings.TrimSpace(rest), u.size
				break
			}
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no amount of memory: write it as \"2 MiB\" (B, KiB, MiB, GiB, TiB), or as a number of bytes", v)
		}
		n = f * size
	default:
		return 0, fmt.Errorf("%v is no number", v)
	}
	if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		return 0, fmt.Errorf("%v is not 0 or more", v)
	}
	return n, nil
}
