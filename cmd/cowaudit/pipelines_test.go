package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"cowaudit/internal/testkit"
)

const pipelines = "../../docs/pipelines/"

// gitHubWorkflow is what the test needs of a workflow, and what GitHub requires.
type gitHubWorkflow struct {
	On   map[string]any `yaml:"on"`
	Jobs map[string]struct {
		RunsOn any `yaml:"runs-on"`
		Steps  []struct {
			Name, Uses, Run, If string
		}
	}
}

// gitLabJob is the same of a GitLab job.
type gitLabJob struct {
	Stage       string
	Script      []string
	AfterScript []string `yaml:"after_script"`
	Artifacts   struct {
		When    string
		Paths   []string
		Reports map[string]string
	}
}

func readYAML(t *testing.T, name string, v any) {
	t.Helper()
	b, err := os.ReadFile(pipelines + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// gitHubCommands gives the steps that run a command: those that measure, and those that show.
func gitHubCommands(t *testing.T) (measure, show []string) {
	var w gitHubWorkflow
	readYAML(t, "github-actions.yml", &w)
	if _, ok := w.On["pull_request"]; !ok || len(w.Jobs) != 1 {
		t.Fatalf("%+v", w)
	}
	for _, job := range w.Jobs {
		if job.RunsOn == nil {
			t.Error("no runner")
		}
		for _, s := range job.Steps {
			switch {
			case (s.Run == "") == (s.Uses == ""):
				t.Errorf("step %q has not one of run and uses", s.Name)
			case s.Run == "":
			case len(measure) == 0:
				measure = append(measure, s.Run)
			default:
				show = append(show, s.Run)
				if !strings.Contains(s.If, "!cancelled()") {
					t.Errorf("step %q is left out when the gate fails", s.Name)
				}
			}
		}
	}
	return measure, show
}

func gitLabCommands(t *testing.T) (measure, show, files []string) {
	var jobs map[string]gitLabJob
	readYAML(t, "gitlab-ci.yml", &jobs)
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	for _, j := range jobs {
		if j.Artifacts.When != "always" || j.Artifacts.Reports["junit"] == "" || j.Artifacts.Reports["codequality"] == "" {
			t.Errorf("artifacts %+v", j.Artifacts)
		}
		files = append(files, j.Artifacts.Paths...)
		for _, f := range j.Artifacts.Reports {
			files = append(files, f)
		}
		measure, show = append(measure, j.Script...), append(show, j.AfterScript...)
	}
	return measure, show, files
}

// pipelineFolder is a checkout with the rules, a baseline of the release in use, and a saved result in place of the candidate.
// sudo is a program that runs its arguments.
func pipelineFolder(t *testing.T, candidate string) (run func(line string) (code int, output string)) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	for name, from := range map[string]string{"cowaudit.toml": pipelines + "cowaudit.toml", "candidate.json": candidate, "used.json": gateFixture(t, "6.1", 120, 121, 122, 123, 124, 125, 126, 127)} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(testkit.Binary(t), filepath.Join(bin, "cowaudit")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	run = func(line string) (int, string) {
		t.Helper()
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GITHUB_STEP_SUMMARY="+filepath.Join(dir, "summary.md"))
		b, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(b)
	}
	// The document's own line, which measures the release in use.
	doc, err := os.ReadFile("../../docs/pipelines.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^    (sudo cowaudit gate --save-baseline .*)$`).FindSubmatch(doc)
	if line == nil {
		t.Fatal("docs/pipelines.md does not say how to save a baseline")
	}
	if code, out := run(onSaved(t, string(line[1]), "used.json")); code != exitDone {
		t.Fatalf("%s: %d, %s", line[1], code, out)
	}
	return run
}

// onSaved puts a saved result in the place of the subject, which would have to be measured.
func onSaved(t *testing.T, line, file string) string {
	t.Helper()
	if !strings.HasSuffix(line, " candidate") {
		t.Errorf("%q does not measure the candidate", line)
	}
	return strings.TrimSuffix(line, "candidate") + file
}

// The command lines of the examples run, on saved results, with the exit code of the gate, and what they write is what the
// platform takes.
func TestPipelines(t *testing.T) {
	for _, c := range []struct {
		name  string
		pages []int64
		code  int
		word  string
	}{
		{"passed", []int64{118, 119, 120, 121, 122, 123, 124, 125}, exitDone, "passed"},
		{"failed", []int64{7650, 7651, 7652, 7653, 7654, 7655, 7656, 7657}, exitGateFailed, "failed"},
		{"inconclusive", []int64{118, 119}, exitNotMeasured, "inconclusive"},
	} {
		t.Run("GitHub "+c.name, func(t *testing.T) {
			run := pipelineFolder(t, gateFixture(t, "6.1", c.pages...))
			measure, show := gitHubCommands(t)
			if code, out := run(onSaved(t, measure[0], "candidate.json")); code != c.code {
				t.Fatalf("%s: %d, want %d: %s", measure[0], code, c.code, out)
			}
			all := ""
			for _, line := range show {
				code, out := run(line)
				if code != exitDone {
					t.Errorf("%s: %d, %s", line, code, out)
				}
				all += out
			}
			if got := strings.Count("\n"+all, "\n::error "); (got > 0) != (c.code == exitGateFailed) || strings.Count(all, "::notice ") != 1 {
				t.Errorf("annotations:\n%s", all)
			}
			if _, summary := run("cat summary.md"); !strings.HasPrefix(summary, "### cowaudit gate: "+c.word+"\n") {
				t.Errorf("summary:\n%s", summary)
			}
			checkPipelineJUnit(t, run, c.code)
		})
		t.Run("GitLab "+c.name, func(t *testing.T) {
			run := pipelineFolder(t, gateFixture(t, "6.1", c.pages...))
			measure, show, files := gitLabCommands(t)
			if code, out := run(onSaved(t, measure[0], "candidate.json")); code != c.code {
				t.Fatalf("%s: %d, want %d: %s", measure[0], code, c.code, out)
			}
			for _, line := range show {
				if code, out := run(line); code != exitDone {
					t.Errorf("%s: %d, %s", line, code, out)
				}
			}
			for _, f := range files {
				if code, _ := run("test -s " + f); code != exitDone {
					t.Errorf("%s was not written", f)
				}
			}
			checkPipelineJUnit(t, run, c.code)
			_, quality := run("cat gl-code-quality-report.json")
			var issues []struct{ Severity, Fingerprint string }
			if err := json.Unmarshal([]byte(quality), &issues); err != nil || (len(issues) > 0) != (c.code != exitDone) {
				t.Errorf("%v: %s", err, quality)
			}
		})
	}
}

func checkPipelineJUnit(t *testing.T, run func(string) (int, string), code int) {
	t.Helper()
	_, text := run("cat gate.xml")
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
	}
	if err := xml.Unmarshal([]byte(text), &suites); err != nil {
		t.Fatal(err)
	}
	if suites.Tests != 2 || (suites.Failures > 0) != (code == exitGateFailed) || (suites.Errors > 0) != (code == exitNotMeasured) {
		t.Errorf("%+v with exit code %d:\n%s", suites, code, text)
	}
}

// A format that a result does not have is one line, and wrong usage.
func TestShowRefusesVerdictFormats(t *testing.T) {
	saved := gateFixture(t, "6.1", 100, 101)
	for _, format := range []string{"markdown", "junit", "github", "gitlab"} {
		stdout, stderr, code := runProgram("show", "--format", format, saved)
		want := "cowaudit: show: --format " + format + ": a fork test has no verdict: a result of compare has one, and one of gate\n"
		if code != exitUsage || stdout != "" || stderr != want {
			t.Errorf("%s: %d, %q, %q", format, code, stdout, stderr)
		}
	}
}
