package ebpf

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	cebpf "github.com/cilium/ebpf"

	"cowaudit/pagemap"
)

func losses(m *cebpf.Map, l *Lost) error {
	for loss, to := range map[faultsLoss]*int64{
		faultsLossLOSS_RECORDS: &l.Records, faultsLossLOSS_COUNTS: &l.Counts, faultsLossLOSS_THREADS: &l.Threads,
		faultsLossLOSS_SPACES: &l.Spaces, faultsLossLOSS_STACKS: &l.Stacks, faultsLossLOSS_REGIONS: &l.Regions,
		faultsLossLOSS_PHASES: &l.Phases,
	} {
		var perCPU []uint64
		if err := m.Lookup(uint32(loss), &perCPU); err != nil {
			return fmt.Errorf("read what was lost: %w", err)
		}
		for _, n := range perCPU {
			*to += int64(n)
		}
	}
	return nil
}

// resolve names the instructions and stacks, and gives the counts and faults in order.
func (g *gatherer) resolve(tr *Trace) error {
	stacks, err := g.readStacks()
	if err != nil {
		return err
	}
	n := g.number(stacks)
	tr.Frames, tr.Stacks = n.frames, n.stacks
	for k, v := range g.counts {
		c := Count{
			Space: k.Space, Region: k.Region, Frame: n.frameOf[place{k.Space, k.IP}], GC: k.GC, Kind: k.Kind, Detail: k.Detail,
			Faults: v.Faults, Pages: v.Pages,
		}
		if k.Stack != 0 {
			c.Stack = n.stackOf[place{k.Space, k.Stack}]
		}
		tr.Counts = append(tr.Counts, c)
	}
	slices.SortFunc(tr.Counts, compareCounts)
	if !g.t.o.Faults {
		return nil
	}
	tr.Faults = make([]Fault, len(g.faults))
	for i := range g.faults {
		f := &g.faults[i]
		tr.Faults[i] = Fault{
			Time: f.time, Addr: pagemap.Addr(f.addr), Space: f.space, Region: f.region, Thread: f.thread,
			Frame: n.frameOf[place{f.space, f.ip}], GC: f.gc, Kind: f.kind, Detail: f.detail, Order: f.order, Code: f.code,
		}
		if f.stack != 0 {
			tr.Faults[i].Stack = n.stackOf[place{f.space, f.stack}]
		}
	}
	slices.SortStableFunc(tr.Faults, func(a, b Fault) int { return cmp.Compare(a.Time, b.Time) })
	return nil
}

// readStacks gets the addresses of every stack that was taken, innermost first.
func (g *gatherer) readStacks() (map[uint64][]uint64, error) {
	stacks := map[uint64][]uint64{}
	for k := range g.counts {
		if k.Stack == 0 || stacks[k.Stack] != nil {
			continue
		}
		var v faultsUserStack
		if err := g.t.kernel.coll.Maps["stacks"].Lookup(k.Stack, &v); err != nil {
			return nil, fmt.Errorf("read stack %d: %w", k.Stack, err)
		}
		n := slices.Index(v.Ip[:], 0)
		if n < 0 {
			n = len(v.Ip)
		}
		stacks[k.Stack] = slices.Clone(v.Ip[:n])
	}
	return stacks, nil
}

func compareCounts(a, b Count) int {
	return cmp.Or(cmp.Compare(a.Space, b.Space), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Frame, b.Frame),
		cmp.Compare(a.Stack, b.Stack), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Detail, b.Detail),
		cmp.Compare(a.GC.Seq, b.GC.Seq), cmp.Compare(a.GC.Phase, b.GC.Phase), cmp.Compare(a.GC.Step, b.GC.Step))
}

func host(fs pagemap.FS) (name, kernel string) {
	name, err := os.Hostname()
	if err != nil {
		name = ""
	}
	b, err := os.ReadFile(fs.Path("sys", "kernel", "osrelease"))
	if err != nil {
		return name, ""
	}
	return name, strings.TrimSpace(string(b))
}
