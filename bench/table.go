package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// result is what a case gave.
type result struct {
	c       benchCase
	all     []*contender
	skipped string
}

func head(w io.Writer, args []string) error {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `# What reading costs

Made by `+"`go run ./bench %s`"+` on Linux %s, %s, %d processors. Each case runs its programs in turn, round after round; medians.
Wall and CPU are ratios to the unit of the same case: a C program that reads the pagemap of all mappings of the same processes
on one thread and does nothing with it. Times include the start of each program. A family is the master and its workers.
`, strings.Join(args, " "), strings.TrimSpace(string(kernel)), runtime.GOARCH, runtime.NumCPU())
	return err
}

func (r *result) write(w io.Writer) {
	fmt.Fprintf(w, "\n## %s: %v\n\n", r.c.name, r.c.fam)
	if r.skipped != "" {
		fmt.Fprintf(w, "Not run: %s.\n", r.skipped)
		return
	}
	var unit *contender
	entries := 0.0
	if u := r.all[0]; u.name == unitName {
		unit = u
		if n, err := strconv.ParseFloat(strings.TrimSpace(u.got[0].out), 64); err == nil {
			entries = n
			fmt.Fprintf(w, "%.0f page table entries.\n\n", n)
		}
	}
	fmt.Fprintln(w, "| program | wall | CPU | ns per entry (wall) | wall, ms | CPU, ms | peak memory, MiB |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|--:|--:|")
	for _, k := range r.all {
		wall := median(k.got, func(s sample) time.Duration { return s.wall })
		cpu := median(k.got, func(s sample) time.Duration { return s.cpu })
		peak := median(k.got, func(s sample) int64 { return s.peak })
		rw, rc, ns := "", "", ""
		if unit != nil {
			rw = fmt.Sprintf("%.2f", float64(wall)/float64(median(unit.got, func(s sample) time.Duration { return s.wall })))
			rc = fmt.Sprintf("%.2f", float64(cpu)/float64(median(unit.got, func(s sample) time.Duration { return s.cpu })))
			ns = fmt.Sprintf("%.1f", float64(wall.Nanoseconds())/entries)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.1f | %.1f | %.1f |\n", k.name, rw, rc, ns,
			float64(wall.Microseconds())/1000, float64(cpu.Microseconds())/1000, float64(peak)/(1<<20))
	}
}
