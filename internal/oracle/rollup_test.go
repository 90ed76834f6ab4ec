package oracle

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// rollupOf reads smaps_rollup by hand, in bytes by field name; nil where the process has no address space.
func rollupOf(pid pagemap.PID) map[string]int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return nil
	}
	out := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		w := strings.Fields(line)
		if len(w) != 3 || w[2] != "kB" {
			continue
		}
		n, err := strconv.ParseInt(w[1], 10, 64)
		if err != nil {
			return nil
		}
		out[strings.TrimSuffix(w[0], ":")] = n << 10
	}
	return out
}

// totals are the fields that a ledger must give to the page. Pss and the split in private and shared are other questions.
func totals(r map[string]int64) [4]int64 {
	page := int64(pageSize)
	return [4]int64{r["Rss"] / page, r["Anonymous"] / page, r["KSM"] / page, (r["Shared_Hugetlb"] + r["Private_Hugetlb"]) / page}
}

// ofLedger gives the same of a ledger.
func ofLedger(p *audit.Process) [4]int64 {
	var anon int64
	for _, m := range p.Mappings {
		if strings.HasSuffix(m.Perms, "p") {
			anon += m.Pages.Held - m.Pages.File - m.Pages.Zero - m.Pages.InSwap - m.Pages.HugeTLB
		}
	}
	return [4]int64{int64(p.RSS) / int64(pageSize), anon, p.Pages.Merged, p.Pages.HugeTLB}
}

// The total of each ledger is what the kernel says of the process, to the page, for every process of the machine that holds
// still: whose smaps_rollup is the same before and after. Real servers are among them.
func TestRollupOfEveryProcess(t *testing.T) {
	requireFrames(t)
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			pids := s.run(t)
			still, moved := checkRollups(t, pids)
			if len(still) == 0 {
				t.Errorf("no process of %s holds still: %v", s.name, moved)
			}
			checkFamilyTables(t, pids)
		})
	}
	t.Run("machine", func(t *testing.T) {
		names, err := os.ReadDir("/proc")
		if err != nil {
			t.Fatal(err)
		}
		var pids []pagemap.PID
		for _, n := range names {
			pid, err := strconv.Atoi(n.Name())
			if err == nil && pid != os.Getpid() && rollupOf(pagemap.PID(pid)) != nil {
				pids = append(pids, pagemap.PID(pid))
			}
		}
		slices.Sort(pids)
		still, moved := checkRollups(t, pids)
		t.Logf("%d processes hold still and agree to the page; %d do not hold still: %v", len(still), len(moved), moved)
		if len(still) == 0 {
			t.Error("no process holds still")
		}
	})
}

// What the kernel counts otherwise, as docs/method.md says: zero pages and hugetlb pages are outside of Rss, guard regions are
// in nothing, and shared memory in swap is in Swap without a page table entry. All else agrees to the page.
func TestRollupDifferences(t *testing.T) {
	requireFrames(t)
	zero := zeroPage(t)
	swapOn(t)
	setting(t, "/proc/sys/vm/nr_hugepages", "4")
	s := pages(t, "anon A 83", "write A 0 83 1", "shm S 61", "write S 0 61 1", "anon Z 53", "read Z 0 29", "thp T 1", "read T 3 4",
		"anon G 43", "write G 0 43 1", "guard G 0 19", "hugetlb H 1", "write H 0 1 1", "file F 37", "read F 0 37", "write F 0 11 1",
		"stage resident", "swapout A 0 83", "swapout S 0 61", "stage swapped")
	for _, c := range []struct {
		stage                     string
		anonSwapped, shmemSwapped int64
	}{{"resident", 0, 0}, {"swapped", 83, 61}} {
		st := s.to(c.stage)
		pid := st.pids[0]
		before := rollupOf(pid)
		p := process(t, share(t, open(t, pagemap.Options{Rollup: true}, pagemap.FamilyOptions{Alone: true}, pid), nil), pid)
		if got, want := ofLedger(p), totals(before); got != want {
			t.Errorf("%s: ledger %v, smaps_rollup %v (Rss, Anonymous, KSM, hugetlb, in pages)%s", c.stage, got, want, byMapping(pid, p))
		}
		for name, want := range map[string]audit.Pages{
			"A": {Unshared: 83, InSwap: c.anonSwapped, Private: 83 - c.anonSwapped, Swapped: c.anonSwapped},
			"S": {File: 61 - c.shmemSwapped}, "Z": {Zero: 29}, "T": {Zero: 512}, "G": {Unshared: 24, Private: 24, Guard: 19},
			"H": {Unshared: 512, Private: 512, HugeTLB: 512}, "F": {Unshared: 11, Private: 11, File: 26},
		} {
			want.Unshared -= want.Swapped
			if !zero {
				want.Unshared, want.Private, want.Zero = want.Unshared+want.Zero, want.Private+want.Zero, 0
			}
			samePages(t, c.stage+", "+name, within(t, p, st.regions[name]), sums(want))
		}
		r := p.Rollup
		if r == nil || r.RSSPages != r.LedgerRSSPages || r.LedgerSwap != c.anonSwapped || r.SwapPages != c.anonSwapped+c.shmemSwapped {
			t.Errorf("%s: %+v, want a difference of %d pages of shared memory in swap", c.stage, r, c.shmemSwapped)
		} else if r.Agrees != (c.shmemSwapped == 0) {
			t.Errorf("%s: agrees is %v: %+v", c.stage, r.Agrees, *r)
		}
	}
	s.finish()
}

