package report

import (
	"fmt"
	"time"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// capture writes the circumstances.
func (p *text) capture(c *audit.Capture, version string) {
	p.blank()
	p.captureOf("Captured", c, version)
}

func (p *text) captureOf(first string, c *audit.Capture, version string) {
	basis := map[audit.Basis]string{audit.BasisSingle: "one capture", audit.BasisBaseline: "captures from before and after", audit.BasisTrace: "a trace"}[c.Basis]
	if basis == "" {
		basis = printable(string(c.Basis))
	}
	if version != "" {
		version = " cowaudit " + printable(version) + "."
	}
	p.wrap(styleDim, "", "", fmt.Sprintf("%s %s in %s on %s, kernel %s, page size %s; %s page table entries read, %s unstable. Known from %s.%s", first,
		time.Unix(0, c.TimeUnixNano).UTC().Format("2006-01-02 15:04:05 UTC"), Duration(time.Duration(c.DurationNano)), printable(c.Host),
		printable(c.Kernel), Size(c.PageSize), Count(c.EntriesRead), plural(int(c.UnstablePages), "page", "pages"), basis, version))
}

// notAudited lists the members without a ledger and says why in words.
func (p *text) notAudited(r *audit.Report) {
	var list []*audit.Process
	for i := range r.Family {
		if r.Family[i].State != pagemap.StateAudited {
			list = append(list, &r.Family[i])
		}
	}
	if len(list) == 0 {
		return
	}
	p.section("NOT AUDITED")
	n := p.top(len(list))
	for _, m := range list[:n] {
		name := printable(m.Comm)
		if name != "" {
			name = " (" + name + ")"
		}
		p.wrap(styleNone, fmt.Sprintf("%d%s ", m.PID, name), "  ", StateReason(m.State, m.SharesMM))
	}
	if n < len(list) {
		p.plain(styleNone, others(len(list)-n))
	}
}

// rollup holds the ledgers against the kernel's own totals: one line where all agree, one for each that does not.
func (p *text) rollup(r *audit.Report) {
	checked := 0
	var differ []*audit.Process
	for i := range r.Family {
		if c := r.Family[i].Rollup; c != nil {
			checked++
			if !c.Agrees {
				differ = append(differ, &r.Family[i])
			}
		}
	}
	if checked == 0 {
		if r.Range == nil && r.Totals.Processes > 0 {
			p.blank()
			p.wrap(styleDim, "", "", "Not held against the kernel's smaps_rollup, which takes longer to read than all of this: --check always.")
		}
		return
	}
	p.blank()
	if len(differ) == 0 {
		p.wrap(styleDim, "", "", fmt.Sprintf("RSS and swap equal the kernel's smaps_rollup to the page in %s.", plural(checked, "process", "processes")))
		return
	}
	n := p.top(len(differ))
	for _, m := range differ[:n] {
		c := m.Rollup
		p.wrap(styleAlert, "! ", "  ", fmt.Sprintf("PID %d: smaps_rollup says %s pages of RSS and %s in swap, the ledger %s and %s.", m.PID,
			Count(c.RSSPages), Count(c.SwapPages), Count(c.LedgerRSSPages), Count(c.LedgerSwap)))
	}
	if n < len(differ) {
		p.plain(styleAlert, others(len(differ)-n))
	}
	p.wrap(styleNone, "  → ", "    ", "The two are read one after the other: a process that runs changes between them. Run again when it is quiet; docs/method.md names what the kernel counts differently.")
}
