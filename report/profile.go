package report

import (
	"fmt"
	"strings"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// ProfileFormats are the formats that only results with samples have.
var ProfileFormats = []string{"pprof", "folded"}

// profile is what pprof and folded stacks are made from: the copies of a trace, or of each traced event of a fork test.
type profile struct {
	parts    []profilePart
	page     pagemap.Bytes
	time     int64 // ns since 1970
	duration int64 // ns
	stacks   bool
	what     string // in words, for a comment
	comments []string
}

// profilePart is one table of samples.
type profilePart struct {
	profile *audit.Profile
	event   string // of a fork test; else ""
	command map[pagemap.PID]string
}

// profileOf gives the samples of a result, or says what would have them.
func profileOf(v any) (*profile, error) {
	switch r := v.(type) {
	case *audit.TraceReport:
		commands := map[pagemap.PID]string{}
		for i := range r.Processes {
			s := &r.Processes[i]
			// Of a process that called exec the last command is what it is known by.
			if s.Command != "" {
				commands[s.PID] = s.Command
			}
		}
		p := &profile{
			parts: []profilePart{{profile: &r.Profile, command: commands}}, page: r.Trace.PageSize, time: r.Trace.TimeUnixNano,
			duration: r.Trace.DurationNano, stacks: r.Trace.Stacks, what: "copy-on-write copies by page faults",
		}
		if n := r.Faults.Lost; n > 0 {
			p.comments = append(p.comments, fmt.Sprintf("%d faults were lost and are not in it", n))
		}
		if r.Trace.OnlyGC {
			p.comments = append(p.comments, "faults during garbage collections only")
		}
		return p, nil
	case *audit.ForktestReport:
		p := &profile{
			parts: forktestProfiles(r), page: r.Capture.PageSize, time: r.Capture.TimeUnixNano,
			stacks: r.Tracer != nil && r.Tracer.Stacks, what: "pages copied in a fork test, as far as the trace explains them",
		}
		if len(p.parts) == 0 {
			return nil, fmt.Errorf("this fork test has no samples: forktest --trace --stacks takes them")
		}
		return p, nil
	}
	return nil, fmt.Errorf("%T has no samples: a trace has them, and a fork test with --trace --stacks", v)
}

func forktestProfiles(r *audit.ForktestReport) (out []profilePart) {
	for i := range r.Runs {
		for k := range r.Runs[i].Events {
			e := &r.Runs[i].Events[k]
			if e.Attribution != nil && e.Attribution.Profile != nil {
				out = append(out, profilePart{profile: e.Attribution.Profile, event: e.Name})
			}
		}
	}
	return out
}

// HasProfile reports a result that pprof and folded stacks can be made from; the error says what would have samples.
func HasProfile(v any) error {
	_, err := profileOf(v)
	return err
}

// compared reports that each sample knows how many of its pages are identical: an unknown number is never written as 0.
func (p *profile) compared() bool {
	any := false
	for _, part := range p.parts {
		for i := range part.profile.Samples {
			if part.profile.Samples[i].Identical == nil {
				return false
			}
			any = true
		}
	}
	return any
}

// program is the name of a process without its folder and arguments.
func (part *profilePart) program(pid pagemap.PID) string {
	c := part.command[pid]
	name, _, _ := strings.Cut(c, " ")
	name = strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], ":")
	if name == "" {
		return ""
	}
	return printable(name)
}
