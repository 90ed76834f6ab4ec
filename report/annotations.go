package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// GitHub writes a result with a verdict (*audit.CompareReport, *audit.GateReport) as workflow commands, one a line, which GitHub
// Actions shows as annotations when they stand in a step's output: an error for what failed or is worse, a warning for what is
// inconclusive, and a notice with the conclusion. GitHub shows ten errors and ten warnings of a step. Any other result is an
// error.
func GitHub(w io.Writer, v any) error {
	j, err := judgedOf(v)
	if err != nil {
		return fmt.Errorf("write github: %w", err)
	}
	var b strings.Builder
	file := ""
	if j.file != "" {
		file = ",file=" + commandProperty(j.file)
	}
	for _, level := range []struct {
		of   outcome
		name string
	}{{outcomeBad, "error"}, {outcomeOpen, "warning"}} {
		for _, s := range j.suites {
			for _, item := range s.items {
				if item.outcome == level.of {
					title := fmt.Sprintf("cowaudit %s: %s, %s", j.command, s.scenario, item.name)
					fmt.Fprintf(&b, "::%s title=%s%s::%s\n", level.name, commandProperty(title), file, commandMessage(item.message))
				}
			}
		}
	}
	fmt.Fprintf(&b, "::notice title=%s%s::%s\n", commandProperty("cowaudit "+j.command), file, commandMessage(j.conclusion))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write github: %w", err)
	}
	return nil
}

// commandMessage escapes the message of a workflow command as GitHub's own toolkit does; a newline that somebody else chose
// could begin another command.
func commandMessage(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(printable(s))
}

// commandProperty does the same for a property, which ends at a comma or a colon.
func commandProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(printable(s))
}

// gitLabIssue is one entry of a GitLab code quality report.
type gitLabIssue struct {
	Description string         `json:"description"`
	CheckName   string         `json:"check_name"`
	Fingerprint string         `json:"fingerprint"`
	Severity    string         `json:"severity"`
	Location    gitLabLocation `json:"location"`
}

type gitLabLocation struct {
	Path  string `json:"path"`
	Lines struct {
		Begin int `json:"begin"`
	} `json:"lines"`
}

// noFile is where an issue of a comparison stands: GitLab wants a path, and no file of the repository is at fault.
const noFile = "cowaudit"

// GitLab writes a result with a verdict (*audit.CompareReport, *audit.GateReport) as a GitLab code quality report: an issue
// "critical" for each limit that failed, or row that is worse, and "minor" for what is inconclusive. Its place is the file of
// the rules. An issue keeps its fingerprint from one result to the next, so that GitLab sees which are new. Any other result
// is an error.
func GitLab(w io.Writer, v any) error {
	j, err := judgedOf(v)
	if err != nil {
		return fmt.Errorf("write gitlab: %w", err)
	}
	issues := []gitLabIssue{}
	for _, s := range j.suites {
		for _, item := range s.items {
			if item.outcome == outcomeFine {
				continue
			}
			sum := sha256.Sum256([]byte(item.key))
			issue := gitLabIssue{
				Description: printable(fmt.Sprintf("%s, %s: %s", s.scenario, item.name, item.message)), CheckName: "cowaudit-" + j.command,
				Fingerprint: hex.EncodeToString(sum[:]), Severity: "critical", Location: gitLabLocation{Path: printable(j.file)},
			}
			if item.outcome == outcomeOpen {
				issue.Severity = "minor"
			}
			if j.file == "" {
				issue.Location.Path = noFile
			}
			issue.Location.Lines.Begin = 1
			issues = append(issues, issue)
		}
	}
	slices.SortStableFunc(issues, func(x, y gitLabIssue) int { return strings.Compare(x.Severity, y.Severity) })
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", jsonIndent)
	if err := e.Encode(issues); err != nil {
		return fmt.Errorf("write gitlab: %w", err)
	}
	return nil
}
