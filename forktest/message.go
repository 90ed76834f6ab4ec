package forktest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxLine bounds a line of the protocol: what comes from a subject is untrusted.
const maxLine = 1 << 20

// errProtocol: a line that is not of the protocol.
var errProtocol = errors.New("not the fork test protocol")

// message is one line of the protocol (docs/protocol.md): a word, then arguments as key=value.
type message struct {
	word string
	args []arg
}

type arg struct{ key, value string }

// get gives the value of a key; ok is false where the key is not there.
func (m *message) get(key string) (value string, ok bool) {
	i := slices.IndexFunc(m.args, func(a arg) bool { return a.key == key })
	if i < 0 {
		return "", false
	}
	return m.args[i].value, true
}

// number gives the value of a key that must be there and be a decimal number from low to high.
func (m *message) number(key string, low, high int64) (int64, error) {
	v, ok := m.get(key)
	if !ok {
		return 0, fmt.Errorf("%w: %s without %s", errProtocol, m.word, key)
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%w: %s with %s=%q", errProtocol, m.word, key, v)
	}
	return n, nil
}

// list gives the comma-separated values of a key, nil where it is not there or empty.
func (m *message) list(key string) []string {
	v, _ := m.get(key)
	if v == "" {
		return nil
	}
	return strings.Split(v, ",")
}

// String gives the line without its newline.
func (m *message) String() string {
	var b strings.Builder
	b.WriteString(m.word)
	for _, a := range m.args {
		b.WriteByte(' ')
		b.WriteString(a.key)
		b.WriteByte('=')
		encode(&b, a.value)
	}
	return b.String()
}

// parseMessage parses a line without its newline.
func parseMessage(line string) (message, error) {
	var m message
	bad := func(why string) (message, error) {
		return message{}, fmt.Errorf("%w: %s in %.80q", errProtocol, why, line)
	}
	word, rest, more := strings.Cut(line, " ")
	if !name(word) {
		return bad("no word")
	}
	m.word = word
	for more {
		var pair string
		pair, rest, more = strings.Cut(rest, " ")
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !name(key) {
			return bad("an argument that is not key=value")
		}
		if _, twice := m.get(key); twice {
			return bad("a key that comes twice")
		}
		value, ok = decode(value)
		if !ok {
			return bad("a value that is not encoded as it should be")
		}
		m.args = append(m.args, arg{key, value})
	}
	return m, nil
}

// name reports whether a word, a key or an event's name is one: small letters, digits and underlines, a letter first.
func name(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || i > 0 && (c == '_' || c >= '0' && c <= '9')) {
			return false
		}
	}
	return s != ""
}

const hexDigits = "0123456789ABCDEF"

// plain reports a byte that a value shows as it is.
func plain(c byte) bool { return c > ' ' && c != '%' && c != 0x7f }

func encode(b *strings.Builder, value string) {
	for i := range len(value) {
		if c := value[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
}

func decode(value string) (string, bool) {
	b := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case plain(c):
			b = append(b, c)
		case c != '%' || i+2 >= len(value):
			return "", false
		default:
			n, err := strconv.ParseUint(value[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			b = append(b, byte(n))
			i += 2
		}
	}
	return string(b), true
}
