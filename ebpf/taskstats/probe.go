package taskstats

import (
	"errors"
	"fmt"
	"io/fs"

	"cowaudit/pagemap"
)

// Outcome of the probe.
type Outcome int

// Outcomes. A probe that was refused, or met an error that says nothing, is Unknown.
const (
	Unknown Outcome = iota
	Yes
	No
)

// Probed is what [Probe] found, in words.
type Probed struct {
	Outcome Outcome
	Detail  string
	Remedy  string // empty where nothing is to be done
}

// Since is the first Linux that counts copies.
const Since = "5.19"

// Probe tells whether the kernel counts copies here and now, by asking it for this process' own count. It changes nothing.
func Probe() Probed {
	c, err := Open()
	if err != nil {
		return probeError(err)
	}
	// Nothing was written to the socket that could be lost.
	defer func() { _ = c.Close() }()
	a, err := DelayAccounting()
	if err != nil {
		return probeError(err)
	}
	left := false
	if a.OnSince != 0 {
		if left, err = system.left(); err != nil {
			return probeError(err)
		}
	}
	return probed(c.Version(), a, left)
}

func probed(version int, a Accounting, left bool) Probed {
	what := fmt.Sprintf("taskstats version %d", version)
	switch {
	case !a.On:
		return Probed{No, what + ", and kernel.task_delayacct is 0: nothing is counted", "sysctl kernel.task_delayacct=1 before the server is started (a little cost at each fault)"}
	case left:
		return Probed{Yes, what + "; a cowaudit that was killed left kernel.task_delayacct at 1", "sysctl kernel.task_delayacct=0, unless it is wanted"}
	case a.OnSince != 0:
		return Probed{Yes, what + ", switched on by a cowaudit that runs now: processes started since are counted", ""}
	}
	return Probed{Yes, what + ": processes started since kernel.task_delayacct is 1 are counted", ""}
}

func probeError(err error) Probed {
	p := Probed{Detail: err.Error()}
	switch {
	case errors.Is(err, errOtherProc):
		p.Outcome, p.Remedy = No, "mount -t proc proc /proc, in this pid namespace"
	case errors.Is(err, pagemap.ErrNotSupported):
		p.Outcome, p.Remedy = No, "a kernel from Linux "+Since+" on with CONFIG_TASKSTATS and CONFIG_TASK_DELAY_ACCT"
	case errors.Is(err, fs.ErrPermission):
		p.Remedy = "run it as root of the host (CAP_NET_ADMIN)"
	}
	return p
}
