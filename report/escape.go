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
//   - escapeBytes, for JSON, which holds no bytes that are not UTF-8: reversible, see docs/format.md.

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

// escaped reports whether s starts with an escape of escapeBytes, and the byte it stands for.
func escaped(s string) (byte, bool) {
	if len(s) < 4 || s[0] != '\\' || s[1] != 'x' {
		return 0, false
	}
	c, err := strconv.ParseUint(s[2:4], 16, 8)
	return byte(c), err == nil && s[2] != '+' && s[2] != '-'
}

// needsEscape reports whether escapeBytes would change s.
func needsEscape(s string) bool {
	if !utf8.ValidString(s) {
		return true
	}
	for i := strings.Index(s, `\x`); i >= 0; {
		if _, ok := escaped(s[i:]); ok {
			return true
		}
		n := strings.Index(s[i+2:], `\x`)
		if n < 0 {
			return false
		}
		i += 2 + n
	}
	return false
}

// escapeBytes makes a string of UTF-8 from any bytes: a byte that is not part of UTF-8 becomes \xNN, and the backslash of
// what already reads like such an escape becomes \x5c. All else stays as it is. unescapeBytes takes it back.
func escapeBytes(s string) string {
	if !needsEscape(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		_, esc := escaped(s)
		if esc || r == utf8.RuneError && n == 1 {
			b.WriteString(hexByte(s[0]))
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// unescapeBytes gives the bytes that escapeBytes was given.
func unescapeBytes(s string) string {
	i := strings.Index(s, `\x`)
	if i < 0 {
		return s
	}
	var b strings.Builder
	for ; i >= 0; i = strings.Index(s, `\x`) {
		b.WriteString(s[:i])
		if c, ok := escaped(s[i:]); ok {
			b.WriteByte(c)
			s = s[i+4:]
		} else {
			b.WriteByte('\\')
			s = s[i+1:]
		}
	}
	b.WriteString(s)
	return b.String()
}
