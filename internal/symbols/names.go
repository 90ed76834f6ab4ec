package symbols

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ianlancetaylor/demangle"
)

const (
	// maxName is the length in bytes at which a name is cut; demangled names of C++ templates have no limit of their own.
	maxName = 4096
	// demanglePower is the same as a power of two, for the demangler.
	demanglePower = 12
)

// readable makes the name to show of a symbol: without the version that .symtab of newer linkers has after an @, demangled,
// and with nothing in it that would move a terminal's cursor or end a line.
func readable(symbol string) string {
	if i := strings.IndexByte(symbol, '@'); i > 0 {
		symbol = symbol[:i]
	}
	if len(symbol) > maxName {
		return clean(symbol[:maxName])
	}
	name := symbol
	// The demangler's input is foreign; a name that upsets it stays as it is.
	_ = guard(func() error {
		name = demangle.Filter(symbol, demangle.MaxLength(demanglePower))
		return nil
	})
	return clean(name)
}

// clean writes bytes that are not printable as \xNN.
func clean(name string) string {
	ok := utf8.ValidString(name)
	for _, c := range name {
		ok = ok && (c == ' ' || unicode.IsGraphic(c))
	}
	if ok && len(name) <= maxName {
		return name
	}
	var b strings.Builder
	for len(name) > 0 && b.Len() < maxName {
		c, n := utf8.DecodeRuneInString(name)
		if c != ' ' && !unicode.IsGraphic(c) || c == utf8.RuneError && n == 1 {
			for i := range n {
				fmt.Fprintf(&b, `\x%02x`, name[i])
			}
		} else {
			b.WriteString(name[:n])
		}
		name = name[n:]
	}
	return b.String()
}

// cstring gives the text from an offset up to the next NUL; "" where there is no such text.
func cstring(b []byte, off uint32) []byte {
	if uint64(off) >= uint64(len(b)) {
		return nil
	}
	b = b[off:]
	n := bytes.IndexByte(b, 0)
	if n < 0 {
		return nil
	}
	return b[:n]
}

// guard turns a panic over foreign bytes, in a library that has not been written for them, into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	return f()
}
