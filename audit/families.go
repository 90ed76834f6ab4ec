package audit

import "cowaudit/pagemap"

// FamiliesReport lists the forking families of a machine, the largest RSS first.
type FamiliesReport struct {
	SchemaVersion int               `json:"schema_version"`
	Kind          string            `json:"kind"`
	Version       string            `json:"cowaudit_version"`
	Families      []FamilyRow       `json:"families"`
	Warnings      []pagemap.Warning `json:"warnings"`
}

// FamilyRow is one forking family.
type FamilyRow struct {
	PID     pagemap.PID   `json:"pid"` // of the process that the others were forked from
	Comm    string        `json:"comm"`
	Command string        `json:"command"`
	Workers int           `json:"workers"`   // members besides that process
	RSS     pagemap.Bytes `json:"rss_bytes"` // sum over the members: counts shared pages again and again
}

// NewFamiliesReport puts what [pagemap.FS.Families] found into a result.
func NewFamiliesReport(found []pagemap.FamilySummary, version string) *FamiliesReport {
	r := &FamiliesReport{
		SchemaVersion: SchemaVersion, Kind: KindFamilies, Version: version,
		Families: make([]FamilyRow, 0, len(found)), Warnings: []pagemap.Warning{},
	}
	for i := range found {
		f := &found[i]
		r.Families = append(r.Families, FamilyRow{PID: f.Root.PID, Comm: f.Root.Comm, Command: f.Command, Workers: f.Workers, RSS: f.RSS})
	}
	return r
}
