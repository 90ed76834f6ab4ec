package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// The elements of JUnit XML as Surefire writes them and Jenkins and GitLab read them.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr,omitempty"`
		Hostname   string          `xml:"hostname,attr,omitempty"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
		Out        string          `xml:"system-out,omitempty"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		ClassName string        `xml:"classname,attr"`
		Time      string        `xml:"time,attr"`
		Failure   *junitProblem `xml:"failure"`
		Error     *junitProblem `xml:"error"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes a result with a verdict (*audit.CompareReport, *audit.GateReport) as JUnit XML: a test suite for each scenario
// and a test case for each limit, or each judged row of a comparison. What failed, or is worse, is a failure; what is
// inconclusive is an error, since nothing was shown, and a pipeline must not take it for passed. The time of a case is that of
// its event in all runs of B, in seconds. Any other result is an error.
func JUnit(w io.Writer, v any) error {
	j, err := judgedOf(v)
	if err != nil {
		return fmt.Errorf("write junit: %w", err)
	}
	root := junitSuites{Name: "cowaudit " + j.command}
	var total time.Duration
	for i := range j.suites {
		s, d := junitOf(j, &j.suites[i])
		root.Tests, root.Failures, root.Errors, total = root.Tests+s.Tests, root.Failures+s.Failures, root.Errors+s.Errors, total+d
		root.Suites = append(root.Suites, s)
	}
	root.Time = junitTime(total)
	b, err := xml.MarshalIndent(&root, "", "  ")
	if err != nil {
		return fmt.Errorf("write junit: %w", err)
	}
	if _, err := io.WriteString(w, xml.Header+string(b)+"\n"); err != nil {
		return fmt.Errorf("write junit: %w", err)
	}
	return nil
}

func junitOf(j *judged, s *judgedSuite) (junitSuite, time.Duration) {
	out := junitSuite{Name: printable(s.scenario), Out: printable(j.conclusion)}
	if out.Name == "" {
		out.Name = "no scenario"
	}
	if c := s.comparison; c != nil {
		if t := c.B.Capture.TimeUnixNano; t != 0 {
			out.Timestamp = time.Unix(0, t).UTC().Format("2006-01-02T15:04:05")
		}
		out.Hostname = printable(c.B.Capture.Host)
		for _, p := range []junitProperty{
			{"a", c.A.Subject.Name}, {"a.version", c.A.Subject.Version}, {"a.build_id", c.A.Subject.BuildID},
			{"b", c.B.Subject.Name}, {"b.version", c.B.Subject.Version}, {"b.build_id", c.B.Subject.BuildID},
			{"kernel", c.B.Capture.Kernel}, {"cowaudit", c.Version},
		} {
			if p.Value != "" {
				out.Properties = append(out.Properties, junitProperty{p.Name, printable(p.Value)})
			}
		}
	}
	var total time.Duration
	for i := range s.items {
		item := &s.items[i]
		d := s.took(item.event)
		total += d
		c := junitCase{Name: printable(item.name), ClassName: "cowaudit." + j.command + "." + strings.ReplaceAll(out.Name, ".", "_"), Time: junitTime(d)}
		problem := &junitProblem{Message: printable(item.message), Type: printable(item.verdict), Text: printableLines(item.detail)}
		switch item.outcome {
		case outcomeBad:
			c.Failure, out.Failures = problem, out.Failures+1
		case outcomeOpen:
			c.Error, out.Errors = problem, out.Errors+1
		}
		out.Tests++
		out.Cases = append(out.Cases, c)
	}
	out.Time = junitTime(total)
	return out, total
}

func junitTime(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }

// printableLines sets lines, each of them printable, below each other.
func printableLines(lines []string) string {
	out := make([]string, len(lines))
	for i := range lines {
		out[i] = printable(lines[i])
	}
	return strings.Join(out, "\n")
}
