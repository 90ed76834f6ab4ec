package audit

import (
	"fmt"

	"cowaudit/pagemap"
)

// CheckForktest holds a fork test against the conservation laws: what became of the shared pages sums to what there was, in
// each event of each run, the regions sum to the event, and what the trace explains and what it does not to what was copied.
func CheckForktest(r *ForktestReport) error {
	for i := range r.Runs {
		for k := range r.Runs[i].Events {
			e := &r.Runs[i].Events[k]
			of := fmt.Sprintf("run %d, event %q of worker %d", r.Runs[i].Seq, e.Name, e.Worker)
			if err := e.Copied.check(of); err != nil {
				return err
			}
			if e.CopiedBytes != pagemap.Bytes(e.CopiedPages)*r.Capture.PageSize {
				return breach("%s: %d bytes copied are not %d pages", of, e.CopiedBytes, e.CopiedPages)
			}
			var regions Copied
			for g := range e.Regions {
				regions.Add(&e.Regions[g].Copied)
			}
			if regions != e.Copied {
				return breach("%s: regions sum to %+v, the event has %+v", of, regions, e.Copied)
			}
			if a := e.Attribution; a != nil {
				if err := checkAttribution(a, e.CopiedPages); err != nil {
					return fmt.Errorf("%s: %w", of, err)
				}
			}
		}
	}
	return nil
}
