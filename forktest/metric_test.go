package forktest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
	"cowaudit/internal/testkit"
	"cowaudit/pagemap"
)

// parts makes the measurements of a series of four parts of 100 requests, of which each ends with so many bytes and objects.
func parts(rss, old [seriesParts]int64) *measurement {
	var last *measurement
	for i := range seriesParts {
		m := &measurement{event: churn.part(i + 1), said: map[string]int64{"metric_requests": 100, "old_objects": old[i]},
			after: memory{rss: pagemap.Bytes(rss[i])}}
		if last != nil {
			m.earlier = append(slices.Clone(last.earlier), last)
		}
		last = m
	}
	return last
}

func TestSlopes(t *testing.T) {
	flat := [seriesParts]int64{1000, 1000, 1000, 1000}
	for _, c := range []struct {
		name         string
		rss, old     [seriesParts]int64
		bytes, count float64 // a request
		slope        float64
	}{
		{"flat", flat, flat, 0, 0, 0},
		{"grows, then stops", [seriesParts]int64{0, 100_000, 150_000, 150_000}, flat, 250, 0, 0},
		{"grows in the last part only", [seriesParts]int64{0, 0, 0, 100_000}, flat, 500, 0, 0},
		{"bytes in a straight line", [seriesParts]int64{0, 10_000, 20_000, 30_000}, flat, 100, 0, 1},
		{"a little less than counts", [seriesParts]int64{0, 6_300, 12_600, 18_900}, flat, 63, 0, 0},
		{"objects in a straight line", flat, [seriesParts]int64{0, 100, 200, 300}, 0, 1, 1},
		{"objects go down", flat, [seriesParts]int64{300, 200, 100, 0}, 0, -1, 0},
	} {
		m := parts(c.rss, c.old)
		b, ok1 := churn.growthOf(residentBytes)(m)
		n, ok2 := churn.growthOf(oldObjects)(m)
		s, ok3 := churn.slopes(m)
		if !ok1 || !ok2 || !ok3 || b != c.bytes || n != c.count || s != c.slope {
			t.Errorf("%s: %v bytes and %v objects a request, slope %v (%v %v %v)", c.name, b, n, s, ok1, ok2, ok3)
		}
	}
	m := parts(flat, flat)
	m.earlier[2].said = nil // a part that does not tell its requests
	if _, ok := churn.slopes(m); ok {
		t.Error("a slope without requests")
	}
	m.earlier = nil
	if v, ok := churn.growthOf(residentBytes)(m); ok {
		t.Errorf("growth %v of one part", v)
	}
}

func TestResidentMetrics(t *testing.T) {
	first := &measurement{event: "first_round", before: memory{rss: 100}, after: memory{rss: 150, peak: 400}}
	second := &measurement{event: "second_round", before: memory{rss: 150}, after: memory{rss: 300, peak: 350},
		said: map[string]int64{"metric_kept_bytes": 20, "metric_live_bytes": 120}, earlier: []*measurement{first}}
	for _, c := range []struct {
		name string
		of   func(*measurement) (float64, bool)
		m    *measurement
		want float64
	}{
		{"resident", resident, first, 150},
		{"peak", peakOverStart, second, 200},
		{"first round", residentOver("first_round"), first, 50},
		{"second round, less what is kept", residentOver("first_round"), second, 180},
		{"ratio", residentRatio("live_bytes"), second, 2.5},
		{"said", said("live_bytes"), second, 120},
	} {
		if v, ok := c.of(c.m); !ok || v != c.want {
			t.Errorf("%s: %v (%v), not %v", c.name, v, ok, c.want)
		}
	}
	for name, of := range map[string]func(*measurement) (float64, bool){
		"ratio to nothing": residentRatio("live_bytes"), "not said": said("x"), "event that was not": residentOver("x"),
	} {
		if v, ok := of(first); ok {
			t.Errorf("%s: %v", name, v)
		}
	}
}

func TestToldMetrics(t *testing.T) {
	stats := map[string]int64{"count": 3, "duration_ns": 9, "metric_live_bytes": 5, "metric_waited_ns": 6, "metric_requests": 7}
	want := []audit.Metric{{Name: "live_bytes", Unit: "bytes", Value: 5}, {Name: "requests", Unit: "count", Value: 7}, {Name: "waited_ns", Unit: "ns", Value: 6}}
	if diff := cmp.Diff(want, toldMetrics(stats)); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"count": 3}, runtimeStats(stats)); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

