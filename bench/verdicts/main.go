// Command verdicts puts cowaudit compare itself to the test: one build against itself, many times, where no comparison may call
// anything better or worse; then against itself with a few per cent more methods, which each comparison must call worse.
//
// Usage: verdicts [-cowaudit FILE] [-same N] [-planted N] [-percent P] COMMAND
//
// COMMAND is a Ruby whose first major GC copies what was loaded (3.3). It needs what cowaudit compare needs: root. The exit code is 1
// where a comparison said what is not so.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"cowaudit/audit"
)

// application defines as many methods as METHODS says, each with 20 call sites that are never called.
const application = `body = (0...20).map { |i| "o.c#{i}" }.join(";")
(0...Integer(ENV.fetch("METHODS"))).each_slice(200) do |numbers|
  Object.const_set("Planted#{numbers.first}", Module.new).module_eval(numbers.map { |n| "def m#{n}(o);#{body};end\n" }.join)
end
`

const methods = 20_000

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "verdicts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("verdicts", flag.ContinueOnError)
	flags.SetOutput(stderr)
	program := flags.String("cowaudit", "bin/cowaudit", "the `FILE` of cowaudit")
	same := flags.Int("same", 30, "comparisons of the build with itself")
	planted := flags.Int("planted", 5, "comparisons with more methods on side B")
	percent := flags.Float64("percent", 2, "how many more, in per cent")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("give one Ruby command")
	}
	folder, err := os.MkdirTemp("", "verdicts")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := os.Chmod(folder, 0o755); err != nil {
		return err
	}
	app := filepath.Join(folder, "planted.rb")
	if err := os.WriteFile(app, []byte(application), 0o644); err != nil {
		return err
	}
	wrong := 0
	for i := range *same + *planted {
		more := 0
		if i >= *same {
			more = int(methods * *percent / 100)
		}
		r, err := compare(ctx, *program, filepath.Join(folder, "result.json"), app, flags.Arg(0), more)
		if err != nil {
			return err
		}
		says := "as it should be"
		if more > 0 && r.Verdict != audit.VerdictWorse || more == 0 && (r.Verdict == audit.VerdictWorse || r.Verdict == audit.VerdictBetter) {
			wrong++
			says = "WRONG"
		}
		for k := range r.Rows {
			if row := &r.Rows[k]; row.Event == "first_major_gc" && row.Metric == "copied_bytes" {
				fmt.Fprintf(stdout, "%2d  %d methods more  %-12s after %2d rounds  %.2f MiB, %+.3f MiB (%+.3f..%+.3f)  %s\n", i+1, more, r.Verdict, r.Rounds.Done,
					row.A.Median/(1<<20), row.Difference.Median/(1<<20), row.Difference.Low/(1<<20), row.Difference.High/(1<<20), says)
			}
		}
	}
	fmt.Fprintf(stdout, "%d comparisons of the build with itself, %d with %g%% more methods: %d wrong\n", *same, *planted, *percent, wrong)
	if wrong > 0 {
		return fmt.Errorf("%d comparisons said what is not so", wrong)
	}
	return nil
}

func compare(ctx context.Context, program, file, app, command string, more int) (*audit.CompareReport, error) {
	var said bytes.Buffer
	c := exec.CommandContext(ctx, program, "compare", "--trace", "never", "--app", app, "--env-a", fmt.Sprint("METHODS=", methods),
		"--env-b", fmt.Sprint("METHODS=", methods+more), "--format", "json", "-o", file, "--force", command, command)
	c.Stderr = &said
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // it ends what it started
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) { // 3: inconclusive, too
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	r := new(audit.CompareReport)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	if !r.Rounds.Ended {
		return nil, fmt.Errorf("a comparison did not come to its end: %s", bytes.TrimSpace(said.Bytes()))
	}
	return r, nil
}
