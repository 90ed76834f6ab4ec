package report

import (
	"math"
	"strconv"
	"strings"
	"time"

	"cowaudit/pagemap"
)

// This file is the one room in which amounts become text. Amounts of memory are IEC (1 KiB = 1024 B) with three
// significant digits; 0 is only ever an exact nothing: what would round to it is written with a "<".

// unit is an IEC prefix.
type unit struct {
	name string
	size pagemap.Bytes
}

var (
	unitKiB = unit{"KiB", 1 << 10}
	unitMiB = unit{"MiB", 1 << 20}
	unitGiB = unit{"GiB", 1 << 30}
	unitTiB = unit{"TiB", 1 << 40}
)

// pagesToBytes gives the size of so many pages; page is the page size of the capture they were counted in.
func pagesToBytes(pages int64, page pagemap.Bytes) pagemap.Bytes { return pagemap.Bytes(pages) * page }

// Size writes an amount of memory by itself: "31.5 MiB". Below 1 KiB it is exact.
func Size(b pagemap.Bytes) string {
	if b < 0 {
		return "-" + Size(-max(b, -math.MaxInt64))
	}
	if b < unitKiB.size {
		return strconv.FormatInt(int64(b), 10) + " B"
	}
	for _, u := range []unit{unitKiB, unitMiB, unitGiB} {
		if s := threeDigits(float64(b) / float64(u.size)); b < 1024*u.size && s != "1024" {
			return s + " " + u.name
		}
	}
	return threeDigits(float64(b)/float64(unitTiB.size)) + " " + unitTiB.name
}

// SizeRange writes two amounts in the unit of the larger one: "31.4..31.6 MiB".
func SizeRange(low, high pagemap.Bytes) string {
	number, name, _ := strings.Cut(Size(high), " ")
	_, decimals, _ := strings.Cut(number, ".")
	s := Scale{unit{"B", 1}, len(decimals)}
	for _, u := range []unit{unitKiB, unitMiB, unitGiB, unitTiB} {
		if u.name == name {
			s.unit = u
		}
	}
	return s.amount(low) + ".." + number + " " + name
}

// SignedSize writes a difference: "+31.5 MiB".
func SignedSize(b pagemap.Bytes) string {
	if b > 0 {
		return "+" + Size(b)
	}
	return Size(b)
}

// threeDigits writes a number of 1 or more with three significant digits, without an exponent.
func threeDigits(v float64) string {
	for decimals := 2; decimals > 0; decimals-- {
		s := strconv.FormatFloat(v, 'f', decimals, 64)
		if len(s) <= 4 { // "1.00" to "9.99", "10.0" to "99.9"
			return s
		}
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Scale is one unit and one number of decimals for amounts that stand side by side.
type Scale struct {
	unit     unit
	decimals int
}

// CommonScale chooses by the largest amount, so that this has three significant digits at least: KiB without decimals
// below 10 MiB (exact for pages), then MiB, from 1,000,000 MiB on GiB.
func CommonScale(amounts ...pagemap.Bytes) Scale {
	var largest pagemap.Bytes
	for _, b := range amounts {
		largest = max(largest, b, -b)
	}
	switch {
	case largest < 10*unitMiB.size:
		return Scale{unitKiB, 0}
	case largest < 1_000_000*unitMiB.size:
		return Scale{unit: unitMiB}.For(amounts...)
	}
	return Scale{unit: unitGiB}.For(amounts...)
}

// For keeps the unit and chooses the decimals for one column of amounts: one, and none from 10,000 units on. KiB never have
// any.
func (s Scale) For(amounts ...pagemap.Bytes) Scale {
	s.decimals = 1
	for _, b := range amounts {
		if max(b, -b) >= 10_000*s.unit.size {
			s.decimals = 0
		}
	}
	if s.unit == unitKiB {
		s.decimals = 0
	}
	return s
}

// Narrow leaves the decimals out where the column's largest amount has three digits before the point.
func (s Scale) Narrow(amounts ...pagemap.Bytes) Scale {
	for _, b := range amounts {
		if max(b, -b) >= 100*s.unit.size {
			s.decimals = 0
		}
	}
	return s
}

// Unit is the name of the unit, for the head of a column.
func (s Scale) Unit() string { return s.unit.name }

// Format writes an amount without its unit. What is not nothing and would round to it is written as "<0.1" or "<1".
func (s Scale) Format(b pagemap.Bytes) string {
	v := float64(b) / float64(s.unit.size)
	text := strconv.FormatFloat(v, 'f', s.decimals, 64)
	if b != 0 && math.Round(math.Abs(v)*math.Pow10(s.decimals)) == 0 {
		least := strconv.FormatFloat(math.Pow10(-s.decimals), 'f', s.decimals, 64)
		if b < 0 {
			return ">-" + least
		}
		return "<" + least
	}
	return text
}

// Percent writes part of whole: "-" of nothing, "100%" only of all, "0%" only of none.
func Percent(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case part == whole:
		return "100%"
	case part == 0:
		return "0%"
	case p > 0 && p < 0.1:
		return "<0.1%"
	case p > 99 && p < 100:
		if p >= 99.5 {
			return ">99%"
		}
		return "99%"
	case p > 0 && p < 9.95:
		return strconv.FormatFloat(p, 'f', 1, 64) + "%"
	}
	return strconv.FormatFloat(p, 'f', 0, 64) + "%"
}

// SignedPercent writes a relative difference: "+12%"; "?" when there is nothing to relate it to.
func SignedPercent(from, to int64) string {
	if from == 0 {
		return "?"
	}
	s := Percent(to-from, from)
	if to > from && s[0] != '+' {
		return "+" + s
	}
	return s
}

// Duration writes a time with three significant digits: "35.2 ms", "1.20 s", "2 min 5 s".
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(-max(d, -math.MaxInt64))
	}
	switch {
	case d == 0:
		return "0 s"
	case d < time.Microsecond:
		return strconv.FormatInt(int64(d), 10) + " ns"
	case d < time.Millisecond-500*time.Nanosecond:
		return threeDigits(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second-500*time.Microsecond:
		return threeDigits(float64(d)/float64(time.Millisecond)) + " ms"
	case d < time.Minute-50*time.Millisecond:
		return threeDigits(d.Seconds()) + " s"
	}
	d = d.Round(time.Second)
	min, sec := d/time.Minute, d%time.Minute/time.Second
	if min >= 60 {
		return strconv.FormatInt(int64(min/60), 10) + " h " + strconv.FormatInt(int64(min%60), 10) + " min"
	}
	return strconv.FormatInt(int64(min), 10) + " min " + strconv.FormatInt(int64(sec), 10) + " s"
}

// Count writes a number with a comma between groups of three digits.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
