package audit

import (
	"math"
	"slices"
	"sort"

	"github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"
)

const (
	// compareAlpha bounds the probability that a comparison of two equal subjects calls anything better or worse: over all its
	// rows and all its looks.
	compareAlpha = 0.01
	// exactRounds is from how many equal values on a side on a metric is said not to vary.
	exactRounds = 5
	// exactPairs bounds the sizes for which the distribution of U is counted out; beyond, the normal one stands in for it.
	exactPairs = 50 * 50
	// rounding is the relative error that a probability may have from being summed up.
	rounding = 1e-9
)

// estimate gives the median of one side's samples and its 95% confidence interval.
func estimate(v []float64) Estimate {
	if len(v) == 0 {
		return Estimate{}
	}
	if constant(v) {
		return Estimate{Median: v[0], Low: v[0], High: v[0], N: len(v)}
	}
	s := benchmath.AssumeNothing.Summary(sample(v), summaryConfidence)
	out := Estimate{Median: s.Center, Low: s.Lo, High: s.Hi, Confidence: s.Confidence, N: len(v)}
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		out.Low, out.High, out.Confidence = slices.Min(v), slices.Max(v), 0
	}
	return out
}

func sample(v []float64) *benchmath.Sample {
	t := benchmath.DefaultThresholds
	return benchmath.NewSample(slices.Clone(v), &t)
}

// constant reports samples without any variation.
func constant(v []float64) bool {
	return !slices.ContainsFunc(v, func(x float64) bool { return x != v[0] })
}

// uTest gives the p-value of the two-sided Mann-Whitney U test; 1 where all samples are equal.
func uTest(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	return benchmath.AssumeNothing.Compare(sample(a), sample(b)).P
}

// pairwise gives the median of f over all pairs of samples, and the confidence interval that goes with the U test (Hodges and
// Lehmann 1963; Moses): what the test at level alpha does not reject. Where the samples are too few for one, low and high are
// the smallest and the largest pair, and the confidence is 0.
func pairwise(a, b []float64, alpha float64, f func(a, b float64) float64) Estimate {
	if len(a) == 0 || len(b) == 0 {
		return Estimate{}
	}
	all := make([]float64, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			all = append(all, f(x, y))
		}
	}
	slices.Sort(all)
	n := len(all)
	out := Estimate{Median: (all[(n-1)/2] + all[n/2]) / 2, Low: all[0], High: all[n-1], N: min(len(a), len(b))}
	if k, confidence := uRank(len(a), len(b), alpha); k > 0 {
		out.Low, out.High, out.Confidence = all[k-1], all[n-k], confidence
	}
	return out
}

// uRank gives how many pairs the interval leaves out at each end, less one: the largest k with P(U < k) ≤ alpha/2. 0: there
// is no interval at this level from so few samples.
func uRank(n1, n2 int, alpha float64) (k int, confidence float64) {
	if n1*n2 > exactPairs {
		mean, sd := float64(n1*n2)/2, math.Sqrt(float64(n1*n2)*float64(n1+n2+1)/12)
		k = int(math.Floor(mean + sd*stats.StdNormal.InvCDF(alpha/2)))
		return max(k, 0), 1 - alpha
	}
	d := stats.UDist{N1: n1, N2: n2}
	k = sort.Search(n1*n2/2, func(u int) bool { return d.CDF(float64(u)) > alpha/2*(1+rounding) })
	return k, 1 - 2*d.CDF(float64(k-1))
}

// fewest gives the least number of rounds that have an interval at this level.
func fewest(alpha float64) int {
	for n := 2; ; n++ {
		if k, _ := uRank(n, n, alpha); k > 0 {
			return n
		}
	}
}

// holm adjusts p-values for their number (Holm 1979): what is at most alpha then is significant with all of them together.
func holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case p[i] < p[j]:
			return -1
		case p[i] > p[j]:
			return 1
		}
		return 0
	})
	out := make([]float64, len(p))
	last := 0.0
	for rank, i := range order {
		last = max(last, min(1, p[i]*float64(len(p)-rank)))
		out[i] = last
	}
	return out
}
