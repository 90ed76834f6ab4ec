package audit

import (
	"fmt"
	"strings"
)

// FindingsForTrace says who writes to shared pages. It does not change the report.
func FindingsForTrace(r *TraceReport) []Finding {
	n := r.InTables.CopiedPages
	if n == 0 {
		during := ""
		if r.Trace.OnlyGC {
			during = " during a collection"
		}
		if r.Faults.Lost > 0 || r.Lost.Missed > 0 {
			return one("no_copies", "No copy was recorded%s, but faults were lost.", during)
		}
		return one("no_copies", "No page was copied%s.", during)
	}
	var out []Finding
	if len(r.Samples) > 0 {
		out = append(out, finding("main_writer", "%s", r.mainWriter()))
	}
	if k := r.InTables.KernelMode; k > 0 && share(k, r.InTables.Copied) >= quarter {
		out = append(out, finding("kernel_mode_copies", "%s of the copies are made by system calls that write into shared pages (read, recv, …): %s of %s.",
			percent(k, r.InTables.Copied), number(k), number(r.InTables.Copied)))
	}
	return out
}

// mainWriter tells the function with the most copies, and in which phase and region most of them fell.
func (r *TraceReport) mainWriter() string {
	f := &r.ByFunction[0]
	regions, phases := map[string]int64{}, map[string]int64{}
	for i := range r.Samples {
		s := &r.Samples[i]
		if s := r.Stacks[s.Stack]; len(s.Frames) == 0 || r.Frames[s.Frames[0]].Name != f.Name || r.Frames[s.Frames[0]].Path != f.Path {
			continue
		}
		regions[strings.TrimPrefix(s.Region.Label(), "the ")] += s.CopiedPages
		phases[s.Phase.during()] += s.CopiedPages
	}
	parts := []string{f.Name}
	for _, m := range []map[string]int64{phases, regions} {
		if name := nearlyAll(m); name != "" {
			parts = append(parts, name)
		}
	}
	return fmt.Sprintf("%s of %s copied pages: %s.", number(f.CopiedPages), number(r.InTables.CopiedPages), strings.Join(parts, ", "))
}

// nearlyAll gives the name that stands for at least nine tenths of all; "" where there is none.
func nearlyAll(m map[string]int64) string {
	all := int64(0)
	for _, n := range m {
		all += n
	}
	for name, n := range m {
		if n > 0 && 10*n >= 9*all {
			return name
		}
	}
	return ""
}

// during names a phase in a list: "during a major GC".
func (p GCPhase) during() string {
	switch p {
	case GCMinor, GCMajor:
		return "during a " + p.Label()
	case GCSome:
		return "during a GC"
	case GCNone:
		return "outside GC"
	}
	return "GC phase unknown"
}

// number groups the digits of a count by three.
func number(n int64) string {
	s := fmt.Sprint(n)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if neg {
		return "-" + s
	}
	return s
}
