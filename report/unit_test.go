package report

import (
	"math"
	"testing"
	"time"

	"cowaudit/pagemap"
)

func TestSize(t *testing.T) {
	const kib, mib, gib, tib = 1 << 10, 1 << 20, 1 << 30, 1 << 40
	tests := []struct {
		b    pagemap.Bytes
		want string
	}{
		{0, "0 B"}, {1, "1 B"}, {-1, "-1 B"}, {999, "999 B"}, {1000, "1000 B"}, {1023, "1023 B"},
		{1024, "1.00 KiB"}, {1025, "1.00 KiB"}, {1029, "1.00 KiB"}, {1030, "1.01 KiB"},
		{4 * kib, "4.00 KiB"}, {64 * kib, "64.0 KiB"},
		{10*kib - 6, "9.99 KiB"}, {10*kib - 5, "10.0 KiB"}, {10*kib - 1, "10.0 KiB"}, {10 * kib, "10.0 KiB"},
		{100*kib - 52, "99.9 KiB"}, {100*kib - 51, "100 KiB"}, {100 * kib, "100 KiB"},
		{999*kib + 511, "999 KiB"}, {999*kib + 512, "1000 KiB"}, {1000 * kib, "1000 KiB"},
		{1023*kib + 511, "1023 KiB"}, {1023*kib + 512, "1.00 MiB"}, {mib - 1, "1.00 MiB"}, {mib, "1.00 MiB"},
		{8061 * 4096, "31.5 MiB"}, {250 * mib, "250 MiB"}, {1023*mib + 511*kib, "1023 MiB"}, {1023*mib + 512*kib, "1.00 GiB"},
		{gib - 1, "1.00 GiB"}, {gib, "1.00 GiB"}, {46 * gib, "46.0 GiB"}, {1024*gib - 1, "1.00 TiB"}, {tib, "1.00 TiB"}, {2048 * tib, "2048 TiB"},
		{-8061 * 4096, "-31.5 MiB"}, {math.MaxInt64, "8388608 TiB"}, {math.MinInt64, "-8388608 TiB"},
	}
	for _, tt := range tests {
		if got := Size(tt.b); got != tt.want {
			t.Errorf("Size(%d) = %q, want %q", tt.b, got, tt.want)
		}
	}
}

func TestSizeRange(t *testing.T) {
	const kib, mib = 1 << 10, 1 << 20
	tests := []struct {
		low, high pagemap.Bytes
		want      string
	}{
		{0, 0, "0..0 B"}, {4, 1023, "4..1023 B"}, {32 * kib, 44 * kib, "32.0..44.0 KiB"}, {0, 44 * kib, "0..44.0 KiB"}, {4 * kib, 40 * mib, "<0.1..40.0 MiB"},
		{8060 * 4 * kib, 8100 * 4 * kib, "31.5..31.6 MiB"}, {mib, mib, "1.00..1.00 MiB"}, {900 * kib, 1023*kib + 512, "0.88..1.00 MiB"}, {100 * mib, 250 * mib, "100..250 MiB"},
	}
	for _, tt := range tests {
		if got := SizeRange(tt.low, tt.high); got != tt.want {
			t.Errorf("SizeRange(%d, %d) = %q, want %q", tt.low, tt.high, got, tt.want)
		}
	}
}

func TestSignedSize(t *testing.T) {
	for b, want := range map[pagemap.Bytes]string{0: "0 B", 1024: "+1.00 KiB", -1024: "-1.00 KiB"} {
		if got := SignedSize(b); got != want {
			t.Errorf("SignedSize(%d) = %q, want %q", b, got, want)
		}
	}
}

