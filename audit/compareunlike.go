package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// UnlikeError says that two sides cannot be compared: what they did, or what it was counted in, was not the same.
type UnlikeError struct{ Unlike []Unlike }

func (e *UnlikeError) Error() string {
	var parts []string
	for _, u := range e.Unlike {
		if u.Refused {
			parts = append(parts, fmt.Sprintf("%s: A has %s, B has %s", u.What, cmp.Or(u.A, "none"), cmp.Or(u.B, "none")))
		}
	}
	return "the two cannot be compared: " + strings.Join(parts, "; ")
}

// unlike lists in what the sides differ, besides what a comparison is for. What makes the numbers mean different things is
// refused, what may change them is named.
func unlike(a, b *Side) []Unlike {
	var out []Unlike
	add := func(what, x, y string, refused bool) {
		if x != y {
			out = append(out, Unlike{What: what, A: x, B: y, Refused: refused})
		}
	}
	number := func(n int) string { return strconv.Itoa(n) }
	s, t := &a.Scenario, &b.Scenario
	add("scenario", s.Name, t.Name, true)
	add("application", application(s), application(t), true)
	add("methods", number(s.Methods), number(t.Methods), true)
	add("call sites", number(s.CallSites), number(t.CallSites), true)
	add("workers", number(s.Workers), number(t.Workers), true)
	add("page size in bytes", fmt.Sprint(int64(a.Capture.PageSize)), fmt.Sprint(int64(b.Capture.PageSize)), true)
	add("runtime", a.Subject.Runtime, b.Subject.Runtime, true)
	add("settling", s.SettleLimit, t.SettleLimit, true)
	add("warm-up before the fork", strconv.FormatBool(s.Warmup), strconv.FormatBool(t.Warmup), true)
	add("kernel", a.Capture.Kernel, b.Capture.Kernel, false)
	add("host", a.Capture.Host, b.Capture.Host, false)
	if a.Environment != nil && b.Environment != nil {
		add("machine", a.Environment.Machine, b.Environment.Machine, true)
		add("transparent huge pages", a.Environment.HugePages, b.Environment.HugePages, false)
		if a.Environment.ZeroPage != "" && b.Environment.ZeroPage != "" {
			add("zero page", a.Environment.ZeroPage, b.Environment.ZeroPage, false)
		}
		add("address space randomization", a.Environment.Random, b.Environment.Random, false)
	}
	add("allocator", a.Subject.Allocator, b.Subject.Allocator, false)
	add("collections before the fork", number(s.SettleRuns), number(t.SettleRuns), false)
	return out
}

// application identifies what the user had loaded.
func application(s *Scenario) string {
	if s.AppSHA256 == "" {
		return s.App
	}
	return strings.TrimSpace(s.App + " (SHA-256 " + s.AppSHA256[:min(12, len(s.AppSHA256))] + "…)")
}

// sameBuild reports two subjects that are the same build with the same environment. Without a build ID nothing is claimed.
func sameBuild(a, b *Subject) bool {
	e, f := slices.Sorted(slices.Values(a.Env)), slices.Sorted(slices.Values(b.Env))
	return a.BuildID != "" && a.BuildID == b.BuildID && a.Version == b.Version && a.Allocator == b.Allocator && slices.Equal(e, f) &&
		options(a.Command) == options(b.Command)
}

// options gives the words of a command that look like options: "--yjit" makes another subject of the same build.
func options(command string) string {
	var out []string
	for _, w := range strings.Fields(command) {
		if strings.HasPrefix(w, "-") {
			out = append(out, w)
		}
	}
	return strings.Join(out, " ")
}
