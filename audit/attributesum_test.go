package audit

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func attributed(t *testing.T) *Attribution {
	t.Helper()
	pages, tr, _ := example(t)
	a, err := Attribute(pages, tr, AttributeOptions{From: 10, To: 20, PID: 11})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestSumAttributions(t *testing.T) {
	a, b := attributed(t), attributed(t)
	a.Counts.Kernel(a.Counts.Traced + 3)
	b.Counts.Kernel(b.Counts.Traced + 8)
	sum := SumAttributions([]*Attribution{a, b})
	if err := checkAttribution(sum, 282); err != nil {
		t.Fatal(err)
	}
	if sum.ExplainedPages != 216 || sum.Functions[0].Pages != 168 || sum.Functions[0].Change.OneWord != 8 || *sum.Counts.KernelWPCopy != 2*a.Counts.Traced+11 {
		t.Errorf("sum %+v", sum)
	}
	b.Counts = attributed(t).Counts
	b.Counts.NoKernel("no taskstats")
	sum = SumAttributions([]*Attribution{a, b})
	if err := checkAttribution(sum, 282); err != nil || sum.Counts.KernelWPCopy != nil || sum.Counts.KernelWhy != "no taskstats" {
		t.Errorf("%v, %+v", err, sum.Counts)
	}
	if got, want := sum.Counts.Sentence(), "282 by the page tables, 424 traced, by the kernel: not available (no taskstats)"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestFindingsForAttribution(t *testing.T) {
	a := attributed(t)
	for i, want := range []string{
		"84 of 141 copied pages: rb_iseq_mark_and_move, during a major GC, brk heap, identical.",
		"The trace explains 108 of 141 copied pages. The others: 19 the trace saw a write to the page, and no copy; 5 now part of a huge page: khugepaged or MADV_COLLAPSE copied it; " +
			"3 copied before the first capture or after the second, by the trace.",
	} {
		if got := FindingsForAttribution(a, "copied pages", "")[i].Text; got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
	a.Functions = a.Functions[1:]
	a.ExplainedPages -= 84
	a.Unexplained = append(a.Unexplained, Reason{Pages: 84})
	f := FindingsForAttribution(a, "copied pages", " (in 5 workers)")
	if want := "No function made a quarter of the copies; the most, 17 of 141 copied pages (in 5 workers): rb_iseq_mark_and_move, GC phase unknown, brk heap, identical."; f[0].Text != want {
		t.Errorf("\n got %s\nwant %s", f[0].Text, want)
	}
}

// An event carries its attribution with names of its own, and comes back from JSON.
func TestEventJSON(t *testing.T) {
	e := Event{Name: "first_major_gc", Copied: Copied{CopiedPages: 141}, Attribution: attributed(t)}
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"copied_pages", "functions", "explained_pages", "traced_copies", "counts", "unexplained"} {
		if m[name] == nil {
			t.Errorf("no %s in %s", name, b)
		}
	}
	var back Event
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(e, back); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	plain, err := json.Marshal(Event{})
	if err != nil {
		t.Fatal(err)
	}
	var p map[string]any
	if err := json.Unmarshal(plain, &p); err != nil || p["functions"] != nil || p["explained_pages"] != nil {
		t.Errorf("%v, an event that was not traced: %s", err, plain)
	}
}
