package oracle

import (
	"testing"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

func conserved(t *testing.T, r *audit.Report) {
	t.Helper()
	for _, b := range Breaches(r) {
		t.Errorf("conservation: %s", b)
	}
}

func conservedDiff(t *testing.T, r *audit.DiffReport) {
	t.Helper()
	for _, b := range DiffBreaches(r) {
		t.Errorf("conservation: %s", b)
	}
}

// A check that cannot fail is no check: each law is broken once here.
func TestBreachesAreFound(t *testing.T) {
	good := func() *audit.Report {
		p := audit.Pages{Shared: 23, Copied: 31, CopiedByWorker: 31, Held: 54, Private: 31}
		return &audit.Report{
			Family: []audit.Process{{
				State: pagemap.StateAudited, Pages: p, RSS: 54,
				Regions:  []audit.Region{{Mappings: 1, Pages: p}},
				Mappings: []audit.Mapping{{Start: 1, End: 2, Pages: p}},
			}},
			Totals: audit.Totals{Processes: 1, RSS: 54, Pages: p},
		}
	}
	if b := Breaches(good()); len(b) != 0 {
		t.Fatalf("a report without a breach: %q", b)
	}
	for name, breach := range map[string]func(r *audit.Report){
		"held":       func(r *audit.Report) { r.Family[0].Pages.Held++ },
		"who":        func(r *audit.Report) { r.Family[0].Pages.CopiedByWorker-- },
		"regions":    func(r *audit.Report) { r.Family[0].Regions[0].Pages.Guard++ },
		"mappings":   func(r *audit.Report) { r.Family[0].Mappings[0].Pages.Dropped++ },
		"totals":     func(r *audit.Report) { r.Totals.Pages.Zero++ },
		"rss":        func(r *audit.Report) { r.Totals.RSS++ },
		"processes":  func(r *audit.Report) { r.Totals.Processes++ },
		"state":      func(r *audit.Report) { r.Family[0].State = pagemap.StateExeced },
		"change":     func(r *audit.Report) { r.Family[0].Change = &audit.Change{OneWord: 30} },
		"negative":   func(r *audit.Report) { r.Totals.Frames = &audit.Frames{SavedByFork: -1} },
		"empty":      func(r *audit.Report) { r.Family[0].Mappings[0].End = 1 },
		"moved":      func(r *audit.Report) { r.Family[0].Pages.Moved = 24 },
		"private":    func(r *audit.Report) { r.Family[0].Pages.Private = 55 },
		"minus word": func(r *audit.Report) { r.Family[0].Pages.Shared, r.Family[0].Pages.Zero = 24, -1 },
	} {
		r := good()
		breach(r)
		if len(Breaches(r)) == 0 {
			t.Errorf("%s: the breach is not found", name)
		}
	}
	c := audit.Copied{SharedBefore: 31, StillShared: 8, CopiedPages: 23, CopiedBytes: pagemap.Bytes(23 * pageSize), CopiedByWorker: 23,
		Change: audit.Change{Identical: 23}}
	d := audit.DiffReport{Family: []audit.ProcessDiff{{Copied: c, Regions: []audit.RegionDiff{{Copied: c}}, Mappings: []audit.MappingDiff{{Copied: c}}}}, Totals: c}
	if b := DiffBreaches(&d); len(b) != 0 {
		t.Fatalf("a diff without a breach: %q", b)
	}
	for name, breach := range map[string]func(d *audit.DiffReport){
		"shared":   func(d *audit.DiffReport) { d.Family[0].StillShared++ },
		"who":      func(d *audit.DiffReport) { d.Family[0].CopiedByBoth++ },
		"change":   func(d *audit.DiffReport) { d.Family[0].Change.OneWord++ },
		"bytes":    func(d *audit.DiffReport) { d.Family[0].CopiedBytes++ },
		"mappings": func(d *audit.DiffReport) { d.Family[0].Mappings[0].NewPages++ },
		"totals":   func(d *audit.DiffReport) { d.Totals.FreedPages++ },
	} {
		x := d
		x.Family = []audit.ProcessDiff{d.Family[0]}
		x.Family[0].Mappings = []audit.MappingDiff{d.Family[0].Mappings[0]}
		breach(&x)
		if len(DiffBreaches(&x)) == 0 {
			t.Errorf("%s: the breach is not found", name)
		}
	}
}
