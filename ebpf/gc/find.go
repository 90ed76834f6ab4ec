package gc

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"cowaudit/pagemap"
)

// Find finds out how the phase of a process' collector can be learnt. want is ProviderUnknown for the best way: one that
// tells minor from major before one that does not, and among equals the flag (nothing is attached), then symbols, then USDT.
// Any other want allows that way alone.
//
// A process without a known runtime, and one of whose runtime nothing can be learnt, give a plan with ProviderNone and the
// reason in Why, and no error. Errors: [ErrNotYet] where the runtime has only just begun, [pagemap.ErrGone],
// [pagemap.ErrNoMM], and fs.ErrPermission where maps or memory may not be read.
//
// The plan holds for all processes that are forked from this one and have not exec'd since; File only as long as this one runs.
func Find(fs pagemap.FS, pid pagemap.PID, want Provider) (Plan, error) {
	t, done, err := openTarget(fs, pid)
	if err != nil {
		return Plan{}, err
	}
	defer done()
	r, why, err := t.runtime()
	if err != nil {
		return Plan{}, err
	}
	if r == nil {
		return Plan{Provider: ProviderNone, Why: t.noRuntime(why)}, nil
	}
	defer r.Close()
	p := Plan{Runtime: r.kind, Version: r.version, Module: r.path, BuildID: buildID(r.elf), File: r.file, Bias: r.bias}
	best, err := t.choose(r, want)
	if err != nil {
		return p, err
	}
	p.Provider, p.Probes, p.Flag, p.Why = best.provider, best.probes, best.flag, best.why
	return p, nil
}

// way is one way to learn the phase.
type way struct {
	provider Provider
	flag     *Flag
	probes   []Probe
	why      string // how, or why not (provider is ProviderNone)
}

// tellsMajor reports whether minor and major collections are told apart.
func (w way) tellsMajor() bool {
	if w.flag != nil {
		return w.flag.Minor != nil
	}
	for _, p := range w.probes {
		if p.Rule != RuleNone {
			return true
		}
	}
	return false
}

func (t *target) choose(r *runtime, want Provider) (way, error) {
	ways := []struct {
		provider Provider
		find     func(*runtime) (way, error)
	}{{ProviderFlag, t.byFlag}, {ProviderSymbols, t.bySymbols}, {ProviderUSDT, t.byNotes}}
	var first *way
	var reasons []string
	notYet := error(nil)
	for _, w := range ways {
		if want != ProviderUnknown && want != w.provider {
			continue
		}
		found, err := w.find(r)
		switch {
		case errors.Is(err, ErrNotYet):
			notYet = err
			continue
		case err != nil && t.isGone():
			return way{}, fmt.Errorf("%w: %w", pagemap.ErrGone, err)
		case err != nil:
			reasons = append(reasons, err.Error())
			continue
		case found.provider == ProviderNone:
			reasons = append(reasons, found.why)
			continue
		}
		if found.tellsMajor() {
			return found, nil
		}
		if first == nil {
			first = &found
		}
	}
	switch {
	case notYet != nil:
		return way{}, fmt.Errorf("%s of %d: %w", r.kind, t.pid, notYet)
	case first != nil:
		return *first, nil
	case want == ProviderNone:
		return way{provider: ProviderNone, why: "no way to learn the phase was asked for"}, nil
	}
	return way{provider: ProviderNone, why: fmt.Sprintf("%s; %s", strings.Join(reasons, "; "), remedy(r))}, nil
}

// remedy is what helps where nothing was found.
func remedy(r *runtime) string {
	switch r.kind {
	case "ruby":
		return "install the debug symbols of " + r.name() + ", or a Ruby built with dtrace support (configure --enable-dtrace)"
	default:
		return "install the debug symbols of " + r.name() + ", or a Python built with USDT notes (configure --with-dtrace)"
	}
}

func (t *target) byFlag(r *runtime) (w way, err error) {
	w.provider = ProviderFlag
	if r.kind == "ruby" {
		w.flag, w.why, err = rubyFlag(t, r.module, r.version)
	} else {
		w.flag, w.why, err = pythonFlag(t, r.module, r.version)
	}
	return w, err
}

func (t *target) byNotes(r *runtime) (way, error) {
	provider, events := "ruby", rubyNotes
	if r.kind == "python" {
		provider, events = "python", pythonNotes
	}
	all, err := usdtNotes(r.elf)
	if err != nil {
		return way{}, fmt.Errorf("%s: %w", r.name(), err)
	}
	probes, err := noteProbes(r.module, all, provider, events)
	if err != nil {
		return way{}, err
	}
	if len(probes) == 0 {
		return way{provider: ProviderNone, why: r.name() + " has no USDT notes of its collector"}, nil
	}
	if r.kind == "python" {
		for i := range probes {
			if a := probes[i].Arg; probes[i].Event == GCBegin && a.Kind != ArgNone {
				probes[i].Rule, probes[i].Operand = RuleAtLeast, pythonFull
			}
		}
	} else {
		for i := range probes {
			probes[i].Arg = Arg{} // gc__sweep__begin and the others have none
		}
	}
	return way{provider: ProviderUSDT, probes: probes, why: fmt.Sprintf("%s has %d USDT notes of its collector", r.name(), len(probes))}, nil
}

// noteProbes gives the probes of the notes that are events, in the order of the file: a note may be there several times, once
// for each place into which the compiler copied it. Each event must be there.
func noteProbes(m *module, all []usdt, provider string, events map[string]Event) ([]Probe, error) {
	var out []Probe
	have := map[string]bool{}
	for _, u := range all {
		event, ok := events[u.name]
		if !ok || u.provider != provider {
			continue
		}
		p := Probe{Event: event, Name: u.name}
		if p.Offset, ok = m.offset(u.addr); !ok {
			return nil, fmt.Errorf("%w: note %s of %s: address %#x is in no part of the file", pagemap.ErrFormat, u.name, m.name(), u.addr)
		}
		if u.semaphore != 0 {
			if p.Semaphore, ok = m.offset(u.semaphore); !ok {
				return nil, fmt.Errorf("%w: note %s of %s: semaphore %#x is in no part of the file", pagemap.ErrFormat, u.name, m.name(), u.semaphore)
			}
		}
		if args := parseArgs(u.args); len(args) > 0 {
			p.Arg = args[0]
		}
		out = append(out, p)
		have[u.name] = true
	}
	if len(have) > 0 && len(have) < len(events) {
		return nil, fmt.Errorf("%w: %s has %d of the %d notes that tell the phase", pagemap.ErrFormat, m.name(), len(have), len(events))
	}
	return out, nil
}

// others are programs of which a user may expect that their collector is known.
var others = []struct{ prefix, runtime string }{
	{"node", "Node.js"}, {"java", "Java"}, {"php", "PHP"}, {"beam", "Erlang"}, {"dotnet", ".NET"}, {"lua", "Lua"}, {"perl", "Perl"},
}

func (t *target) noRuntime(why string) string {
	name := filepath.Base(strings.TrimSuffix(t.exe, " (deleted)"))
	for _, o := range others {
		if strings.HasPrefix(name, o.prefix) {
			return fmt.Sprintf("%s is %s, whose collector is not known: faults are shown without its phase", name, o.runtime)
		}
	}
	if why != "" {
		return why + ": faults are shown without a phase"
	}
	if t.exe == "" {
		name = fmt.Sprintf("process %d", t.pid)
	}
	return name + " has neither Ruby nor CPython in it, the two whose collectors are known: faults are shown without a phase"
}
