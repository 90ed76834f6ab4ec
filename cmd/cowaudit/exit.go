package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"cowaudit/pagemap"
)

// Exit codes.
const (
	exitDone        = 0
	exitGateFailed  = 1
	exitUsage       = 2
	exitNotMeasured = 3 // or inconclusive, or measured and not written
)

// codedError is an error with the exit code that it leads to.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// usageErrorf is wrong usage: what can be told from the arguments alone, before anything is measured.
func usageErrorf(format string, args ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, args...)}
}

// remedyError is an error with what the user can do about it.
type remedyError struct {
	err    error
	remedy string
}

func (e *remedyError) Error() string { return e.err.Error() }
func (e *remedyError) Unwrap() error { return e.err }

// withRemedy says what the user can do about an error; nil stays nil. Without it the line names the remedy that
// remedies has for the cause, if it has one.
func withRemedy(err error, remedy string) error {
	if err == nil {
		return nil
	}
	return &remedyError{err, remedy}
}

// remedies are what helps against causes that any command can meet.
var remedies = []struct {
	cause  error
	remedy string
}{
	{pagemap.ErrNoPFN, "run it as root of the host (sudo); \"cowaudit doctor\" shows what can be measured here"},
	{pagemap.ErrNoMM, "give the PID of a running program"},
	{pagemap.ErrGone, "give the PID of a process that runs"},
	{pagemap.ErrNotSupported, "\"cowaudit doctor\" shows what this kernel can do"},
	{syscall.ENOSPC, "free some space, or choose another file system with -o"},
	{syscall.EDQUOT, "free some space, or choose another file system with -o"},
	{syscall.EMFILE, "raise the limit of open files (ulimit -n)"},
	{fs.ErrPermission, "run it as root (sudo)"},
}

// codeOf gives the exit code of an error: could not measure, unless the error says otherwise.
func codeOf(err error) int {
	var coded *codedError
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitNotMeasured
}

// lineOf gives the one line that stands for an error on standard error: what happened to what, and the remedy.
func lineOf(err error) string {
	line := oneLine(err.Error())
	if errors.Is(err, context.Canceled) {
		line = "interrupted"
	}
	var told *remedyError
	if errors.As(err, &told) {
		return line + ": " + oneLine(told.remedy)
	}
	if codeOf(err) == exitUsage {
		return line // says what to do itself
	}
	for _, r := range remedies {
		if errors.Is(err, r.cause) {
			return line + ": " + r.remedy
		}
	}
	return line
}

// oneLine makes one line of a text, and shows what a terminal would obey as an escape: errors hold names that other
// programs chose.
func oneLine(s string) string {
	s = strings.TrimRight(s, "\n")
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '\n':
			b.WriteString("; ")
		case r == utf8.RuneError && n == 1, r < utf8.RuneSelf && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}
