package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"cowaudit/audit"
	"cowaudit/ebpf"
	"cowaudit/pagemap"
)

func traceCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:      "trace",
		Usage:     "say who writes to shared pages: process, region, function, stack, GC phase",
		ArgsUsage: "PID... | -- CMD [ARGS...]",
		Description: `Watches the page faults of processes, and of what they fork, through the kernel's tracepoints: which of them copied a
page, who wrote, where, and during which garbage collection. Ends when they have all ended, with --duration, or at
Ctrl-C; a second Ctrl-C gives it up. A command is started by cowaudit, none of its faults is missed, and signals are
passed on to it; its output goes to standard output only if the result is text or has a file, else to standard error.
The exit code is cowaudit's own: 0 when the trace worked, whatever became of the command.
Example: sudo cowaudit trace --duration 30s $(pgrep -o puma)
Needs: root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE, in the host's PID namespace; Linux 5.17 or later on x86-64.`,
		Flags:  append(append(traceFlags(), readyFlag()), outputFlags("text", "json", "pprof", "folded")...),
		Action: func(c *cli.Context) error { return runTrace(a, c) },
	}
}

func traceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "duration", Usage: "end after `TIME`", DefaultText: "when all have ended"},
		&cli.BoolFlag{Name: "only-gc", Usage: "show only what faulted during a garbage collection"},
		&cli.BoolFlag{Name: "stacks", Usage: "take the stack of each write (programs with frame pointers)"},
		&cli.BoolFlag{Name: "lines", Usage: "give source lines where there is debug information"},
		&cli.BoolFlag{Name: "no-follow", Usage: "leave out what is forked during the trace"},
		&cli.BoolFlag{Name: "each-fault", Usage: "keep a record of each fault (80 bytes of memory each), which times collections"},
		choiceFlag("gc-provider", "how the GC phase is learnt", ebpf.CollectorChoices()...),
		choiceFlag("attach", "how to attach the programs", append([]string{"auto"}, ebpf.Variants()...)...),
		&cli.StringFlag{Name: "buffer", Usage: "ring buffer of `SIZE`, a power of two", DefaultText: "16M"},
		&cli.DurationFlag{Name: "every", Usage: "draw the live table anew each `TIME` (on a terminal)", Value: time.Second},
		&cli.BoolFlag{Name: "all", Usage: "list every row: fold none into [N others]"},
	}
}

// readyFlag is for scripts and tests: the file appears when the tracer is attached and the processes are being traced.
func readyFlag() cli.Flag { return &cli.StringFlag{Name: "ready-file", Hidden: true} }

func runTrace(a *application, c *cli.Context) error {
	pids, command, err := traceTargets(a, c)
	if err != nil {
		return err
	}
	o, err := traceOptions(c)
	if err != nil {
		return err
	}
	out, err := a.openOutput(c)
	if err != nil {
		return err
	}
	if err := out.refuseBinary(c); err != nil {
		return err
	}
	if err := traceable(c, pids); err != nil {
		return err
	}
	tr, err := ebpf.Start(o)
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	t := &tracing{a: a, c: c, tracer: tr, out: out}
	trace, err := t.run(pids, command)
	if trace == nil {
		return errors.Join(err, closeTracer(tr))
	}
	r, rerr := audit.NewTraceReport(trace, audit.TraceOptions{Version: version(), OnlyGC: c.Bool("only-gc")})
	if rerr != nil {
		return errors.Join(err, fmt.Errorf("trace: %w", rerr))
	}
	return errors.Join(err, out.writeResult(r, out.details(c)))
}

func closeTracer(t *ebpf.Tracer) error {
	if err := t.Close(); err != nil {
		return fmt.Errorf("take the fault tracer off again: %w", err)
	}
	return nil
}

