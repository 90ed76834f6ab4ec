package repocheck

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Machine looks in a file for places that mean nothing on another machine: folders (with a slash at the end) and hosts of
// this one. Where packages come from is the machine's own matter.
func Machine(name string, content []byte, places []string) (found []Finding) {
	for i, line := range bytes.Split(content, []byte("\n")) {
		for _, place := range places {
			at := bytes.Index(line, []byte(place))
			if at < 0 || at > 0 && wordByte(line[at-1]) {
				continue
			}
			found = append(found, Finding{name, i + 1, fmt.Sprintf("%q is a place of one machine", place)})
		}
	}
	return found
}

func wordByte(c byte) bool {
	return c == '_' || c == '.' || c == '-' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// Targets gives the targets of a Makefile that have a line in its help ("name: ... ## what it does"), and findings for
// those in .PHONY that have none.
func Targets(name string, content []byte) (targets []string, found []Finding) {
	documented := regexp.MustCompile(`(?m)^([\w.-]+):.*## \S`)
	for _, m := range documented.FindAllSubmatch(content, -1) {
		targets = append(targets, string(m[1]))
	}
	phony := regexp.MustCompile(`(?m)^\.PHONY:(.*)$`)
	for _, m := range phony.FindAllSubmatch(content, -1) {
		for _, t := range strings.Fields(string(m[1])) {
			if !slices.Contains(targets, t) {
				found = append(found, Finding{name, 0, "target " + t + " has no ## help"})
			}
		}
	}
	return targets, found
}

// Typed is a command that a document tells the reader to type.
type Typed struct {
	Line  int
	Words []string
}

// Commands gives the commands in the code blocks of a Markdown document: in blocks marked sh, bash or console, or not
// marked, the lines that begin with "$ "; where a block marked sh or bash has none, all of its lines. What stands before
// (sudo, variables) is left out, and so is what follows a pipe, a redirection or a comment.
func Commands(content string) (out []Typed) {
	var block []Typed
	fence, language := false, ""
	prompt := false
	for i, line := range strings.Split(content, "\n") {
		if mark, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			if fence {
				for _, t := range block {
					if prompted := t.Words[0] == "$"; prompted == prompt && (prompted || language == "sh" || language == "bash") {
						if t.Words = command(t.Words); len(t.Words) > 0 {
							out = append(out, t)
						}
					}
				}
			}
			fence, language, block, prompt = !fence, strings.TrimSpace(mark), nil, false
			continue
		}
		if words := strings.Fields(line); fence && len(words) > 0 {
			block = append(block, Typed{i + 1, words})
			prompt = prompt || words[0] == "$"
		}
	}
	return out
}

// command is the command itself among the words of a line.
func command(words []string) []string {
	for len(words) > 0 && (words[0] == "$" || words[0] == "sudo" || strings.Contains(words[0], "=")) {
		words = words[1:]
	}
	end := slices.IndexFunc(words, func(w string) bool {
		return w == "|" || w == "#" || w == "&&" || w == ";" || w == "&" || strings.HasPrefix(w, ">") || strings.HasPrefix(w, "<") || strings.HasPrefix(w, "2>")
	})
	if end >= 0 {
		words = words[:end]
	}
	return words
}
