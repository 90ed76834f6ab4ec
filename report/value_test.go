package report

import "testing"

func TestValueScale(t *testing.T) {
	for _, c := range []struct {
		unit   string
		values []float64
		with   []string
	}{
		{"bytes", []float64{31_387_648, 524_288, 0, -30_863_360}, []string{"29.9 MiB", "0.5 MiB", "0 MiB", "-29.4 MiB"}},
		{"bytes", []float64{12_288, 1}, []string{"12 KiB", "<1 KiB"}},
		{"bytes", []float64{1e300, -1e300}, []string{"1073741824 GiB", "-1073741824 GiB"}},
		{"ns", []float64{52_000_000, 1000}, []string{"52.0 ms", "0.001 ms"}},
		{"ns", []float64{2.5e9}, []string{"2.50 s"}}, {"ns", []float64{17_500}, []string{"17.5 µs"}}, {"ns", []float64{17}, []string{"17.0 ns"}},
		{"count", []float64{211_833, 5}, []string{"211833", "5"}}, {"ratio", []float64{1.456, 0.001}, []string{"1.46", "0.001"}},
		{"percent", []float64{5885.9, 10}, []string{"5886%", "10%"}}, {"objects_per_request", []float64{5.07}, []string{"5.07 objects per request"}},
		{"a\nb", []float64{100}, []string{`100 a\x0ab`}}, {"count", []float64{0}, []string{"0"}}, {"ratio", []float64{1e-9, 5e-10}, []string{"1e-09", "5e-10"}},
	} {
		s := newValueScale(c.unit, c.values...)
		for i, v := range c.values {
			if got := s.with(v); got != c.with[i] {
				t.Errorf("%g %s beside %v: %q, want %q", v, c.unit, c.values, got, c.with[i])
			}
		}
	}
}

func TestSignedValues(t *testing.T) {
	s := newValueScale("bytes", 30<<20)
	for v, want := range map[float64]string{0: "0", 1: "<0.1", -1: ">-0.1", 3 << 20: "+3.0", -(3 << 20): "-3.0"} {
		if got := s.signed(v); got != want {
			t.Errorf("signed(%g) = %q, want %q", v, got, want)
		}
	}
}

func TestRatios(t *testing.T) {
	for v, want := range map[float64]string{0: "0×", 0.0012: "0.001×", 0.0171: "0.02×", 1: "1.00×", 59.94: "59.9×", 12345: "12345×"} {
		if got := ratioText(v); got != want {
			t.Errorf("ratioText(%g) = %q, want %q", v, got, want)
		}
	}
	for p, want := range map[float64]string{0: "<0.001", 0.0022: "0.0022", 0.049: "0.049", 1: "1"} {
		if got := probability(p); got != want {
			t.Errorf("probability(%g) = %q, want %q", p, got, want)
		}
	}
}

func TestShareOfADifference(t *testing.T) {
	for _, c := range []struct {
		part, whole float64
		want        string
	}{{-10, -10, "100%"}, {-10.04, -10, "100.4%"}, {-10.2, -10, "102%"}, {0.01, -10, ">-1%"}, {-0.01, -10, "<1%"}, {0.2, -10, "-2%"}, {0, -10, "-"}, {3, 0, "-"}} {
		if got := deltaShare(c.part, c.whole); got != c.want {
			t.Errorf("%g of %g: %q, want %q", c.part, c.whole, got, c.want)
		}
	}
}
