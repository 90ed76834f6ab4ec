package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// copying is a process whose children copy its pages as fast as they can: src/copies.c.
type copying struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	pages int
}

// startCopies gives the process when it has touched its memory.
func (t *tools) startCopies(ctx context.Context, pages int) (*copying, error) {
	cmd := exec.CommandContext(ctx, t.copies, strconv.Itoa(pages), "1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the copying process: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the copying process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the copying process: %w", err)
	}
	c := &copying{cmd: cmd, in: in, out: bufio.NewReader(out), pages: pages}
	var pid int64
	if err := c.answer("READY", &pid); err != nil {
		_ = c.close() // what it said on standard error says more
		return nil, err
	}
	return c, nil
}

// answer reads the line that must come next: a word and some numbers.
func (c *copying) answer(word string, numbers ...*int64) error {
	line, err := c.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the copying process: %s expected: %w", word, err)
	}
	f := strings.Fields(line)
	if len(f) != 1+len(numbers) || f[0] != word {
		return fmt.Errorf("the copying process: %s expected, it said %q", word, line)
	}
	for i, to := range numbers {
		if *to, err = strconv.ParseInt(f[i+1], 10, 64); err != nil {
			return fmt.Errorf("the copying process: %s: %w", word, err)
		}
	}
	return nil
}

func (c *copying) ask(letter, word string, numbers ...*int64) error {
	if _, err := io.WriteString(c.in, letter); err != nil {
		return fmt.Errorf("the copying process: %w", err)
	}
	return c.answer(word, numbers...)
}

// fork gives a new child, which waits.
func (c *copying) fork() (pid int, err error) {
	var n int64
	err = c.ask("f", "CHILD", &n)
	return int(n), err
}

// cost is what the child took to copy every page, by its own clocks.
type cost struct{ wall, cpu time.Duration }

func (c *copying) write() (cost, error) {
	var wall, cpu int64
	err := c.ask("g", "NS", &wall, &cpu)
	return cost{time.Duration(wall), time.Duration(cpu)}, err
}

// end ends the child. Its memory is in use again when that returns.
func (c *copying) end() error { return c.ask("e", "ENDED") }

func (c *copying) close() error {
	c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("end of the copying process: %w", err)
	}
	return nil
}
