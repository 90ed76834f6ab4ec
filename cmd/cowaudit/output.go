package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

// The result of a command goes to standard output or, with -o, to a file. A file is written under a temporary name in its
// own folder and renamed when it is complete: what stands under the name is never half a result.

// output is where a result goes. It is opened before anything is measured.
type output struct {
	format string
	color  bool
	width  int
	stdout io.Writer // where there is no file
	file   *outputFile
}

// outputFlags are --format, --color, -o and --force; formats is text and json where none are given, and the first is the
// default.
func outputFlags(formats ...string) []cli.Flag {
	if len(formats) == 0 {
		formats = []string{"text", "json"}
	}
	return append([]cli.Flag{
		choiceFlag("format", "of the result", formats...),
		choiceFlag("color", "colours in text", "auto", "always", "never"),
	}, fileFlags()...)
}

// fileFlags are -o and --force: for a command whose result has one format.
func fileFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "o", Usage: "write to `FILE`, - is standard output", Value: "-", DefaultText: "-"},
		&cli.BoolFlag{Name: "force", Usage: "let -o overwrite a file", DisableDefaultText: true},
	}
}

// choiceFlag is an option with few possible values, the first of which is the default.
func choiceFlag(name, usage string, values ...string) cli.Flag {
	list := strings.Join(values, ", ")
	return &cli.StringFlag{
		Name: name, Usage: usage + ": " + list, Value: values[0], DefaultText: values[0],
		Action: func(_ *cli.Context, v string) error {
			if slices.Contains(values, v) {
				return nil
			}
			return usageErrorf("--%s %s: one of %s%s", name, shellWord(v), list, didYouMean(v, values))
		},
	}
}

// openOutput opens what the options of outputFlags or fileFlags say. What is not written by the end of the run is removed.
func (a *application) openOutput(c *cli.Context) (*output, error) {
	o := &output{format: c.String("format"), width: 80, stdout: a.stdout}
	if name := c.String("o"); name != "-" && name != "" {
		f, err := openOutputFile(name, c.Bool("force"))
		if err != nil {
			return nil, err
		}
		o.file = f
		a.outputs = append(a.outputs, o)
	} else if c.IsSet("o") && name == "" {
		return nil, usageErrorf("-o: no file name: - is standard output")
	} else if f, ok := a.stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			o.width = w
		}
		o.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	switch c.String("color") {
	case "always":
		o.color = true
	case "never":
		o.color = false
	}
	return o, nil
}

// Format is the value of --format; "" for a command that has one format only.
func (o *output) Format() string { return o.format }

// Color reports whether text is to be coloured.
func (o *output) Color() bool { return o.color }

// Width is the number of columns for text.
func (o *output) Width() int { return o.width }

// Terminal reports whether the result goes to a terminal, which is no place for a binary file.
func (o *output) Terminal() bool {
	f, ok := o.stdout.(*os.File)
	return o.file == nil && ok && term.IsTerminal(int(f.Fd()))
}

// Write hands the result to where it goes. render may be called once for each round of a long measurement: a file is then
// replaced by the newer result, standard output gets them one after the other. A reader that closed its end of standard
// output has enough, which is no error.
func (o *output) Write(render func(io.Writer) error) error {
	if o.file != nil {
		return o.file.write(render)
	}
	w := bufio.NewWriterSize(o.stdout, 1<<16)
	err := render(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	if f, ok := o.stdout.(*os.File); ok {
		err = cause(err, f.Name())
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return withRemedy(fmt.Errorf("write the result to standard output: %w", err), "free some space, or choose another place with -o")
	}
	return fmt.Errorf("write the result to standard output: %w", err)
}

// discardOutputs removes what was opened and not written. err is the error that the run ends with so far.
func (a *application) discardOutputs(err error) error {
	for _, o := range a.outputs {
		if e := o.file.discard(); e != nil {
			err = errors.Join(err, e)
		}
	}
	a.outputs = nil
	return err
}
