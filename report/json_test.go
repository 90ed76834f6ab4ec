package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

func encode(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := JSON(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func allResults(t testing.TB) map[string]any {
	return map[string]any{
		"audit": pumaReport(t, 2), "every word": quietReport(t), "hidden": hiddenReport(t), "hostile": hostileReport(t), "nobody": summed(t, newReport()),
		"diff": diffReport(t), "forktest": forktestReport(t, 6, 8061, 7600), "traced forktest": tracedForktest(t, 2), "compare": betterReport(t), "same compare": sameReport(t), "hostile compare": hostileCompare(t),
		"failed gate": failedGate(t), "passed gate": passedGate(t), "excused gate": excusedGate(t), "open gate": openGate(t), "hostile gate": hostileGate(t),
		"families": familiesReport(3), "no families": familiesReport(0),
	}
}

// Every result can be saved, read back and saved again: nothing is lost, bytes that are not UTF-8 included.
func TestJSONRoundTrip(t *testing.T) {
	for name, v := range allResults(t) {
		t.Run(name, func(t *testing.T) {
			first := encode(t, v)
			if !json.Valid(first) || first[len(first)-1] != '\n' {
				t.Fatalf("not JSON with a newline: %q", first)
			}
			got, err := Load(bytes.NewReader(first))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(v, got, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("read back (-saved +read):\n%s", d)
			}
			if again := encode(t, got); !bytes.Equal(first, again) {
				t.Errorf("saved again it differs:\n%s", cmp.Diff(string(first), string(again)))
			}
		})
	}
}

func TestJSONOfHostileNames(t *testing.T) {
	got := string(encode(t, hostileReport(t)))
	for _, bad := range []string{"\x1b", "\x9b", "\x07", "\u009b", "\ufffd", "\r"} {
		if strings.Contains(got, bad) {
			t.Errorf("contains %q", bad)
		}
	}
	for _, want := range []string{`"path": "/tmp/new\\012line\u001b[31m\\x9b"`, `名前\\xff --flag`, `none \u009b1m`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

func TestJSONGolden(t *testing.T) {
	golden(t, "audit_every_word.json", encode(t, quietReport(t)))
	golden(t, "diff.json", encode(t, diffReport(t)))
	golden(t, "forktest.json", encode(t, forktestReport(t, 1, 230, 85)))
	golden(t, "families.json", encode(t, familiesReport(2)))
}

// JSON does not change what it is given, and has no null where a list belongs.
func TestJSONOfNilLists(t *testing.T) {
	r := &audit.Report{Kind: audit.KindAudit, Family: []audit.Process{{Comm: "\xff"}}}
	got := encode(t, r)
	for _, name := range []string{"findings", "warnings", "regions", "mappings"} {
		if !bytes.Contains(got, []byte(`"`+name+`": []`)) {
			t.Errorf("%s is no empty list:\n%s", name, got)
		}
	}
	if r.Findings != nil || r.Family[0].Regions != nil || r.Family[0].Comm != "\xff" {
		t.Errorf("JSON changed its argument: %+v", r)
	}
	if bytes.Contains(got, []byte("ns_pids")) {
		t.Errorf("an empty list that is left out was written:\n%s", got)
	}
}

func TestLoadErrors(t *testing.T) {
	whole := string(encode(t, quietReport(t)))
	change := func(from, to string) string {
		if !strings.Contains(whole, from) {
			t.Fatalf("the fixture has no %s", from)
		}
		return strings.Replace(whole, from, to, 1)
	}
	tests := []struct{ name, in, want string }{
		{"nothing", "", "not a result of cowaudit: unexpected end of JSON input"},
		{"text", "hello", "not a result of cowaudit: invalid character"},
		{"another type", "[1]", "not a result of cowaudit: json: cannot unmarshal array"},
		{"no kind", "{}", `kind "" with schema_version 0: this cowaudit reads the kinds audit, diff, forktest, trace, families`},
		{"unknown kind", `{"kind":"smell","schema_version":1}`, `kind "smell" with schema_version 1: this cowaudit reads`},
		{"newer", change(`"schema_version": 1`, `"schema_version": 2`), `kind "audit" with schema_version 2: this cowaudit reads`},
		{"no version", `{"kind":"audit"}`, `kind "audit" with schema_version 0`},
		{"cut", whole[:len(whole)/2], "not a result of cowaudit"},
		{"garbage after it", whole + "x", "not a result of cowaudit: invalid character 'x' after top-level value"},
		{"a second result after it", whole + whole, "after top-level value"},
		{"a text for a number", change(`"shared": 300`, `"shared": "300"`), "cannot unmarshal string"},
		{"a fraction of a page", change(`"shared": 300`, `"shared": 300.5`), "cannot unmarshal number 300.5"},
		{"negative", change(`"shared": 300`, `"shared": -300`), "shared is -300"},
		{"huge", change(`"shared": 300`, `"shared": 9000000000000000000`), "shared is 9000000000000000000"},
		{"sums that do not hold", change(`"shared": 300`, `"shared": 301`), "counts do not sum"},
		{"no page size", change(`"page_size_bytes": 4096`, `"page_size_bytes": 0`), "page_size_bytes 0 is no page size"},
		{"odd page size", change(`"page_size_bytes": 4096`, `"page_size_bytes": 4097`), "page_size_bytes 4097 is no page size"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Load(strings.NewReader(tt.in))
			if err == nil {
				t.Fatalf("loaded %+v", v)
			}
			if !errors.Is(err, pagemap.ErrFormat) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, tt.want)
			}
		})
	}
	broken := errors.New("broken disk")
	if _, err := Load(iotest.ErrReader(broken)); !errors.Is(err, broken) || errors.Is(err, pagemap.ErrFormat) {
		t.Errorf("read error: %v", err)
	}
	if _, err := load(strings.NewReader(whole), int64(len(whole))-1); !errors.Is(err, pagemap.ErrFormat) || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("one byte too large: %v", err)
	}
	if _, err := load(strings.NewReader(whole), int64(len(whole))); err != nil {
		t.Errorf("just small enough: %v", err)
	}
}

