package audit

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// gateExactRuns is from how many equal samples on a metric counts as one that does not vary.
const gateExactRuns = 3

// gateMinRuns is from how many runs on the range of the samples of one side tells: all of five lie on one side of the true
// median with a probability of 1/32, below 0.05.
const gateMinRuns = 5

// gateMinPairs is the same for two sides: the rank test can reach 0.05 from four runs a side on.
const gateMinPairs = 4

// gateMedian gives the median of samples with its 95% interval; below six samples their range, with the confidence 0.
func gateMedian(samples []float64) Estimate {
	t := benchmath.DefaultThresholds
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(samples), &t), summaryConfidence)
	out := Estimate{Median: s.Center, Low: s.Lo, High: s.Hi, Confidence: s.Confidence, N: len(samples)}
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		out.Low, out.High, out.Confidence = slices.Min(samples), slices.Max(samples), 0
	}
	return out
}

// gatePairs gives the median of f over all pairs of samples (Hodges and Lehmann for a difference) and the interval that
// belongs to the rank test of Mann and Whitney; below four a side the range, with the confidence 0. N is the smaller side's.
func gatePairs(a, b []float64, f func(a, b float64) float64) Estimate {
	var v []float64
	for _, x := range a {
		for _, y := range b {
			v = append(v, f(x, y))
		}
	}
	slices.Sort(v)
	n := len(v)
	out := Estimate{Median: median(v), Low: v[0], High: v[n-1], N: min(len(a), len(b))}
	if out.N < gateMinPairs {
		return out
	}
	tail := (1 - summaryConfidence) / 2
	k := 0 // how many pairs lie outside on each side
	for k < n/2 && gateRankTail(len(a), len(b), k) <= tail {
		k++
	}
	if k == 0 {
		return out
	}
	out.Low, out.High, out.Confidence = v[k-1], v[n-k], 1-2*gateRankTail(len(a), len(b), k-1)
	return out
}

// gateRankTail gives P(U <= u) of the rank test with m and n samples, where both have one distribution: exact for up to 24
// samples a side, by the normal approximation above.
func gateRankTail(m, n, u int) float64 {
	if u < 0 {
		return 0
	}
	if m > 24 || n > 24 {
		mean, sd := float64(m*n)/2, math.Sqrt(float64(m*n*(m+n+1))/12)
		return math.Erfc((mean-float64(u)-0.5)/(sd*math.Sqrt2)) / 2
	}
	// The number of ways to each U is the coefficient of the Gaussian binomial (m+n choose m), divided as a share of all.
	ways := make([]float64, m*n+1)
	ways[0] = 1
	for i := 1; i <= m; i++ {
		for k := m * n; k >= n+i; k-- { // times 1 - q^(n+i)
			ways[k] -= ways[k-n-i]
		}
		for k := i; k <= m*n; k++ { // divided by 1 - q^i
			ways[k] += ways[k-i]
		}
	}
	var below, all float64
	for k, w := range ways {
		all += w
		if k <= u {
			below += w
		}
	}
	return below / all
}

// gateExact reports samples that do not vary, enough of them to say so.
func gateExact(samples []float64) bool {
	return len(samples) >= gateExactRuns && slices.Min(samples) == slices.Max(samples)
}

// gateSignP is the probability that as many samples, or more, lie on the estimate's side of the limit, if the true median
// were the limit: the sign test, one-sided.
func gateSignP(samples []float64, limit float64) float64 {
	above, below := 0, 0
	for _, s := range samples {
		switch {
		case s > limit:
			above++
		case s < limit:
			below++
		}
	}
	n := above + below
	p := 0.0
	for k := max(above, below); k <= n; k++ {
		p += math.Exp(gateLogChoose(n, k) - float64(n)*math.Ln2)
	}
	return min(p, 1)
}

func gateLogChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// gatePairsP is the same for two sides: the rank test of f over all pairs against the limit, one-sided, ties counted half.
func gatePairsP(a, b []float64, f func(a, b float64) float64, limit float64) float64 {
	above := 0.0
	for _, x := range a {
		for _, y := range b {
			switch d := f(x, y); {
			case d > limit:
				above++
			case d == limit:
				above += 0.5
			}
		}
	}
	u := int(math.Ceil(min(above, float64(len(a)*len(b))-above)))
	return gateRankTail(len(a), len(b), u)
}
