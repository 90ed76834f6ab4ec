package report

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// workflowCommand is one line that GitHub takes for a command, with every property escaped.
var workflowCommand = regexp.MustCompile(`^::(error|warning|notice) title=[^,:\r\n]*(,file=[^,:\r\n]*)?::[^\r\n]*$`)

func TestGitHub(t *testing.T) {
	for name, v := range verdictResults(t) {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := GitHub(&b, v); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".github", b.Bytes())
			j, err := judgedOf(v)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int{"notice": 1}
			for _, s := range j.suites {
				for _, item := range s.items {
					switch item.outcome {
					case outcomeBad:
						want["error"]++
					case outcomeOpen:
						want["warning"]++
					}
				}
			}
			for _, l := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
				m := workflowCommand.FindStringSubmatch(l)
				if m == nil {
					t.Errorf("no command: %q", l)
					continue
				}
				want[m[1]]--
				for _, p := range regexp.MustCompile(`%.{0,2}`).FindAllString(l, -1) {
					if !regexp.MustCompile(`^%(25|0A|0D|3A|2C)$`).MatchString(p) {
						t.Errorf("%q is not escaped in %q", p, l)
					}
				}
			}
			for level, n := range want {
				if n != 0 {
					t.Errorf("%s: off by %d", level, -n)
				}
			}
		})
	}
}

func TestWorkflowCommandEscapes(t *testing.T) {
	const in = "50%: a,b\r\n::error::x"
	if got, want := commandMessage(in), `50%25: a,b\x0d\x0a::error::x`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if got, want := commandProperty(in), `50%25%3A a%2Cb\x0d\x0a%3A%3Aerror%3A%3Ax`; got != want {
		t.Errorf("property %q, want %q", got, want)
	}
}

func TestGitLab(t *testing.T) {
	severities := map[string]bool{"info": true, "minor": true, "major": true, "critical": true, "blocker": true}
	for name, v := range verdictResults(t) {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := GitLab(&b, v); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".gitlab", b.Bytes())
			var issues []gitLabIssue
			d := json.NewDecoder(&b)
			d.DisallowUnknownFields()
			if err := d.Decode(&issues); err != nil || issues == nil {
				t.Fatalf("no list: %v", err)
			}
			j, err := judgedOf(v)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, s := range j.suites {
				for _, item := range s.items {
					if item.outcome != outcomeFine {
						n++
					}
				}
			}
			seen := map[string]bool{}
			for _, issue := range issues {
				if issue.Description == "" || issue.CheckName == "" || issue.Location.Path == "" || issue.Location.Lines.Begin != 1 || !severities[issue.Severity] {
					t.Errorf("incomplete: %+v", issue)
				}
				seen[issue.Fingerprint] = true
			}
			if len(issues) != n || len(seen) != n {
				t.Errorf("%d issues with %d fingerprints for %d items", len(issues), len(seen), n)
			}
		})
	}
}

// An issue keeps its fingerprint when only the numbers change.
func TestGitLabFingerprintsStay(t *testing.T) {
	a, b := failedGate(t), failedGate(t)
	for i := range b.Rules {
		b.Rules[i].Why += " and a little"
	}
	var x, y []gitLabIssue
	for _, p := range []struct {
		v  any
		to *[]gitLabIssue
	}{{a, &x}, {b, &y}} {
		var buf bytes.Buffer
		if err := GitLab(&buf, p.v); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(buf.Bytes(), p.to); err != nil {
			t.Fatal(err)
		}
	}
	for i := range x {
		if x[i].Description == y[i].Description || x[i].Fingerprint != y[i].Fingerprint {
			t.Errorf("issue %d: %+v, %+v", i, x[i], y[i])
		}
	}
}