// Names that a later version adds within the schema are passed over.
func TestLoadOfUnknownNames(t *testing.T) {
	in := strings.Replace(string(encode(t, quietReport(t))), `"kind"`, `"colour": {"of": ["later"]}, "kind"`, 1)
	v, err := Load(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(quietReport(t), v, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

// dense leaves out what is zero or empty: large seeds make the fuzzer slow.
func dense(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			switch e := dense(e).(type) {
			case nil:
				delete(x, k)
			default:
				x[k] = e
			}
		}
		if len(x) == 0 {
			return nil
		}
	case []any:
		if len(x) == 0 {
			return nil
		}
		for i := range x {
			x[i] = dense(x[i])
		}
	case float64:
		if x == 0 {
			return nil
		}
	case string:
		if x == "" {
			return nil
		}
	case bool:
		if !x {
			return nil
		}
	}
	return v
}

// What Load takes can be rendered, without a panic, and saved again as the same result.
func FuzzLoad(f *testing.F) {
	for _, v := range []any{quietReport(f), hiddenReport(f), hostileReport(f), diffReport(f), forktestReport(f, 1, 230, 85), familiesReport(2)} {
		var tree any
		if err := json.Unmarshal(encode(f, v), &tree); err != nil {
			f.Fatal(err)
		}
		small, err := json.Marshal(dense(tree))
		if err != nil {
			f.Fatal(err)
		}
		if _, err := Load(bytes.NewReader(small)); err != nil {
			f.Fatal(err)
		}
		f.Add(small)
	}
	f.Add([]byte(`{"kind":"audit","schema_version":1,"capture":{"page_size_bytes":4096},"family":[{"pid":1,"mappings":[{"start":5,"end":1}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Load(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, pagemap.ErrFormat) {
				t.Fatalf("error without ErrFormat: %v", err)
			}
			return
		}
		for _, o := range []Options{{Mappings: true, Runs: true, Top: -1}, {Width: 20, Color: true, Top: 1}} {
			if err := Text(io.Discard, v, o); err != nil {
				t.Fatal(err)
			}
		}
		again, err := Load(bytes.NewReader(encode(t, v)))
		if err != nil {
			t.Fatalf("saved again it cannot be read: %v", err)
		}
		if d := cmp.Diff(v, again, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("saved and read again:\n%s", d)
		}
	})
}
