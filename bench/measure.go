package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tools are the programs that are measured.
type tools struct {
	dir                                string
	family, unit, rollup, timed, audit string
	copies, storm                      string
	smem, pmap                         string // empty where not installed
}

// newTools compiles the C programs and finds the others.
func newTools(ctx context.Context) (*tools, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root: frame numbers are hidden from others")
	}
	dir, err := os.MkdirTemp("", "cowaudit-bench-")
	if err != nil {
		return nil, err
	}
	t := &tools{dir: dir, audit: os.Getenv("COWAUDIT")}
	for _, p := range []struct {
		name string
		to   *string
	}{{"family", &t.family}, {"unit", &t.unit}, {"rollup", &t.rollup}, {"timed", &t.timed}, {"copies", &t.copies}, {"storm", &t.storm}} {
		*p.to = filepath.Join(dir, p.name)
		if err := compile(ctx, p.name, *p.to); err != nil {
			return nil, errors.Join(err, t.remove())
		}
	}
	if t.audit == "" {
		t.audit = filepath.Join("bin", "cowaudit")
	}
	if _, err := os.Stat(t.audit); err != nil {
		return nil, errors.Join(fmt.Errorf("no cowaudit to measure (make build): %w", err), t.remove())
	}
	t.smem = lookPath("smem")
	t.pmap = lookPath("pmap")
	return t, nil
}

//go:embed src/*.c
var sources embed.FS

// compile has every function in the table of dynamic symbols: by some of those the tracer finds a collector.
func compile(ctx context.Context, name, to string) error {
	src, err := sources.ReadFile("src/" + name + ".c")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "gcc", "-O2", "-Wall", "-Wextra", "-rdynamic", "-o", to, "-x", "c", "-")
	cmd.Stdin = bytes.NewReader(src)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s.c: %w: %s", name, err, out)
	}
	return nil
}

func lookPath(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

func (t *tools) remove() error { return os.RemoveAll(t.dir) }

// argv gives the command line by which a program reads a family; nil where it is not installed.
func (t *tools) argv(program string, pids []string) []string {
	switch program {
	case unit:
		return append([]string{t.unit}, pids...)
	case auditPages, auditLike:
		return []string{t.audit, "audit", "--contents=false", "--check", "never", "--format", "json", pids[0]}
	case auditContents:
		return []string{t.audit, "audit", "--format", "json", pids[0]}
	case rollups:
		return append([]string{t.rollup}, pids...)
	case smem:
		if t.smem != "" {
			return []string{t.smem, "-H", "-P", "^" + t.family + " "}
		}
	case pmap:
		if t.pmap != "" {
			return append([]string{t.pmap, "-X"}, pids...)
		}
	}
	return nil
}

// sample is one run of one program.
type sample struct {
	wall, cpu time.Duration
	peak      int64 // bytes
}

// runOnce runs a program with its output thrown away or, where out is given, kept.
func (t *tools) runOnce(ctx context.Context, argv []string, out io.Writer) (sample, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return sample{}, err
	}
	defer r.Close()
	cmd := exec.CommandContext(ctx, t.timed, argv...)
	cmd.Stdout = out // nil: the null device
	cmd.ExtraFiles = []*os.File{w}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err = cmd.Run()
	w.Close()
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w: %s", strings.Join(argv[:min(len(argv), 6)], " "), err, errs.Bytes())
	}
	var wall, cpu, kib int64
	if _, err := fmt.Fscan(r, &wall, &cpu, &kib); err != nil {
		return sample{}, fmt.Errorf("%s: read what it took: %w", argv[0], err)
	}
	return sample{wall: time.Duration(wall), cpu: time.Duration(cpu), peak: kib << 10}, nil
}

// contender is one program that reads one family.
type contender struct {
	name string
	argv []string
	got  []sample
}

// result is what a row gave.
type result struct {
	row
	all     []*contender
	entries int64 // that the unit reads, 0 where it did not run
	note    string
	skipped string
}

// measure runs the programs of a row in turn, round after round. The first round warms up, and shows that each program
// reads what it should.
func (t *tools) measure(ctx context.Context, r row, rounds int, progress io.Writer) (res *result, err error) {
	res = &result{row: r}
	need := r.fam.needMiB()
	if r.like != nil {
		need += r.like.needMiB()
	}
	have, err := availableMiB()
	if err != nil {
		return nil, err
	}
	if have < need {
		res.skipped = fmt.Sprintf("not run: needs %s of memory, %s are available", size(int(need)), size(int(have)))
		return res, nil
	}
	s, err := t.start(ctx, r.fam)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	pids := map[string][]string{}
	for _, name := range r.programs {
		pids[name] = s.pids
	}
	if r.like != nil {
		l, err := t.start(ctx, *r.like)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, l.stop()) }()
		pids[auditLike] = l.pids
	}
	for _, name := range r.programs {
		argv := t.argv(name, pids[name])
		if argv == nil {
			res.note += name + " is not installed. "
			continue
		}
		k := &contender{name: name, argv: argv}
		var out bytes.Buffer
		if _, err := t.runOnce(ctx, argv, &out); err != nil {
			return nil, err
		}
		if err := checkOutput(name, out.Bytes(), r, pids[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if name == unit {
			if res.entries, err = strconv.ParseInt(strings.TrimSpace(out.String()), 10, 64); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		res.all = append(res.all, k)
	}
	for round := range rounds {
		for _, k := range res.all {
			got, err := t.runOnce(ctx, k.argv, nil)
			if err != nil {
				return nil, err
			}
			k.got = append(k.got, got)
		}
		fmt.Fprintf(progress, "%s: round %d of %d\n", r.label, round+1, rounds)
	}
	return res, nil
}
