package forktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"cowaudit/audit"
	"cowaudit/pagemap"
)

// warmOrders is how many null events a worker does before the first capture, so that what reading an order and answering
// it writes for the first time is written by then.
const warmOrders = 3

// worker is a forked process that takes orders from a pipe of its own, so that an order wakes nobody else.
type worker struct {
	*watched // nil until the process is found
	number   int
	orders   int              // the pipe's writing end
	last     map[string]int64 // what it said of itself after its last event
	history  []*measurement   // of its events, where the scenario has metrics
}

func (w *worker) close() {
	if w.orders >= 0 {
		unix.Close(w.orders)
		w.orders = -1
	}
}

func (w *worker) send(m message) error {
	line := []byte(m.String() + "\n")
	n, err := unix.Write(w.orders, line)
	switch {
	case errors.Is(err, unix.EPIPE):
		return nil // it has ended, which is noticed
	case err != nil:
		return fmt.Errorf("send %s to worker %d: %w", m.word, w.number, err)
	case n != len(line):
		return fmt.Errorf("send %s to worker %d: %d of %d bytes were taken", m.word, w.number, n, len(line))
	}
	return nil
}

// openOrders opens the writing end of a worker's pipe, which its parent holds, as a descriptor of this process.
func openOrders(fs pagemap.FS, parent pagemap.PID, fd int64) (int, error) {
	// Look before opening it for good: opening a device or a lock could do something.
	at, err := unix.Open(fs.Path(strconv.Itoa(int(parent)), "fd", strconv.FormatInt(fd, 10)), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open descriptor %d of process %d: %w", fd, parent, err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, fmt.Errorf("look at descriptor %d of process %d: %w", fd, parent, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return -1, fmt.Errorf("%w: descriptor %d of process %d is not a pipe", errProtocol, fd, parent)
	}
	out, err := unix.Open(fs.Path("self", "fd", strconv.Itoa(at)), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the pipe at descriptor %d of process %d: %w", fd, parent, err)
	}
	return out, nil
}

// fork has the parent fork its workers and does a few orders with each.
func (t *trial) fork(ctx context.Context) error {
	t.enter("forking")
	t.order(message{"fork", []arg{{"workers", strconv.Itoa(t.Workers)}}})
	for {
		a, err := t.expect(ctx, t.parent.pid, "worker", "ready")
		if err != nil {
			return err
		}
		if a.word == "ready" {
			break
		}
		if err := t.newWorker(&a); err != nil {
			return err
		}
	}
	if len(t.workers) != t.Workers {
		return t.fail("", "%s forked %d workers instead of %d", t.speaker(), len(t.workers), t.Workers)
	}
	for _, w := range t.workers {
		for range warmOrders {
			stats, err := t.event(ctx, w, audit.EventNull)
			if err != nil {
				return err
			}
			w.last = stats
		}
	}
	return nil
}

func (t *trial) newWorker(a *answer) error {
	n, err := a.number("number", 1, int64(t.Workers))
	if err == nil && int(n) != len(t.workers)+1 {
		err = fmt.Errorf("%w: worker %d comes after worker %d", errProtocol, n, len(t.workers))
	}
	var fd, pid int64
	if err == nil {
		fd, err = a.number("orders", 0, 1<<30)
	}
	if err == nil {
		pid, err = a.number("pid", 1, 1<<30)
	}
	if err != nil {
		return t.fail("", "%s: %v", t.speaker(), err)
	}
	w := &worker{number: int(n), orders: -1}
	t.workers = append(t.workers, w)
	if w.orders, err = openOrders("", t.parent.pid, fd); err != nil {
		return t.fail("", "%s: %v", t.speaker(), err)
	}
	role := "worker " + strconv.Itoa(w.number)
	real, err := descendant("", t.parent.pid, pagemap.PID(pid))
	if errors.Is(err, pagemap.ErrGone) {
		return t.fail("", "%s has ended before its first order, or is no child of %s: %v", role, t.speaker(), err)
	}
	if err != nil {
		return err
	}
	w.watched, err = t.watch.watch(role, real)
	var gone *endedError
	if errors.As(err, &gone) {
		return t.ended(w.watched)
	}
	return err
}

// descendant finds the process that has a PID in the pid namespace of its parent, by the last number of NSpid (4.1), among
// what descends from that parent. There is one at most: a PID is used once in a namespace.
func descendant(fs pagemap.FS, parent, inside pagemap.PID) (pagemap.PID, error) {
	tree, err := fs.Tree()
	if err != nil {
		return 0, fmt.Errorf("look for process %d: %w", inside, err)
	}
	for _, pid := range tree.Descendants(parent) {
		st, err := fs.Status(pid)
		if err != nil {
			continue // it has just ended
		}
		if n := len(st.NSPID); n > 0 && st.NSPID[n-1] == inside || n == 0 && pid == inside {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d, as its parent calls it: %w", inside, pagemap.ErrGone)
}

// parentEvent begins the names of the events that the parent does.
const parentEvent = "parent_"

// happen has an event done by all workers, one after the other, or by the parent. It gives what each worker said of itself.
func (t *trial) happen(ctx context.Context, name string) ([]map[string]int64, error) {
	stats := make([]map[string]int64, len(t.workers))
	if strings.HasPrefix(name, parentEvent) {
		t.order(message{"event", []arg{{"name", name}}})
		parent, err := t.done(ctx, t.parent.pid, "the parent", 0, name)
		if err != nil {
			return nil, err
		}
		for i, w := range t.workers { // which did nothing
			stats[i] = maps.Clone(w.last)
			stats[i]["duration_ns"] = parent["duration_ns"]
		}
		return stats, nil
	}
	for i, w := range t.workers {
		var err error
		if stats[i], err = t.measured(ctx, w, name); err != nil {
			return nil, err
		}
	}
	return stats, nil
}

// event orders an event from a worker and waits until it is done.
func (t *trial) event(ctx context.Context, w *worker, name string) (map[string]int64, error) {
	if err := w.send(message{"event", []arg{{"name", name}}}); err != nil {
		return nil, err
	}
	return t.done(ctx, w.pid, "worker "+strconv.Itoa(w.number), w.number, name)
}

// done waits for the answer to the order of an event, by a worker, or by the parent as number 0.
func (t *trial) done(ctx context.Context, pid pagemap.PID, who string, number int, name string) (map[string]int64, error) {
	a, err := t.expect(ctx, pid, "done")
	if err != nil {
		return nil, err
	}
	got, _ := a.get("event")
	if _, err := a.number("worker", int64(number), int64(number)); err != nil || got != name {
		return nil, t.fail("", "%s answered %q to the order %s", who, firstLine(a.String()), name)
	}
	stats := map[string]int64{}
	for _, arg := range a.args {
		if v, err := strconv.ParseInt(arg.value, 10, 64); err == nil && arg.key != "worker" {
			stats[arg.key] = v
		}
	}
	if _, ok := stats["duration_ns"]; !ok {
		return nil, t.fail("", "%s did not say how long %s took", who, name)
	}
	return stats, nil
}
