package forktest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"cowaudit/ebpf"
)

// Defaults and limits of a Config.
const (
	DefaultMethods   = 20_000
	DefaultCallSites = 20 // of each method
	DefaultRuns      = 5
	DefaultWorkers   = 1
	DefaultTimeout   = 10 * time.Minute
	settleLimit      = 16
	trackedObjects   = 200_000
	maxWorkers       = 64
	maxRuns          = 1000
	maxMethods       = 10_000_000
	maxCallSites     = 10_000
	maxAppBytes      = 64 << 20
)

// Config says what to test. The zero value of a field is its default.
type Config struct {
	Version string // of cowaudit, for the report

	Subject string   // a command, split as a shell would; "": the runtime's, from PATH
	Env     []string // K=V, added to this process' environment
	User    string   // to run as; "": who called sudo, else as this process
	Runtime Runtime

	Scenario  string // a built-in one; "": the runtime's, unless App or Preload is given
	Methods   int    // of callcache-cold, callcache-warm and inline-cache
	CallSites int    // of each of its methods
	App       string // a program to load, read here
	Preload   string // an expression or statements to evaluate after that

	// SettleHook is evaluated in the parent before its collections, as Preload is: to warm up, to empty a cache.
	SettleHook string
	// Event is evaluated in each worker, with the collector off, as the event after the null event.
	Event string

	Settle  Settle
	Warmup  bool // Process.warmup, or gc.freeze, before the fork
	Workers int
	Runs    int
	Timeout time.Duration // for each phase

	Trace *TraceConfig // nil: the page tables alone

	Observer Observer       // nil: Pages{}
	Output   io.Writer      // gets the application's output as it comes; nil: the last lines are kept for a Failure
	Progress func(Progress) // called when something begins, from the goroutine of Run
}

// Settle says how often the parent collects before it forks.
type Settle struct {
	Fixed bool // Count times; else until nothing changes any more, at most 16 times
	Count int
}

// ParseSettle reads "until-quiet" or a number.
func ParseSettle(s string) (Settle, error) {
	if s == "until-quiet" {
		return Settle{}, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 1000 {
		return Settle{}, configErrorf("settle %q: until-quiet, or a number of collections from 0 to 1000", s)
	}
	return Settle{Fixed: true, Count: n}, nil
}

func (s Settle) String() string {
	if !s.Fixed {
		return "until quiet"
	}
	return strconv.Itoa(s.Count)
}

// Progress is what a test is about to do.
type Progress struct {
	Run, Runs   int
	Phase       string // in words: "loading the application"
	Done, Total int    // phases, over all runs
}

// plan is a Config with everything found out that can be before the subject runs.
type plan struct {
	Config
	argv    []string
	env     []string
	as      *account
	harness harness
	source  string    // of the application
	builtIn *Scenario // nil: an application of the user's, or a script

	newTracer  func(ebpf.Options) (tracer, error)
	newCounter func() copyCounter
}

// newPlan fills in the defaults and refuses what cannot be done.
func newPlan(c Config) (*plan, error) {
	p := &plan{Config: c, newTracer: startTracer, newCounter: openCounter}
	for _, step := range []func() error{p.subject, p.scenario, p.numbers, p.account, p.application} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if p.Observer == nil {
		p.Observer = Pages{}
	}
	return p, nil
}

func (p *plan) subject() error {
	words, err := SplitWords(p.Subject)
	if err != nil {
		return &ConfigError{err.Error()}
	}
	switch p.Runtime {
	case "", RuntimeAuto:
		p.Runtime = guessRuntime(words)
	case RuntimeRuby, RuntimePython, RuntimeScript:
	default:
		return configErrorf("runtime %q: auto, ruby, python or script", p.Runtime)
	}
	p.harness = harnesses[p.Runtime]
	if len(words) == 0 {
		if p.harness.command == "" {
			return configErrorf("a script needs a command that starts it")
		}
		words = []string{p.harness.command}
		p.Subject = p.harness.command
	}
	p.argv = append(words, p.harness.boot...)
	for _, kv := range p.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" || strings.ContainsRune(kv, 0) {
			return configErrorf("environment %q: K=V", kv)
		}
	}
	p.env = environ(os.Environ(), p.Env)
	return nil
}

func (p *plan) scenario() error {
	switch {
	case p.Scenario != "" && p.App != "":
		return configErrorf("either a built-in scenario or an application, not both")
	case p.Scenario != "" && findScenario(p.Runtime, p.Scenario) == nil:
		if p.harness.scenario == "" {
			return configErrorf("there is no scenario %s for a script", p.Scenario)
		}
		return configErrorf("there is no scenario %s for %s: it has %s", p.Scenario, p.Runtime, scenarioNames(p.Runtime))
	case p.Scenario != "":
	case p.App != "", p.Preload != "":
		p.Scenario = scenarioApp
	case p.Runtime == RuntimeScript:
		p.Scenario = scenarioScript
	default:
		p.Scenario = p.harness.scenario
	}
	p.builtIn = findScenario(p.Runtime, p.Scenario)
	if (p.Methods != 0 || p.CallSites != 0) && !p.builtIn.hasMethods() {
		return configErrorf("methods and call sites are sizes of the scenarios %s, %s and %s", ScenarioCallcacheCold, ScenarioCallcacheWarm, ScenarioInlineCache)
	}
	return nil
}

func (p *plan) numbers() error {
	for _, n := range []struct {
		what             string
		value            *int
		fallback, lo, hi int
	}{
		{"methods", &p.Methods, DefaultMethods, 1, maxMethods},
		{"call sites", &p.CallSites, DefaultCallSites, 1, maxCallSites},
		{"workers", &p.Workers, DefaultWorkers, 1, maxWorkers},
		{"runs", &p.Runs, DefaultRuns, 1, maxRuns},
	} {
		if *n.value == 0 {
			*n.value = n.fallback
		}
		if *n.value < n.lo || *n.value > n.hi {
			return configErrorf("%d %s: from %d to %d", *n.value, n.what, n.lo, n.hi)
		}
	}
	if !p.builtIn.hasMethods() {
		p.Methods, p.CallSites = 0, 0
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if p.Timeout < 0 {
		return configErrorf("timeout %s: more than nothing", p.Timeout)
	}
	return nil
}

func (p *plan) account() error {
	as, err := chooseAccount(p.User, os.Geteuid(), os.Getenv)
	if err != nil {
		return err
	}
	p.as = as
	if root := (as == nil && os.Geteuid() == 0) || (as != nil && as.uid == 0); root || filepath.Base(p.argv[0]) != "chroot" {
		return nil
	}
	who := "another user"
	if as != nil && as.name != "" {
		who = as.name
	}
	return configErrorf("%s: only root may chroot, and the application runs as %s: give --user root", p.Subject, who)
}

func (p *plan) application() error {
	if p.App == "" {
		return nil
	}
	path, err := filepath.Abs(p.App)
	if err != nil {
		return fmt.Errorf("application %s: %w", p.App, err)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return configErrorf("application %s: %v: one that only the subject's own root has is loaded with --preload", p.App, cause(err))
	case !info.Mode().IsRegular():
		return configErrorf("application %s: not a file", p.App)
	case info.Size() > maxAppBytes:
		return configErrorf("application %s: %d bytes are more than %d", p.App, info.Size(), maxAppBytes)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return configErrorf("application %s: %v", p.App, cause(err))
	}
	p.App, p.source = path, string(b)
	return nil
}
