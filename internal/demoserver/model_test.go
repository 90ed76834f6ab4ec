package demoserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/internal/demoserver/child"
)

func TestModel(t *testing.T) {
	private := []shape{{name: "m", pages: 4}}
	write := func(first, pages, words uint64) child.Order {
		return order(child.OpWrite, 0, first, 1, pages, words)
	}
	drop := func(first, pages uint64) child.Order { return order(child.OpDrop, 0, first, 1, pages, 0) }
	read := func(first, pages uint64) child.Order { return order(child.OpRead, 0, first, 1, pages, 0) }
	type act struct {
		proc int // -1: fork
		child.Order
	}
	fork := act{proc: -1}
	for _, c := range []struct {
		name   string
		shapes []shape
		noZero bool // the kernel has no zero page
		acts   []act
		proc   int
		want   Counts
		fails  bool
	}{
		{name: "untouched after fork", acts: []act{{0, write(0, 4, 0)}, fork}, proc: 1, want: Counts{Shared: 4, Held: 4}},
		{name: "master alone", acts: []act{{0, write(0, 3, 0)}}, want: Counts{Unshared: 3, Private: 3, Held: 3}},
		{name: "worker wrote", acts: []act{{0, write(0, 4, 0)}, fork, {1, write(1, 2, 1)}}, proc: 1,
			want: Counts{Shared: 2, Copied: 2, CopiedByWorker: 2, OneWord: 2, Private: 2, Held: 4}},
		{name: "worker wrote twice", acts: []act{{0, write(0, 4, 0)}, fork, {1, write(0, 1, 1)}, {1, write(0, 1, 0)}}, proc: 1,
			want: Counts{Shared: 3, Copied: 1, CopiedByWorker: 1, Identical: 1, Private: 1, Held: 4}},
		{name: "master wrote", acts: []act{{0, write(0, 4, 0)}, fork, {0, write(0, 4, 9)}}, proc: 1,
			want: Counts{Copied: 4, CopiedByReference: 4, ManyWords: 4, Private: 4, Held: 4}},
		{name: "master wrote, a sibling has the old pages too", acts: []act{{0, write(0, 4, 0)}, fork, fork, {0, write(0, 4, 8)}},
			proc: 2, want: Counts{Copied: 4, CopiedByReference: 4, FewWords: 4, Held: 4}},
		{name: "both wrote", acts: []act{{0, write(0, 4, 0)}, fork, fork, {0, write(0, 1, 65)}, {1, write(0, 1, 0)}}, proc: 1,
			want: Counts{Shared: 3, Copied: 1, CopiedByBoth: 1, Rewritten: 1, Private: 1, Held: 4}},
		{name: "worker dropped", acts: []act{{0, write(0, 4, 0)}, fork, {1, drop(1, 3)}}, proc: 1,
			want: Counts{Shared: 1, Dropped: 3, Held: 1}},
		{name: "master dropped", acts: []act{{0, write(0, 4, 0)}, fork, {0, drop(1, 3)}}, proc: 1,
			want: Counts{Shared: 1, Kept: 3, Private: 3, Held: 4}},
		{name: "new", acts: []act{fork, {1, write(0, 2, 0)}}, proc: 1, want: Counts{New: 2, Private: 2, Held: 2}},
		{name: "zero, then written", acts: []act{fork, {1, read(0, 4)}, {1, write(3, 1, 0)}}, proc: 1,
			want: Counts{Zero: 3, New: 1, Private: 1, Held: 4}},
		{name: "zero in a mapping never written is not inherited", acts: []act{{0, read(0, 4)}, fork}, proc: 1, want: Counts{}},
		{name: "zero beside a written page is", acts: []act{{0, read(0, 4)}, {0, write(3, 1, 0)}, fork}, proc: 1,
			want: Counts{Zero: 3, Shared: 1, Held: 4}},
		{name: "read where there is no zero page, then written", noZero: true, acts: []act{fork, {1, read(0, 4)}, {1, write(3, 1, 0)}}, proc: 1,
			want: Counts{New: 4, Private: 4, Held: 4}},
		{name: "read where there is no zero page, then inherited and written", noZero: true, acts: []act{{0, read(0, 4)}, fork, {1, write(3, 1, 0)}}, proc: 1,
			want: Counts{Shared: 3, Copied: 1, CopiedByWorker: 1, Rewritten: 1, Private: 1, Held: 4}},
		{name: "the master's new", acts: []act{fork, {0, write(0, 2, 0)}}, proc: 1, want: Counts{ReferenceOnly: 2}},
		{name: "both new", acts: []act{fork, {0, write(0, 1, 0)}, {1, write(0, 1, 0)}}, proc: 1, fails: true},
		{name: "shared memory", shapes: []shape{{name: "s", pages: 4, shared: true}},
			acts: []act{{0, write(0, 4, 0)}, fork, {1, read(0, 4)}}, proc: 1, want: Counts{File: 4, Held: 4}},
		{name: "shared memory not touched", shapes: []shape{{name: "s", pages: 4, shared: true}},
			acts: []act{{0, write(0, 4, 0)}, fork}, proc: 1, want: Counts{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.shapes == nil {
				c.shapes = private
			}
			m := newModel(c.shapes, !c.noZero)
			for _, a := range c.acts {
				if a.proc < 0 {
					m.fork()
				} else if err := m.do(a.proc, a.Order); err != nil {
					t.Fatal(err)
				}
			}
			got, err := m.counts(c.proc, 0)
			if (err != nil) != c.fails {
				t.Fatalf("error %v", err)
			}
			if c.fails {
				return
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestModelRefuses(t *testing.T) {
	m := newModel([]shape{{name: "m", pages: 4}, {name: "s", pages: 4, shared: true}}, true)
	for name, o := range map[string]child.Order{
		"a page too far":          order(child.OpWrite, 0, 1, 2, 3, 0),
		"an unknown region":       order(child.OpWrite, 2, 0, 1, 1, 0),
		"an unknown operation":    order(99, 0, 0, 1, 1, 0),
		"a part of shared memory": order(child.OpRead, 1, 0, 1, 1, 0),
	} {
		if err := m.do(0, o); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
