package pagemap

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// EscapeBytes makes valid UTF-8 of a name that may hold any byte, so that JSON keeps it: a backslash becomes \\, a byte
// that is not part of valid UTF-8 becomes \xNN. [UnescapeBytes] undoes it.
func EscapeBytes(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// UnescapeBytes undoes [EscapeBytes]. The error wraps ErrFormat.
func UnescapeBytes(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '\\':
			b.WriteByte(s[i])
		case strings.HasPrefix(s[i:], `\\`):
			b.WriteByte('\\')
			i++
		case strings.HasPrefix(s[i:], `\x`) && len(s) >= i+4:
			n, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
			if err != nil {
				return "", fmt.Errorf("escape %q: %w", s[i:i+4], ErrFormat)
			}
			b.WriteByte(byte(n))
			i += 3
		default:
			return "", fmt.Errorf("escape at byte %d of %q: %w", i, s, ErrFormat)
		}
	}
	return b.String(), nil
}

// mapText gives a copy of the family with f applied to every text that comes from a process.
func (f *Family) mapText(apply func(string) (string, error)) (Family, error) {
	out := *f
	out.Processes = append([]Process(nil), f.Processes...)
	var first error
	do := func(s *string) {
		t, err := apply(*s)
		if err != nil && first == nil {
			first = err
		}
		*s = t
	}
	for i := range out.Processes {
		p := &out.Processes[i]
		do(&p.Comm)
		do(&p.Command)
		p.Mappings = append(make([]Mapping, 0, len(p.Mappings)), p.Mappings...)
		for k := range p.Mappings {
			do(&p.Mappings[k].Path)
		}
	}
	return out, first
}
