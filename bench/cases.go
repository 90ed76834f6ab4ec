package main

import "fmt"

// family is what the benchmark server is made of.
type family struct {
	mib, workers, permille, mappings, sparseGiB int
	huge                                        bool
}

func (f family) args() []string {
	h := 0
	if f.huge {
		h = 1
	}
	var a []string
	for _, n := range []int{f.mib, f.workers, f.permille, f.mappings, f.sparseGiB, h} {
		a = append(a, fmt.Sprint(n))
	}
	return a
}

func (f family) String() string {
	s := fmt.Sprintf("%d MiB, %d workers", f.mib, f.workers)
	if f.permille > 0 {
		s += fmt.Sprintf(", each wrote %g%% of the pages", float64(f.permille)/10)
	}
	if f.mappings > 1 {
		s += fmt.Sprintf(", %d mappings", 2*f.mappings)
	}
	if f.sparseGiB > 0 {
		s += fmt.Sprintf(", %d GiB reserved", f.sparseGiB)
	}
	if f.huge {
		s += ", huge pages"
	}
	return s
}

// benchCase is one family and what is run on it.
type benchCase struct {
	name string
	fam  family
	// rivals adds smaps_rollup, smem and pmap to cowaudit and the unit.
	rivals bool
	// contents adds cowaudit with the comparison of contents.
	contents bool
	// noUnit leaves the unit out of a case that would take it minutes: a naive reader of a terabyte reservation.
	noUnit bool
}

// cases are all benchmarks, in the order of the table.
func cases() []benchCase {
	out := []benchCase{
		{name: "headline", fam: family{mib: 1700, workers: 26, mappings: 1}, rivals: true},
		{name: "headline-written", fam: family{mib: 1700, workers: 26, permille: 50, mappings: 1}, contents: true},
		{name: "headline-huge", fam: family{mib: 1700, workers: 26, mappings: 1, huge: true}},
	}
	for _, mib := range []int{256, 1024, 4096, 12288} {
		out = append(out, benchCase{name: "size", fam: family{mib: mib, workers: 1, mappings: 1}})
	}
	for _, w := range []int{1, 4, 16, 64} {
		out = append(out, benchCase{name: "workers", fam: family{mib: 512, workers: w, mappings: 1}})
	}
	// Each mapping of the family is two of the kernel's: its pages, and an unmapped one that keeps it apart.
	for _, m := range []int{5, 500, 5000, 30000} {
		out = append(out, benchCase{name: "mappings", fam: family{mib: 512, workers: 4, mappings: m}, rivals: m == 30000})
	}
	for _, s := range []int{0, 1024} {
		out = append(out, benchCase{name: "sparse", fam: family{mib: 256, workers: 4, mappings: 1, sparseGiB: s}, noUnit: s > 0})
	}
	return out
}
