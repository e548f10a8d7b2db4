package sequential

import (
	"math"
	"math/rand/v2"
	"testing"
)

// played returns the verdict of a series after each of so many samples since a change, of figures that vary by 1.
func played(r *rand.Rand, before, since int, sample func(k int) float64, margin, α float64) (worse bool, at int) {
	var s Series
	for range before {
		s.Before.Add(r.NormFloat64())
	}
	for k := range since {
		s.Add(sample(k))
		if s.Judge(margin, α).Worse {
			return true, k + 1
		}
	}
	return false, since
}

// A change that does nothing is called worse in no more than α of all histories, although each sample is looked at.
func TestErrorRateHoldsAtEveryLook(t *testing.T) {
	const histories, α = 500, 0.05
	for name, before := range map[string]int{"a short baseline": 3, "the usual one": 9, "a long one": 60} {
		for margin, what := range map[float64]string{0: "no margin", 1: "at its margin"} {
			r := rand.New(rand.NewPCG(uint64(before), 1))
			wrong := 0
			for range histories {
				if worse, _ := played(r, before, 80, func(int) float64 { return r.NormFloat64() + margin }, margin, α); worse {
					wrong++
				}
			}
			if share := float64(wrong) / histories; share > α {
				t.Errorf("%s, %s: %v of all are called worse", name, what, share)
			}
		}
	}
}

// An effect beyond the margin by some standard deviations is found within the samples of a bake, also if it begins
// late.
func TestHarmIsFound(t *testing.T) {
	const α = 0.01 / 100
	for name, c := range map[string]struct {
		adds   float64
		begins int
		within int
	}{
		"six deviations":       {6, 0, 12},
		"ten":                  {10, 0, 8},
		"six, an hour later":   {6, 180, 24},
		"four, over a quarter": {4, 0, 40},
	} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 2))
			worse, at := played(r, 9, c.begins+c.within, func(k int) float64 {
				if k < c.begins {
					return r.NormFloat64()
				}
				return r.NormFloat64() + c.adds
			}, 0, α)
			if !worse || at <= c.begins {
				t.Errorf("%s, seed %d: worse %v at %d", name, seed, worse, at)
			}
		}
	}
}

// The interval contains the truth in 1-α of all histories, at every look, and becomes narrower with more samples.
func TestIntervalHoldsTheTruth(t *testing.T) {
	const histories, α, adds = 400, 0.05, 2.5
	r := rand.New(rand.NewPCG(3, 3))
	missed, first, last := 0, 0.0, 0.0
	for range histories {
		var s Series
		for range 9 {
			s.Before.Add(r.NormFloat64())
		}
		miss := false
		for k := range Kept {
			s.Add(r.NormFloat64() + adds)
			v := s.Judge(0, α)
			miss = miss || v.Low > adds || v.High < adds
			if width := v.High - v.Low; k == 9 {
				first += width
			} else if k == Kept-1 {
				last += width
			}
		}
		if miss {
			missed++
		}
	}
	if share := float64(missed) / histories; share > α {
		t.Errorf("%v of all miss the truth at some look", share)
	}
	if math.IsInf(first, 0) || last >= first {
		t.Errorf("widths add up to %v after 10 samples, to %v after %d", first, last, Kept)
	}
}

func TestSamplesThatDoNotVary(t *testing.T) {
	for adds, want := range map[float64]bool{0: false, 1: false, 1.5: true} {
		var s Series
		for range 6 {
			s.Before.Add(7)
		}
		for range 20 {
			s.Add(7 + adds)
		}
		if v := s.Judge(1, 0.001); v.Worse != want || v.Estimate != adds || v.Low != adds || v.High != adds {
			t.Errorf("%v more: %+v", adds, v)
		}
	}
}

func TestTooFewSamplesSayNothing(t *testing.T) {
	for _, before := range []int{0, 1, Least - 1} {
		var s Series
		for i := range before {
			s.Before.Add(float64(i))
		}
		for range Kept {
			s.Add(1e9)
		}
		if v := s.Judge(0, 0.01); v.Worse || v.Samples != 0 || !math.IsInf(v.High, 1) {
			t.Errorf("after %d: %+v", before, v)
		}
	}
	s := Series{Before: Moments{N: Least}}
	if v := s.Judge(0, 0.01); v.Worse || v.Samples != 0 {
		t.Errorf("none since: %+v", v)
	}
}

// Fewer samples since the change than Least give no verdict, however far off they are, because they may be a single
// event.
func TestOneEventInTwoSamplesSaysNothing(t *testing.T) {
	var s Series
	for i := range Kept {
		s.Before.Add(float64(i % 2))
	}
	for n := 1; n < Least; n++ {
		s.Add(1e9)
		if v := s.Judge(0, 0.01); v.Worse || v.Samples != 0 || !math.IsInf(v.Low, -1) {
			t.Errorf("after %d: %+v", n, v)
		}
	}
	if s.Add(1e9); !s.Judge(0, 0.01).Worse {
		t.Errorf("after %d: %+v", Least, s.Judge(0, 0.01))
	}
}

// A harm that begins late takes more evidence, also once the samples before it are dropped.
func TestDroppedSamplesHaveHadTheirShareOfTheErrorRate(t *testing.T) {
	var s Series
	for i := range Kept {
		s.Before.Add(float64(i % 2))
	}
	for i := range Kept {
		s.Add(1 + float64(i%2))
	}
	last := s.Judge(0, 0.01).Confidence
	for dropped := range 5 {
		s.Dropped = 1 << (4 * dropped)
		is := s.Judge(0, 0.01).Confidence
		if is >= last {
			t.Errorf("%d samples are dropped: confidence %v, and with fewer %v", s.Dropped, is, last)
		}
		last = is
	}
}

// The newest samples are kept, and dropped samples still have their share of α.
func TestSeriesIsBounded(t *testing.T) {
	var s Series
	for i := range 3 * Kept {
		s.Add(float64(i))
	}
	if len(s.Since) != Kept || s.Dropped != 2*Kept || s.Since[0] != 2*Kept {
		t.Errorf("%d of %v, %d dropped", len(s.Since), s.Since, s.Dropped)
	}
}

func TestMoments(t *testing.T) {
	var m Moments
	for _, x := range []float64{2, 4, 4, 4, 5, 5, 7, 9} {
		m.Add(x)
	}
	if m.N != 8 || math.Abs(m.Mean-5) > 1e-12 || math.Abs(m.M2-32) > 1e-12 {
		t.Errorf("%+v", m)
	}
}