func TestCommonScale(t *testing.T) {
	const kib, mib = 1 << 10, 1 << 20
	tests := []struct {
		name    string
		amounts []pagemap.Bytes
		unit    string
		want    []string
	}{
		{"nothing", []pagemap.Bytes{0, 0}, "KiB", []string{"0", "0"}},
		{"a few pages", []pagemap.Bytes{4 * kib, 1200 * kib, 500}, "KiB", []string{"4", "1200", "<1"}},
		{"just below 10 MiB", []pagemap.Bytes{10*mib - 4*kib, 4 * kib}, "KiB", []string{"10236", "4"}},
		{"10 MiB", []pagemap.Bytes{10 * mib, 40 * kib, 56 * kib, 0}, "MiB", []string{"10.0", "<0.1", "0.1", "0.0"}},
		{"just below 10,000 MiB", []pagemap.Bytes{10000*mib - 64*kib, mib}, "MiB", []string{"9999.9", "1.0"}},
		{"10,000 MiB", []pagemap.Bytes{10000 * mib, mib, 400 * kib}, "MiB", []string{"10000", "1", "<1"}},
		{"a million MiB", []pagemap.Bytes{1_000_000 * mib, mib}, "GiB", []string{"976.6", "<0.1"}},
		{"differences", []pagemap.Bytes{-20 * mib, 4 * kib, -4 * kib}, "MiB", []string{"-20.0", "<0.1", ">-0.1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := CommonScale(tt.amounts...)
			if s.Unit() != tt.unit {
				t.Errorf("unit %s, want %s", s.Unit(), tt.unit)
			}
			for i, b := range tt.amounts {
				if got := s.Format(b); got != tt.want[i] {
					t.Errorf("%d: %q, want %q", b, got, tt.want[i])
				}
			}
		})
	}
}

func TestScaleOfAColumn(t *testing.T) {
	const mib = 1 << 20
	s := CommonScale(46_000 * mib)
	if got := s.Format(mib); got != "1" {
		t.Errorf("the table's own scale: %q", got)
	}
	if got := s.For(250*mib, mib).Format(mib); got != "1.0" {
		t.Errorf("a column of small amounts: %q", got)
	}
	s = CommonScale(1700 * mib)
	if got := s.For(46_000 * mib).Format(46_000 * mib); got != "46000" {
		t.Errorf("wide column: %q", got)
	}
	if got := s.Narrow(100 * mib).Format(100 * mib); got != "100" {
		t.Errorf("narrow column of 100: %q", got)
	}
	if got := s.Narrow(99 * mib).Format(99 * mib); got != "99.0" {
		t.Errorf("narrow column of 99: %q", got)
	}
}

func TestPercent(t *testing.T) {
	tests := []struct {
		part, whole int64
		want        string
	}{
		{0, 0, "-"}, {1, 0, "-"}, {0, 5, "0%"}, {5, 5, "100%"}, {1, 100000, "<0.1%"}, {1, 1000, "0.1%"}, {5, 1000, "0.5%"}, {42, 1000, "4.2%"},
		{994, 10000, "9.9%"}, {995, 10000, "10%"}, {99, 1000, "9.9%"}, {100, 1000, "10%"}, {1, 2, "50%"}, {8006, 8061, "99%"}, {7650, 7663, ">99%"}, {99999, 100000, ">99%"},
		{995, 1000, ">99%"}, {994, 1000, "99%"}, {989, 1000, "99%"}, {3, 2, "150%"}, {-1, 4, "-25%"},
	}
	for _, tt := range tests {
		if got := Percent(tt.part, tt.whole); got != tt.want {
			t.Errorf("Percent(%d, %d) = %q, want %q", tt.part, tt.whole, got, tt.want)
		}
	}
}

func TestSignedPercent(t *testing.T) {
	tests := []struct {
		from, to int64
		want     string
	}{{0, 0, "?"}, {0, 3, "?"}, {4, 4, "0%"}, {4, 5, "+25%"}, {4, 3, "-25%"}, {4, 8, "+100%"}, {4, 0, "-100%"}}
	for _, tt := range tests {
		if got := SignedPercent(tt.from, tt.to); got != tt.want {
			t.Errorf("SignedPercent(%d, %d) = %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
}

func TestDuration(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want string
	}{
		{0, "0 s"}, {999, "999 ns"}, {1000, "1.00 µs"}, {999_499, "999 µs"}, {999_500, "1.00 ms"}, {35_249_000, "35.2 ms"},
		{999_499_999, "999 ms"}, {999_500_000, "1.00 s"}, {time.Second, "1.00 s"}, {59_949 * time.Millisecond, "59.9 s"}, {59_950 * time.Millisecond, "1 min 0 s"},
		{125 * time.Second, "2 min 5 s"}, {time.Hour, "1 h 0 min"}, {-time.Second, "-1.00 s"}, {math.MinInt64, "-2562047 h 47 min"},
	}
	for _, tt := range tests {
		if got := Duration(tt.d); got != tt.want {
			t.Errorf("Duration(%d) = %q, want %q", tt.d, got, tt.want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 400000: "400,000", 12345678: "12,345,678", -1000: "-1,000", -100: "-100"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
