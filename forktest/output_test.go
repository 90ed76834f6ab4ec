package forktest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTail(t *testing.T) {
	var many, kept []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("line %d\n", i))
		if i >= 80 {
			kept = append(kept, fmt.Sprintf("line %d", i))
		}
	}
	tests := []struct {
		name   string
		writes []string
		want   []string
	}{
		{"nothing", nil, nil},
		{"whole lines", []string{"a\nb\n"}, []string{"a", "b"}},
		{"pieces", []string{"a", "b\nc", "", "d"}, []string{"ab", "cd"}},
		{"empty lines are left out", []string{"a\n\n \nb\n"}, []string{"a", "b"}},
		{"the last ones", many, kept},
		{"what moves the cursor", []string{"\x1b[31mred\x1b[0m\rover\tx\x00\xff\n"}, []string{"[31mred[0mover    x?"}},
		{"a report of a crash, long gone by", append([]string{"app.rb:3: [BUG] Segmentation fault at 0x0\n"}, many...),
			append([]string{"app.rb:3: [BUG] Segmentation fault at 0x0", "…"}, kept...)},
		{"a report of a crash that is still there", []string{"Fatal Python error: Aborted\nb\n"}, []string{"Fatal Python error: Aborted", "b"}},
		{"a long line", []string{strings.Repeat("x", 3000), "y\nz\n"}, []string{strings.Repeat("x", 1000) + "…", "z"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var k tail
			for _, w := range tt.writes {
				if n, err := k.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatalf("wrote %d of %d, %v", n, len(w), err)
				}
			}
			if diff := cmp.Diff(tt.want, k.last()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTailWord(t *testing.T) {
	for text, want := range map[string]string{
		"":       "",
		"a\nb\n": "b",
		"x.rb:1: no (E)\n\tfrom x.rb:2\n\tfrom -e:1\n": "x.rb:1: no (E)",
		"x [BUG] y\nz\n": "x [BUG] y",
	} {
		var k tail
		if _, err := k.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := k.word(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestOutputDrain(t *testing.T) {
	var shown bytes.Buffer
	o, w, err := newOutput(&shown)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	if _, err := w.WriteString("one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	if err := o.drain(); err != nil || o.done {
		t.Fatalf("with the writer open: %v, done %v", err, o.done)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := o.drain(); err != nil || !o.done {
		t.Fatalf("with the writer closed: %v, done %v", err, o.done)
	}
	if diff := cmp.Diff([]string{"one", "two"}, o.tail.last()); diff != "" || shown.String() != "one\ntwo\n" {
		t.Errorf("shown %q; (-want +got):\n%s", shown.String(), diff)
	}
}
