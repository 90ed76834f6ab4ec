package main

import (
	"fmt"
	"math"
	"slices"
)

// spread is the middle of some values, with the smallest and the largest.
type spread struct{ mid, low, high float64 }

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		nan := math.NaN()
		return spread{nan, nan, nan}
	}
	v := slices.Sorted(slices.Values(values))
	return spread{(v[(len(v)-1)/2] + v[len(v)/2]) / 2, v[0], v[len(v)-1]}
}

func (s spread) String() string { return fmt.Sprintf("%.2f (%.2f-%.2f)", s.mid, s.low, s.high) }

// intervalOf is the median with an interval that holds the true one with a confidence of at least 95%, whatever the values'
// distribution: it lies between two of them (the sign test turned round). Below six values there is none, and ok is false.
func intervalOf(values []float64) (s spread, ok bool) {
	s = spreadOf(values)
	n := len(values)
	// k values at either end may be left out: the chance that at most k of n lie on one side of the median.
	k, chance, sum := -1, math.Pow(0.5, float64(n)), 0.0
	for i := range n {
		if sum += chance; sum > 0.025 {
			break
		}
		k = i
		chance *= float64(n-i) / float64(i+1)
	}
	if k < 0 {
		return s, false
	}
	v := slices.Sorted(slices.Values(values))
	s.low, s.high = v[k], v[n-1-k]
	return s, true
}
