package report

import (
	"regexp"
	"strings"
	"unicode"
)

// A merge request shows Markdown beside what its authors wrote, and acts on some of it: HTML, links, images, mentions (@all),
// references (#1, !2, &3, ~label, %milestone, GH-4, commit hashes), emoji. What is not plain words is set as code, in which
// nothing acts.

// mdWord matches what acts in no flavour of Markdown within a line: letters, digits and a little punctuation.
var mdWord = regexp.MustCompile(`^[\p{L}\p{N}.,;:()%/+×…'"?=-]*$`)

// mdActs matches plain words that act all the same: emoji (:x:), what follows a per cent sign, addresses, hashes, GH-1.
var mdActs = regexp.MustCompile(`(?i):[\p{L}\p{N}+-]|%[\p{L}\p{N}]|//|^\W*www\.|^\W*[0-9a-f]{7,64}\W*$|GH-[0-9]|^[=-]+$|^[0-9]+[.)]$`)

// markdown makes text of a sentence with words that somebody else chose, for the inside of a line.
func markdown(s string) string {
	var out []string
	for _, w := range strings.Fields(printable(s)) {
		bare := strings.TrimRightFunc(w, func(r rune) bool { return strings.ContainsRune(".,;:)", r) })
		switch {
		case mdWord.MatchString(w) && !mdActs.MatchString(w):
			out = append(out, w)
		case strings.Contains(w, "`") || bare == "":
			out = append(out, mdCode(w))
		default:
			open := len(bare) - len(strings.TrimLeft(bare, "("))
			out = append(out, bare[:open]+mdCode(bare[open:])+w[len(bare):])
		}
	}
	return strings.Join(out, " ")
}

// mdCode sets a printable text without newlines as code, with a fence that is longer than any in it.
func mdCode(s string) string {
	fence, run := 1, 0
	for _, r := range s {
		if r == '`' {
			run++
			fence = max(fence, run+1)
			continue
		}
		run = 0
	}
	marks := strings.Repeat("`", fence)
	if fence > 1 || strings.TrimFunc(s, unicode.IsSpace) != s {
		s = " " + s + " "
	}
	return marks + s + marks
}

// mdCell is the same for a cell of a table, in which a bar ends the cell, also within code.
func mdCell(s string) string { return strings.ReplaceAll(markdown(s), "|", `\|`) }