// traceTargets tells processes from a command: what follows "--" is a command.
func traceTargets(a *application, c *cli.Context) ([]pagemap.PID, []string, error) {
	args := c.Args().Slice()
	before := a.args[:len(a.args)-len(args)]
	switch {
	case len(before) > 0 && before[len(before)-1] == "--" && len(args) > 0:
		return nil, args, nil
	case len(args) == 0:
		return nil, nil, usageErrorf("trace: nothing to trace: give PIDs, or -- and a command")
	}
	var pids []pagemap.PID
	for _, arg := range args {
		n, err := strconv.ParseUint(arg, 10, 32)
		switch {
		case err != nil || n == 0 || n > maxPID:
			return nil, nil, usageErrorf("trace: %s is not a PID: a command comes after \"--\": cowaudit trace -- %s", shellWord(arg), shellWords(args))
		case n == uint64(os.Getpid()):
			return nil, nil, usageErrorf("trace: %d is cowaudit itself", n)
		case n == 1 && !c.Bool("no-follow"):
			return nil, nil, usageErrorf("trace: PID 1 is the parent of everything that is started: with --no-follow it alone is traced")
		}
		if pid := pagemap.PID(n); !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil, nil
}

func shellWords(args []string) string {
	words := make([]string, len(args))
	for i, w := range args {
		words[i] = shellWord(w)
	}
	return strings.Join(words, " ")
}

// traceable refuses processes without an address space before anything is attached.
func traceable(c *cli.Context, pids []pagemap.PID) error {
	fs := pagemap.FS("")
	for _, pid := range pids {
		st, err := fs.Stat(pid)
		switch {
		case errors.Is(err, pagemap.ErrGone):
			return withRemedy(fmt.Errorf("%s: no process %d: %w", c.Command.Name, pid, pagemap.ErrGone), "\"cowaudit audit\" without a PID lists the forking families")
		case err != nil:
			return fmt.Errorf("%s: %w", c.Command.Name, err)
		case st.KernelThread():
			return fmt.Errorf("%s: process %d is a kernel thread: %w", c.Command.Name, pid, pagemap.ErrNoMM)
		case st.Zombie() && st.NumThreads <= 1:
			return fmt.Errorf("%s: process %d is a zombie: %w", c.Command.Name, pid, pagemap.ErrNoMM)
		}
	}
	return nil
}

func traceOptions(c *cli.Context) (ebpf.Options, error) {
	o := ebpf.Options{
		Faults: c.Bool("each-fault"), Stacks: c.Bool("stacks"), Lines: c.Bool("lines"), NoFollow: c.Bool("no-follow"),
		Collector: c.String("gc-provider"), Variant: c.String("attach"),
	}
	if o.Variant == "auto" {
		o.Variant = ""
	}
	if c.IsSet("duration") && c.Duration("duration") <= 0 {
		return o, usageErrorf("trace: --duration %s: more than nothing", c.Duration("duration"))
	}
	if c.Duration("every") < 50*time.Millisecond {
		return o, usageErrorf("trace: --every %s: at least 50ms", c.Duration("every"))
	}
	if c.IsSet("buffer") {
		n, err := parseSize(c.String("buffer"))
		if err != nil || n < pageSize() || n > 1<<30 || bits.OnesCount64(uint64(n)) != 1 {
			return o, usageErrorf("trace: --buffer %s: a power of two from %d to 1G, such as 64M", shellWord(c.String("buffer")), int64(pageSize()))
		}
		o.RingBytes = int(n)
	}
	return o, nil
}

// parseSize reads a number of bytes: 65536, 64K, 16M, 1G.
func parseSize(s string) (pagemap.Bytes, error) {
	shift := 0
	upper := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s), "B"), "I")
	if n := len(upper); n > 0 {
		if i := strings.IndexByte("KMG", upper[n-1]); i >= 0 {
			shift, upper = 10*(i+1), upper[:n-1]
		}
	}
	n, err := strconv.ParseUint(upper, 10, 32)
	return pagemap.Bytes(n << shift), err
}

// tracing is one run of trace.
type tracing struct {
	a      *application
	c      *cli.Context
	tracer *ebpf.Tracer
	out    *output
}

// run traces until the end and gives the trace; nil where there is none to show. An error beside a trace is about something
// else: the command, say.
func (t *tracing) run(pids []pagemap.PID, command []string) (*ebpf.Trace, error) {
	ctx := t.c.Context
	if d := t.c.Duration("duration"); d > 0 {
		var cancel context.CancelFunc
		// Canceled like an interrupt: both end the trace and show it.
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	var held *heldCommand
	if len(command) > 0 {
		var err error
		if held, err = t.hold(command); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		defer held.abandon()
		// What waits to become the command is cowaudit's own, and no part of the trace.
		if err := t.tracer.AddAtExec(held.pid()); err != nil {
			return nil, t.addError(err)
		}
	}
	if err := t.tracer.Add(pids...); err != nil {
		return nil, t.addError(err)
	}
	if held != nil {
		if err := held.release(); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
	}
	if err := t.ready(); err != nil {
		return nil, err
	}
	if err := t.wait(ctx, held); err != nil {
		return nil, err
	}
	trace, err := t.tracer.Stop()
	if err != nil {
		return nil, fmt.Errorf("trace: end the trace: %w", err)
	}
	if held != nil {
		err = held.outcome(t.a.stderr)
	}
	return trace, err
}

func (t *tracing) addError(err error) error {
	if errors.Is(err, pagemap.ErrGone) {
		return withRemedy(fmt.Errorf("trace: %w", err), "it ended meanwhile: give the PID of a process that runs")
	}
	return fmt.Errorf("trace: %w", err)
}

func (t *tracing) ready() error {
	name := t.c.String("ready-file")
	if name == "" {
		return nil
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

// pollEvery is how often it is asked whether a traced process still runs.
const pollEvery = 100 * time.Millisecond

// wait returns when the trace is over. Its error is that of a trace that failed, or was given up.
func (t *tracing) wait(ctx context.Context, held *heldCommand) error {
	signals := newTraceSignals()
	defer signals.stop()
	live := newLiveTable(t.a.stderr, t.tracer, t.c.Duration("every"), pageSize())
	defer live.clear()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	deadline := make(<-chan struct{})
	if t.c.Duration("duration") > 0 {
		deadline = ctx.Done()
	}
	asked := false // by a signal, to end
	for {
		select {
		case s := <-signals.c:
			if asked || !held.runs() {
				if asked {
					return fmt.Errorf("trace: given up: %w", context.Canceled)
				}
				return nil
			}
			asked = true
			held.signal(s)
		case <-deadline:
			if ctx.Err() == context.DeadlineExceeded {
				held.end()
				return nil
			}
			deadline = nil // a signal, which comes by itself
		case <-live.tick():
			live.draw()
		case <-poll.C:
			running, err := t.tracer.Running()
			if err != nil {
				return fmt.Errorf("trace: %w", err)
			}
			if !running {
				return nil
			}
		}
	}
}
