package sequential

import "math"

// Count is how many events there were in an exposure: a time, or a number of decisions.
type Count struct{ Events, Exposure float64 }

// Rate returns events for each unit of exposure, 0 without any.
func (c Count) Rate() float64 {
	if c.Exposure <= 0 {
		return 0
	}
	return c.Events / c.Exposure
}

func (c Count) plus(d Count) Count { return Count{c.Events + d.Events, c.Exposure + d.Exposure} }

// Spread measures how much counts of slots vary. The zero value has no slots.
type Spread struct {
	Slots    int     `json:"slots"`
	Events   float64 `json:"events"`
	Exposure float64 `json:"exposure"`
	Squares  float64 `json:"squares"` // of events, each divided by its exposure
}

// Add takes in a slot.
func (s *Spread) Add(c Count) {
	if c.Exposure > 0 {
		s.Slots++
		s.Events += c.Events
		s.Exposure += c.Exposure
		s.Squares += c.Events * c.Events / c.Exposure
	}
}

func spreadOf(slots []Count) (s Spread) {
	for _, c := range slots {
		s.Add(c)
	}
	return s
}

// clump returns how many events come together, at least 1: how much more slots vary than independent events would.
func (s Spread) clump() float64 {
	if s.Slots < 2 || s.Events == 0 {
		return 1
	}
	freedom := float64(s.Slots - 1)
	squares := s.Squares*s.Exposure/s.Events - s.Events // Pearson's
	more := max(0, squares/freedom-1)
	return 1 + more*(1+2/freedom) // so few slots often look more alike than they are
}

// Bound is the highest allowed rate of events after a change: Times the rate before it, plus Plus.
type Bound struct{ Times, Plus float64 }

// Evidence measures how strongly counts contradict a bound.
type Evidence struct {
	Log   float64 // of the e-value: the bound is exceeded at an error rate of α if this is at least log(1/α)
	Since Count   // of the slots with the strongest evidence
}

// Exceeds returns the evidence that events have become more frequent than a bound allows. Over all times at which it is
// called, the probability that Log reaches log(1/α) although the bound is kept is at most α, if events are independent,
// or come in clumps that slots separate.
//
// since are the newest slots since the change, oldest first, and first is the number of the oldest slot, from 1. A harm
// may begin late, so that each slot may be its first: the j-th has the share 1/(j·(j+1)) of α, which add up to
// 1. At least Least slots are needed, because a single slot that is far off may be a single event.
//
// past is the spread of slots since the change that are not among since.
//
// scale is a rate that is usual for such events. It must not depend on the counts. The closer it is, the fewer events
// are needed.
//
// The e-value is the likelihood under a mixture of rates, before and since, divided by the largest likelihood that the
// bound allows. Under any pair of rates that keeps the bound it is at most a test martingale, so it reaches 1/α with a
// probability of at most α (Ville; Wasserman, Ramdas and Balakrishnan, PNAS 117, 2020). It is exact for few events, and
// holds for shares of decisions too, because a sum of independent zeros and 1s varies less than a Poisson count of the
// same mean. Events that come in clumps vary more. So counts are divided by how much more the past and the judged slots
// vary than independent events would. That is an estimate, which needs some slots: soon after the change, clumps that
// come in three slots in a row by chance look like a rate that has risen.
func Exceeds(before Count, since []Count, first int, past Spread, bound Bound, scale float64) Evidence {
	var best Evidence
	var sum Count
	slots := 0 // with an exposure
	for i := len(since) - 1; i >= 0; i-- {
		if since[i].Exposure > 0 {
			slots++
		}
		if sum = sum.plus(since[i]); slots < Least || sum.Events == 0 {
			continue
		}
		j := float64(max(1, first+i))
		clump := max(past.clump(), spreadOf(since[i:]).clump())
		log := logE(before.over(clump), sum.over(clump), bound, scale) - math.Log(j*(j+1))
		if log > best.Log {
			best = Evidence{log, sum}
		}
	}
	return best
}

func (c Count) over(clump float64) Count { return Count{c.Events / clump, c.Exposure / clump} }

// logE returns the logarithm of the e-value, or 0 if the bound is not exceeded.
func logE(before, since Count, bound Bound, scale float64) float64 {
	if since.Rate() <= bound.Times*before.Rate()+bound.Plus || bound.Times > 0 && before.Exposure <= 0 {
		return 0
	}
	if bound.Times == 0 {
		return max(0, since.mixture(scale)-since.likelihood(bound.Plus))
	}
	was := before.mostLikely(since, bound)
	allowed := before.likelihood(was) + since.likelihood(bound.Times*was+bound.Plus)
	return max(0, before.mixture(scale)+since.mixture(scale)-allowed)
}

// mostLikely returns the rate before the change that makes both counts most likely, where the rate since is at the
// bound: the root of a quadratic equation.
func (c Count) mostLikely(since Count, bound Bound) float64 {
	exposure := c.Exposure + bound.Times*since.Exposure
	p := bound.Times*(c.Events+since.Events) - exposure*bound.Plus
	q := c.Events * bound.Plus
	return (p + math.Sqrt(p*p+4*exposure*bound.Times*q)) / (2 * exposure * bound.Times)
}

// likelihood returns the logarithm of the likelihood of a Poisson rate.
func (c Count) likelihood(rate float64) float64 {
	if c.Events == 0 {
		return -rate * c.Exposure
	}
	return c.Events*math.Log(rate) - rate*c.Exposure
}

// mixture returns the logarithm of the mean likelihood of rates, half of them distributed around the scale and half
// around a hundred times that: a rate far from the scale costs a few events, and not all of them.
func (c Count) mixture(scale float64) float64 {
	near, far := c.gamma(scale), c.gamma(100*scale)
	larger, smaller := max(near, far), min(near, far)
	return larger + math.Log1p(math.Exp(smaller-larger)) - math.Ln2
}

// gamma returns the logarithm of the mean likelihood of rates that are distributed as Gamma(1/2) with a mean.
func (c Count) gamma(mean float64) float64 {
	const shape = 0.5
	rate := shape / mean
	events, _ := math.Lgamma(c.Events + shape)
	prior, _ := math.Lgamma(shape)
	return shape*math.Log(rate) - prior + events - (c.Events+shape)*math.Log(c.Exposure+rate)
}
