package report

import (
	"strings"
	"testing"
	"unicode"
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

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", `\x41`, "\\\xff", "\x1b[2J", "名\xe5\x90"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if i := strings.IndexFunc(printable(s), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("printable(%q) = %q", s, printable(s))
		}
	})
}