// checkRollups audits each process by itself and gives those that held still, and those that did not in some tries.
func checkRollups(t *testing.T, pids []pagemap.PID) (still, moved []pagemap.PID) {
	t.Helper()
	for _, pid := range pids {
		held := false
		for try := 0; try < 20 && !held; try++ {
			before := rollupOf(pid)
			procs, _, err := proc.Family([]pagemap.PID{pid}, pagemap.FamilyOptions{Alone: true})
			if before == nil || err != nil {
				break // it ended
			}
			if procs[0].State != pagemap.StateAudited {
				t.Errorf("process %d (%s) has a smaps_rollup and is %s", pid, procs[0].Comm, procs[0].State)
				break
			}
			r := share(t, open(t, pagemap.Options{Rollup: true}, pagemap.FamilyOptions{Alone: true}, pid), nil)
			p := process(t, r, pid)
			if after := rollupOf(pid); after == nil || totals(after) != totals(before) || after["Swap"] != before["Swap"] || p.Rollup == nil {
				continue
			}
			held = true
			if got, want := ofLedger(p), totals(before); got != want {
				t.Errorf("process %d (%s): ledger %v, smaps_rollup %v (Rss, Anonymous, KSM, hugetlb, in pages)%s", pid, p.Comm, got, want, byMapping(pid, p))
			}
			if p.Rollup.RSSPages != totals(before)[0] || !p.Rollup.Agrees {
				t.Errorf("process %d (%s): the report's own check: %+v, smaps_rollup Rss %d", pid, p.Comm, *p.Rollup, totals(before)[0])
			}
		}
		if held {
			still = append(still, pid)
		} else {
			moved = append(moved, pid)
		}
	}
	return still, moved
}

// byMapping names the mappings whose resident pages differ from what smaps says.
func byMapping(pid pagemap.PID, p *audit.Process) string {
	list, err := proc.Smaps(pid)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, s := range list {
		var got int64
		for _, m := range p.Mappings {
			if m.Start == s.Start {
				got = m.Pages.Held - m.Pages.Zero - m.Pages.InSwap - m.Pages.HugeTLB
			}
		}
		if want := int64(s.Rss) / int64(pageSize); got != want {
			fmt.Fprintf(&b, "\n\t%x-%x %s %s %v: ledger %d, smaps %d", s.Start, s.End, s.Perms, s.Path, s.VmFlags, got, want)
		}
	}
	return b.String()
}

// checkFamilyTables holds the ledgers of a server's family against the page tables, exactly, for the processes whose tables
// are the same before and after the capture.
func checkFamilyTables(t *testing.T, pids []pagemap.PID) {
	t.Helper()
	compared := 0
	for try := 0; try < 10 && compared == 0; try++ {
		raw := newTableReader(t)
		before := map[pagemap.PID]table{}
		for _, pid := range pids {
			before[pid] = raw.read(t, pid, nil)
		}
		r := share(t, snapshot(t, pagemap.Options{}, pids...), nil)
		for i := range r.Family {
			p := &r.Family[i]
			if p.ReferencePID == 0 || p.State != pagemap.StateAudited {
				continue
			}
			if !same(before[p.PID], raw.read(t, p.PID, nil)) || !same(before[p.ReferencePID], raw.read(t, p.ReferencePID, nil)) {
				continue
			}
			compared++
			for _, d := range raw.compare(before[p.ReferencePID], before[p.PID]).agrees(p.Pages) {
				t.Errorf("%d (%s) against %d: %s", p.PID, p.Comm, p.ReferencePID, d)
			}
		}
	}
	if compared == 0 && len(pids) > 1 {
		t.Errorf("no process and its reference hold still")
	}
}

func same(a, b table) bool {
	if a.shared != b.shared || len(a.entries) != len(b.entries) {
		return false
	}
	const steady = 1<<55 - 1 | 1<<58 | 1<<61 | 1<<62 | 1<<63
	for page, e := range a.entries {
		if e&steady != b.entries[page]&steady {
			return false
		}
	}
	return true
}
