package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"cowaudit/ebpf"
	"cowaudit/pagemap"
	"cowaudit/report"
)

// liveTable keeps a small table of a trace on a terminal up to date, and writes nothing elsewhere.
type liveTable struct {
	f      *os.File // nil: no terminal
	tracer *ebpf.Tracer
	ticker *time.Ticker
	page   pagemap.Bytes
	last   *ebpf.Live
	lines  int // drawn
}

// liveWriters is how many functions the live table shows.
const liveWriters = 8

func newLiveTable(w io.Writer, t *ebpf.Tracer, every time.Duration, page pagemap.Bytes) *liveTable {
	l := &liveTable{tracer: t, page: page}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		l.f, l.ticker = f, time.NewTicker(every)
	}
	return l
}

// tick comes when it is time to draw; never where there is no terminal.
func (l *liveTable) tick() <-chan time.Time {
	if l.ticker == nil {
		return nil
	}
	return l.ticker.C
}

// draw writes the state over what was drawn before. An error shows at the end of the trace.
func (l *liveTable) draw() {
	now, err := l.tracer.Live(liveWriters)
	if err != nil {
		return
	}
	columns := 80
	if w, _, err := term.GetSize(int(l.f.Fd())); err == nil && w > 0 {
		columns = w
	}
	text := liveText(now, l.last, l.page, columns)
	l.erase()
	fmt.Fprint(l.f, text)
	l.lines = strings.Count(text, "\n")
	l.last = now
}

// erase takes the table off the terminal.
func (l *liveTable) erase() {
	if l.lines > 0 {
		fmt.Fprintf(l.f, "\x1b[%dA\r\x1b[J", l.lines)
		l.lines = 0
	}
}

// clear ends the table: the summary comes in its place.
func (l *liveTable) clear() {
	if l.f != nil {
		l.ticker.Stop()
		l.erase()
	}
}

// liveText is the table: totals by kind, copies a second, the functions that copied most.
func liveText(now, last *ebpf.Live, page pagemap.Bytes, columns int) string {
	var b strings.Builder
	line := func(format string, a ...any) {
		s := []rune(oneLine(fmt.Sprintf(format, a...)))
		if len(s) > columns-1 {
			s = append(s[:columns-2], '…')
		}
		b.WriteString(string(s) + "\n")
	}
	plural := "es"
	if now.Spaces == 1 {
		plural = ""
	}
	line("tracing %d process%s for %s (Ctrl-C ends it)", now.Spaces, plural, now.At.Round(time.Second))
	copied := now.Totals[ebpf.KindCopied]
	rate := ""
	if last != nil && now.At > last.At {
		n := float64(copied.Faults-last.Totals[ebpf.KindCopied].Faults) / (now.At - last.At).Seconds()
		rate = fmt.Sprintf(", %s a second", report.Count(int64(n+0.5)))
	}
	line("copied %s (%s)%s", report.Count(copied.Faults), report.Size(pagemap.Bytes(copied.Pages)*page), rate)
	var others []string
	for k := ebpf.KindReused; k < ebpf.NKinds; k++ {
		if n := now.Totals[k].Faults; n > 0 {
			others = append(others, fmt.Sprintf("%s %s", k, report.Count(n)))
		}
	}
	if n := now.Totals[ebpf.KindUnknown].Faults; n > 0 {
		others = append(others, "unknown "+report.Count(n))
	}
	if len(others) > 0 {
		line("%s", strings.Join(others, ", "))
	}
	if n := now.Lost.Faults(); n > 0 {
		line("LOST %s", report.Count(n))
	}
	for _, w := range now.Writers {
		name := w.Frame.Name
		if w.Frame.Function != "" && w.Frame.Module != "" {
			name = w.Frame.Function + " (" + w.Frame.Module + ")"
		}
		line("  %9s  %s", report.Count(w.Copied.Faults), name)
	}
	return b.String()
}
