package report

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""}, {"puma: worker 0", "puma: worker 0"}, {"名前 é", "名前 é"}, {`C:\x41 \012`, `C:\x41 \012`},
		{"a\nb\tc\r", `a\x0ab\x09c\x0d`}, {"\x1b[31mred\x07", `\x1b[31mred\x07`}, {"\x7f", `\x7f`},
		{"\u009b1m", `\u009b1m`}, {"\u202egnp", `\u202egnp`}, {"\u00a0", `\u00a0`}, {"\U000e0001", `\U000e0001`},
		{"a\xffb\xc3", `a\xffb\xc3`}, {"\ufffd", "\ufffd"},
	}
	for _, tt := range tests {
		if got := printable(tt.in); got != tt.want {
			t.Errorf("printable(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestEscapeBytes(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""}, {"/usr/lib/libc.so (deleted)", "/usr/lib/libc.so (deleted)"}, {`a\012b`, `a\012b`}, {`a\\b`, `a\\b`}, {`\x`, `\x`}, {`\x4`, `\x4`}, {`\x+1`, `\x+1`}, {`\xzz`, `\xzz`},
		{"\xff", `\xff`}, {"a\xc3(b", `a\xc3(b`}, {"\xed\xa0\x80", `\xed\xa0\x80`}, {"名\xe5\x90", `名\xe5\x90`},
		{`\x41`, `\x5cx41`}, {`\xFF`, `\x5cxFF`}, {`\\x41`, `\\x5cx41`}, {`\x5c`, `\x5cx5c`}, {"\\\xff", `\\xff`}, {"\\x\xff", `\x\xff`}, {"\\x4\xff", `\x4\xff`},
		{"\ufffd", "\ufffd"}, {"tab\tstays", "tab\tstays"},
	}
	for _, tt := range tests {
		got := escapeBytes(tt.in)
		if got != tt.want {
			t.Errorf("escapeBytes(%q) = %q, want %q", tt.in, got, tt.want)
		}
		if back := unescapeBytes(got); back != tt.in {
			t.Errorf("unescapeBytes(%q) = %q, want %q", got, back, tt.in)
		}
	}
}

func FuzzEscapeBytes(f *testing.F) {
	for _, s := range []string{"", `\x41`, "\\\xff", "\\x\xff", `\\x5c`, "\x1b[2J", "名\xe5\x90"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := escapeBytes(s)
		if !utf8.ValidString(e) {
			t.Errorf("%q: %q is not UTF-8", s, e)
		}
		if needsEscape(s) != (e != s) {
			t.Errorf("%q: needsEscape %v, escaped %q", s, needsEscape(s), e)
		}
		if back := unescapeBytes(e); back != s {
			t.Errorf("%q became %q and then %q", s, e, back)
		}
		if i := strings.IndexFunc(printable(s), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("printable(%q) = %q", s, printable(s))
		}
	})
}
