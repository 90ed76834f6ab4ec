package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tools are the programs that are measured.
type tools struct {
	dir                         string
	family, unit, rollup, audit string
	smem, pmap                  string // empty where not installed
}

func newTools(ctx context.Context) (*tools, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root: frame numbers are hidden from others")
	}
	dir, err := os.MkdirTemp("", "cowaudit-bench-")
	if err != nil {
		return nil, err
	}
	t := &tools{dir: dir}
	for name, to := range map[string]*string{"family": &t.family, "unit": &t.unit, "rollup": &t.rollup} {
		*to = filepath.Join(dir, name)
		src := filepath.Join("bench", "src", name+".c")
		if out, err := exec.CommandContext(ctx, "gcc", "-O2", "-o", *to, src).CombinedOutput(); err != nil {
			t.remove()
			return nil, fmt.Errorf("compile %s: %w: %s", src, err, out)
		}
	}
	t.audit = os.Getenv("COWAUDIT")
	if t.audit == "" {
		t.audit = "bin/cowaudit"
	}
	if _, err := os.Stat(t.audit); err != nil {
		t.remove()
		return nil, fmt.Errorf("no cowaudit to measure (run make build): %w", err)
	}
	t.smem, _ = exec.LookPath("smem")
	t.pmap, _ = exec.LookPath("pmap")
	return t, nil
}

func (t *tools) remove() { os.RemoveAll(t.dir) }

// server is a running family.
type server struct {
	cmd   *exec.Cmd
	stdin io.Closer
	pids  []string // master first
}

func (t *tools) start(ctx context.Context, f family) (*server, error) {
	cmd := exec.CommandContext(ctx, t.family, f.args()...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, stdin: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if s.pids = strings.Fields(line); err != nil || len(s.pids) < 2 || s.pids[0] != "READY" {
		s.stop()
		return nil, fmt.Errorf("the family %v did not come up: %q: %w", f.args(), line, err)
	}
	s.pids = s.pids[1:]
	return s, nil
}

func (s *server) stop() {
	s.stdin.Close()
	s.cmd.Wait()
}

// sample is one run of one program.
type sample struct {
	wall, cpu time.Duration
	peak      int64 // bytes
	out       string
}

func runOnce(ctx context.Context, argv []string) (sample, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out strings.Builder
	cmd.Stdout = &cut{&out, 64}
	var errs strings.Builder
	cmd.Stderr = &cut{&errs, 1024}
	start := time.Now()
	err := cmd.Run()
	s := sample{wall: time.Since(start), out: out.String()}
	if err != nil {
		return s, fmt.Errorf("%s: %w: %s", strings.Join(argv[:min(len(argv), 6)], " "), err, errs.String())
	}
	ru := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	s.peak = ru.Maxrss * 1024
	return s, nil
}

// cut keeps the first bytes written to it and takes the rest.
type cut struct {
	b    *strings.Builder
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.b.Write(p[:n])
	c.left -= n
	return len(p), nil
}

// contender is one program of a case.
type contender struct {
	name string
	argv []string
	got  []sample
}

func (t *tools) contenders(c benchCase, pids []string) []*contender {
	audit := func(more ...string) []string {
		return append(append([]string{t.audit, "audit", "--format", "json"}, more...), pids[0])
	}
	var out []*contender
	if !c.noUnit {
		out = append(out, &contender{name: unitName, argv: append([]string{t.unit}, pids...)})
	}
	out = append(out, &contender{name: "cowaudit audit", argv: audit("--contents=false")})
	if c.contents {
		out = append(out, &contender{name: "cowaudit audit, contents compared", argv: audit("--contents")})
	}
	if c.rivals {
		out = append(out, &contender{name: "smaps_rollup of all", argv: append([]string{t.rollup}, pids...)})
		if t.smem != "" {
			out = append(out, &contender{name: "smem", argv: []string{t.smem, "-P", filepath.Base(t.dir)}})
		}
		if t.pmap != "" {
			out = append(out, &contender{name: "pmap -X", argv: append([]string{t.pmap, "-X"}, pids...)})
		}
	}
	return out
}

const unitName = "unit: pread of all pagemaps, one thread"

// measure runs all contenders of a case in turn, round after round.
func (t *tools) measure(ctx context.Context, c benchCase, rounds int, progress io.Writer) (*result, error) {
	need := int64(c.fam.mib)*(1000+int64(c.fam.workers*c.fam.permille))/1000 + int64(c.fam.mib*(c.fam.workers+1))/512 + 256
	if have, err := availableMiB(); err != nil {
		return nil, err
	} else if have < need {
		return &result{c: c, skipped: fmt.Sprintf("needs %d MiB of memory, %d are available", need, have)}, nil
	}
	s, err := t.start(ctx, c.fam)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	all := t.contenders(c, s.pids)
	for round := range rounds + 1 { // the first one warms up
		for _, k := range all {
			got, err := runOnce(ctx, k.argv)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				k.got = append(k.got, got)
			}
		}
		fmt.Fprintf(progress, "%s: %v: round %d of %d\n", c.name, c.fam, round, rounds)
	}
	return &result{c: c, all: all}, nil
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
	return 0, errors.New("/proc/meminfo has no MemAvailable")
}

func median[T int64 | time.Duration](got []sample, of func(sample) T) T {
	v := make([]T, len(got))
	for i, s := range got {
		v[i] = of(s)
	}
	slices.Sort(v)
	return v[len(v)/2]
}
