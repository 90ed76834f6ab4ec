package forktest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	tailLines = 20   // of an application's output that are kept
	tailWidth = 1000 // bytes kept of a line
)

// tail keeps the last lines that the application wrote to its standard output and standard error.
type tail struct {
	lines []string
	crash string // the last line that begins a report of a crash, which may be longer than what is kept
	part  []byte
	long  bool // the rest of the line is dropped
}

// crashes are what a runtime's report of its own crash begins with.
var crashes = []string{"[BUG] ", "Fatal Python error: ", "FATAL: ", "panic: "}

func (t *tail) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		piece := b
		if i >= 0 {
			piece = b[:i]
		}
		if room := tailWidth - len(t.part); len(piece) > room {
			piece, t.long = piece[:room], true
		}
		t.part = append(t.part, piece...)
		if i < 0 {
			break
		}
		b = b[i+1:]
		t.end()
	}
	return n, nil
}

func (t *tail) end() {
	s := printable(string(t.part))
	if t.long {
		s += "…"
	}
	if strings.TrimSpace(s) != "" {
		t.lines = append(t.lines, s)
		if slices.ContainsFunc(crashes, func(c string) bool { return strings.Contains(s, c) }) {
			t.crash = s
		}
	}
	if len(t.lines) > tailLines {
		t.lines = t.lines[len(t.lines)-tailLines:]
	}
	t.part, t.long = t.part[:0], false
}

// last gives the lines kept, an unfinished one included, and before them the line that began the report of a crash.
func (t *tail) last() []string {
	if len(t.part) > 0 {
		t.end()
	}
	if t.crash != "" && !slices.Contains(t.lines, t.crash) {
		return append([]string{t.crash, "…"}, t.lines...)
	}
	return slices.Clone(t.lines)
}

// word gives the one line that says most: that of a crash, else the last that is not a frame of a Ruby backtrace.
func (t *tail) word() string {
	lines := t.last()
	if t.crash != "" {
		return t.crash
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if !strings.HasPrefix(strings.TrimLeft(lines[i], " "), "from ") {
			return lines[i]
		}
	}
	return ""
}

// printable leaves out what could move a terminal's cursor or change its colours.
func printable(s string) string {
	s = strings.ReplaceAll(s, "\t", "    ")
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError {
			return '?'
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}

// output is the reading end of the pipe that the subject writes its standard output and standard error to.
type output struct {
	fd   int
	tail tail
	copy io.Writer // nil: kept only
	done bool      // nobody holds the other end any more
}

// newOutput makes the pipe; the file is the subject's end.
func newOutput(to io.Writer) (*output, *os.File, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make a pipe for the application's output: %w", err)
	}
	theirs := os.NewFile(uintptr(p[1]), "output of the application")
	if err := unix.SetNonblock(p[0], true); err != nil { // of the reading end alone
		unix.Close(p[0])
		theirs.Close()
		return nil, nil, fmt.Errorf("set up a pipe for the application's output: %w", err)
	}
	return &output{fd: p[0], copy: to}, theirs, nil
}

func (o *output) close() {
	if o.fd >= 0 {
		unix.Close(o.fd)
		o.fd = -1
	}
}

// drain takes what is there, but no more than a pipe holds, so that an application that never stops writing does not keep
// it busy for good.
func (o *output) drain() error {
	buf := make([]byte, 1<<16)
	for range 16 {
		n, err := unix.Read(o.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return fmt.Errorf("read the application's output: %w", err)
		case n == 0:
			o.done = true
			return nil
		}
		o.tail.Write(buf[:n])
		if o.copy != nil {
			if _, err := o.copy.Write(buf[:n]); err != nil {
				return fmt.Errorf("show the application's output: %w", err)
			}
		}
	}
	return nil
}
