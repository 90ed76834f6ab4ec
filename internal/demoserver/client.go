package demoserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Server is a running server, seen from the process that started it.
type Server struct {
	Truth Truth
	cmd   *exec.Cmd
	stdin io.Closer
}

// Start runs a program that calls [Serve] on its standard input and output, and returns when all of its workers have
// done their part and hold still. argv holds its name too. Close it in any case. Cancelling ctx kills the server, and its
// workers with it.
func Start(ctx context.Context, path string, argv ...string) (*Server, error) {
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = argv
	return start(cmd)
}

func start(cmd *exec.Cmd) (*Server, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the demo server: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the demo server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the demo server: %w", err)
	}
	s := &Server{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.Truth)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read what the demo server says of itself: %w", err), said(s.Close(), &stderr))
	}
	return s, nil
}

func said(err error, stderr *bytes.Buffer) error {
	if text := strings.TrimSpace(stderr.String()); text != "" {
		return errors.Join(err, fmt.Errorf("the demo server said: %s", text))
	}
	return err
}

// Close ends the server and its workers and waits for them.
func (s *Server) Close() error {
	s.stdin.Close()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("wait for the demo server: %w", err)
	}
	return nil
}
