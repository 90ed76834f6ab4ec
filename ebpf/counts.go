package ebpf

import (
	"fmt"
	"time"

	cebpf "github.com/cilium/ebpf"
)

// The kernel's side keeps its counts in one of two tables. The one that it does not use is read and emptied here from time
// to time, so that a server that faults all day, in one collection after the other, does not fill it.

// emptyEvery is how often the tables change places, by default.
const emptyEvery = time.Second

// maxCounts is the number of different faults that are kept. Beyond it collections are no longer told apart.
const maxCounts = 400_000

// turnCounts reads the table that was taken out of use the last time, and takes the other one out of use. The programs that
// still wrote to it then have ended long ago: they do not sleep.
func (g *gatherer) turnCounts() error {
	now := g.t.clock()
	if g.t.o.Faults || now-g.turned < g.t.o.emptyEvery {
		return nil
	}
	g.turned = now
	if err := g.emptyCounts(g.turn + 1); err != nil {
		return err
	}
	g.turn++
	if err := g.t.kernel.coll.Variables["counts_turn"].Set(g.turn); err != nil {
		return fmt.Errorf("change the table of counts: %w", err)
	}
	return nil
}

// emptyCounts adds the counts of the table of a turn to ours and deletes them there.
func (g *gatherer) emptyCounts(turn uint32) error {
	m := g.t.kernel.coll.Maps[[]string{"counts_even", "counts_odd"}[turn%2]]
	var keys []faultsCountKey
	var key faultsCountKey
	var perCPU []faultsCount
	it := m.Iterate()
	for it.Next(&key, &perCPU) {
		g.addCount(&key, perCPU)
		keys = append(keys, key)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the table of counts: %w", err)
	}
	for i := range keys {
		if err := m.Delete(&keys[i]); err != nil {
			return fmt.Errorf("empty the table of counts: %w", err)
		}
	}
	if len(g.counts) > maxCounts {
		g.fold()
	}
	return nil
}

func (g *gatherer) addCount(key *faultsCountKey, perCPU []faultsCount) {
	k := countKey{
		Space: SpaceID(key.Space), Region: RegionID(key.Region), IP: key.Ip, GC: GC{Phase(key.Phase), Step(key.Step), key.Seq},
		Stack: key.Stack, Kind: Kind(key.Kind), Detail: Detail(key.Detail),
	}
	if g.folded {
		k.GC.Seq = 0
	}
	n := g.counts[k]
	if n == nil {
		n = new(Tally)
		g.counts[k] = n
		g.fresh[k.Space] = true
	}
	for _, c := range perCPU {
		n.Faults += int64(c.Faults)
		n.Pages += int64(c.Pages)
	}
}

// fold gives up the numbers of the collections.
func (g *gatherer) fold() {
	g.folded = true
	before := g.counts
	g.counts = make(map[countKey]*Tally, len(before)/2)
	for k, v := range before {
		k.GC.Seq = 0
		if n := g.counts[k]; n != nil {
			n.Faults += v.Faults
			n.Pages += v.Pages
		} else {
			g.counts[k] = v
		}
	}
}

// kernelCounts adds what both tables hold at the end.
func (g *gatherer) kernelCounts() error {
	for turn := range uint32(2) {
		if err := g.emptyCounts(turn); err != nil {
			return err
		}
	}
	return nil
}

func totals(m *cebpf.Map) (t [NKinds]Tally, err error) {
	for k := range NKinds {
		var perCPU []faultsCount
		if err := m.Lookup(uint32(k), &perCPU); err != nil {
			return t, fmt.Errorf("read the totals: %w", err)
		}
		for _, c := range perCPU {
			t[k].Faults += int64(c.Faults)
			t[k].Pages += int64(c.Pages)
		}
	}
	return t, nil
}
