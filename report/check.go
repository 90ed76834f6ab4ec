package report

import (
	"errors"
	"fmt"
	"reflect"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// Bounds of what a loaded result may hold, so that sums and products of it stay in range.
const (
	maxCount    = int64(1) << 40         // pages; 4 PiB in pages of 4 KiB
	maxPageSize = pagemap.Bytes(1) << 20 // the largest of any architecture
	maxBytes    = pagemap.Bytes(1) << 60
)

// check holds a loaded result against the bounds and the conservation laws: a file may come from anywhere.
func check(v any) error {
	if err := checkCounts(reflect.ValueOf(v)); err != nil {
		return err
	}
	switch r := v.(type) {
	case *audit.Report:
		if err := checkCapture(&r.Capture); err != nil {
			return err
		}
		return audit.Check(r)
	case *audit.DiffReport:
		if err := errors.Join(checkCapture(&r.Before), checkCapture(&r.After)); err != nil {
			return err
		}
		return audit.CheckDiff(r)
	case *audit.TraceReport:
		return checkTrace(r)
	case *audit.ForktestReport:
		if err := checkCapture(&r.Capture); err != nil {
			return err
		}
		for _, pr := range forktestProfiles(r) {
			if err := checkProfile(pr.profile); err != nil {
				return err
			}
		}
		return audit.CheckForktest(r)
	case *audit.CompareReport:
		if err := checkSides(r); err != nil {
			return err
		}
		return audit.CheckCompare(r)
	case *audit.GateReport:
		for i := range r.Comparisons {
			if err := checkSides(&r.Comparisons[i]); err != nil {
				return err
			}
		}
		return audit.CheckGate(r)
	}
	return nil
}

// checkSides holds the captures and the samples of both sides of a comparison against their bounds. In a gate without a
// baseline A has no runs, and was never captured.
func checkSides(r *audit.CompareReport) error {
	for _, s := range []*audit.Side{&r.A, &r.B} {
		if len(s.Runs)+len(s.Traced) == 0 {
			continue
		}
		if err := checkCapture(&s.Capture); err != nil {
			return err
		}
		for _, runs := range [][]audit.Run{s.Runs, s.Traced} {
			for _, pr := range forktestProfiles(&audit.ForktestReport{Runs: runs}) {
				if err := checkProfile(pr.profile); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func checkCapture(c *audit.Capture) error { return checkPageSize(c.PageSize) }

func checkPageSize(b pagemap.Bytes) error {
	if b < 1 || b > maxPageSize || b&(b-1) != 0 {
		return fmt.Errorf("page_size_bytes %d is no page size", b)
	}
	return nil
}

// checkTrace also holds the indices of the samples against their tables, which the text, pprof and folded stacks follow.
func checkTrace(r *audit.TraceReport) error {
	if err := checkPageSize(r.Trace.PageSize); err != nil {
		return err
	}
	if err := checkProfile(&r.Profile); err != nil {
		return err
	}
	return audit.CheckTrace(r)
}

func checkProfile(p *audit.Profile) error {
	for i := range p.Samples {
		if s := p.Samples[i].Stack; s < 0 || s >= len(p.Stacks) {
			return fmt.Errorf("sample %d has stack %d of %d", i, s, len(p.Stacks))
		}
	}
	for i := range p.Stacks {
		for _, f := range p.Stacks[i].Frames {
			if f < 0 || f >= len(p.Frames) {
				return fmt.Errorf("stack %d has frame %d of %d", i, f, len(p.Frames))
			}
		}
	}
	return nil
}

// checkCounts bounds every count of pages and every amount of memory in a result.
func checkCounts(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return checkCounts(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := checkCounts(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		counts := isCounts(v.Type())
		for i := range v.NumField() {
			f := v.Field(i)
			if b, ok := f.Interface().(pagemap.Bytes); ok {
				if b < 0 || b > maxBytes {
					return fmt.Errorf("%s is %d", name(v, i), b)
				}
				continue
			}
			if f.Kind() == reflect.Int64 && counts && (f.Int() < 0 || f.Int() > maxCount) {
				return fmt.Errorf("%s is %d", name(v, i), f.Int())
			}
			if err := checkCounts(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func isCounts(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[audit.Pages](), reflect.TypeFor[audit.Change](), reflect.TypeFor[audit.Copied](), reflect.TypeFor[audit.RollupCheck](), reflect.TypeFor[audit.Totals](),
		reflect.TypeFor[audit.FaultCounts](), reflect.TypeFor[audit.PhaseCounts](), reflect.TypeFor[audit.LostParts](), reflect.TypeFor[audit.Collection](),
		reflect.TypeFor[audit.Sample]():
		return true
	}
	return false
}

func name(v reflect.Value, field int) string {
	if n := v.Type().Field(field).Tag.Get("json"); n != "" {
		return n
	}
	return v.Type().Field(field).Name
}
