package pagemap

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names of processes and paths are whatever bytes somebody else chose; JSON holds none that are not UTF-8. EscapeBytes and
// UnescapeBytes carry them through it, see docs/format.md.

// escaped reports whether s starts with an escape of EscapeBytes, and the byte it stands for.
func escaped(s string) (byte, bool) {
	if len(s) < 4 || s[0] != '\\' || s[1] != 'x' {
		return 0, false
	}
	c, err := strconv.ParseUint(s[2:4], 16, 8)
	return byte(c), err == nil && s[2] != '+' && s[2] != '-'
}

// NeedsEscape reports whether EscapeBytes would change s.
func NeedsEscape(s string) bool {
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

// EscapeBytes makes a string of UTF-8 from any bytes: a byte that is not part of UTF-8 becomes \xNN, and the backslash of
// what already reads like such an escape becomes \x5c. All else stays as it is. UnescapeBytes takes it back.
func EscapeBytes(s string) string {
	if !NeedsEscape(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		_, esc := escaped(s)
		if esc || r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// UnescapeBytes gives the bytes that EscapeBytes was given.
func UnescapeBytes(s string) string {
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

// mapText gives a copy of the family with f applied to every text that comes from a process.
func (f *Family) mapText(apply func(string) string) Family {
	out := *f
	out.Processes = append([]Process(nil), f.Processes...)
	do := func(s *string) { *s = apply(*s) }
	for i := range out.Processes {
		p := &out.Processes[i]
		do(&p.Comm)
		do(&p.Command)
		p.Mappings = append(make([]Mapping, 0, len(p.Mappings)), p.Mappings...)
		for k := range p.Mappings {
			do(&p.Mappings[k].Path)
		}
	}
	return out
}
