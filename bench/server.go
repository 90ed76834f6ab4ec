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
)

// server is a running family.
type server struct {
	cmd   *exec.Cmd
	stdin io.Closer
	pids  []string // master first
}

// start runs a family and waits until its memory is as described. Touching comes before timing: where the host takes free
// pages back, first touches cost more for some seconds.
func (t *tools) start(ctx context.Context, f family) (*server, error) {
	cmd := exec.CommandContext(ctx, t.family, f.args()...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the family: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the family: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the family: %w", err)
	}
	s := &server{cmd: cmd, stdin: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != f.workers+2 || words[0] != "READY" {
		_ = s.stop() // what it said on standard error says more
		return nil, fmt.Errorf("family %s did not come up: it said %q (%v)", strings.Join(f.args(), " "), line, err)
	}
	s.pids = words[1:]
	return s, nil
}

func (s *server) stop() error {
	s.stdin.Close()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("end of the family: %w", err)
	}
	return nil
}

// availableMiB is MemAvailable of /proc/meminfo (3.14).
func availableMiB() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemAvailable:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemAvailable")
}
