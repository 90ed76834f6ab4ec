package main

import (
	"cowaudit/ebpf/taskstats"
	"cowaudit/internal/host"
)

// copiesRow says whether the kernel itself counts copies here (taskstats, wpcopy_count).
func copiesRow() host.Row {
	states := map[taskstats.Outcome]host.State{taskstats.Yes: host.Yes, taskstats.No: host.No, taskstats.Unknown: host.Unknown}
	p := taskstats.Probe()
	return host.Row{
		Name: "copies_counted_by_kernel", Group: host.Host, State: states[p.Outcome], Detail: p.Detail, Remedy: p.Remedy, Since: taskstats.Since,
	}
}
