package audit

import "cowaudit/pagemap"

// Ability says whether something can be done on a host.
type Ability string

// Abilities. What was refused to the one who asked may still be there: that is AbilityUnknown, unless the refusal itself is
// the answer.
const (
	AbilityUnknown Ability = "unknown"
	AbilityYes     Ability = "yes"
	AbilityNo      Ability = "no"
)

// Names of rows that conclusions are drawn from.
const (
	DoctorFrames = "frame_numbers"
)

// DoctorReport says what a host can measure, as the one who asked.
type DoctorReport struct {
	SchemaVersion int           `json:"schema_version"`
	Kind          string        `json:"kind"`
	Version       string        `json:"cowaudit_version"`
	Host          string        `json:"host"`
	Kernel        string        `json:"kernel"`
	Machine       string        `json:"machine"`
	PageSize      pagemap.Bytes `json:"page_size_bytes"`
	TimeUnixNano  int64         `json:"time_unix_ns"`
	// Measurable: shared and copied pages can be told, which takes frame numbers and no more.
	Measurable bool        `json:"measurable"`
	Rows       []DoctorRow `json:"rows"`
}

// DoctorRow is one thing that a host has or can do.
type DoctorRow struct {
	Name  string `json:"name"`  // snake_case, stable
	Group string `json:"group"` // what it is for: "pages", "processes", "host", "tracing", "programs"
	// State is of what the row names: "no" of soft_dirty is a host without it, which is no fault.
	State  Ability `json:"state"`
	Detail string  `json:"detail"` // what was seen, and what follows from it
	Remedy string  `json:"remedy,omitempty"`
	// SinceKernel is the first version of Linux that has it.
	SinceKernel string `json:"since_kernel,omitempty"`
}

// NewDoctorReport draws the conclusion from the rows.
func NewDoctorReport(r DoctorReport) *DoctorReport {
	r.SchemaVersion, r.Kind = SchemaVersion, KindDoctor
	r.Measurable = false
	for _, row := range r.Rows {
		if row.Name == DoctorFrames {
			r.Measurable = row.State == AbilityYes
		}
	}
	return &r
}

// Count gives the number of rows in a state.
func (r *DoctorReport) Count(a Ability) (n int) {
	for _, row := range r.Rows {
		if row.State == a {
			n++
		}
	}
	return n
}
