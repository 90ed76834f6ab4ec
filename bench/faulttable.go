package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// faultsTitle begins the part of the document that is about the fault tracer; it is the last one.
const faultsTitle = "## The fault tracer"

func faultsHead(w io.Writer, command string) error {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s\n\nMade by `%s` on Linux %s, %s, %d processors; %s.\n", faultsTitle, command,
		strings.TrimSpace(string(kernel)), runtime.GOARCH, runtime.NumCPU(), processor())
	return err
}

// processor is the first one's model.
func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "processor unknown"
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "processor unknown"
}

// write has a line for each watcher.
func (r *faultResult) write(w io.Writer, rounds int) {
	fmt.Fprintf(w, `
### What the traced process pays

A new child of a process writes one word to each of %d pages that both share, as fast as it can, and times itself: the worst
case, since a real program does something between two copies. The watchers take turns, %d rounds, each attached to a
child of its own, between two children that nobody watches. × is the median of the rounds' ratios to the mean of these two, with
the smallest and the largest, in time by the clock, and in CPU time of the child, which what else runs here disturbs less; the cost of an
event is the median of the differences. All have the buffers they have by themselves. Lost is the worst round: by the watcher's
own account, or by what is missing from its result, whichever is more. The watcher's own CPU time is from its start to its end.

| watcher | × | × of CPU time | ns a copy | cost of an event, ns | lost | its own CPU, ms | asked |
|---|--:|--:|--:|--:|--:|--:|---|
`, r.pages, rounds)
	fmt.Fprintf(w, "| no tracer, against the one before it | %s | %s | %.0f | | | | |\n", spreadOf(each(r.none, (*faultRun).wallRatio)),
		spreadOf(each(r.none, (*faultRun).cpuRatio)), spreadOf(each(r.none, func(f *faultRun) float64 { return perPage(f.took.wall, r.pages) })).mid)
	for _, k := range r.all {
		k.writeRow(w, r.pages)
	}
}

func each(runs []faultRun, of func(*faultRun) float64) []float64 {
	var v []float64
	for i := range runs {
		v = append(v, of(&runs[i]))
	}
	return v
}

func (k *watched) writeRow(w io.Writer, pages int) {
	if len(k.runs) == 0 {
		fmt.Fprintf(w, "| %s | %s | | | | | | |\n", k.name, strings.ReplaceAll(k.missing, "|", "/"))
		return
	}
	ratio := spreadOf(each(k.runs, (*faultRun).wallRatio))
	lost, hung, why := int64(0), 0, ""
	for i := range k.runs {
		r := &k.runs[i]
		switch n := r.lost(pages); {
		case r.seen.hung:
			hung++
		case n == unknown:
			lost = unknown
		case lost != unknown && n > lost:
			lost, why = n, r.seen.why
		}
	}
	asked := ""
	if k.bar > 0 {
		verdict := "met"
		if ratio.mid > k.bar || lost != 0 {
			verdict = "MISSED"
		}
		asked = fmt.Sprintf("at most %.2f, none lost: %s", k.bar, verdict)
	}
	said := lostText(lost, why)
	if k.name == elsewhere {
		said = ""
	}
	if hung == len(k.runs) {
		said = "?"
	}
	if hung > 0 {
		said += fmt.Sprintf(" (hung at its end in %d of %d rounds)", hung, len(k.runs))
	}
	if k.missing != "" {
		said += " (" + strings.ReplaceAll(k.missing, "|", "/") + ")"
	}
	fmt.Fprintf(w, "| %s | %s | %s | %.0f | %.0f | %s | %.0f | %s |\n", k.name, ratio, spreadOf(each(k.runs, (*faultRun).cpuRatio)),
		spreadOf(each(k.runs, func(f *faultRun) float64 { return perPage(f.took.wall, pages) })).mid,
		spreadOf(each(k.runs, func(f *faultRun) float64 { return perPage(f.took.wall-f.near.wall, pages) })).mid,
		said, spreadOf(each(k.runs, func(f *faultRun) float64 { return f.seen.cpu.Seconds() * 1000 })).mid, asked)
}

func lostText(n int64, why string) string {
	switch {
	case n == unknown:
		return "?"
	case why != "":
		return fmt.Sprintf("%d (%s)", n, why)
	}
	return fmt.Sprint(n)
}
