package forktest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cowaudit/pagemap"
)

// protocolVersion is the one that harnesses must speak.
const protocolVersion = 1

// quitLimit is how long a subject has to leave by itself when all is done.
const quitLimit = 5 * time.Second

// greeting is what a harness says of itself.
type greeting struct {
	runtime, version string
	orders, events   []string
}

// trial is one run: a subject from its start to its end.
type trial struct {
	*plan
	seq     int
	step    func(phase string) // tells the progress
	watch   *watcher
	process *process
	started *watched // what was started: a wrapper, perhaps
	parent  *watched // the process that speaks; nil before it has
	workers []*worker
	greeting
	phase   string   // what the subject is doing, in words
	tracing *tracing // nil: nothing is traced
}

// begin starts the subject. The trial must be ended in any case where err is nil.
func (p *plan) begin(seq int, step func(string)) (t *trial, err error) {
	control, theirs, err := newLink()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	out, writer, err := newOutput(p.Output)
	if err != nil {
		control.close()
		return nil, err
	}
	defer writer.Close()
	w, err := newWatcher(control, out)
	if err != nil {
		control.close()
		out.close()
		return nil, err
	}
	t = &trial{plan: p, seq: seq, step: step, watch: w}
	t.enter("starting")
	if t.process, err = startProcess(p.argv, p.env, theirs, writer, p.as); err != nil {
		w.close()
		return nil, err
	}
	if t.started, err = w.watch(p.name(), t.process.pid); err != nil && t.started == nil {
		return nil, errors.Join(err, t.end())
	}
	return t, nil
}

// name is what the subject is called in sentences.
func (p *plan) name() string {
	if len(p.argv) > len(p.harness.boot)+1 {
		return joinWords(p.argv[:len(p.argv)-len(p.harness.boot)])
	}
	return filepath.Base(p.argv[0])
}

// end kills what is left and waits for it.
func (t *trial) end() error {
	traceErr := t.stopTracing()
	for _, w := range t.workers {
		w.close()
	}
	t.watch.close()
	if err := t.process.end(); err != nil {
		return errors.Join(traceErr, fmt.Errorf("clean up after run %d: %w", t.seq, err))
	}
	return traceErr
}

func (t *trial) enter(phase string) {
	t.phase = phase
	t.step(phase)
}

// fail makes the Failure of this run, with the last words of the application.
func (t *trial) fail(remedy, format string, args ...any) error {
	t.watch.output.drain() // a failure is being told already
	said := &t.watch.output.tail
	return &Failure{Run: t.seq, What: fmt.Sprintf(format, args...), Remedy: remedy, Last: said.word(), Output: said.last()}
}

// order sends a line to the parent.
func (t *trial) order(m message) { t.watch.link.send(m.String() + "\n") }

// expect waits for an answer with one of the words, from one process; from is 0 for any. Whatever else happens is an error,
// nearly always a Failure.
func (t *trial) expect(ctx context.Context, from pagemap.PID, words ...string) (answer, error) {
	deadline := time.Now().Add(t.Timeout)
	for {
		a, err := t.watch.answer(ctx, time.Until(deadline))
		var ended *endedError
		switch {
		case err == nil:
			return a, t.accept(&a, from, words)
		case errors.As(err, &ended):
			if ended.proc == t.started && t.leftOthers() {
				continue
			}
			return a, t.ended(ended.proc)
		case errors.Is(err, errTimeout):
			return a, t.fail(t.hint(), "%s did not answer within %s while %s", t.speaker(), t.Timeout, t.phase)
		case errors.Is(err, errClosed):
			return a, t.closed()
		default:
			return a, err
		}
	}
}

// leftOthers reports whether what was started has ended as a wrapper does that has done its work: the process that speaks is
// another one, or the channel is still held by one that may yet speak.
func (t *trial) leftOthers() bool {
	if t.parent != nil {
		return t.parent != t.started
	}
	ws, ok := exitStatus(t.started.pid)
	return ok && ws == 0 && !t.watch.link.closed
}

// accept checks an answer.
func (t *trial) accept(a *answer, from pagemap.PID, words []string) error {
	switch {
	case a.err != nil:
		return t.fail(t.hint(), "%s said something else than the protocol on its standard input while %s: %s", t.speaker(), t.phase, firstLine(a.err.Error()))
	case from != 0 && a.from != from:
		return t.fail("", "process %d answered instead of process %d while %s: the application forked a process that went on as if it were the subject", a.from, from, t.phase)
	case a.word == "error":
		return t.raised(a)
	case !slices.Contains(words, a.word):
		return t.fail(t.hint(), "%s answered %q instead of %s while %s", t.speaker(), a.word, strings.Join(words, " or "), t.phase)
	}
	return nil
}

