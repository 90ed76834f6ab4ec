package audit

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// No row of a trace may have two fields of one name in JSON: the outer one hides that of the counts, which then do not sum.
func TestTraceNames(t *testing.T) {
	for _, v := range []any{Traced{}, RegionRow{}, FunctionRow{}, StackRow{}, PhaseRow{}, FaultTotals{}} {
		counts := map[string]bool{}
		for f := range fields(reflect.TypeOf(FaultCounts{})) {
			counts[f] = true
		}
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !typ.Field(i).Anonymous && counts[name] {
				t.Errorf("%s.%s: %q is a count's name too", typ.Name(), typ.Field(i).Name, name)
			}
		}
	}
	in := FunctionRow{Name: "f", File: "f.c", Line: 3, FaultCounts: FaultCounts{File: 52, Copied: 7}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out FunctionRow
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("%v: read back %+v, want %+v", err, out, in)
	}
}

func fields(t reflect.Type) map[string]bool {
	m := map[string]bool{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		m[name] = true
	}
	return m
}
