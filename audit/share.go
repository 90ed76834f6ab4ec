package audit

import (
	"fmt"
	"sync"

	"cowaudit/pagemap"
)

// Options of Share and Diff.
type Options struct {
	Version string // of cowaudit, for the report
	Range   *Range // nil: the whole address space
}

// A Source may know more than its windows. What it does not offer is left out, and said so in a warning where a result
// depends on it.
type (
	// forkRuler learns what fork does with the mappings of some processes and puts it into Family.
	forkRuler interface {
		LearnForkRules(upTo map[pagemap.PID]pagemap.Addr) error
	}
	// pairReader reads n pages of a process and of its reference at two different addresses, as consistently as windows.
	pairReader interface {
		ReadPairs(pid pagemap.PID, at pagemap.Addr, ref pagemap.PID, refAt pagemap.Addr, n int) (own, others pagemap.Row, err error)
	}
)

// Share judges every page of every process of a family against its reference.
func Share(src pagemap.Source, o Options) (*Report, error) {
	l, err := count(src, o.Range)
	if err != nil {
		return nil, err
	}
	r := l.report(o)
	if err := Check(r); err != nil {
		return nil, err
	}
	r.Findings = FindingsForAudit(r)
	return r, nil
}

// count walks a source and counts its pages.
func count(src pagemap.Source, rng *Range) (*ledger, error) {
	fam := newFamily(src.Family(), rng)
	var mu sync.Mutex
	var parts []*ledger
	err := src.Walk(func() pagemap.Visitor {
		l := newLedger(fam)
		mu.Lock()
		parts = append(parts, l)
		mu.Unlock()
		return l
	})
	if err != nil {
		return nil, fmt.Errorf("read the pages: %w", err)
	}
	l := newLedger(fam)
	for _, p := range parts {
		l.merge(p)
	}
	for i := range fam.fam.Processes {
		// What ended or changed while it was read has been counted in part only.
		if fam.audited[i] && fam.fam.Processes[i].State != pagemap.StateAudited {
			fam.audited[i] = false
			l.partial = true
		}
	}
	if err := l.applyForkRules(src); err != nil {
		return nil, err
	}
	if err := l.findMoved(src); err != nil {
		return nil, err
	}
	return l, nil
}

// applyForkRules finds mappings of which a process shares nothing with its reference, asks whether fork left them out
// (MADV_DONTFORK) or emptied them (MADV_WIPEONFORK), and counts their pages accordingly: nothing in them was ever
// inherited.
func (l *ledger) applyForkRules(src pagemap.Source) error {
	refs := map[pagemap.PID]pagemap.Addr{}
	for i := range l.fam.Processes {
		if r := l.ref[i]; l.audited[i] && r >= 0 {
			if last, ok := l.suspicious(i); ok {
				pid := l.fam.Processes[r].PID
				refs[pid] = max(refs[pid], last)
			}
		}
	}
	if len(refs) == 0 {
		return nil
	}
	if f, ok := src.(forkRuler); ok {
		if err := f.LearnForkRules(refs); err != nil {
			return fmt.Errorf("read what fork does with mappings: %w", err)
		}
	}
	for i := range l.fam.Processes {
		if l.audited[i] && l.ref[i] >= 0 {
			l.applyForkRulesTo(i)
		}
	}
	return nil
}

// suspicious gives the last address of process i that fork may have left out or emptied.
func (l *ledger) suspicious(i int) (last pagemap.Addr, found bool) {
	for k, c := range l.gone[i] {
		if c != nil && c[cDropped]+c[cReferenceOnly] > 0 {
			last, found = max(last, l.fam.Processes[l.ref[i]].Mappings[k].End-1), true
		}
	}
	for k, c := range l.own[i] {
		// Only anonymous memory can be emptied by fork. Its pages stay anon-exclusive in the reference, since fork never
		// shared them: where the flags say that a worker copied, or that the reference's page was once shared, it was not.
		if m := &l.fam.Processes[i].Mappings[k]; c != nil && c[cShared] == 0 &&
			c[cCopied]+c[cDropped]+c[cReferenceOnly] > c[cByWorker] && m.Anonymous() {
			last, found = max(last, m.End-1), true
		}
	}
	return last, found
}

func (l *ledger) applyForkRulesTo(i int) {
	theirs := l.fam.Processes[l.ref[i]].Mappings
	for k, c := range l.gone[i] {
		if c != nil && notInherited(theirs[k].Fork) {
			c.notForked()
		}
	}
	for k, c := range l.own[i] {
		if c == nil || c[cShared] > 0 {
			continue
		}
		m := &l.fam.Processes[i].Mappings[k]
		at := m.Start
		for j := mappingAt(theirs, m.Start); j < len(theirs) && at < m.End && theirs[j].Start <= at && notInherited(theirs[j].Fork); j++ {
			at = theirs[j].End
		}
		if at >= m.End {
			c.notForked()
		}
	}
}

func notInherited(f pagemap.ForkRule) bool { return f == pagemap.ForkSkipped || f == pagemap.ForkWiped }

// notForked moves what was judged against a page that fork had left out.
func (c *cell) notForked() {
	c[cNew] += c[cCopied] + c[cKept]
	c[cNotForked] += c[cDropped] + c[cReferenceOnly] + c[cCopied]
	for _, k := range []counter{cCopied, cKept, cDropped, cReferenceOnly, cByWorker, cByReference, cByBoth, cByUndetermined,
		cIdentical, cOneWord, cFewWords, cManyWords, cRewritten, cNotCompared} {
		c[k] = 0
	}
}
