package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"cowaudit/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestSmallFamilies runs every program on small families, with its check.
func TestSmallFamilies(t *testing.T) {
	testkit.Require(t, "root", "pagemap", "kpageflags", "gcc")
	t.Setenv("COWAUDIT", testkit.Binary(t))
	tools, err := newTools(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tools.remove(); err != nil {
			t.Error(err)
		}
	}()
	all := []string{unit, auditPages, auditContents, rollups, smem, pmap}
	like := family{mib: 8, workers: 2, permille: 100}
	for _, r := range []row{
		{label: "plain", fam: family{mib: 8, workers: 3, permille: 70}, programs: all},
		{label: "mappings", fam: family{mib: 8, workers: 1, permille: 500, mappings: 333}, programs: all},
		{label: "huge", fam: family{mib: 64, workers: 2, huge: true}, programs: []string{unit, auditPages}},
		{label: "sparse", fam: family{mib: 8, workers: 2, permille: 100, sparseGiB: 1024}, like: &like, programs: []string{auditLike, auditPages}},
	} {
		t.Run(r.label, func(t *testing.T) {
			res, err := tools.measure(context.Background(), r, 3, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if res.skipped != "" {
				t.Fatal(res.skipped)
			}
			missing := strings.Count(res.note, "is not installed")
			if len(res.all) != len(r.programs)-missing || missing > 2 {
				t.Fatalf("%d of %d programs ran; %s", len(res.all), len(r.programs), res.note)
			}
			for _, k := range res.all {
				for _, s := range k.got {
					if s.wall <= 0 || s.cpu <= 0 || s.peak < 256<<10 {
						t.Errorf("%s: %+v", k.name, s)
					}
				}
			}
		})
	}
}

// TestPeakIsTheProgramsOwn: the driver's memory must not count as that of a small program.
func TestPeakIsTheProgramsOwn(t *testing.T) {
	testkit.Require(t, "root", "gcc")
	t.Setenv("COWAUDIT", testkit.Binary(t))
	tools, err := newTools(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer tools.remove()
	ballast := bytes.Repeat([]byte{1}, 64<<20)
	s, err := tools.runOnce(context.Background(), []string{"/bin/true"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.peak >= int64(len(ballast))/4 {
		t.Errorf("true takes %d bytes", s.peak)
	}
	if _, err := tools.runOnce(context.Background(), []string{"/bin/false"}, nil); err == nil {
		t.Error("a program that fails is measured all the same")
	}
}

func TestCheckOutput(t *testing.T) {
	r := row{fam: family{mib: 4, workers: 1, permille: 100}}
	pids := []string{"10", "11"}
	pages := r.fam.pages()
	ledger := func(shared, copied int64, state string) string {
		type member struct {
			PID       int              `json:"pid"`
			Reference int              `json:"reference_pid"`
			State     string           `json:"state"`
			Pages     map[string]int64 `json:"pages"`
		}
		b, err := json.Marshal(map[string]any{"family": []member{
			{10, 0, "audited", map[string]int64{"held": pages}},
			{11, 10, state, map[string]int64{"held": shared + copied, "shared": shared, "copied": copied}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct {
		name, program, out string
		ok                 bool
	}{
		{"unit", unit, "2048\n", true},
		{"unit, an entry short", unit, "2047\n", false},
		{"unit, no number", unit, "", false},
		{"audit", auditPages, ledger(pages-102, 102, "audited"), true},
		{"audit, too much copied", auditPages, ledger(pages-200, 200, "audited"), false},
		{"audit, nothing copied", auditPages, ledger(pages, 0, "audited"), false},
		{"audit, a worker gone", auditPages, ledger(pages-102, 102, "gone"), false},
		{"audit, one process", auditPages, `{"family":[]}`, false},
		{"rollup", rollups, "2\n", true},
		{"rollup, one process", rollups, "1\n", false},
		{"smem", smem, "   10 root x\n   11 root x\n", true},
		{"smem, one process", smem, "   10 root 11\n", false},
		{"pmap", pmap, "10:   x\n11:   x\n", true},
		{"pmap, one process", pmap, "10:   11:\n", false},
		{"unknown", "cat", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := checkOutput(c.program, []byte(c.out), r, pids); (err == nil) != c.ok {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		args, want string
		fails      bool
	}{
		{"", "headline untouched huge contents size workers mappings sparse trace trace-busy", false},
		{"head sparse", "headline sparse", false},
		{"trace", "trace trace-busy", false},
		{"trace-busy", "trace-busy", false},
		{"trace-own", "trace-own", false},
		{"trace-o", "", true},
		{"nothing", "", true},
		{"size nothing", "", true},
	} {
		got, err := choose(strings.Fields(c.args))
		if (err != nil) != c.fails {
			t.Errorf("%q: error %v", c.args, err)
		}
		var names []string
		for _, g := range got {
			names = append(names, g.name)
		}
		if s := strings.Join(names, " "); s != c.want {
			t.Errorf("%q: %s, want %s", c.args, s, c.want)
		}
	}
}

// TestTables renders known samples.
func TestTables(t *testing.T) {
	samples := func(ms ...int) (s []sample) {
		for _, n := range ms {
			s = append(s, sample{wall: time.Duration(n) * time.Millisecond, cpu: time.Duration(2*n) * time.Millisecond, peak: int64(n) << 20})
		}
		return s
	}
	res := &result{row: row{label: "a family"}, entries: 1_000_000, all: []*contender{
		{name: unit, got: samples(100, 200, 100)},
		{name: auditPages, got: samples(50, 40, 80)},
		{name: rollups, got: samples(150, 150, 150)},
	}}
	var b strings.Builder
	(&group{name: "headline", programs: true, bars: true}).write(&b, []*result{res})
	(&group{name: "size", title: "By size"}).write(&b, []*result{res, {row: row{label: "12 GiB"}, skipped: "not run: needs more"}})
	want := `
## A family

1000000 page table entries.

| program | wall, × | CPU, × | wall, ms | CPU, ms | ns an entry | peak, MiB |
|---|--:|--:|--:|--:|--:|--:|
| unit: C, pread of all pagemaps, one thread | 1 | 1 | 100.0 | 200.0 | 100.0 | 200.0 |
| cowaudit audit --contents=false --check never | 0.50 (0.20-0.80) | 0.50 (0.20-0.80) | 50.0 | 100.0 | 50.0 | 80.0 |
| C, smaps_rollup of all | 1.50 (0.75-1.50) | 1.50 (0.75-1.50) | 150.0 | 300.0 | 150.0 | 150.0 |

Bars for cowaudit: wall at most 0.75: met; CPU at most 1.25: met; peak below 64.0 MiB: MISSED; faster than C, smaps_rollup of all: met.

## By size

| size | entries | unit, ns an entry | cowaudit, ns an entry | wall, × | CPU, × | wall, ms | peak, MiB | smaps_rollup wall, × |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|
| a family | 1000000 | 100.0 | 50.0 | 0.50 (0.20-0.80) | 0.50 (0.20-0.80) | 50.0 | 80.0 | 1.50 (0.75-1.50) |
| 12 GiB | not run: needs more |
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
