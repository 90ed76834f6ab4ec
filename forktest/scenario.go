package forktest

import (
	"slices"
	"strings"

	"cowaudit/audit"
)

// Built-in scenarios.
const (
	// ScenarioCallcacheCold is the code of a large application, most of which never runs: methods whose call sites were
	// never called. It is Ruby's.
	ScenarioCallcacheCold = "callcache-cold"
	// ScenarioCallcacheWarm is the same code, with all call sites called once in the parent after its last collection.
	ScenarioCallcacheWarm = "callcache-warm"
	// ScenarioInlineCache is the same code, called before the parent's last collections and again in the worker.
	ScenarioInlineCache = "inline-cache"
	// ScenarioCoderange is strings that the worker is the first to scan.
	ScenarioCoderange = "coderange"
	// ScenarioCompactEachFork is a parent that compacts its heap before each fork, the second time with a worker alive.
	ScenarioCompactEachFork = "compact-each-fork"
	// ScenarioExit is what a worker's exit handlers and finalizers copy.
	ScenarioExit = "exit"
	// ScenarioTrackedObjects is Python's: 200,000 lists, which the collector tracks, and as many strings, which it does not.
	ScenarioTrackedObjects = "tracked-objects"
	// scenarioApp is the name of what --app or --preload loads.
	scenarioApp = "app"
	// scenarioScript is the name of what a program does that speaks the protocol by itself.
	scenarioScript = "script"
)

// eventApp is the event that the user gives (Config.Event).
const eventApp = audit.EventApp

// Scenario is a built-in application and what is done with it. Each is one row of a table; docs/method.md has a section on it.
type Scenario struct {
	Name    string
	Runtime Runtime
	Purpose string // one line: what it stands for
	Healthy string // what is usual, in words and figures
	Sizes   []Size // in the order in which the harness is told
	// Events are in their order, null first; those that begin with "parent_" are done by the parent. None: the harness'.
	Events []string
	// Metrics are what is measured beside the pages, in the order of the report.
	Metrics []MetricInfo

	prepare bool // the parent does something of its own between its last collection and the fork
}

// Size is a size of a scenario's application.
type Size struct {
	Name  string // as the protocol has it: "call_sites"
	Value int    // the default
}

// callcacheSizes are those of the scenarios made of methods.
var callcacheSizes = []Size{{"methods", DefaultMethods}, {"call_sites", DefaultCallSites}}

var scenarios = slices.Concat(copying, neighbours, pythons)

// copying are the scenarios about copies that are Ruby's.
var copying = []Scenario{
	{
		Name: ScenarioCallcacheCold, Runtime: RuntimeRuby, Sizes: callcacheSizes,
		Purpose: "methods whose call sites were never called: the code of a large application, most of which never runs",
		Healthy: "first major GC below 2 MiB; 3.3, which rewrites every empty call cache, copies about 40 MiB and changes nothing",
	},
	{
		Name: ScenarioCallcacheWarm, Runtime: RuntimeRuby, Sizes: callcacheSizes, prepare: true,
		Purpose: "the same methods, each called once in the parent after its last collection: a server warmed up before it forks",
		Healthy: "first major GC 2 to 4 MiB on 3.1 and 3.3; 3.4 empties caches that are in use, and copies about 43 MiB",
	},
	{
		Name: ScenarioInlineCache, Runtime: RuntimeRuby, Sizes: callcacheSizes,
		Events:  []string{"null", "first_requests", "second_requests", "first_major_gc"},
		Purpose: "the same methods, called before the parent's last collections: what the first requests in a worker fill again",
		Healthy: "first requests below 1 MiB on 3.1 and 3.3, where the caches survive the collections; 3.4 empties them: about 43 MiB",
	},
	{
		Name: ScenarioCoderange, Runtime: RuntimeRuby, Sizes: []Size{{"strings", 200_000}},
		Events:  []string{"null", "first_scan", "second_scan", "first_major_gc"},
		Purpose: "200,000 strings that a worker is the first to scan: what it finds is kept in the string",
		Healthy: "first scan the heap pages of the strings, once: 18 MiB on 3.1, 31 on 3.3, 33 on 3.4; second scan nothing",
	},
	{
		Name: ScenarioCompactEachFork, Runtime: RuntimeRuby, Sizes: []Size{{"objects", 200_000}}, prepare: true,
		Events:  []string{"null", "parent_requests", "parent_compaction", "first_major_gc"},
		Purpose: "a parent that compacts its heap before each fork: what the workers forked before lose",
		Healthy: "no healthy figure above the parent's requests: compacting again costs a worker 10 to 13 MiB of 14 to 16 MiB on 3.1 to 3.4",
	},
	{
		Name: ScenarioExit, Runtime: RuntimeRuby, Sizes: []Size{{"objects", 100_000}},
		Events:  []string{"null", "first_major_gc", "teardown"},
		Purpose: "100,000 objects, every tenth with a finalizer, and an exit handler: what a worker copies only to end",
		Healthy: "teardown 5 to 6 MiB on 3.1 to 3.4: the pages of the objects that have a finalizer, and the table of these",
	},
}

// pythons are Python's.
var pythons = []Scenario{
	{
		Name: ScenarioTrackedObjects, Runtime: RuntimePython, Sizes: []Size{{"objects", trackedObjects}},
		Purpose: "200,000 lists, which the collector tracks, and as many strings, which it does not",
		Healthy: "a collection writes to the header of every list that is not frozen (gc.freeze, --warmup)",
	},
}

// Scenarios gives the built-in scenarios, each runtime's default first.
func Scenarios() []Scenario { return slices.Clone(scenarios) }

// findScenario looks a scenario up that a runtime has.
func findScenario(r Runtime, name string) *Scenario {
	i := slices.IndexFunc(scenarios, func(s Scenario) bool { return s.Runtime == r && s.Name == name })
	if i < 0 {
		return nil
	}
	return &scenarios[i]
}

// scenarioNames lists a runtime's scenarios for a sentence.
func scenarioNames(r Runtime) string {
	var names []string
	for _, s := range scenarios {
		if s.Runtime == r {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}

// hasMethods reports a scenario whose size is given in methods and call sites.
func (s *Scenario) hasMethods() bool {
	return s != nil && slices.ContainsFunc(s.Sizes, func(z Size) bool { return z.Name == "methods" })
}
