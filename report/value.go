package report

import (
	"math"
	"strconv"
	"strings"

	"cowaudit/pagemap"
)

// valueScale writes numbers of one metric that stand side by side, all in one unit.
type valueScale struct {
	unit   string // as it is shown; "" for a bare number
	format func(v float64) string
}

// newValueScale chooses a unit for numbers of a metric. unit is that of the metric: "bytes" are shown as KiB or MiB, "ns" as
// the largest unit of time that leaves a digit before the point, others as they are.
func newValueScale(unit string, values ...float64) valueScale {
	largest := 0.0
	for _, v := range values {
		largest = max(largest, math.Abs(v))
	}
	switch unit {
	case "bytes":
		var amounts []pagemap.Bytes
		for _, v := range values {
			amounts = append(amounts, roundBytes(v))
		}
		s := CommonScale(amounts...)
		return valueScale{s.Unit(), func(v float64) string { return s.amount(roundBytes(v)) }}
	case "ns":
		for _, u := range []struct {
			name string
			size float64
		}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}} {
			if largest >= u.size {
				return valueScale{u.name, func(v float64) string { return decimalsFor(v/u.size, largest/u.size) }}
			}
		}
		return valueScale{"ns", func(v float64) string { return decimalsFor(v, largest) }}
	case "percent":
		unit = "%"
	case "ratio", "count":
		unit = ""
	}
	return valueScale{strings.ReplaceAll(printable(unit), "_", " "), func(v float64) string { return decimalsFor(v, largest) }}
}

// with writes a number and its unit.
func (s valueScale) with(v float64) string {
	if s.unit == "%" {
		return s.format(v) + s.unit
	}
	return strings.TrimSpace(s.format(v) + " " + s.unit)
}

// signed writes a difference, with a plus where it is one.
func (s valueScale) signed(v float64) string {
	text := s.format(v)
	if v > 0 && text[0] != '<' {
		return "+" + text
	}
	return text
}

// decimalsFor writes a number with as many decimals as give the largest of its row three significant digits.
func decimalsFor(v, largest float64) string {
	if v == 0 {
		return "0"
	}
	decimals := 0
	switch {
	case largest < 0.001:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case largest < 100:
		decimals = 2 - int(math.Floor(math.Log10(largest)))
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(text, "-0.") == "" { // not nothing, and would be written as nothing
		return strconv.FormatFloat(v, 'g', 1, 64)
	}
	return text
}

// roundBytes gives an amount that was computed as an amount of memory. What is out of range becomes the largest there is.
func roundBytes(v float64) pagemap.Bytes {
	const most = float64(maxBytes)
	return pagemap.Bytes(math.Round(min(max(v, -most), most)))
}

// ratioText writes how many times as large: "0.02×".
func ratioText(v float64) string {
	switch {
	case v == 0:
		return "0×"
	case v < 0.0095:
		return strconv.FormatFloat(v, 'g', 1, 64) + "×"
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64) + "×"
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64) + "×"
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + "×"
}

// probability writes a p-value: "0.012", "<0.001".
func probability(p float64) string {
	if p < 0.001 {
		return "<0.001"
	}
	return strconv.FormatFloat(p, 'g', 2, 64)
}
