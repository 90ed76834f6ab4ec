package report

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names of processes and paths are whatever bytes somebody else chose. Two rules make text of them:
//
//   - printable, for a terminal: what does not show as itself is written as an escape;
//   - pagemap.EscapeBytes, for JSON, which holds no bytes that are not UTF-8: reversible, see docs/format.md.

// printable writes what could move a cursor, change colours or the direction of the text, or end a line as an escape
// (\x1b, \u202e), and bytes that are not UTF-8 as \xNN.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(hexByte(s[0]))
		case r < utf8.RuneSelf && !unicode.IsPrint(r):
			b.WriteString(hexByte(byte(r)))
		case !unicode.IsPrint(r):
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

const hexDigits = "0123456789abcdef"

func hexByte(c byte) string { return `\x` + string(hexDigits[c>>4]) + string(hexDigits[c&15]) }
