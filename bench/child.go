package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// How long a program may take to come up, and to end when it is asked to.
const (
	startTime = 60 * time.Second
	endTime   = 30 * time.Second
	lookEvery = 5 * time.Millisecond
)

// child is a program that watches. What it says goes to a file.
type child struct {
	cmd  *exec.Cmd
	file string
	done chan error // its end
	over bool
	hung bool
}

// startChild starts a program with further descriptors from 3 on.
func startChild(ctx context.Context, file string, extra []*os.File, argv ...string) (*child, error) {
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = out, out, extra
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, file: file, done: make(chan error, 1)}
	go func() { c.done <- cmd.Wait() }()
	return c, nil
}

// said is what the program said, in one line.
func (c *child) said() string {
	b, err := os.ReadFile(c.file)
	if err != nil {
		return err.Error()
	}
	s := strings.Join(strings.Fields(string(b)), " ")
	return s[:min(len(s), 200)]
}

// until waits for something that has no event to wait for. The program is ended where it does not come.
func (c *child) until(ctx context.Context, ready func() (bool, error)) error {
	limit, look := time.NewTimer(startTime), time.NewTicker(lookEvery)
	defer limit.Stop()
	defer look.Stop()
	for {
		ok, err := ready()
		if ok && err == nil {
			return nil
		}
		if err != nil {
			return errors.Join(err, c.kill())
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), c.kill())
		case err := <-c.done:
			c.over = true
			return fmt.Errorf("it ended before it was ready (%v): %s", err, c.said())
		case <-limit.C:
			return errors.Join(fmt.Errorf("it was not ready after %s: %s", startTime, c.said()), c.kill())
		case <-look.C:
		}
	}
}

func (c *child) kill() error {
	if c.over {
		return nil
	}
	err := c.cmd.Process.Kill()
	<-c.done
	c.over = true
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// interrupt asks the program to end, as Ctrl-C does, and ends it where it does not. Its exit status tells nothing: that of
// some tells that they were interrupted.
func (c *child) interrupt(ctx context.Context) error {
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, c.kill())
	}
	limit := time.NewTimer(endTime)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return errors.Join(ctx.Err(), c.kill())
	case <-c.done:
		c.over = true
	case <-limit.C:
		c.hung = true
		return c.kill()
	}
	return nil
}

// cpu is what the program took, from its start to its end.
func (c *child) cpu() time.Duration {
	if c.cmd.ProcessState == nil {
		return 0
	}
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}