// metricsOf gives what one run of a scenario measures, by event and name.
func metricsOf(t *testing.T, c Config) map[string]float64 {
	t.Helper()
	c.Version, c.Runs = "test", 1
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, e := range r.Runs[0].Events {
		for _, m := range e.Metrics {
			got[e.Name+" "+m.Name] = m.Value
		}
	}
	return got
}

// What mission and manuals say of glibc and of the collector must be what the scenarios show.
func TestNeighbours(t *testing.T) {
	testkit.Require(t, "pagemap", "ruby")
	const mib = 1 << 20
	moving := metricsOf(t, Config{Scenario: ScenarioRetention})
	fixed := metricsOf(t, Config{Scenario: ScenarioRetention, Env: []string{"MALLOC_MMAP_THRESHOLD_=131072"}})
	leak := metricsOf(t, Config{Scenario: ScenarioLeakOrPlateau})
	debt := metricsOf(t, Config{Scenario: ScenarioAllocDebt})
	fill := metricsOf(t, Config{Scenario: ScenarioFragmentation})
	for _, c := range []struct {
		what      string
		v         float64
		low, high float64
	}{
		{"first round, moving", moving["first_round retained_bytes"], -mib, 10 * mib},
		{"second round, moving", moving["second_round retained_bytes"], 150 * mib, 220 * mib},
		{"third round, moving", moving["third_round retained_bytes"], 150 * mib, 220 * mib},
		{"first round, fixed", fixed["first_round retained_bytes"], -mib, 10 * mib},
		{"second round, fixed", fixed["second_round retained_bytes"], -mib, 10 * mib},
		{"third round, fixed", fixed["third_round retained_bytes"], -mib, 10 * mib},
		{"peak of a round", fixed["third_round peak_rss_over_start_bytes"], 190 * mib, 230 * mib},
		{"churn", leak["churn_4 slope_flag"], 0, 0},
		{"churn's old objects", leak["churn_4 old_objects_growth_per_request"], -0.05, 0.05},
		{"leak", leak["leak_4 slope_flag"], 1, 1},
		{"leak's old objects", leak["leak_4 old_objects_growth_per_request"], 1.9, 2.1},
		{"between collections", debt["allocation most_allocated_between_gcs_bytes"], 10 * mib, 256 * mib},
		{"collections", debt["allocation collections_count"], 5, 500},
		{"peak over start", debt["allocation peak_rss_over_start_bytes"], 10 * mib, 256 * mib},
		{"live", fill["fill live_bytes"], 160 * mib, 180 * mib},
		{"resident over live", fill["fill rss_over_live_ratio"], 1, 3},
	} {
		if c.v < c.low || c.v > c.high {
			t.Errorf("%s: %v, not from %v to %v", c.what, c.v, c.low, c.high)
		}
	}
}

// How much the kept strings cost depends on the allocator: glibc's arenas cost most, two of them less, jemalloc least, where it
// gives pages back at once and not 10 seconds later, after the measurement. Runs take turns.
func TestFragmentationOrder(t *testing.T) {
	testkit.Require(t, "pagemap", "ruby", "jemalloc")
	envs := [][]string{nil, {"MALLOC_ARENA_MAX=2"}, {"LD_PRELOAD=" + testkit.Jemalloc(t), "MALLOC_CONF=dirty_decay_ms:0"}}
	ratios := make([][]float64, len(envs))
	for range 3 {
		for i, env := range envs {
			ratios[i] = append(ratios[i], metricsOf(t, Config{Scenario: ScenarioFragmentation, Env: env})["fill rss_over_live_ratio"])
		}
	}
	t.Logf("resident over live: %v", ratios)
	for i := range ratios {
		slices.Sort(ratios[i])
		if i > 0 && ratios[i][1] >= ratios[i-1][1] { // medians
			t.Errorf("%v with %v is not less than %v with %v", ratios[i], envs[i], ratios[i-1], envs[i-1])
		}
	}
}
