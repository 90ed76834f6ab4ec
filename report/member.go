package report

import (
	"fmt"
	"slices"
	"strings"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// roles says what each process of a family is to the others.
type roles struct {
	ref     map[pagemap.PID]pagemap.PID
	isRef   map[pagemap.PID]bool
	masters int // references without a reference
}

func newRoles() *roles {
	return &roles{ref: map[pagemap.PID]pagemap.PID{}, isRef: map[pagemap.PID]bool{}}
}

func (r *roles) add(pid, ref pagemap.PID) {
	r.ref[pid] = ref
	if ref == 0 {
		return
	}
	if !r.isRef[ref] && r.ref[ref] == 0 {
		r.masters++
	}
	r.isRef[ref] = true
}

// of gives the role in words: "master", "worker", "of 12" for a fork of 12 where 12 is not the only master, and nothing for
// a process that stands alone.
func (r *roles) of(pid pagemap.PID) string {
	ref := r.ref[pid]
	switch {
	case ref == 0 && r.isRef[pid]:
		return "master"
	case ref == 0:
		return ""
	case r.masters == 1 && r.ref[ref] == 0:
		return "worker"
	}
	return fmt.Sprintf("of %d", ref)
}

func rolesOf(r *audit.Report) *roles {
	out := newRoles()
	for i := range r.Family {
		if r.Family[i].State == pagemap.StateAudited {
			out.add(r.Family[i].PID, r.Family[i].ReferencePID)
		}
	}
	return out
}

// pick chooses n of count rows to show, the first of them by weight, and gives their indexes in the given order; must marks
// rows that are always shown.
func pick(count, n int, weight func(i int) int64, must func(i int) bool) []int {
	at := make([]int, count)
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int {
		if must(a) != must(b) {
			if must(a) {
				return -1
			}
			return 1
		}
		switch {
		case weight(a) > weight(b):
			return -1
		case weight(a) < weight(b):
			return 1
		}
		return 0
	})
	at = at[:min(n, count)]
	slices.Sort(at)
	return at
}

// others names the row that sums what is not shown.
func others(n int) string { return fmt.Sprintf("[%d others]", n) }

// othersIn2 puts the same into a column that is aligned to the right and the one after it.
func othersIn2(n int) (left, right string) { return fmt.Sprintf("[%d", n), "others]" }

// regionName is a kind of region in a table.
func regionName(k audit.RegionKind) string {
	if k == audit.RegionOther {
		return "other"
	}
	return printable(strings.TrimPrefix(k.Label(), "the "))
}

// StateReason says in words why a process was not audited.
func StateReason(s pagemap.State, sharesMM pagemap.PID) string {
	switch s {
	case pagemap.StateAudited:
		return "audited"
	case pagemap.StateGone:
		return "gone: it exited before or during the capture"
	case pagemap.StateZombie:
		return "zombie: it has exited and holds no memory"
	case pagemap.StateKernelThread:
		return "kernel thread: it has no address space"
	case pagemap.StateExeced:
		return "runs a program of its own since the fork (exec): nothing to compare"
	case pagemap.StateSharedMM:
		return fmt.Sprintf("runs in the address space of PID %d: counted there", sharesMM)
	case pagemap.StateChanged:
		return "exec'd, or was replaced by another process, during the capture"
	case pagemap.StateUnreadable:
		return "may not be read: permission denied"
	case pagemap.StateForkedSince:
		return "was forked between the captures: nothing to compare"
	}
	return "unknown state " + printable(string(s))
}

// plural writes "1 worker", "26 workers".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(int64(n)) + " " + many
}
