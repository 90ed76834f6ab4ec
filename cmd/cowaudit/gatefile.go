package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"cowaudit/audit"
)

// gateFileName is the file that the gate reads its rules from, where --file names no other.
const gateFileName = "cowaudit.toml"

// gateFile is cowaudit.toml, as docs/gate.md describes it.
type gateFile struct {
	Subjects  map[string]gateSubject `toml:"subjects"`
	Scenarios []string               `toml:"scenarios"`

	// The user's own application, in place of scenarios.
	App        string `toml:"app"` // from the folder of this file
	Preload    string `toml:"preload"`
	SettleHook string `toml:"settle_hook"`
	Event      string `toml:"event"`
	User       string `toml:"user"`
	Warmup     bool   `toml:"warmup"`
	Timeout    string `toml:"timeout"` // as Go writes it: "60s"

	Rounds struct {
		Min int `toml:"min"`
		Max int `toml:"max"`
	} `toml:"rounds"`
	Workers int          `toml:"workers"`
	Rules   []gateRule   `toml:"rules"`
	Excuses []gateExcuse `toml:"excuses"`
}

// gateSubject is a subject with a name.
type gateSubject struct {
	Ruby string   `toml:"ruby"`
	Env  []string `toml:"env"`
}

// gateRule is one rule as it is written. Limits are nil where they are not given.
type gateRule struct {
	Name        string   `toml:"name"`
	Scenario    string   `toml:"scenario"`
	Event       string   `toml:"event"`
	Metric      string   `toml:"metric"`
	Region      string   `toml:"region"`
	Function    string   `toml:"function"`
	Max         *float64 `toml:"max"`
	MaxBytes    any      `toml:"max_bytes"`
	MaxIncrease any      `toml:"max_increase_bytes"`
	MaxPercent  *float64 `toml:"max_increase_percent"`
}

// gateExcuse is one excuse as it is written.
type gateExcuse struct {
	Function string          `toml:"function"`
	Region   string          `toml:"region"`
	Reason   string          `toml:"reason"`
	Expires  *toml.LocalDate `toml:"expires"`
}

// gateRules is what the gate needs of a file that was found right.
type gateRules struct {
	name    string // of the file
	file    gateFile
	timeout time.Duration // 0: the default
	rules   []audit.Rule
	excuses []audit.Excuse
}

// gatePlaces finds the line of a key: "rules[1].name". A table is there under its own name.
type gatePlaces struct {
	name  string // of the file
	lines map[string]int
}

// readGateFile reads and checks the rules. All that is wrong with them is wrong usage, with the line.
func readGateFile(name string, r io.Reader) (*gateRules, error) {
	data, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, usageErrorf("gate: read %s: %w", name, err)
	}
	g := &gateRules{name: name}
	decoder := toml.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&g.file); err != nil {
		return nil, gateDecodeError(name, err)
	}
	p := &gatePlaces{name: name, lines: gateLines(data)}
	if err := g.check(p); err != nil {
		return nil, err
	}
	return g, nil
}

// gateDecodeError gives the place of what the decoder found, and the key that was probably meant.
func gateDecodeError(name string, err error) error {
	var strict *toml.StrictMissingError
	var one *toml.DecodeError
	switch {
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		one = &strict.Errors[0]
		line, column := one.Position()
		key := one.Key()
		return usageErrorf("%s:%d:%d: unknown key %q%s: docs/gate.md lists the keys", name, line, column,
			strings.Join(key, "."), didYouMean(key[len(key)-1], gateKeys(key)))
	case errors.As(err, &one):
		line, column := one.Position()
		key := ""
		if k := one.Key(); len(k) > 0 {
			key = strings.Join(k, ".") + ": "
		}
		return usageErrorf("%s:%d:%d: %s%s", name, line, column, key, strings.TrimPrefix(one.Error(), "toml: "))
	}
	return usageErrorf("%s: %w", name, err)
}

// gateKeys lists the keys that may stand where an unknown one stands.
func gateKeys(key toml.Key) []string {
	if len(key) > 1 {
		switch key[0] {
		case "subjects":
			return []string{"ruby", "env"}
		case "rounds":
			return []string{"min", "max"}
		case "rules":
			return []string{"name", "scenario", "event", "metric", "region", "function", "max", "max_bytes", "max_increase_bytes", "max_increase_percent"}
		case "excuses":
			return []string{"function", "region", "reason", "expires"}
		}
	}
	return []string{"subjects", "scenarios", "app", "preload", "settle_hook", "event", "user", "warmup", "timeout", "rounds", "workers", "rules", "excuses"}
}

// gateLines gives the line of each table and key of a file that the decoder has read.
func gateLines(data []byte) map[string]int {
	lines, arrays := map[string]int{}, map[string]int{}
	var p unstable.Parser
	p.Reset(data)
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		var words []string
		line := 0
		for k := e.Key(); k.Next(); {
			if line == 0 {
				line = p.Shape(k.Node().Raw).Start.Line
			}
			words = append(words, string(k.Node().Data))
		}
		path := strings.Join(words, ".")
		switch e.Kind {
		case unstable.ArrayTable:
			table = fmt.Sprintf("%s[%d]", path, arrays[path])
			arrays[path]++
			lines[table] = line
		case unstable.Table:
			table = path
			lines[table] = line
		case unstable.KeyValue:
			if table != "" {
				path = table + "." + path
			}
			lines[path] = line
		}
	}
	return lines
}

// errorf is wrong usage at the line of the first of several keys that the file has; ":0" is never printed.
func (p *gatePlaces) errorf(keys []string, format string, args ...any) error {
	place := p.name
	for _, k := range keys {
		if line, ok := p.lines[k]; ok {
			place = fmt.Sprintf("%s:%d", p.name, line)
			break
		}
	}
	return usageErrorf("%s: %w", place, fmt.Errorf(format, args...))
}
