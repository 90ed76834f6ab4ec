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
	case *audit.ForktestReport:
		if err := checkCapture(&r.Capture); err != nil {
			return err
		}
		return audit.CheckForktest(r)
	}
	return nil
}

func checkCapture(c *audit.Capture) error {
	if c.PageSize < 1 || c.PageSize > maxPageSize || c.PageSize&(c.PageSize-1) != 0 {
		return fmt.Errorf("page_size_bytes %d is no page size", c.PageSize)
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
	case reflect.TypeFor[audit.Pages](), reflect.TypeFor[audit.Change](), reflect.TypeFor[audit.Copied](), reflect.TypeFor[audit.RollupCheck](), reflect.TypeFor[audit.Totals]():
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
