package oracle

import (
	"os"
	"reflect"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

var pageSize = os.Getpagesize()

// The laws of conservation, written down here once more and apart from audit's own check of them: the words sum to what is
// held, mappings and region kinds each sum to the process, the processes sum to the totals, the cuts are no larger than
// what they are cut from.

func heldBy(p audit.Pages) int64 {
	return p.Shared + p.Copied + p.New + p.Kept + p.Unshared + p.File + p.Merged + p.Zero + p.Swapped + p.Unstable + p.Unknown
}

// addPages adds every count of b to a, whatever counts there are.
func addPages(a *audit.Pages, b audit.Pages) {
	addFields(reflect.ValueOf(a).Elem(), reflect.ValueOf(b))
}

func addFields(a, b reflect.Value) {
	for i := range a.NumField() {
		switch f := a.Field(i); f.Kind() {
		case reflect.Int64:
			f.SetInt(f.Int() + b.Field(i).Int())
		case reflect.Struct:
			addFields(f, b.Field(i))
		}
	}
}

func addChange(a *audit.Change, b *audit.Change) {
	if b != nil {
		addFields(reflect.ValueOf(a).Elem(), reflect.ValueOf(*b))
	}
}

func negative(v reflect.Value) string {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int64:
			if f.Int() < 0 {
				return v.Type().Field(i).Name
			}
		case reflect.Struct:
			if n := negative(f); n != "" {
				return n
			}
		}
	}
	return ""
}

// breaches lists the laws that a ledger breaks by itself.
func breaches(what string, p audit.Pages) []string {
	var out []string
	law := func(ok bool, text string) {
		if !ok {
			out = append(out, what+": "+text)
		}
	}
	if n := negative(reflect.ValueOf(p)); n != "" {
		out = append(out, what+": "+n+" is negative")
	}
	law(heldBy(p) == p.Held, "the words do not sum to held")
	law(p.CopiedByWorker+p.CopiedByReference+p.CopiedByBoth+p.CopiedByUndetermined == p.Copied, "who copied does not sum to copied")
	law(p.Moved <= p.Shared, "more moved than shared")
	law(p.NewFromFile <= p.New, "more new from file than new")
	law(p.Swapped <= p.InSwap, "more swapped than in swap")
	law(p.InSwap <= p.Held, "more in swap than held")
	law(p.HugeTLB <= p.Held, "more hugetlb than held")
	law(p.Private <= p.Held-p.File-p.Zero, "more private than anonymous")
	law(p.SharedWithSiblings <= p.Held-p.Shared-p.File-p.Zero, "more shared with siblings than there can be")
	return out
}

// Breaches lists the laws of conservation that a report breaks.
func Breaches(r *audit.Report) []string {
	var out []string
	var totals audit.Pages
	var change audit.Change
	var rss pagemap.Bytes
	audited := 0
	for i := range r.Family {
		p := &r.Family[i]
		out = append(out, breaches(p.Comm, p.Pages)...)
		var regions, mappings audit.Pages
		var regionChange, mappingChange, own audit.Change
		count, rows := 0, 0
		for _, g := range p.Regions {
			out = append(out, breaches(p.Comm+" "+string(g.Kind), g.Pages)...)
			addPages(&regions, g.Pages)
			addChange(&regionChange, g.Change)
			count += g.Mappings
		}
		for j, m := range p.Mappings {
			out = append(out, breaches(p.Comm+" mapping", m.Pages)...)
			addPages(&mappings, m.Pages)
			addChange(&mappingChange, m.Change)
			rows++
			if m.Start >= m.End {
				out = append(out, p.Comm+": an empty mapping")
			}
			if j > 0 && m.Start < p.Mappings[j-1].Start {
				out = append(out, p.Comm+": mappings are not in order")
			}
		}
		addChange(&own, p.Change)
		if regions != p.Pages {
			out = append(out, p.Comm+": the regions do not sum to the process")
		}
		if mappings != p.Pages {
			out = append(out, p.Comm+": the mappings do not sum to the process")
		}
		if regionChange != own || mappingChange != own {
			out = append(out, p.Comm+": what changed does not sum to the process")
		}
		if n := own.Identical + own.OneWord + own.FewWords + own.ManyWords + own.Rewritten + own.NotCompared; p.Change != nil && n != p.Pages.Copied {
			out = append(out, p.Comm+": what changed is not told of each copied page")
		}
		if p.State == pagemap.StateAudited {
			audited++
		} else if p.Pages.Shared != 0 || p.Pages.Copied != 0 {
			out = append(out, p.Comm+": pages shared or copied by a process that is "+string(p.State))
		}
		addPages(&totals, p.Pages)
		addChange(&change, p.Change)
		rss += p.RSS
	}
	if totals != r.Totals.Pages {
		out = append(out, "the processes do not sum to the totals")
	}
	if rss != r.Totals.RSS {
		out = append(out, "the processes' RSS does not sum to the totals'")
	}
	if audited != r.Totals.Processes {
		out = append(out, "the totals count other processes than were audited")
	}
	if r.Totals.Change != nil && *r.Totals.Change != change {
		out = append(out, "what changed does not sum to the totals")
	}
	if t := r.Totals.Frames; t != nil && (t.DistinctAnon < 0 || t.DistinctFile < 0 || t.SavedByFork < 0) {
		out = append(out, "a total is negative")
	}
	return out
}

// DiffBreaches lists those that a diff breaks.
func DiffBreaches(r *audit.DiffReport) []string {
	var out []string
	var totals audit.Copied
	check := func(what string, c audit.Copied) {
		if n := negative(reflect.ValueOf(c)); n != "" {
			out = append(out, what+": "+n+" is negative")
		}
		if c.StillShared+c.CopiedPages+c.DroppedPages+c.KeptPages+c.ReplacedPages+c.UnknownPages != c.SharedBefore {
			out = append(out, what+": what became of the shared pages does not sum to them")
		}
		if c.CopiedByWorker+c.CopiedByReference+c.CopiedByBoth+c.CopiedByUndetermined != c.CopiedPages {
			out = append(out, what+": who copied does not sum to copied")
		}
		if h := c.Change; h.Identical+h.OneWord+h.FewWords+h.ManyWords+h.Rewritten+h.NotCompared != c.CopiedPages {
			out = append(out, what+": what changed does not sum to copied")
		}
		if c.CopiedBytes != pagemap.Bytes(c.CopiedPages)*pagemap.Bytes(pageSize) {
			out = append(out, what+": copied bytes are not copied pages")
		}
		if c.InChangedMappings > c.CopiedPages || c.NewFromFile > c.NewPages {
			out = append(out, what+": a part is larger than the whole")
		}
	}
	for i := range r.Family {
		p := &r.Family[i]
		check(p.Comm, p.Copied)
		var regions, mappings audit.Copied
		for _, g := range p.Regions {
			check(p.Comm+" "+string(g.Kind), g.Copied)
			addFields(reflect.ValueOf(&regions).Elem(), reflect.ValueOf(g.Copied))
		}
		for _, m := range p.Mappings {
			check(p.Comm+" mapping", m.Copied)
			addFields(reflect.ValueOf(&mappings).Elem(), reflect.ValueOf(m.Copied))
		}
		if regions != p.Copied {
			out = append(out, p.Comm+": the regions do not sum to the process")
		}
		if mappings != p.Copied {
			out = append(out, p.Comm+": the mappings do not sum to the process")
		}
		addFields(reflect.ValueOf(&totals).Elem(), reflect.ValueOf(p.Copied))
	}
	if totals != r.Totals {
		out = append(out, "the processes do not sum to the totals")
	}
	return out
}
