package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
)

func verdictResults(t testing.TB) map[string]any {
	return map[string]any{
		"compare_better": betterReport(t), "compare_worse": worseReport(t), "compare_open": openReport(t), "compare_same": sameReport(t), "compare_hostile": hostileCompare(t),
		"gate_failed": failedGate(t), "gate_passed": passedGate(t), "gate_excused": excusedGate(t), "gate_open": openGate(t), "gate_hostile": hostileGate(t),
	}
}

func TestJUnit(t *testing.T) {
	for name, v := range verdictResults(t) {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := JUnit(&b, v); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".xml", b.Bytes())
			checkJUnit(t, b.String())
			j, err := judgedOf(v)
			if err != nil {
				t.Fatal(err)
			}
			cases, bad, open := 0, 0, 0
			for _, s := range j.suites {
				for _, item := range s.items {
					cases++
					switch item.outcome {
					case outcomeBad:
						bad++
					case outcomeOpen:
						open++
					}
				}
			}
			var root junitSuites
			if err := xml.Unmarshal(b.Bytes(), &root); err != nil {
				t.Fatal(err)
			}
			if root.Tests != cases || root.Failures != bad || root.Errors != open {
				t.Errorf("%d tests, %d failures, %d errors for %d items, %d of them bad, %d open", root.Tests, root.Failures, root.Errors, cases, bad, open)
			}
		})
	}
}

// junitSchema is what Jenkins' junit-10.xsd and Surefire's surefire-test-report.xsd allow, of what is used here: the elements
// within each, its attributes, and those that must be there.
var junitSchema = map[string]struct{ within, attributes, required []string }{
	"":           {within: []string{"testsuites"}},
	"testsuites": {[]string{"testsuite"}, []string{"name", "time", "tests", "failures", "disabled", "errors"}, nil},
	"testsuite": {[]string{"properties", "testcase", "system-out", "system-err"},
		[]string{"name", "tests", "failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "id", "package"}, []string{"name", "tests", "failures", "errors", "skipped", "time"}},
	"properties": {within: []string{"property"}},
	"property":   {nil, []string{"name", "value"}, []string{"name", "value"}},
	"testcase":   {[]string{"skipped", "error", "failure", "system-out", "system-err"}, []string{"name", "classname", "time", "assertions", "status"}, []string{"name", "classname", "time"}},
	"failure":    {nil, []string{"message", "type"}, []string{"type"}},
	"error":      {nil, []string{"message", "type"}, []string{"type"}},
	"system-out": {},
}

// checkJUnit holds a file against the schema, and the counts in its attributes against its elements.
func checkJUnit(t *testing.T, text string) {
	t.Helper()
	if !strings.HasPrefix(text, `<?xml version="1.0" encoding="UTF-8"?>`+"\n") {
		t.Errorf("it begins with %.60q", text)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("unprintable at %d: %.20q", i, text[i:])
	}
	path := []string{""}
	var counts []map[string]int
	var claims []map[string]string
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			name, parent := e.Name.Local, path[len(path)-1]
			if !slices.Contains(junitSchema[parent].within, name) {
				t.Errorf("<%s> within <%s>", name, parent)
			}
			have := map[string]string{}
			for _, a := range e.Attr {
				have[a.Name.Local] = a.Value
				if !slices.Contains(junitSchema[name].attributes, a.Name.Local) {
					t.Errorf("<%s> has an attribute %s", name, a.Name.Local)
				}
			}
			for _, want := range junitSchema[name].required {
				if _, ok := have[want]; !ok {
					t.Errorf("<%s> has no attribute %s", name, want)
				}
			}
			if v, ok := have["time"]; ok {
				if f, err := strconv.ParseFloat(v, 64); err != nil || f < 0 {
					t.Errorf("time %q", v)
				}
			}
			if v, ok := have["timestamp"]; ok {
				if _, err := time.Parse("2006-01-02T15:04:05", v); err != nil {
					t.Error(err)
				}
			}
			for _, c := range counts {
				c[name]++
			}
			path, counts, claims = append(path, name), append(counts, map[string]int{}), append(claims, have)
		case xml.EndElement:
			n := len(counts) - 1
			for attribute, element := range map[string]string{"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"} {
				if v, ok := claims[n][attribute]; ok && v != strconv.Itoa(counts[n][element]) {
					t.Errorf("<%s> says %s %s and has %d", e.Name.Local, v, attribute, counts[n][element])
				}
			}
			path, counts, claims = path[:len(path)-1], counts[:n], claims[:n]
		}
	}
}

func TestVerdictFormatsOfAnythingElse(t *testing.T) {
	for _, v := range []any{diffReport(t), forktestReport(t, 1, 230, 85), familiesReport(1), 7} {
		for name, write := range map[string]func(io.Writer, any) error{"markdown": Markdown, "junit": JUnit, "github": GitHub, "gitlab": GitLab} {
			var b bytes.Buffer
			if err := write(&b, v); err == nil || !strings.HasPrefix(err.Error(), "write "+name+": ") || !strings.HasSuffix(err.Error(), "has no verdict: a result of compare has one, and one of gate") || b.Len() > 0 {
				t.Errorf("%s of %T: error %v, wrote %q", name, v, err, b.String())
			}
		}
		if err := HasVerdict(v); err == nil {
			t.Errorf("%T has a verdict", v)
		}
	}
}
