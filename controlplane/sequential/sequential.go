// Package sequential compares nodes with a change with nodes without it, at the same moment. You can look at the result
// at any time: its error rate holds however often you look, and whenever you stop.
//
// A sample is a figure of a slot of time: the difference between nodes with the change and nodes without it. Samples
// from before the change show their usual difference, and how much it varies from slot to slot, and so with everything
// that makes nodes, regions and minutes differ. Influences on both groups alike, such as the time of day, are in no
// sample.
package sequential

import "math"

// Moments are how many samples there are, their mean, and the sum of their squared distances from it.
type Moments struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	M2   float64 `json:"m2"`
}

// Add takes in a sample, by Welford's recurrence (Technometrics 4, 1962).
func (m *Moments) Add(x float64) {
	m.N++
	d := x - m.Mean
	m.Mean += d / float64(m.N)
	m.M2 += d * (x - m.Mean)
}

const (
	// Kept is how many of the newest samples a Series holds.
	Kept = 40
	// Least is how many samples of before the change a comparison needs, and since.
	Least = 3

	// effect is the size of changes for which the test is best, in standard deviations of a sample.
	effect = 2
)

// Series are the samples of before a change and since. The zero value has none.
type Series struct {
	Before  Moments   `json:"before"`
	Since   []float64 `json:"since,omitempty"` // the newest Kept, oldest first
	Dropped int       `json:"dropped,omitempty"`
}

// Add takes in a sample since the change.
func (s *Series) Add(x float64) {
	s.Since = append(s.Since, x)
	if over := len(s.Since) - Kept; over > 0 {
		s.Since = s.Since[over:]
		s.Dropped += over
	}
}

// Verdict is the result at a moment.
type Verdict struct {
	Worse      bool    // the change adds more than the margin
	Confidence float64 // that it does, 0 to 1: Worse at 1-α and more
	Estimate   float64 // of the added amount, from the samples with the strongest evidence
	Low, High  float64 // bounds of the added amount, with a confidence of 1-α; infinite: too few samples
	Samples    int     // since the change, that the estimate is from
}

// Judge reports whether the change adds more than margin. If the change adds margin or less, the probability that any
// of its verdicts says Worse is at most α, over all times at which it is called. That holds if samples are normal and
// independent of each other; α is in (0, 1).
//
// For a known beginning of the change it is the two-sample Bayesian t test of Gönen, Johnson, Lu and Westfall (The
// American Statistician 59, 2005). Its Bayes factor is a test martingale under optional stopping, whatever the variance
// is (Hendriksen, de Heide and Grünwald, Bayesian Analysis 16, 2021): it reaches 1/α' with a probability of at most α'
// (Ville). A harm may begin late, so that each sample since the change may be its first: the j-th has the share
// 1/(j·(j+1)) of α, which add up to 1.
func (s *Series) Judge(margin, α float64) Verdict {
	best := Verdict{Low: math.Inf(-1), High: math.Inf(1)}
	if s.Before.N < Least {
		return best
	}
	var since Moments
	for i := len(s.Since) - 1; i >= 0; i-- { // the sums of later beginnings are part of the sums of earlier beginnings
		if since.Add(s.Since[i]); since.N < Least { // a single sample that is far off may be a single event
			continue
		}
		j := float64(s.Dropped + i + 1)
		t := compare(s.Before, since)
		share := α / (j * (j + 1))
		confidence := 1 - min(1, j*(j+1)/t.factor(margin))
		if best.Samples == 0 || confidence >= best.Confidence {
			half := t.halfWidth(share)
			best = Verdict{
				Worse: best.Worse || confidence >= 1-α, Confidence: confidence, Estimate: t.difference,
				Low: t.difference - half, High: t.difference + half, Samples: since.N,
			}
		}
	}
	return best
}

// comparison is a two-sample t test.
type comparison struct {
	difference float64 // of the means
	deviation  float64 // the difference's standard error
	freedom    float64 // degrees of it
	weight     float64 // 1 + the effective number of samples times effect²
}

func compare(before, since Moments) comparison {
	n := 1 / (1/float64(before.N) + 1/float64(since.N))
	freedom := float64(before.N + since.N - 2)
	return comparison{
		difference: since.Mean - before.Mean,
		deviation:  math.Sqrt((before.M2 + since.M2) / freedom / n),
		freedom:    freedom, weight: 1 + n*effect*effect,
	}
}

// factor returns the Bayes factor of a difference other than margin against a difference of margin, or 0 for a smaller
// difference.
func (c comparison) factor(margin float64) float64 {
	more := c.difference - margin
	if more <= 0 {
		return 0
	}
	of := 1 / c.weight // of samples that do not vary: the limit as the deviation goes to 0
	if x := more / c.deviation * (more / c.deviation) / c.freedom; !math.IsInf(x, 1) {
		of = (1 + x/c.weight) / (1 + x)
	}
	return math.Exp(-(c.freedom+1)/2*math.Log(of) - math.Log(c.weight)/2)
}

// halfWidth returns how far the difference is off at most, with a confidence of 1-α: the margins whose factor is less
// than 1/α.
func (c comparison) halfWidth(α float64) float64 {
	q := math.Pow(α/math.Sqrt(c.weight), 2/(c.freedom+1))
	if q <= 1/c.weight {
		return math.Inf(1)
	}
	return c.deviation * math.Sqrt(c.freedom*(1-q)/(q-1/c.weight))
}
