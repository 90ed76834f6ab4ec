package ebpf

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf/link"

	"cowaudit/ebpf/gc"
	"cowaudit/pagemap"
)

// collectors finds out how the collector of each traced process tells its phase, and makes it known to the kernel's side.
type collectors struct {
	t          *Tracer
	want       gc.Provider
	off        bool
	generation uint32
	probes     uint32         // entries in use of the map of that name
	attached   map[string]int // probes by the file they are in
	links      []link.Link
	errs       map[string]error // by file: why no probe could be attached
}

// collectorNames are the values of Options.Collector.
var collectorNames = map[string]gc.Provider{
	"": gc.ProviderUnknown, "auto": gc.ProviderUnknown, "flag": gc.ProviderFlag, "symbols": gc.ProviderSymbols, "usdt": gc.ProviderUSDT,
}

// CollectorChoices lists the values of Options.Collector.
func CollectorChoices() []string { return []string{"auto", "flag", "symbols", "usdt", "none"} }

func newCollectors(t *Tracer) (*collectors, error) {
	c := &collectors{t: t, attached: map[string]int{}, errs: map[string]error{}}
	if t.o.Collector == "none" {
		c.off = true
		return c, nil
	}
	want, ok := collectorNames[t.o.Collector]
	if !ok {
		return nil, fmt.Errorf("GC provider %q: one of %s", t.o.Collector, strings.Join(CollectorChoices(), ", "))
	}
	c.want = want
	return c, nil
}

// retryAfter is how soon a runtime that was not up yet is asked again.
const retryAfter = 100 * time.Millisecond

// find decides about a space. It is called again when the space's code has changed, or when a runtime was still starting.
func (c *collectors) find(s *space) {
	switch {
	case c.off:
		s.Provider = Provider{Name: "none", Why: "not asked for"}
		return
	case s.found && !s.again:
		return
	}
	s.found, s.again = true, false
	plan, err := gc.Find(c.t.o.FS, s.Process.PID, c.want)
	if errors.Is(err, gc.ErrNotYet) {
		s.again, s.retry = true, c.t.clock()+retryAfter
	}
	if err != nil {
		s.Provider = Provider{Name: "none", Runtime: plan.Runtime, Version: plan.Version, Module: plan.Module, Why: err.Error()}
		return
	}
	s.Provider = Provider{Name: plan.Provider.String(), Runtime: plan.Runtime, Version: plan.Version, Module: plan.Module, Why: plan.Why}
	entry := faultsCollector{}
	switch plan.Provider {
	case gc.ProviderFlag:
		entry = flagEntry(plan.Flag)
	case gc.ProviderSymbols, gc.ProviderUSDT:
		entry.Source = collectorProbes
		if s.Provider.Probes, err = c.attach(&plan); err != nil {
			s.Provider.Name, s.Provider.Why = "none", err.Error()
			return
		}
	default:
		return
	}
	if err := c.set(s.ID, &entry); err != nil {
		s.Provider.Name, s.Provider.Why = "none", err.Error()
	}
}

// Sources of a collector's state: bpf/faults.h, COLLECTOR_….
const (
	collectorWord   = 1
	collectorProbes = 2
)

func flagEntry(f *gc.Flag) faultsCollector {
	bits := func(b *gc.Bits) faultsBits {
		if b == nil {
			return faultsBits{}
		}
		return faultsBits{Mask: b.Mask, Want: b.Want}
	}
	return faultsCollector{
		Addr: f.Addr, Size: f.Size, Count: f.Count, CountSize: f.CountSize, Source: collectorWord,
		During: bits(&f.During), Minor: bits(f.Minor), Unsettled: bits(f.Unsettled),
		Marking: bits(f.Marking), Sweeping: bits(f.Sweeping), Compacting: bits(f.Compacting),
	}
}

