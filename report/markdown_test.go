package report

import (
	"bytes"
	"strings"
	"testing"
)

func TestMarkdown(t *testing.T) {
	for name, v := range map[string]any{
		"compare_better": betterReport(t), "compare_worse": worseReport(t), "compare_open": openReport(t), "compare_hostile": hostileCompare(t),
		"gate_failed": failedGate(t), "gate_passed": passedGate(t), "gate_excused": excusedGate(t), "gate_open": openGate(t), "gate_hostile": hostileGate(t),
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Markdown(&b, v); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".md", b.Bytes())
			screen, folded, ok := strings.Cut(b.String(), "\n<details>")
			if !ok || strings.Count(folded, "</details>") != 1 || strings.Count(b.String(), "<details>") != 1 {
				t.Error("there is not one folded part")
			}
			if n := strings.Count(screen, "\n"); n > 40 {
				t.Errorf("%d lines before the folded part", n)
			}
			checkMarkdown(t, b.String())
		})
	}
}

// checkMarkdown holds text against what may act: outside of code there is no HTML but the folded part, no mention, no
// reference, no link; and each row of a table has as many cells as its head.
func checkMarkdown(t *testing.T, text string) {
	t.Helper()
	columns := 0
	for _, l := range strings.Split(text, "\n") {
		if cells := strings.Count(strings.ReplaceAll(l, `\|`, ""), "|"); strings.HasPrefix(l, "|") {
			if columns > 0 && cells != columns {
				t.Errorf("%d bars in a table of %d: %q", cells, columns, l)
			}
			columns = cells
		} else {
			columns = 0
		}
		switch l {
		case "</details>":
			continue
		}
		if strings.HasPrefix(l, "<details><summary>") {
			continue
		}
		bare := withoutCode(t, l)
		for _, bad := range []string{"<", ">", "@", "](", "!", "~", "$", "://", "%0"} {
			if strings.Contains(bare, bad) {
				t.Errorf("%q outside of code in %q", bad, l)
			}
		}
		if strings.Contains(strings.TrimLeft(bare, "#"), "#") {
			t.Errorf("a reference in %q", l)
		}
	}
}

// withoutCode takes the code spans out of a line, as CommonMark finds them.
func withoutCode(t *testing.T, l string) string {
	t.Helper()
	var out strings.Builder
	for len(l) > 0 {
		i := strings.IndexByte(l, '`')
		if i < 0 {
			break
		}
		out.WriteString(l[:i])
		l = l[i:]
		n := len(l) - len(strings.TrimLeft(l, "`"))
		end := closing(l[n:], n)
		if end < 0 {
			t.Errorf("a code span without an end: %q", l)
			return out.String()
		}
		l = l[n+end+n:]
	}
	return out.String() + l
}

// closing gives where a run of exactly n backticks begins.
func closing(s string, n int) int {
	for i := 0; i < len(s); {
		if s[i] != '`' {
			i++
			continue
		}
		k := len(s[i:]) - len(strings.TrimLeft(s[i:], "`"))
		if k == n {
			return i
		}
		i += k
	}
	return -1
}

func TestMarkdownWords(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"B copies 29.4 MiB less (512 KiB instead of 29.9 MiB).", "B copies 29.4 MiB less (512 KiB instead of 29.9 MiB)."},
		{"written by rb_iseq_mark_and_move.", "written by `rb_iseq_mark_and_move`."}, {"100% 10%, 5.5%", "100% 10%, 5.5%"},
		{"@all #1 !2 ~x %y :smile: GH-7", "`@all` `#1` `!2` `~x` `%y` `:smile`: `GH-7`"}, {"c0ffee001122,", "`c0ffee001122`,"},
		{"<b>&amp;", "`<b>&amp`;"}, {"a`b``c", "``` a`b``c ```"}, {"[x](y)", "`[x](y`)"}, {"http://x www.x.de", "`http://x` `www.x.de`"},
		{"(build c0ffee00)", "(build `c0ffee00`)"}, {"x\ny", `x\x0ay`},
		{"---", "`---`"}, {"1.", "`1`."}, {`\|`, "`\\|`"},
	} {
		want := c.want
		if c.in == "x\ny" {
			want = "`x\\x0ay`"
		}
		if got := markdown(c.in); got != want {
			t.Errorf("markdown(%q) = %q, want %q", c.in, got, want)
		}
	}
	if got := mdCell("a|b"); got != "`a\\|b`" {
		t.Errorf("a cell with a bar: %q", got)
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, s := range []string{"", hostileName, "`", "``a`", "(<b>).", "a|b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := markdown(s)
		if strings.ContainsAny(got, "\n\r\x1b") {
			t.Errorf("markdown(%q) = %q", s, got)
		}
		if bare := withoutCode(t, got); strings.ContainsAny(bare, "<>@#![]*_~$&\\") {
			t.Errorf("markdown(%q) = %q: outside of code %q", s, got, bare)
		}
	})
}

func TestMarkdownOfAnythingElse(t *testing.T) {
	err := Markdown(&bytes.Buffer{}, pumaReport(t, 1))
	if err == nil || err.Error() != "write markdown: an audit has no verdict: a result of compare has one, and one of gate" {
		t.Errorf("error %v", err)
	}
}