// raised tells an error that the harness caught.
func (t *trial) raised(a *answer) error {
	class, _ := a.get("class")
	text, _ := a.get("message")
	where := ""
	if at, ok := a.get("at"); ok {
		where = " at " + firstLine(at)
	}
	if class == "" {
		class = "an error"
	}
	err := t.fail("", "%s%s while %s: %s", firstLine(class), where, t.phase, firstLine(text))
	var f *Failure
	if errors.As(err, &f) && class != "SystemExit" {
		f.Last = "" // what comes last there is the rest of the same error
	}
	return err
}

// ended tells the end of a process that should be there.
func (t *trial) ended(p *watched) error {
	how := "has ended"
	ws, ok := exitStatus(p.pid)
	if ok {
		how = exitWords(ws)
	} else if p != t.started {
		// Its parent has reaped it. A wrapper that waited for it ends with what it saw.
		if t.watch.ends(t.started, time.Second) {
			if ws, ok = exitStatus(t.started.pid); ok {
				p, how = t.started, exitWords(ws)
			}
		}
	}
	hint := t.hint()
	if ok && ws.Signaled() && ws.Signal() == unix.SIGKILL {
		hint = "if nobody else killed it, memory ran out: see dmesg"
	}
	return t.fail(hint, "%s %s while %s", p.role, how, t.phase)
}

// closed tells a control channel that nobody holds any more while the processes live on.
func (t *trial) closed() error {
	if t.watch.ends(t.started, time.Second) { // it was about to end
		return t.ended(t.started)
	}
	return t.fail("keep standard input open, and do not exec another program", "%s closed its control channel while %s", t.speaker(), t.phase)
}

// speaker names who is expected to answer.
func (t *trial) speaker() string { return t.plan.name() }

// hint helps a subject that never said hello.
func (t *trial) hint() string {
	if t.parent == nil {
		return t.harness.hint
	}
	return ""
}

// hello waits for the subject to say who it is.
func (t *trial) hello(ctx context.Context) error {
	t.watch.link.send(t.harness.hello())
	a, err := t.expect(ctx, 0, "hello")
	if err != nil {
		return err
	}
	if v, err := a.number("protocol", 0, 1<<30); err != nil || v != protocolVersion {
		given, _ := a.get("protocol")
		return t.fail("", "%s speaks version %q of the protocol, not %d", t.speaker(), given, protocolVersion)
	}
	t.runtime, _ = a.get("runtime")
	t.version, _ = a.get("version")
	t.orders, t.events = a.list("orders"), a.list("events")
	if t.builtIn != nil && t.builtIn.Events != nil {
		t.events = t.builtIn.Events
	}
	if t.Event != "" && len(t.events) > 0 {
		t.events = slices.Insert(slices.Clone(t.events), 1, eventApp)
	}
	if !name(t.runtime) {
		t.runtime = "script"
	}
	t.version = firstLine(t.version)
	if len(t.events) == 0 || t.events[0] != "null" || slices.ContainsFunc(t.events, func(e string) bool { return !name(e) }) {
		return t.fail("", "%s says events=%s: the first must be null, and all in small letters", t.speaker(), firstLine(strings.Join(t.events, ",")))
	}
	if a.from == t.process.pid {
		t.parent = t.started
		return nil
	}
	t.parent, err = t.watch.watch(t.speaker(), a.from)
	var gone *endedError
	if errors.As(err, &gone) {
		return t.ended(t.parent)
	}
	return err
}

// ask sends an order to the parent and waits until it is done. An order that the harness does not take is left out where
// the user did not ask for it.
func (t *trial) ask(ctx context.Context, phase string, wanted bool, order message, done string) (answer, error) {
	if !slices.Contains(t.orders, order.word) {
		if !wanted {
			return answer{}, nil
		}
		return answer{}, t.fail("", "%s (%s) has no %s", t.speaker(), t.version, order.word)
	}
	t.enter(phase)
	t.order(order)
	return t.expect(ctx, t.parent.pid, done)
}

// leave lets the subject end by itself.
func (t *trial) leave() {
	for _, w := range t.workers {
		if w.send(message{word: "quit"}) == nil {
			t.watch.ends(w.watched, quitLimit)
		}
	}
	t.order(message{word: "quit"})
	t.watch.ends(t.parent, quitLimit)
}
