package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// rivals are the other tools that see page faults, with the buffers that they have by themselves.
func rivals() []watcher {
	// perf record of 6.1 loses its data when it is told to begin by --control with a process that runs already.
	record := func(name string, args ...string) watcher {
		return watcher{name: name, program: "perf", attach: func(ctx context.Context, t *tools, pid, _ int) (watching, error) {
			r, err := startRival(ctx, t, countRecord, nil, func(dir string) []string {
				argv := append([]string{"perf", "record", "-o", filepath.Join(dir, "perf.data")}, args...)
				return append(argv, "-p", strconv.Itoa(pid))
			})
			if err != nil {
				return nil, err
			}
			return r, r.settled(ctx)
		}}
	}
	return []watcher{
		perf("perf stat -e page-faults", func(dir string) []string {
			return []string{"stat", "-x", ",", "-o", filepath.Join(dir, "stat"), "-e", "page-faults"}
		}, countStat),
		record("perf record -e page-faults -c 1", "-e", "page-faults", "-c", "1"),
		record("perf record -e page-faults -c 1 -g", "-e", "page-faults", "-c", "1", "-g"),
		record("perf record -e exceptions:page_fault_user", "-e", "exceptions:page_fault_user", "-c", "1"),
		record("perf record -e exceptions:page_fault_user -g", "-e", "exceptions:page_fault_user", "-c", "1", "-g"),
		{name: "perf trace -F all", program: "perf", attach: attachPerfTrace},
		bpftrace("bpftrace, counting by instruction", "@[args->ip] = count();"),
		bpftrace("bpftrace, counting by user stack", "@[ustack] = count();"),
		bpftrace("bpftrace, printing", `printf("fault %lx %lx\n", args->address, args->ip);`),
	}
}

// count reads what a rival left in its folder.
type count func(ctx context.Context, r *rival) (faults, lost int64, err error)

// rival is another tool that is attached.
type rival struct {
	child
	dir   string
	count count
}

func (r *rival) detach(ctx context.Context) error { return r.interrupt(ctx) }

func (r *rival) result(ctx context.Context) (seen, error) {
	defer os.RemoveAll(r.dir)
	s := seen{faults: unknown, lost: unknown, cpu: r.cpu(), hung: r.hung}
	if r.hung {
		return s, nil
	}
	var err error
	if s.faults, s.lost, err = r.count(ctx, r); err != nil {
		return s, fmt.Errorf("%w: %s", err, r.said())
	}
	return s, nil
}

