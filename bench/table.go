package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Bars of the headline, as ratios to the unit and in bytes.
const (
	barWall = 0.75
	barCPU  = 1.25
	barPeak = 64 << 20
)

func head(w io.Writer, command string) error {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `# What reading costs

Made by `+"`%s`"+` on Linux %s, %s, %d processors.

The unit is a C program that reads the pagemap of all mappings of the same processes, on one thread, and does nothing with
it. Programs take turns, round after round; wall and CPU are medians of the rounds' ratios to the unit, with the smallest
and the largest. Times include the start of each program. Peak is the largest resident memory that wait4(2) reported. Every
program's output is checked first: it must cover the whole family.
`, command, strings.TrimSpace(string(kernel)), runtime.GOARCH, runtime.NumCPU())
	return err
}

func mib(b int64) string { return fmt.Sprintf("%.1f MiB", float64(b)/(1<<20)) }

func (g *group) write(w io.Writer, results []*result) {
	if !g.programs {
		g.writeSeries(w, results)
		return
	}
	for _, r := range results {
		r.writePrograms(w)
		if g.bars {
			r.writeBars(w)
		}
	}
}

func (r *result) base() *contender { return r.all[0] }

func (r *result) find(name string) *contender {
	for _, k := range r.all {
		if k.name == name {
			return k
		}
	}
	return nil
}

// writePrograms has a line for each program.
func (r *result) writePrograms(w io.Writer) {
	fmt.Fprintf(w, "\n## %s\n\n", capital(r.label))
	if r.skipped != "" {
		fmt.Fprintf(w, "%s.\n", capital(r.skipped))
		return
	}
	if r.entries > 0 {
		fmt.Fprintf(w, "%d page table entries.\n\n", r.entries)
	}
	ns := "ns an entry"
	if r.entries == 0 {
		ns = ""
	}
	fmt.Fprintf(w, "| program | wall, × | CPU, × | wall, ms | CPU, ms | %s | peak, MiB |\n|---|--:|--:|--:|--:|--:|--:|\n", ns)
	for _, k := range r.all {
		wall, per := median(k, wallOf), ""
		if r.entries > 0 {
			per = fmt.Sprintf("%.1f", float64(wall.Nanoseconds())/float64(r.entries))
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %.1f |\n", k.name, ratio(k, r.base(), wallOf), ratio(k, r.base(), cpuOf),
			ms(wall), ms(median(k, cpuOf)), per, float64(peak(k))/(1<<20))
	}
	if r.note != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(r.note))
	}
}

// writeBars holds the headline against its bars.
func (r *result) writeBars(w io.Writer) {
	k := r.find(auditPages)
	if r.skipped != "" || k == nil {
		return
	}
	verdict := func(ok bool) string {
		if ok {
			return "met"
		}
		return "MISSED"
	}
	wall, _, _ := ratios(k, r.base(), wallOf)
	cpu, _, _ := ratios(k, r.base(), cpuOf)
	fmt.Fprintf(w, "\nBars for cowaudit: wall at most %.2f: %s; CPU at most %.2f: %s; peak below %s: %s", barWall, verdict(wall <= barWall),
		barCPU, verdict(cpu <= barCPU), mib(barPeak), verdict(peak(k) < barPeak))
	for _, name := range []string{rollups, smem, pmap} {
		if o := r.find(name); o != nil {
			fmt.Fprintf(w, "; faster than %s: %s", name, verdict(median(k, wallOf) < median(o, wallOf)))
		}
	}
	fmt.Fprintln(w, ".")
}

// writeSeries has a line for each family.
func (g *group) writeSeries(w io.Writer, results []*result) {
	fmt.Fprintf(w, "\n## %s\n\n", g.title)
	others := false
	for _, r := range results {
		others = others || r.find(rollups) != nil
	}
	h, l := "", ""
	if others {
		h, l = " smaps_rollup wall, × |", "--:|"
	}
	fmt.Fprintf(w, "| %s | entries | unit, ns an entry | cowaudit, ns an entry | wall, × | CPU, × | wall, ms | peak, MiB |%s\n|--:|--:|--:|--:|--:|--:|--:|--:|%s\n", g.name, h, l)
	for _, r := range results {
		if r.skipped != "" {
			fmt.Fprintf(w, "| %s | %s |\n", r.label, r.skipped)
			continue
		}
		u, k := r.base(), r.find(auditPages)
		per := func(c *contender) float64 { return float64(median(c, wallOf).Nanoseconds()) / float64(r.entries) }
		fmt.Fprintf(w, "| %s | %d | %.1f | %.1f | %s | %s | %s | %.1f |", r.label, r.entries, per(u), per(k), ratio(k, u, wallOf), ratio(k, u, cpuOf),
			ms(median(k, wallOf)), float64(peak(k))/(1<<20))
		if o := r.find(rollups); o != nil {
			fmt.Fprintf(w, " %s |", ratio(o, u, wallOf))
		}
		fmt.Fprintln(w)
	}
}

func wallOf(s sample) time.Duration { return s.wall }
func cpuOf(s sample) time.Duration  { return s.cpu }

func median(k *contender, of func(sample) time.Duration) time.Duration {
	var v []time.Duration
	for _, s := range k.got {
		v = append(v, of(s))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func peak(k *contender) int64 {
	most := int64(0)
	for _, s := range k.got {
		most = max(most, s.peak)
	}
	return most
}

// ratios gives the median, the smallest and the largest of the ratios of each round.
func ratios(k, base *contender, of func(sample) time.Duration) (mid, low, high float64) {
	var v []float64
	for i := range k.got {
		v = append(v, float64(of(k.got[i]))/float64(max(of(base.got[i]), time.Microsecond)))
	}
	slices.Sort(v)
	return v[len(v)/2], v[0], v[len(v)-1]
}

func ratio(k, base *contender, of func(sample) time.Duration) string {
	if k == base {
		return "1"
	}
	mid, low, high := ratios(k, base, of)
	return fmt.Sprintf("%.2f (%.2f-%.2f)", mid, low, high)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
