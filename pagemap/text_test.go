package pagemap

import (
	"testing"
	"unicode/utf8"
)

func TestEscapeBytes(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""}, {"/usr/lib/libc.so (deleted)", "/usr/lib/libc.so (deleted)"}, {`a\012b`, `a\012b`}, {`a\\b`, `a\\b`}, {`\x`, `\x`}, {`\x4`, `\x4`}, {`\x+1`, `\x+1`}, {`\xzz`, `\xzz`},
		{"\xff", `\xff`}, {"a\xc3(b", `a\xc3(b`}, {"\xed\xa0\x80", `\xed\xa0\x80`}, {"名\xe5\x90", `名\xe5\x90`},
		{`\x41`, `\x5cx41`}, {`\xFF`, `\x5cxFF`}, {`\\x41`, `\\x5cx41`}, {`\x5c`, `\x5cx5c`}, {"\\\xff", `\\xff`}, {"\\x\xff", `\x\xff`}, {"\\x4\xff", `\x4\xff`},
		{"\ufffd", "\ufffd"}, {"tab\tstays", "tab\tstays"},
	}
	for _, tt := range tests {
		got := EscapeBytes(tt.in)
		if got != tt.want {
			t.Errorf("EscapeBytes(%q) = %q, want %q", tt.in, got, tt.want)
		}
		if back := UnescapeBytes(got); back != tt.in {
			t.Errorf("UnescapeBytes(%q) = %q, want %q", got, back, tt.in)
		}
	}
}

func FuzzEscapeBytes(f *testing.F) {
	for _, s := range []string{"", `\x41`, "\\\xff", "\\x\xff", `\\x5c`, "\x1b[2J", "名\xe5\x90"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := EscapeBytes(s)
		if !utf8.ValidString(e) {
			t.Errorf("%q: %q is not UTF-8", s, e)
		}
		if NeedsEscape(s) != (e != s) {
			t.Errorf("%q: NeedsEscape %v, escaped %q", s, NeedsEscape(s), e)
		}
		if back := UnescapeBytes(e); back != s {
			t.Errorf("%q became %q and then %q", s, e, back)
		}
	})
}
