package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// errVersion ends a run in which only the version was asked for.
var errVersion = errors.New("version printed")

// checkCommand looks at what comes before and at the name of the command.
func (a *application) checkCommand(c *cli.Context) error {
	if c.Bool("version") {
		if _, err := fmt.Fprintf(a.stdout, "cowaudit %s\n", version()); err != nil {
			return fmt.Errorf("print the version: %w", err)
		}
		return errVersion
	}
	name := c.Args().First()
	if name == "" || c.App.Command(name) != nil {
		return nil
	}
	return unknownCommand(c.App, name)
}

func unknownCommand(app *cli.App, name string) error {
	var names []string
	for _, k := range app.VisibleCommands() {
		names = append(names, k.Name)
	}
	return usageErrorf("unknown command %q%s: \"cowaudit help\" lists the commands", name, didYouMean(name, names))
}

// noCommand is what the program does when it is called without a command.
func (a *application) noCommand(c *cli.Context) error {
	c.App.Writer = a.stderr
	if err := cli.ShowAppHelp(c); err != nil {
		return err
	}
	return usageErrorf("no command given")
}

// onUsageError makes a usage error of what the parser of flags says.
func onUsageError(c *cli.Context, err error, isSubcommand bool) error {
	name, flags := "", c.App.Flags
	if isSubcommand {
		name, flags = c.Command.Name+": ", c.Command.Flags
	}
	hint := fmt.Sprintf(": %q lists the options", optionsHelp(c.Command, isSubcommand))
	text := err.Error()
	if _, flag, ok := strings.Cut(text, "flag provided but not defined: "); ok {
		flag = strings.TrimLeft(flag, "-")
		return usageErrorf("%sunknown option %s%s%s", name, dashed(flag), didYouMeanOption(flag, flags), hint)
	}
	if flag, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		return usageErrorf("%soption %s needs a value%s", name, dashed(strings.TrimLeft(flag, "-")), hint)
	}
	return usageErrorf("%s%w%s", name, err, hint)
}

func optionsHelp(c *cli.Command, isSubcommand bool) string {
	if isSubcommand {
		return "cowaudit help " + c.Name
	}
	return "cowaudit help"
}

// checkOrder refuses an option after the first argument: cli/v2 stops parsing there and would take it for an argument.
// What follows "--" is free.
func (a *application) checkOrder(c *cli.Context) error {
	args := c.Args().Slice()
	before := a.args[:len(a.args)-len(args)]
	if len(before) > 0 && before[len(before)-1] == "--" {
		return nil
	}
	for i, arg := range args {
		if len(arg) < 2 || arg[0] != '-' {
			continue
		}
		what := "option " + arg
		if arg == "--" {
			what = "\"--\""
		}
		if _, err := os.Lstat(arg); err == nil {
			return usageErrorf("%s: %s after the argument %q: if it is a file, write ./%s", c.Command.Name, what, args[0], arg)
		}
		if name := optionName(arg); arg != "--" && !knownOption(c.Command.Flags, name) {
			return usageErrorf("%s: unknown option %s%s: %q lists the options", c.Command.Name, arg, didYouMeanOption(name, c.Command.Flags), optionsHelp(c.Command, true))
		}
		return usageErrorf("%s: %s after the argument %q: options come first: %s", c.Command.Name, what, args[0], reordered(c, before, args, i))
	}
	return nil
}

// reordered is the command line with the option at args[i], and its value, moved before the arguments.
func reordered(c *cli.Context, before, args []string, i int) string {
	n := 1
	if !strings.Contains(args[i], "=") && i+1 < len(args) && takesValue(c.Command.Flags, optionName(args[i])) {
		n = 2
	}
	// The program by its name only, whatever path it was started by.
	words := append([]string{"cowaudit"}, before[1:]...)
	words = append(words, args[i:i+n]...)
	words = append(words, args[:i]...)
	words = append(words, args[i+n:]...)
	for k, w := range words {
		words[k] = shellWord(w)
	}
	return strings.Join(words, " ")
}

// optionName is the name in --name=value.
func optionName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

func knownOption(flags []cli.Flag, name string) bool {
	return slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}

func takesValue(flags []cli.Flag, name string) bool {
	for _, f := range flags {
		if v, ok := f.(cli.DocGenerationFlag); ok && slices.Contains(f.Names(), name) {
			return v.TakesValue()
		}
	}
	return false
}

// shellWord quotes a word so that a shell takes it as it is.
func shellWord(w string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:,+@%", r))
	}
	if w != "" && strings.IndexFunc(w, func(r rune) bool { return !plain(r) }) < 0 {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

func didYouMeanOption(flag string, flags []cli.Flag) string {
	var names []string
	for _, f := range flags {
		for _, n := range f.Names() {
			if len(n) > 1 {
				names = append(names, n)
			}
		}
	}
	if s := nearest(optionName(flag), names); s != "" {
		return fmt.Sprintf(" (did you mean --%s?)", s)
	}
	return ""
}

func didYouMean(word string, words []string) string {
	if s := nearest(word, words); s != "" {
		return fmt.Sprintf(" (did you mean %q?)", s)
	}
	return ""
}

// nearest gives the word that the given one was probably meant to be: the beginning of one, or at most two letters from
// it; "" when none is near.
func nearest(word string, words []string) string {
	best, distance := "", min(3, len(word))
	for _, w := range words {
		if d := editDistance(word, w); d < distance {
			best, distance = w, d
		}
	}
	if best == "" && len(word) > 1 {
		for _, w := range words {
			if strings.HasPrefix(w, word) {
				return w
			}
		}
	}
	return best
}

// editDistance counts the bytes to put in, take out or replace to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
