package forktest

import (
	"fmt"
	"strings"
)

// SplitWords splits a command as a POSIX shell would split words: at blanks, with single quotes, double quotes and
// backslashes, and without any expansion. A character that a shell would act on (a pipe, a variable, a pattern) stands for
// itself.
func SplitWords(command string) ([]string, error) {
	var words []string
	var word strings.Builder
	open := false // a word has begun, perhaps an empty one in quotes
	for i := 0; i < len(command); i++ {
		switch c := command[i]; c {
		case ' ', '\t', '\n':
			if open {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
		case '\'':
			end := strings.IndexByte(command[i+1:], '\'')
			if end < 0 {
				return nil, fmt.Errorf("split %q into words: a quote (') is not closed", command)
			}
			word.WriteString(command[i+1 : i+1+end])
			open = true
			i += 1 + end
		case '"':
			n, ok := doubleQuoted(&word, command[i+1:])
			if !ok {
				return nil, fmt.Errorf("split %q into words: a quote (\") is not closed", command)
			}
			open = true
			i += n
		case '\\':
			if i+1 == len(command) {
				return nil, fmt.Errorf("split %q into words: nothing after the last backslash", command)
			}
			i++
			if command[i] != '\n' { // a backslash joins two lines
				word.WriteByte(command[i])
				open = true
			}
		default:
			word.WriteByte(c)
			open = true
		}
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}

// doubleQuoted takes what stands between double quotes, the first of which is gone already, and gives its length with
// the closing one. A backslash quotes only what a shell lets it quote there.
func doubleQuoted(word *strings.Builder, rest string) (n int, ok bool) {
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		switch {
		case c == '"':
			return i + 1, true
		case c == '\\' && i+1 < len(rest) && strings.IndexByte("\"\\$`\n", rest[i+1]) >= 0:
			i++
			if rest[i] != '\n' {
				word.WriteByte(rest[i])
			}
		default:
			word.WriteByte(c)
		}
	}
	return 0, false
}

// joinWords gives the command that SplitWords splits into these words, with quotes only where they are needed.
func joinWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return !bare(r) }) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

func bare(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=+,@%", r)
}
