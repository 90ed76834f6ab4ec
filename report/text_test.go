package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file in testdata, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

func TestText(t *testing.T) {
	tests := []struct {
		name string
		v    any
		o    Options
	}{
		{"audit_puma", pumaReport(t, 3), Options{}},
		{"audit_puma_color", pumaReport(t, 3), Options{Color: true}},
		{"audit_puma_narrow", pumaReport(t, 3), Options{Width: 60}},
		{"audit_puma_wide", pumaReport(t, 3), Options{Width: 120}},
		{"audit_puma_mappings", pumaReport(t, 1), Options{Mappings: true}},
		{"audit_64_workers", pumaReport(t, 64), Options{}},
		{"audit_64_workers_all", pumaReport(t, 64), Options{Top: -1}},
		{"audit_every_word", quietReport(t), Options{}},
		{"audit_every_word_narrow", quietReport(t), Options{Width: 50}},
		{"audit_hidden", hiddenReport(t), Options{}},
		{"audit_hostile", hostileReport(t), Options{Mappings: true}},
		{"audit_nobody", summed(t, newReport()), Options{}},
		{"diff", diffReport(t), Options{}},
		{"diff_mappings_narrow", diffReport(t), Options{Mappings: true, Width: 60}},
		{"forktest_regression", forktestReport(t, 6, 8061, 7600), Options{}},
		{"forktest_fixed", forktestReport(t, 5, 230, 85), Options{Runs: true}},
		{"forktest_once", forktestReport(t, 1, 230, 85), Options{}},
		{"forktest_traced", tracedForktest(t, 3), Options{}},
		{"forktest_traced_narrow", tracedForktest(t, 1), Options{Width: 64, Top: 2}},
		{"compare_better", betterReport(t), Options{}},
		{"compare_worse", worseReport(t), Options{}},
		{"compare_same", sameReport(t), Options{}},
		{"compare_open", openReport(t), Options{}},
		{"compare_wide", betterReport(t), Options{Width: 120, Top: 1}},
		{"compare_hostile", hostileCompare(t), Options{}},
		{"gate_failed", failedGate(t), Options{}},
		{"gate_passed", passedGate(t), Options{}},
		{"gate_excused", excusedGate(t), Options{Explain: true}},
		{"gate_open", openGate(t), Options{Explain: true}},
		{"gate_hostile", hostileGate(t), Options{Explain: true}},
		{"families", familiesReport(3), Options{}},
		{"families_none", familiesReport(0), Options{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Text(&b, tt.v, tt.o); err != nil {
				t.Fatal(err)
			}
			golden(t, tt.name, b.Bytes())
			if tt.o.Color {
				return
			}
			limit := tt.o.Width
			if limit == 0 {
				limit = 80
			}
			for _, l := range strings.Split(b.String(), "\n") {
				if w := width(l); w > limit && !strings.HasPrefix(l, "  /srv/") && !strings.HasPrefix(l, "  std::") {
					t.Errorf("%d columns in %d: %q", w, limit, l)
				}
				if strings.TrimRight(l, " ") != l {
					t.Errorf("blanks at the end: %q", l)
				}
				if i := strings.IndexFunc(l, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
					t.Errorf("unprintable: %q", l)
				}
			}
		})
	}
}

// Colour adds nothing but escapes to the text.
func TestColourIsLast(t *testing.T) {
	var plain, coloured bytes.Buffer
	r := pumaReport(t, 3)
	if err := Text(&plain, r, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := Text(&coloured, r, Options{Color: true}); err != nil {
		t.Fatal(err)
	}
	s := coloured.String()
	if !strings.Contains(s, "\x1b[") {
		t.Fatal("no colour")
	}
	for {
		i := strings.Index(s, "\x1b[")
		if i < 0 {
			break
		}
		s = s[:i] + s[i+strings.Index(s[i:], "m")+1:]
	}
	if d := cmp.Diff(plain.String(), s); d != "" {
		t.Errorf("without its escapes the coloured text differs:\n%s", d)
	}
}

func TestTextOfAnythingElse(t *testing.T) {
	err := Text(&bytes.Buffer{}, 7, Options{})
	if err == nil || err.Error() != "write int as text: not a result" {
		t.Errorf("error %v", err)
	}
}

// The rows of a folded table sum to the total that all rows give.
func TestFoldedRowsSum(t *testing.T) {
	r := pumaReport(t, 64)
	for _, top := range []int{1, 5, 20, 63, -1} {
		p := newText(Options{Top: top})
		p.page = 4096
		rows := p.familyRows(r, rolesOf(r))
		var sum audit.Pages
		for i := range rows[:len(rows)-1] {
			sum.Add(&rows[i].pages)
		}
		if total := rows[len(rows)-1]; total.pid != "TOTAL" || total.pages != sum || sum != r.Totals.Pages {
			t.Errorf("top %d: rows sum to %+v, TOTAL %+v, the report has %+v", top, sum, total.pages, r.Totals.Pages)
		}
		if rows[0].role != "master" {
			t.Errorf("top %d: the master is not shown first", top)
		}
	}
}
