package audit

import (
	"fmt"
	"strings"

	"cowaudit/pagemap"
)

func finding(code, format string, a ...any) Finding {
	return Finding{Code: code, Text: fmt.Sprintf(format, a...)}
}

func one(code, format string, a ...any) []Finding { return []Finding{finding(code, format, a...)} }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func wasWere(n int64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func verbS(n int, verb string) string {
	if n == 1 {
		return verb + "s"
	}
	return verb
}

func workersSubject(n int) string {
	if n == 1 {
		return "The worker"
	}
	return fmt.Sprintf("The %d workers", n)
}

func workersObject(n int) string { return strings.Replace(workersSubject(n), "The", "the", 1) }

// mib formats an amount for a sentence: MiB with one decimal, and never 0.0 for something.
func mib(b pagemap.Bytes) string {
	if b > 0 && b < 1<<20/20 {
		return "less than 0.1 MiB"
	}
	return fmt.Sprintf("%.1f MiB", float64(b)/(1<<20))
}

// percent formats a share for a sentence: 100% means all, and 0% means none.
func percent(part, whole int64) string {
	p := 100 * share(part, whole)
	switch {
	case part >= whole:
		return "100%"
	case p >= 99.5:
		return fmt.Sprintf("%.1f%%", min(p, 99.9))
	case part > 0 && p < 0.5:
		return "less than 1%"
	}
	return fmt.Sprintf("%.0f%%", p)
}

// Label names a kind of region in a sentence.
func (k RegionKind) Label() string {
	switch k {
	case RegionBrkHeap:
		return "the brk heap"
	case RegionMallocArena:
		return "malloc arenas"
	case RegionMallocLarge:
		return "large malloc blocks"
	case RegionRubyHeap:
		return "the Ruby object heap"
	case RegionStack:
		return "the stack"
	case RegionThreadStack:
		return "thread stacks"
	case RegionLibraryData:
		return "library data"
	case RegionJIT:
		return "JIT code"
	case RegionFile:
		return "files"
	case RegionSharedMem:
		return "shared memory"
	case RegionOther:
		return "other mappings"
	case RegionUnknown:
		return "an unknown mapping"
	}
	return string(k)
}

// EventLabel gives an event's name in words: "first_major_gc" is "first major GC".
func EventLabel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words {
		if w == "gc" {
			words[i] = "GC"
		}
	}
	return strings.Join(words, " ")
}
