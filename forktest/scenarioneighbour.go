package forktest

import "cowaudit/audit"

// Built-in scenarios that are not about copies: what else a release of a runtime can do to a worker's memory.
const (
	// ScenarioAllocDebt is a loop that allocates large strings and drops them, on a fragmented heap.
	ScenarioAllocDebt = "alloc-debt"
	// ScenarioFragmentation is threads that allocate much and keep little.
	ScenarioFragmentation = "fragmentation"
	// ScenarioRetention is a region that is freed: how much of it goes back to the system.
	ScenarioRetention = "retention"
	// ScenarioLeakOrPlateau is a worker that grows and stops, and the same worker with a leak.
	ScenarioLeakOrPlateau = "leak-or-plateau"
)

const (
	churn = series("churn")
	leak  = series("leak")
)

var (
	roundEvents = []string{"first_round", "second_round", "third_round"}
	debtEvents  = []string{"allocation"}
	fillEvents  = []string{"fill"}
)

// neighbours are the scenarios beside the copies. All are Ruby's.
var neighbours = []Scenario{
	{
		Name: ScenarioAllocDebt, Runtime: RuntimeRuby, Sizes: []Size{{"strings", 3500}, {"megabytes", 2048}},
		Events:  []string{"null", "first_major_gc", "allocation"},
		Purpose: "a heap that lost every other of 3,500 strings, then 2 GiB in strings of 1 MiB that are dropped at once",
		Healthy: "at most some 40 MiB between two collections, and as much for the peak, on 3.1 to 3.4; 62 to 65 MiB now and then on 3.1; a debt grows with the loop",
		Metrics: []MetricInfo{
			{"most_allocated_between_gcs_bytes", "bytes", audit.BetterLess, debtEvents, "the most that was allocated between two collections", said("most_allocated_between_gcs_bytes")},
			{"collections_count", "count", "", debtEvents, "collections during the loop", said("collections")},
			{"peak_rss_over_start_bytes", "bytes", audit.BetterLess, debtEvents, "the most that was resident during the loop, over what was before it", peakOverStart},
		},
	},
	{
		Name: ScenarioFragmentation, Runtime: RuntimeRuby, Sizes: []Size{{"threads", 8}, {"strings", 10_000}},
		Events:  []string{"null", "fill"},
		Purpose: "8 threads that each allocate 10,000 strings of 4,000 to 40,000 bytes and keep a tenth",
		Healthy: "1.6 to 1.75 on 3.1, 1.26 on 3.3, 1.27 on 3.4 with glibc; MALLOC_ARENA_MAX=2 lowers it: 1.5, 1.23 and 1.25",
		Metrics: []MetricInfo{
			{"live_bytes", "bytes", "", fillEvents, "bytes of the strings that are kept", said("live_bytes")},
			{"rss_over_live_ratio", "ratio", audit.BetterLess, fillEvents, "what is resident afterwards, over these", residentRatio("live_bytes")},
			{"rss_bytes", "bytes", audit.BetterLess, fillEvents, "resident afterwards", resident},
		},
	},
	{
		Name: ScenarioRetention, Runtime: RuntimeRuby, Sizes: []Size{{"megabytes", 200}},
		Events:  append([]string{"null"}, roundEvents...),
		Purpose: "three rounds that each allocate 50 strings of 4 MiB and free them: what stays resident right after the free",
		Healthy: "nothing after the first round; 200 MiB after the others with glibc; nothing with MALLOC_MMAP_THRESHOLD_=131072",
		Metrics: []MetricInfo{
			{"retained_bytes", "bytes", audit.BetterLess, roundEvents, "resident after the free, over what was before the first round and the little that is kept", residentOver(roundEvents[0])},
			{"peak_rss_over_start_bytes", "bytes", "", roundEvents, "the most that was resident during the round, over what was before it", peakOverStart},
		},
	},
	{
		Name: ScenarioLeakOrPlateau, Runtime: RuntimeRuby, Sizes: []Size{{"requests", 250}, {"hashes", 2000}},
		Events:  append(append([]string{"null"}, churn.events()...), leak.events()...),
		Purpose: "4 times 250 requests that churn 2,000 hashes each, then as many that also keep one",
		Healthy: "churn: no old object more and slope_flag 0; leak, which is planted: 2 old objects a request and slope_flag 1",
		// The leak is planted: it shows that the verdict can be the other one, and is judged by nobody.
		Metrics: append(churn.metrics(audit.BetterLess), leak.metrics("")...),
	},
}
