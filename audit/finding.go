package audit

import (
	"cmp"
	"fmt"
	"slices"

	"cowaudit/pagemap"
)

// A finding is a sentence about what stands out in a result, made from its counts alone. The codes are stable:
//
//	frames_hidden         what is shared cannot be told; the private pages are counted
//	nothing_audited       no process of the family could be audited
//	no_workers            no process was judged against another
//	identical_writes      at least half of the compared copies are identical: something rewrites what is already there
//	reference_copies      at least half of the copies come from writes of the master
//	little_shared         less than half of what the workers inherited is still shared
//	mostly_new            at least half of the workers' anonymous memory was allocated after the fork
//	mostly_copied_region  of one kind of region at least three quarters of what was inherited is copied, of all less than half
//	one_worker            one of three workers or more copied four times as much as the median worker, or more
//	moved_pages           shared pages lie at another address than in the master
//	much_copied           at least a quarter of what was inherited, or shared before an event, is copied
//	nothing_shared        no page was shared before the event
//	unknown_pages         of a twentieth or more of what was shared before, nothing can be told after
//	second_gc_quiet       what the first collection copied, the second did not copy again
//	second_gc_copies      the second collection copied at least half as much as the first
//	noise_high            the null event copied so much that smaller differences mean nothing
//	copied                what an event copied, plainly, where only what follows stands out
//	no_event              nothing but the null event was measured
//	writer                the function that made most of the copies of an event, when, where, and what that changed
//	writers_spread        no function made a quarter of them
//	unexplained           a trace has no copy of a hundredth or more of the copied pages
//	main_writer           of a trace: the function that made most of the copies
//	kernel_mode_copies    of a trace: system calls made at least a quarter of them
//	no_copies             of a trace: there was none
//	nothing_stands_out    none of the above
//
// None but noise_high and unknown_pages is drawn from less memory than minFound, or from fewer pages than minPages in the worker that has the
// most of them, and none about contents when less than half of the copies were compared.
const (
	minFound     = 1 << 20   // bytes copied (or moved, …) that a finding needs
	minPages     = 64        // pages that it needs, whatever their size
	minInherited = 8 << 20   // bytes inherited (or held) that a finding about a share of it needs
	noiseFloor   = 200 << 10 // bytes that a null event may copy: design.md, noise floor below 0.2 MiB
	half         = 0.50      // identical_writes, reference_copies, little_shared, mostly_new, mostly_copied_region
	most         = 0.75      // mostly_copied_region
	quarter      = 0.25      // much_copied
	times        = 4         // one_worker
	twentieth    = 0.05      // unknown_pages, noise_high
	quiet        = 0.10      // second_gc_quiet
)

// facts are the counts that the sentences are made from, in pages.
type facts struct {
	page      pagemap.Bytes
	inherited int64 // once shared with the reference
	shared    int64 // still
	copied    int64
	change    Change // of the copied pages that lie in pages of base size
	byRef     int64  // of copied
	byWorker  int64  // of copied
	byBoth    int64  // of copied
	// runs is the number of like measurements that the counts are summed over: amounts are then means. 0 counts as 1.
	runs int64
	// most holds, where the counts are summed over several workers, the largest counts of one worker.
	most struct{ identical, byRef, moved int64 }
}

func (f *facts) enough(pages int64) bool {
	return pages/max(f.runs, 1) >= minPages && f.bytes(pages) >= minFound
}

func (f *facts) bytes(pages int64) pagemap.Bytes {
	return pagemap.Bytes(pages) * f.page / pagemap.Bytes(max(f.runs, 1))
}

// identical gives how many of the compared copies are identical, and whether that stands out.
func (f *facts) identical() (same, compared int64, ok bool) {
	compared = f.change.sum() - f.change.NotCompared
	same = f.change.Identical
	ok = f.enough(same) && f.most.identical >= minPages && share(same, compared) >= half && share(compared, f.change.sum()) >= half
	return same, compared, ok
}

