package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
)

// The gate on the releases that it was made for: 3.1 to 3.3 fails with its cause; 3.3 to 3.4 passes with code that never ran and
// fails with code that ran before the fork.
func TestGateRubies(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "rubies", "trace")
	of := map[string]string{}
	for _, r := range testkit.Rubies(t) {
		of[r.Version] = r.Command
	}
	for _, tt := range []struct {
		name, a, b, scenario string
		code                 int
		want                 []string // in the verdict's sentence, or in the reasons of its rules
	}{
		{"3.1 to 3.3", "3.1", "3.3", "callcache-cold", exitGateFailed, []string{"first major GC", "the brk heap, identical pages"}},
		{"3.3 to 3.4, cold", "3.3", "3.4", "callcache-cold", exitDone, nil},
		{"3.3 to 3.4, warm", "3.3", "3.4", "callcache-warm", exitGateFailed, []string{"first major GC", "the brk heap, 9 to 64 words changed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			file, out := filepath.Join(dir, "cowaudit.toml"), filepath.Join(dir, "gate.json")
			rules := "scenarios = [\"" + tt.scenario + "\"]\n[subjects.old]\nruby = \"" + of[tt.a] + "\"\n[subjects.new]\nruby = \"" + of[tt.b] + "\"\n" +
				"[[rules]]\nname = \"copies of the first major GC\"\nmax_increase_percent = 10\n"
			if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
				t.Fatal(err)
			}
			_, stderr, code := runBinary(t, []string{"SUDO_UID="}, testkit.Binary(t), "gate", "--file", file, "--rounds", "5", "--format", "json", "-o", out, "old", "new")
			if code != tt.code {
				t.Fatalf("exit %d, want %d: %s", code, tt.code, stderr)
			}
			b, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			var g audit.GateReport
			if err := json.Unmarshal(b, &g); err != nil {
				t.Fatal(err)
			}
			t.Log(g.Conclusion)
			for _, want := range tt.want {
				if !strings.Contains(g.Conclusion, want) {
					t.Errorf("%s: does not say %q", g.Conclusion, want)
				}
			}
		})
	}
}

// An application of the user's own, from the folder of the file, with its hooks.
func TestGateOwnApplication(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "ruby")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"app.rb": "BLOCK = Array.new(20_000) { |i| \"#{i}\" * 10 }\n",
		"cowaudit.toml": "app = \"app.rb\"\nsettle_hook = \"WARM = true\"\nevent = \"raise unless WARM; BLOCK.each { |s| s << 'x' }\"\ntimeout = \"1m\"\n" +
			"[[rules]]\nname = \"a request\"\nevent = \"app_event\"\nmax_bytes = \"100 MiB\"\n" +
			"[[rules]]\nname = \"a request that copies nothing\"\nevent = \"app_event\"\nmax_bytes = 4096\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, code := runBinary(t, []string{"SUDO_UID="}, testkit.Binary(t), "gate", "--file", filepath.Join(dir, "cowaudit.toml"), "--rounds", "5", "ruby")
	if code != exitGateFailed || !strings.Contains(stdout, "a request that copies nothing") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
}
