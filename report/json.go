package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// JSON writes a result, indented and with a newline at the end, as docs/format.md describes it. Strings that hold bytes
// which are not UTF-8 are escaped, reversibly; lists are never null. v is not changed.
func JSON(w io.Writer, v any) error {
	x := reflect.ValueOf(v)
	if !plain(x) {
		x = rewrite(x, pagemap.EscapeBytes)
	}
	e := newStream(w)
	e.value(x, "")
	if err := e.flush(); err != nil {
		return fmt.Errorf("write %T as JSON: %w", v, err)
	}
	return nil
}

// escapeControls writes the control characters that encoding/json leaves alone, U+007F to U+009F, as \u00NN: a terminal
// may obey them. They occur inside strings only.
func escapeControls(b []byte) []byte {
	control := func(i int) int { // bytes of the control character at i
		switch {
		case b[i] == 0x7f:
			return 1
		case b[i] == 0xc2 && i+1 < len(b) && b[i+1] < 0xa0:
			return 2
		}
		return 0
	}
	found := false
	for i := range b {
		if control(i) > 0 {
			found = true
			break
		}
	}
	if !found {
		return b
	}
	var out bytes.Buffer
	for i := 0; i < len(b); i++ {
		if n := control(i); n > 0 {
			i += n - 1
			fmt.Fprintf(&out, `\u00%02x`, b[i])
			continue
		}
		out.WriteByte(b[i])
	}
	return out.Bytes()
}

// plain reports whether a result can be encoded as it is: no string needs an escape and no list is nil.
func plain(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return !pagemap.NeedsEscape(v.String())
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || plain(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && !(v.Field(i).Kind() == reflect.Slice && v.Field(i).Len() == 0 && omitted(f)) && !plain(v.Field(i)) {
				return false
			}
		}
	case reflect.Slice:
		if v.IsNil() {
			return false
		}
		fallthrough
	case reflect.Array:
		if flat(v.Type().Elem()) {
			return true
		}
		for i := range v.Len() {
			if !plain(v.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if !plain(it.Key()) || !plain(it.Value()) {
				return false
			}
		}
	}
	return true
}

func omitted(f reflect.StructField) bool {
	return strings.Contains(f.Tag.Get("json"), ",omitempty")
}

// flat reports a type that holds no string and no list.
func flat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Slice, reflect.Array, reflect.Map:
		return false
	}
	return true
}

// rewrite gives a copy of a result in which f has been applied to every string and nil lists are empty ones.
func rewrite(v reflect.Value, f func(string) string) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		out.SetString(f(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(rewrite(v.Elem(), f))
		}
	case reflect.Interface:
		if !v.IsNil() {
			out.Set(rewrite(v.Elem(), f))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(rewrite(v.Field(i), f))
			}
		}
	case reflect.Slice:
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(rewrite(v.Index(i), f))
		}
	case reflect.Array:
		for i := range v.Len() {
			out.Index(i).Set(rewrite(v.Index(i), f))
		}
	case reflect.Map:
		if v.IsNil() {
			break
		}
		out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(rewrite(it.Key(), f), rewrite(it.Value(), f))
		}
	}
	return out
}

// maxResult is the size from which a saved result is refused, in bytes: one takes about 1 KiB for each mapping.
const maxResult = 1 << 30

// Load reads a result that JSON wrote: *audit.Report, *audit.DiffReport, *audit.ForktestReport, *audit.TraceReport,
// *audit.FamiliesReport, *audit.DoctorReport, *audit.CompareReport or *audit.GateReport, by its "kind". What is no result, one of
// a newer schema, and one whose counts do not sum are errors that wrap [pagemap.ErrFormat].
func Load(r io.Reader) (any, error) { return load(r, maxResult) }

func load(r io.Reader, limit int64) (any, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("read result: %w: larger than %s", pagemap.ErrFormat, Size(pagemap.Bytes(limit)))
	}
	var head struct {
		Kind          string `json:"kind"`
		SchemaVersion int    `json:"schema_version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("read result: %w: not a result of cowaudit: %w", pagemap.ErrFormat, err)
	}
	v := newResult(head.Kind)
	if v == nil || head.SchemaVersion < 1 || head.SchemaVersion > audit.SchemaVersion {
		return nil, fmt.Errorf("read result: %w: kind %q with schema_version %d: this cowaudit reads the kinds %s up to schema_version %d",
			pagemap.ErrFormat, head.Kind, head.SchemaVersion, strings.Join(kinds(), ", "), audit.SchemaVersion)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("read result of kind %q: %w: %w", head.Kind, pagemap.ErrFormat, err)
	}
	v = rewrite(reflect.ValueOf(v), pagemap.UnescapeBytes).Interface()
	if err := check(v); errors.Is(err, audit.ErrConservation) {
		return nil, fmt.Errorf("read result of kind %q: %w: %w, unless the file was changed by hand", head.Kind, pagemap.ErrFormat, err)
	} else if err != nil {
		return nil, fmt.Errorf("read result of kind %q: %w: %w", head.Kind, pagemap.ErrFormat, err)
	}
	return v, nil
}

// kinds lists the kinds of results that can be loaded.
func kinds() []string {
	return []string{audit.KindAudit, audit.KindDiff, audit.KindForktest, audit.KindTrace, audit.KindFamilies, audit.KindDoctor, audit.KindCompare, audit.KindGate}
}

func newResult(kind string) any {
	switch kind {
	case audit.KindAudit:
		return new(audit.Report)
	case audit.KindDiff:
		return new(audit.DiffReport)
	case audit.KindForktest:
		return new(audit.ForktestReport)
	case audit.KindTrace:
		return new(audit.TraceReport)
	case audit.KindFamilies:
		return new(audit.FamiliesReport)
	case audit.KindDoctor:
		return new(audit.DoctorReport)
	case audit.KindCompare:
		return new(audit.CompareReport)
	case audit.KindGate:
		return new(audit.GateReport)
	}
	return nil
}