func startRival(ctx context.Context, t *tools, how count, extra []*os.File, argv func(dir string) []string) (*rival, error) {
	dir, err := os.MkdirTemp(t.dir, "rival-")
	if err != nil {
		return nil, err
	}
	c, err := startChild(ctx, filepath.Join(dir, "said"), extra, argv(dir)...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &rival{child: *c, dir: dir, count: how}, nil
}

// perf starts with its events off and says when it has switched them on (perf-record(1), --control; 5.9).
func perf(name string, args func(dir string) []string, how count) watcher {
	return watcher{name: name, program: "perf", attach: func(ctx context.Context, t *tools, pid, _ int) (watching, error) {
		ask, asked, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer ask.Close()
		defer asked.Close()
		answer, answered, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer answer.Close()
		r, err := startRival(ctx, t, how, []*os.File{ask, answered}, func(dir string) []string {
			return append(append([]string{"perf"}, args(dir)...), "--control", "fd:3,4", "-D", "-1", "-p", strconv.Itoa(pid))
		})
		answered.Close()
		if err != nil {
			return nil, err
		}
		if _, err := asked.WriteString("enable\n"); err != nil {
			return nil, errors.Join(err, r.kill())
		}
		answer.SetReadDeadline(time.Now().Add(startTime)) // a pipe has one
		b := make([]byte, 16)
		if n, err := answer.Read(b); err != nil || !strings.HasPrefix(string(b[:n]), "ack") {
			return nil, errors.Join(fmt.Errorf("it did not switch its events on: %q, %v: %s", b[:n], err, r.said()), r.kill())
		}
		return r, nil
	}}
}

func countStat(_ context.Context, r *rival) (faults, lost int64, err error) {
	b, err := os.ReadFile(filepath.Join(r.dir, "stat"))
	if err != nil {
		return unknown, unknown, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Split(line, ","); len(f) > 2 && strings.HasPrefix(f[2], "page-faults") {
			faults, err := strconv.ParseInt(f[0], 10, 64)
			return faults, 0, err // a counter loses nothing
		}
	}
	return unknown, unknown, fmt.Errorf("no count: %s", b)
}

var (
	sampleLine = regexp.MustCompile(`(?m)^\s*SAMPLE events:\s+(\d+)`)
	lostNumber = regexp.MustCompile(`(?m)PERF_RECORD_LOST(?:_SAMPLES)? .*lost (\d+)|: lost samples (\d+)`)
)

// countRecord counts the samples in perf's file.
func countRecord(ctx context.Context, r *rival) (faults, lost int64, err error) {
	file := filepath.Join(r.dir, "perf.data")
	stats, err := exec.CommandContext(ctx, "perf", "report", "--stats", "-i", file).Output()
	if err != nil {
		return unknown, unknown, fmt.Errorf("perf report --stats: %w", err)
	}
	if faults, lost, err = readStats(stats); err != nil || lost == 0 {
		return faults, lost, err
	}
	// The lines above count records; how much each is about is in the records.
	script, err := exec.CommandContext(ctx, "perf", "script", "--show-lost-events", "-F", "comm", "-i", file).Output()
	if err != nil {
		return faults, lost, nil // at least so many
	}
	if n := sumOf(lostNumber, script); n > 0 {
		lost = n
	}
	return faults, lost, nil
}

var lostLine = regexp.MustCompile(`(?m)^\s*LOST(?:_SAMPLES)? events:\s+(\d+)`)

// readStats reads the output of perf report --stats: samples, and records that say something was lost.
func readStats(out []byte) (samples, lost int64, err error) {
	if !sampleLine.Match(out) {
		return unknown, unknown, errors.New("perf report --stats has no number of samples")
	}
	// The first are the totals; after them come those of each event.
	first := sampleLine.FindSubmatch(out)
	samples, err = strconv.ParseInt(string(first[1]), 10, 64)
	if m := lostLine.FindSubmatch(out); m != nil {
		lost, _ = strconv.ParseInt(string(m[1]), 10, 64)
	}
	return samples, lost, err
}

// sumOf adds up the numbers that a pattern finds.
func sumOf(p *regexp.Regexp, text []byte) (sum int64) {
	for _, m := range p.FindAllSubmatch(text, -1) {
		for _, digits := range m[1:] {
			if n, err := strconv.ParseInt(string(digits), 10, 64); err == nil {
				sum += n
			}
		}
	}
	return sum
}

func attachPerfTrace(ctx context.Context, t *tools, pid, _ int) (watching, error) {
	r, err := startRival(ctx, t, countPerfTrace, nil, func(dir string) []string {
		return []string{"perf", "trace", "-F", "all", "--no-syscalls", "-o", filepath.Join(dir, "trace"), "-p", strconv.Itoa(pid)}
	})
	if err != nil {
		return nil, err
	}
	return r, r.settled(ctx)
}

var lostEvents = regexp.MustCompile(`(?i)LOST (\d+) events`)

func countPerfTrace(_ context.Context, r *rival) (faults, lost int64, err error) {
	b, err := os.ReadFile(filepath.Join(r.dir, "trace"))
	if err != nil {
		return unknown, unknown, err
	}
	return int64(bytes.Count(b, []byte("minfault")) + bytes.Count(b, []byte("majfault"))), sumOf(lostEvents, b), nil
}

func bpftrace(name, action string) watcher {
	return watcher{name: name, program: "bpftrace", attach: func(ctx context.Context, t *tools, pid, _ int) (watching, error) {
		r, err := startRival(ctx, t, countBPFTrace, nil, func(string) []string {
			return []string{"bpftrace", "-e", fmt.Sprintf("tracepoint:exceptions:page_fault_user /pid == %d/ { %s }", pid, action)}
		})
		if err != nil {
			return nil, err
		}
		return r, r.settled(ctx)
	}}
}

var mapLine = regexp.MustCompile(`(?m)\]: (\d+)$`)

func countBPFTrace(_ context.Context, r *rival) (faults, lost int64, err error) {
	b, err := os.ReadFile(r.file)
	if err != nil {
		return unknown, unknown, err
	}
	faults = sumOf(mapLine, b) + int64(bytes.Count(b, []byte("\nfault ")))
	if faults == 0 {
		return unknown, unknown, errors.New("it counted nothing")
	}
	return faults, sumOf(lostEvents, b), nil
}

// settleTime is how long a program that does not say when it is ready must have opened nothing more.
const settleTime = 400 * time.Millisecond

// settled returns when the program has opened events and, for some time, no more. That it saw everything shows in its result.
func (r *rival) settled(ctx context.Context) error {
	had, since := 0, time.Now()
	return r.until(ctx, func() (bool, error) {
		n := 0
		fds := fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid)
		list, err := os.ReadDir(fds)
		if err != nil {
			return false, nil // it ends, which is seen elsewhere
		}
		for _, e := range list {
			to, err := os.Readlink(filepath.Join(fds, e.Name()))
			if err == nil && (strings.Contains(to, "perf_event") || strings.Contains(to, "bpf")) {
				n++
			}
		}
		if n != had {
			had, since = n, time.Now()
		}
		return n > 0 && time.Since(since) >= settleTime, nil
	})
}
