package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// The help is laid out here, in 80 columns: what cli/v2 prints has the width of its longest line.

const helpWidth = 80

func helpCommand(a *application) *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "explain a command, or list them",
		ArgsUsage: "[COMMAND]",
		Description: `Example: cowaudit help doctor
Needs: no privilege.`,
		Action: func(c *cli.Context) error {
			name := c.Args().First()
			switch {
			case c.NArg() > 1:
				return usageErrorf("help: one command at a time, not %d", c.NArg())
			case name == "":
				return cli.ShowAppHelp(c)
			case c.App.Command(name) == nil:
				return unknownCommand(c.App, name)
			}
			// By way of the root: what a command's own context knows of are its subcommands.
			return cli.ShowCommandHelp(c.Lineage()[1], name)
		},
	}
}

// appHelp is the text of "cowaudit help".
func appHelp(app *cli.App) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s - %s\n\nUsage: %s COMMAND [options] [arguments]\n\nCommands:\n", app.Name, app.Usage, app.Name)
	var rows [][2]string
	for _, c := range app.VisibleCommands() {
		rows = append(rows, [2]string{c.Name, c.Usage})
	}
	writeRows(&b, rows)
	b.WriteString("\nOptions:\n")
	writeRows(&b, flagRows(app.Flags))
	b.WriteString("\nOptions come before arguments. \"cowaudit help COMMAND\" explains a command.\n" +
		"Exit codes: 0 done, 1 gate failed, 2 wrong usage, 3 could not measure.\n")
	return b.String()
}

// commandHelp is the text of "cowaudit help COMMAND": what it does, an example, the privileges that it needs, its options.
func commandHelp(c *cli.Command) string {
	var b strings.Builder
	wrapTo(&b, "cowaudit "+c.Name+" - ", "  ", c.Usage)
	wrapTo(&b, "\nUsage: ", "  ", strings.TrimSpace("cowaudit "+c.Name+" [options] "+c.ArgsUsage))
	b.WriteByte('\n')
	// Lines of running text are joined and wrapped; "Example:", "Needs:" and what is indented stand as they are written.
	var running []string
	flush := func() {
		if len(running) > 0 {
			wrapTo(&b, "", "", strings.Join(running, " "))
			running = nil
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(c.Description), "\n") {
		switch {
		case strings.HasPrefix(line, "Example: "):
			flush()
			if example, _ := strings.CutPrefix(line, "Example: "); utf8.RuneCountInString(line) > helpWidth {
				line = "Example:\n  " + example // whole, to be copied
			}
			b.WriteString(line + "\n")
		case strings.HasPrefix(line, "Needs: "):
			flush()
			wrapTo(&b, "", "  ", line)
		case line == "", strings.HasPrefix(line, " "):
			flush()
			b.WriteString(line + "\n")
		default:
			running = append(running, line)
		}
	}
	flush()
	b.WriteString("\nOptions:\n")
	writeRows(&b, append(flagRows(c.Flags), [2]string{"--help, -h", "show help"}))
	return b.String()
}

// flagRows gives for each option how it is written and what it says.
func flagRows(flags []cli.Flag) (rows [][2]string) {
	for _, f := range flags {
		doc, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		usage, value := doc.GetUsage(), "VALUE"
		switch f.(type) {
		case *cli.IntFlag, *cli.Int64Flag, *cli.UintFlag, *cli.Uint64Flag:
			value = "N"
		case *cli.DurationFlag:
			value = "TIME"
		}
		if before, rest, ok := strings.Cut(usage, "`"); ok { // cli/v2's way to name the value within the usage
			name, after, _ := strings.Cut(rest, "`")
			value, usage = name, before+name+after
		}
		var names []string
		for _, n := range f.Names() {
			n = dashed(n)
			if doc.TakesValue() {
				n += " " + value
			}
			names = append(names, n)
		}
		switch d := doc.GetDefaultText(); d {
		case "", "0", "false", `""`:
		default:
			usage += " (default: " + strings.Trim(d, `"`) + ")"
		}
		rows = append(rows, [2]string{strings.Join(names, ", "), usage})
	}
	return rows
}

// writeRows writes names and what they mean in two columns. A long name has a line of its own.
func writeRows(b *strings.Builder, rows [][2]string) {
	const longest = 20
	column := 0
	for _, r := range rows {
		if n := len(r[0]); n <= longest {
			column = max(column, n)
		}
	}
	rest := strings.Repeat(" ", column+4)
	for _, r := range rows {
		first := "  " + r[0] + strings.Repeat(" ", max(0, column-len(r[0]))) + "  "
		if len(r[0]) > longest {
			b.WriteString("  " + r[0] + "\n")
			first = rest
		}
		wrapTo(b, first, rest, r[1])
	}
}

// wrapTo writes words over as many lines as they need; first and rest are what the lines begin with.
func wrapTo(b *strings.Builder, first, rest, words string) {
	line, used := first, false
	for _, w := range strings.Fields(words) {
		if used && utf8.RuneCountInString(strings.TrimPrefix(line, "\n"))+1+utf8.RuneCountInString(w) > helpWidth {
			b.WriteString(line + "\n")
			line, used = rest, false
		}
		if used {
			line += " "
		}
		line += w
		used = true
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// literal is a template that gives the text.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{"{{"}}`) }
