// Command cowaudit audits the pages that the processes of a forking server share by copy-on-write: what is still shared
// with the parent, what was copied since the fork, and what an event such as a worker's first major garbage collection
// copies.
//
// Exit codes: 0 done; 1 a gate failed; 2 wrong usage; 3 could not measure, or the result could not be written.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
)

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// application is one run of the program: its arguments, its streams, and the outputs that its command has opened.
type application struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	outputs        []*output
}

// commands lists the commands in the order of the help. One command, one file.
func commands(a *application) []*cli.Command {
	return []*cli.Command{
		demoCommand(a),
		doctorCommand(a),
		auditCommand(a),
		snapshotCommand(a),
		diffCommand(a),
		showCommand(a),
		forktestCommand(a),
		compareCommand(a),
		gateCommand(a),
		traceCommand(a),
		demoServerCommand(a),
		heldStartCommand(a),
	}
}

// run is the whole program: it runs the command that the arguments name and gives the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &application{args: args, stdin: stdin, stdout: stdout, stderr: stderr}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once

	// A reader that has enough (head, less) closes its end. Without this the runtime would end the program at the next
	// write, with its children and temporary files left behind. The signal is received and not ignored, since what is
	// ignored stays ignored in the programs that are started.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	defer signal.Stop(pipes)

	err := a.cli().RunContext(ctx, args)
	err = a.discardOutputs(err)
	if err == nil || errors.Is(err, errVersion) {
		return exitDone
	}
	fmt.Fprintln(stderr, "cowaudit: "+lineOf(err))
	return codeOf(err)
}

// cli builds the command tree. Errors come back from it; nothing in it exits or prints them.
func (a *application) cli() *cli.App {
	app := &cli.App{
		Name:            "cowaudit",
		Usage:           "counts what the processes of a forking server still share",
		HideVersion:     true, // its flag is our own: -v is left free
		HideHelpCommand: true, // so is its command, which exits with 3 when it does not know the word
		Writer:          a.stdout,
		ErrWriter:       a.stderr,
		Reader:          a.stdin,
		ExitErrHandler:  func(*cli.Context, error) {},
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "version", Usage: "print the version"},
			cli.HelpFlag,
		},
		Before:       a.checkCommand,
		Action:       a.noCommand,
		OnUsageError: onUsageError,
	}
	for _, c := range append(commands(a), helpCommand(a)) {
		app.Commands = append(app.Commands, a.finish(c))
	}
	app.CustomAppHelpTemplate = literal(appHelp(app))
	return app
}

// finish gives a command what all commands have in common.
func (a *application) finish(c *cli.Command) *cli.Command {
	c.HideHelpCommand = true // or the argument "help" would be taken for a command
	c.OnUsageError = onUsageError
	c.CustomHelpTemplate = literal(commandHelp(c))
	before := c.Before
	c.Before = func(ctx *cli.Context) error {
		if err := a.checkOrder(ctx); err != nil {
			return err
		}
		if before != nil {
			return before(ctx)
		}
		return nil
	}
	return c
}
