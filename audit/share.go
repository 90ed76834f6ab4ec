package audit

import (
	"errors"

	"cowaudit/pagemap"
)

// Options of Share and Diff.
type Options struct {
	Version string // of cowaudit, for the report
	Range   *Range // nil: the whole address space
}

// Share judges every page of every process of a family against its reference.
func Share(src pagemap.Source, o Options) (*Report, error) { return nil, errors.New("under construction") }

// Diff gives the pages that each process shared with its reference before and does not share after.
func Diff(before, after *pagemap.Snapshot, o Options) (*DiffReport, error) {
	return nil, errors.New("under construction")
}