// byReference gives how many copies the reference's writes made, and whether that stands out.
func (f *facts) byReference() (n, known int64, ok bool) {
	known = f.byRef + f.byWorker + f.byBoth
	return f.byRef, known, f.enough(f.byRef) && f.most.byRef >= minPages && share(f.byRef, known) >= half && share(known, f.copied) >= half
}

// writes says what stands out in the writes that made the copies: that they changed nothing, that they were not the worker's.
func (f *facts) writes(what, across string) (out []Finding) {
	if same, compared, ok := f.identical(); ok {
		out = append(out, finding("identical_writes", "%s of %s did not change (%s of %s%s): something rewrites what is already there.",
			percent(same, compared), what, mib(f.bytes(same)), mib(f.bytes(compared)), across))
	}
	if n, known, ok := f.byReference(); ok {
		out = append(out, finding("reference_copies", "%s of %s %s written by the master, not by the worker (%s of %s%s).",
			percent(n, known), what, wasWere(n), mib(f.bytes(n)), mib(f.bytes(known)), across))
	}
	return out
}

// share gives part of whole as a number in [0,1]; 0 of nothing.
func share(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// FindingsForAudit says what stands out in a family at one moment. It does not change the report.
func FindingsForAudit(r *Report) []Finding {
	f := facts{page: r.Capture.PageSize}
	var held Pages // of the processes that have a reference
	workers, audited, private := 0, 0, int64(0)
	var copies []workerCopies
	for i := range r.Family {
		p := &r.Family[i]
		if p.State != pagemap.StateAudited {
			continue
		}
		audited++
		private += p.Pages.Private
		if p.ReferencePID == 0 {
			continue
		}
		workers++
		held.add(&p.Pages)
		copies = append(copies, workerCopies{p.PID, p.Pages.Copied, p.Pages.Shared + p.Pages.Copied + p.Pages.Kept})
		f.most.byRef, f.most.moved = max(f.most.byRef, p.Pages.CopiedByReference), max(f.most.moved, p.Pages.Moved)
		f.addChange(p)
	}
	switch {
	case audited == 0:
		return one("nothing_audited", "None of the %s could be audited.", plural(len(r.Family), "process", "processes"))
	case !r.Capture.FramesVisible:
		return one("frames_hidden", "Frame numbers are hidden: what is shared and what was copied cannot be told. %s of %s %s mapped nowhere else.",
			mib(f.bytes(private)), plural(audited, "process", "processes"), isAre(audited))
	case workers == 0:
		return one("no_workers", "No process here was forked from another one of the family: there is nothing to compare.")
	}
	f.inherited, f.shared, f.copied = held.Shared+held.Copied+held.Kept, held.Shared, held.Copied
	f.byRef, f.byWorker, f.byBoth = held.CopiedByReference, held.CopiedByWorker, held.CopiedByBoth

	var out []Finding
	across := ""
	if workers > 1 {
		across = fmt.Sprintf(", over %d workers", workers)
	}
	out = append(out, f.writes("the copied pages", across)...)
	if f.bytes(f.inherited) >= minInherited && share(f.shared, f.inherited) < half {
		out = append(out, finding("little_shared", "%s still %s %s of the anonymous memory inherited (%s of %s).",
			workersSubject(workers), verbS(workers, "share"), percent(f.shared, f.inherited), mib(f.bytes(f.shared)), mib(f.bytes(f.inherited))))
	} else if f.bytes(f.inherited) >= minInherited && f.enough(f.copied) && share(f.copied, f.inherited) >= quarter {
		out = append(out, finding("much_copied", "%s of the anonymous memory that %s inherited is copied (%s of %s).",
			percent(f.copied, f.inherited), workersObject(workers), mib(f.bytes(f.copied)), mib(f.bytes(f.inherited))))
	}
	out = append(out, oneWorker(&f, copies, "inherited")...)
	out = append(out, copiedRegions(&f, auditRegions(r), "")...)
	anon := held.Held - held.File - held.Zero
	if f.bytes(anon) >= minInherited && share(held.New, anon) >= half {
		out = append(out, finding("mostly_new", "%s of the anonymous memory of %s was allocated after the fork (%s of %s).",
			percent(held.New, anon), workersObject(workers), mib(f.bytes(held.New)), mib(f.bytes(anon))))
	}
	if f.enough(held.Moved) && f.most.moved >= minPages {
		out = append(out, finding("moved_pages", "%s of the shared pages lie at another address than in the master (moved by mremap).", mib(f.bytes(held.Moved))))
	}
	if len(out) == 0 {
		out = one("nothing_stands_out", "%s still %s %s of the %s inherited; %s copied: nothing stands out.",
			workersSubject(workers), verbS(workers, "share"), mib(f.bytes(f.shared)), mib(f.bytes(f.inherited)), mib(f.bytes(f.copied)))
	}
	return out
}

// addChange adds what the writes changed in one process. Mappings of huge pages are left out: a copy of a whole huge page
// copies hundreds of base pages that nobody wrote.
func (f *facts) addChange(p *Process) {
	var c Change
	for i := range p.Mappings {
		if m := &p.Mappings[i]; m.Change != nil && m.Pages.HugeTLB == 0 {
			c.Add(m.Change)
		}
	}
	f.change.Add(&c)
	f.most.identical = max(f.most.identical, c.Identical)
}

// workerCopies is what one worker copied, and of how much.
type workerCopies struct {
	pid            pagemap.PID
	copied, shared int64
}

// oneWorker names the worker that copied most where it is far from the others.
func oneWorker(f *facts, w []workerCopies, was string) []Finding {
	if len(w) < 3 {
		return nil
	}
	w = slices.Clone(w)
	slices.SortFunc(w, func(a, b workerCopies) int { return cmp.Or(cmp.Compare(a.copied, b.copied), cmp.Compare(b.pid, a.pid)) })
	top, median := w[len(w)-1], w[(len(w)-1)/2].copied
	if !f.enough(top.copied) || top.copied < times*median {
		return nil
	}
	out := one("one_worker", "Worker %d copied %s of the %s %s; the median worker copied %s.", top.pid,
		mib(f.bytes(top.copied)), mib(f.bytes(top.shared)), was, mib(f.bytes(median)))
	out[0].PID = top.pid
	return out
}

// regionFacts are the pages of one kind of region: what was inherited, and how much of that is copied.
type regionFacts struct {
	kind              RegionKind
	inherited, copied int64
}

// auditRegions sums the regions of the processes that have a reference, in order of first appearance.
func auditRegions(r *Report) (out []regionFacts) {
	at := map[RegionKind]int{}
	for i := range r.Family {
		p := &r.Family[i]
		if p.State != pagemap.StateAudited || p.ReferencePID == 0 {
			continue
		}
		for k := range p.Regions {
			g := &p.Regions[k]
			n, ok := at[g.Kind]
			if !ok {
				n = len(out)
				at[g.Kind] = n
				out = append(out, regionFacts{kind: g.Kind})
			}
			out[n].inherited += g.Pages.Shared + g.Pages.Copied + g.Pages.Kept
			out[n].copied += g.Pages.Copied
		}
	}
	return out
}

// copiedRegions names the kind of region that lost most of its sharing, the one with the most copies, where half of all
// memory did not.
func copiedRegions(f *facts, regions []regionFacts, by string) []Finding {
	if share(f.copied, f.inherited) >= half {
		return nil
	}
	var worst *regionFacts
	for i := range regions {
		g := &regions[i]
		if f.enough(g.copied) && share(g.copied, g.inherited) >= most && (worst == nil || g.copied > worst.copied) {
			worst = g
		}
	}
	if worst == nil {
		return nil
	}
	return one("mostly_copied_region", "%s of what was shared in %s is copied%s (%s of %s); of all shared memory it is %s.",
		percent(worst.copied, worst.inherited), worst.kind.Label(), by, mib(f.bytes(worst.copied)), mib(f.bytes(worst.inherited)), percent(f.copied, f.inherited))
}