// set enters a space's collector; the kernel's side reads it anew when the generation has changed.
func (c *collectors) set(id SpaceID, entry *faultsCollector) error {
	k := c.t.kernel.coll
	if err := k.Maps["collectors"].Put(uint32(id), entry); err != nil {
		return fmt.Errorf("enter the collector: %w", err)
	}
	c.generation++
	if err := k.Variables["collectors_generation"].Set(c.generation); err != nil {
		return fmt.Errorf("enter the collector: %w", err)
	}
	return nil
}

// attach puts probes into the file that holds the collector, once for each file: a uprobe is in every process that maps
// the file, and so is the copy of the page of its text that it causes (kernel/events/uprobes.c).
func (c *collectors) attach(plan *gc.Plan) (int, error) {
	key := plan.Module + "\x00" + plan.BuildID
	if n, ok := c.attached[key]; ok {
		return n, c.errs[key]
	}
	n, err := c.attachAll(plan)
	if err != nil {
		err = fmt.Errorf("attach to %s: %w: uprobes need CONFIG_UPROBE_EVENTS and CAP_PERFMON", plan.Module, err)
	}
	c.attached[key], c.errs[key] = n, err
	return n, err
}

func (c *collectors) attachAll(plan *gc.Plan) (int, error) {
	exe, err := link.OpenExecutable(plan.File)
	if err != nil {
		return 0, err
	}
	for i := range plan.Probes {
		p := &plan.Probes[i]
		entry := probeEntry(p)
		if err := c.t.kernel.coll.Maps["probes"].Put(c.probes, &entry); err != nil {
			return i, fmt.Errorf("more than %d probes: %w", c.probes, err)
		}
		o := &link.UprobeOptions{Address: p.Offset, RefCtrOffset: p.Semaphore, Cookie: uint64(c.probes)}
		c.probes++
		at := exe.Uprobe
		if p.Return {
			at = exe.Uretprobe
		}
		l, err := at(p.Name, c.t.kernel.coll.Programs[probeProgram], o)
		if err != nil {
			return i, fmt.Errorf("%s: %w", p.Name, err)
		}
		c.links = append(c.links, l)
	}
	return len(plan.Probes), nil
}

func probeEntry(p *gc.Probe) faultsProbe {
	e := faultsProbe{Event: uint8(p.Event), Operand: p.Operand, Rule: uint8(p.Rule), Phase: uint8(PhaseGC)}
	switch p.Arg.Kind {
	case gc.ArgRegister, gc.ArgMemory:
		e.Arg = uint8(faultsArgRegister)
		if p.Arg.Kind == gc.ArgMemory {
			e.Arg = faultsArgMemory
		}
		e.Slot, e.Size, e.Shift, e.Offset = uint8(p.Arg.Register), p.Arg.Size, p.Arg.Shift, p.Arg.Offset
		if p.Arg.Signed {
			e.Sign = 1
		}
	case gc.ArgConstant:
		e.Phase = uint8(constantPhase(p))
	}
	return e
}

// Places of an argument: bpf/faults.h, ARG_….
const (
	faultsArgRegister = 1
	faultsArgMemory   = 2
)

func constantPhase(p *gc.Probe) Phase {
	major := false
	switch p.Rule {
	case gc.RuleAtLeast:
		major = p.Arg.Value >= int64(p.Operand)
	case gc.RuleHasBits:
		major = uint64(p.Arg.Value)&p.Operand != 0
	default:
		return PhaseGC
	}
	if major {
		return PhaseMajor
	}
	return PhaseMinor
}

// retry asks the runtimes again that were still starting.
func (c *collectors) retry(g *gatherer) {
	now := c.t.clock()
	for _, s := range g.spaces {
		if s.again && s.Ended == 0 && now >= s.retry {
			c.find(s)
		}
	}
}

func (c *collectors) close() error {
	err := closeAll(c.links)
	c.links = nil
	return err
}

// Collector says how the phase of a traced process' collector is known; the zero value where the process is not traced.
func (t *Tracer) Collector(pid pagemap.PID) Provider {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found *space
	for _, s := range t.g.spaces {
		if s.Process.PID == pid && (found == nil || s.Began > found.Began) {
			found = s
		}
	}
	if found == nil {
		return Provider{}
	}
	return found.Provider
}
