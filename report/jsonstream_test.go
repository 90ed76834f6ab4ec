package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// Written piece by piece, a result must be byte for byte what encoding/json makes of it in one piece.
func TestStreamIsEncodingJSON(t *testing.T) {
	m := audit.Mapping{Start: 4096, End: 8192, Perms: "rw-p", Path: `/a <b> "c"`, Region: audit.RegionOther, Pages: audit.Pages{Shared: 1, Held: 1}}
	gone := m
	gone.Gone, gone.Change = true, &audit.Change{Identical: 3}
	p := audit.Process{PID: 7, NSPIDs: []pagemap.PID{7, 1}, Regions: []audit.Region{{Kind: audit.RegionOther, Mappings: 2}}, Mappings: []audit.Mapping{m, gone}}
	bare := audit.Process{PID: 8, Regions: []audit.Region{}, Mappings: []audit.Mapping{}}
	for name, v := range map[string]any{
		"audit":    &audit.Report{Kind: audit.KindAudit, Family: []audit.Process{p, bare}, Findings: []audit.Finding{{Code: "x", Text: "é"}}, Warnings: []pagemap.Warning{}, Totals: audit.Totals{Frames: &audit.Frames{DistinctAnon: 1}}},
		"ranged":   &audit.Report{Range: &audit.Range{Start: 1, End: 2}, Family: []audit.Process{}, Findings: []audit.Finding{}, Warnings: []pagemap.Warning{}},
		"diff":     &audit.DiffReport{Family: []audit.ProcessDiff{{PID: 3, Regions: []audit.RegionDiff{{Kind: audit.RegionOther}}, Mappings: []audit.MappingDiff{{Start: 1}}}}, Findings: []audit.Finding{}, Warnings: []pagemap.Warning{}},
		"forktest": &audit.ForktestReport{Runs: []audit.Run{{Seq: 1, Events: []audit.Event{{Name: "null", Regions: []audit.RegionDiff{}, Stats: map[string]int64{"b": 1, "a": 2}}}}}, Findings: []audit.Finding{}, Warnings: []pagemap.Warning{}},
		"no lists": audit.Change{Rewritten: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got bytes.Buffer
			e := json.NewEncoder(&want)
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			if err := e.Encode(v); err != nil {
				t.Fatal(err)
			}
			s := newStream(&got)
			s.value(reflect.ValueOf(v), "")
			if err := s.flush(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want.String(), got.String()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestStreamKeepsWriteError(t *testing.T) {
	full := errors.New("disk full")
	r := &audit.Report{Family: make([]audit.Process, 2000), Findings: []audit.Finding{}, Warnings: []pagemap.Warning{}}
	if err := JSON(failingWriter{full}, r); !errors.Is(err, full) {
		t.Errorf("error %v, want the writer's", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
