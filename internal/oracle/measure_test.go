package oracle

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// proc is the /proc that everything here reads.
const proc = pagemap.FS("")

// snapshot captures exactly the given processes, judged against their parents among them.
func snapshot(t *testing.T, o pagemap.Options, pids ...pagemap.PID) *pagemap.Snapshot {
	t.Helper()
	return record(t, open(t, o, pagemap.FamilyOptions{Alone: true}, pids...))
}

func open(t *testing.T, o pagemap.Options, f pagemap.FamilyOptions, pids ...pagemap.PID) *pagemap.Capture {
	t.Helper()
	procs, warnings, err := proc.Family(pids, f)
	if err != nil {
		t.Fatalf("family of %v: %v", pids, err)
	}
	c, err := pagemap.NewCapture(context.Background(), proc, procs, o)
	if err != nil {
		t.Fatalf("capture of %v: %v", pids, err)
	}
	fam := c.Family()
	fam.Warnings = append(warnings, fam.Warnings...)
	t.Cleanup(func() { c.Close() })
	return c
}

func record(t *testing.T, c *pagemap.Capture) *pagemap.Snapshot {
	t.Helper()
	s, err := pagemap.Record(c)
	if err != nil {
		t.Fatalf("record: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return s
}

// share judges a source and checks the laws of conservation.
func share(t *testing.T, src pagemap.Source, rng *audit.Range) *audit.Report {
	t.Helper()
	r, err := audit.Share(src, audit.Options{Range: rng})
	if err != nil {
		t.Fatalf("share: %v", err)
	}
	conserved(t, r)
	return r
}

func diff(t *testing.T, before, after *pagemap.Snapshot, rng *audit.Range) *audit.DiffReport {
	t.Helper()
	r, err := audit.Diff(before, after, audit.Options{Range: rng})
	if err != nil {
		t.Fatalf("diff: %v", err)
	}
	conservedDiff(t, r)
	return r
}

func process(t *testing.T, r *audit.Report, pid pagemap.PID) *audit.Process {
	t.Helper()
	for i := range r.Family {
		if r.Family[i].PID == pid {
			return &r.Family[i]
		}
	}
	t.Fatalf("process %d is not in the report", pid)
	return nil
}

func processDiff(t *testing.T, r *audit.DiffReport, pid pagemap.PID) *audit.ProcessDiff {
	t.Helper()
	for i := range r.Family {
		if r.Family[i].PID == pid {
			return &r.Family[i]
		}
	}
	t.Fatalf("process %d is not in the diff", pid)
	return nil
}

// within sums the mappings of a process that lie in a range; one that crosses its border is an error.
func within(t *testing.T, p *audit.Process, r audit.Range) audit.Pages {
	t.Helper()
	var sum audit.Pages
	for _, m := range p.Mappings {
		if m.End <= r.Start || m.Start >= r.End {
			continue
		}
		if m.Start < r.Start || m.End > r.End {
			t.Fatalf("mapping %x-%x crosses the range %x-%x", m.Start, m.End, r.Start, r.End)
		}
		addPages(&sum, m.Pages)
	}
	return sum
}

// samePages compares whole ledgers.
func samePages(t *testing.T, what string, got, want audit.Pages) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func sameCopied(t *testing.T, what string, got, want audit.Copied) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// sums fills in what follows from the words: held, and the bytes of copied pages.
func sums(p audit.Pages) audit.Pages {
	p.Held = heldBy(p)
	return p
}

func copied(c audit.Copied) audit.Copied {
	c.SharedBefore = c.StillShared + c.CopiedPages + c.DroppedPages + c.KeptPages + c.ReplacedPages + c.UnknownPages
	c.CopiedBytes = pagemap.Bytes(c.CopiedPages) * pagemap.Bytes(pageSize)
	if (c.Change == audit.Change{}) {
		c.Change.NotCompared = c.CopiedPages
	}
	return c
}
