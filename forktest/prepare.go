package forktest

import (
	"context"
	"fmt"
	"slices"
)

// load has the application loaded.
func (t *trial) load(ctx context.Context) error {
	m := message{word: "load"}
	switch {
	case t.App != "":
		m.args = []arg{{"app", t.App}, {"source", t.source}}
	case t.builtIn != nil:
		m.args = append([]arg{{"scenario", t.Scenario}}, t.sizes()...)
	}
	if m.args != nil {
		if _, err := t.ask(ctx, "loading the application", true, m, "loaded"); err != nil {
			return err
		}
	}
	return t.evaluate(ctx, "preload", t.Preload)
}

// evaluate has the parent evaluate an expression of the user's, if there is one, that an option gives.
func (t *trial) evaluate(ctx context.Context, option, source string) error {
	if source == "" {
		return nil
	}
	m := message{"preload", []arg{{"source", source}, {"label", "--" + option}}}
	_, err := t.ask(ctx, "evaluating the "+option+" expression", true, m, "preloaded")
	return err
}

// define has the parent make the user's event known, so that the workers inherit it.
func (t *trial) define(ctx context.Context) error {
	if t.Event == "" {
		return nil
	}
	_, err := t.ask(ctx, "defining the event", true, message{"define", []arg{{"name", eventApp}, {"source", t.Event}}}, "defined")
	return err
}

// sizes gives the built-in scenario's sizes, as the user has them.
func (p *plan) sizes() []arg {
	given := map[string]int{"methods": p.Methods, "call_sites": p.CallSites}
	var args []arg
	for _, s := range p.builtIn.Sizes {
		n := s.Value
		if g := given[s.Name]; g != 0 {
			n = g
		}
		args = append(args, arg{s.Name, fmt.Sprint(n)})
	}
	return args
}

// prepare has the parent do what the scenario wants done between the last collection and the fork.
func (t *trial) prepare(ctx context.Context) error {
	if t.builtIn == nil || !t.builtIn.prepare {
		return nil
	}
	_, err := t.ask(ctx, "preparing the scenario", true, message{word: "prepare"}, "prepared")
	return err
}

// settle has the parent collect before the fork, once the user's expression is evaluated.
func (t *trial) settle(ctx context.Context) (collections int, quiet bool, err error) {
	if err := t.evaluate(ctx, "settle-hook", t.SettleHook); err != nil {
		return 0, false, err
	}
	m := message{"settle", []arg{{"until", "quiet"}, {"limit", fmt.Sprint(settleLimit)}}}
	if t.Settle.Fixed {
		if t.Settle.Count == 0 {
			return 0, true, nil
		}
		m.args = []arg{{"collections", fmt.Sprint(t.Settle.Count)}}
	}
	a, err := t.ask(ctx, "settling", t.Settle.Fixed, m, "settled")
	if err != nil || a.word == "" {
		return 0, true, err
	}
	n, err := a.number("collections", 0, 1<<20)
	if err != nil {
		return 0, false, t.fail("", "%s: %v", t.speaker(), err)
	}
	q, _ := a.get("quiet")
	return int(n), q != "0", nil
}

// warmUp has the parent prepare for the fork by the runtime's own means.
func (t *trial) warmUp(ctx context.Context) error {
	if !t.Warmup {
		return nil
	}
	if !slices.Contains(t.orders, "warmup") {
		return t.fail("Process.warmup came with Ruby 3.3; leave --warmup out", "%s (%s) has no warmup", t.speaker(), t.version)
	}
	_, err := t.ask(ctx, "warming up", true, message{word: "warmup"}, "warmed")
	return err
}
