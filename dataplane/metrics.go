package dataplane

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/evidence"
	"github.com/weirhq/weir/dataplane/internal/latency"
)

// outcome is the result of a request.
type outcome uint8

const (
	outcomeAllowed outcome = iota
	outcomeDenied
	outcomeShadowed
	outcomeBatchDenied // an item that would fit, in a batch that another item denied: nothing was counted
	outcomes
)

func (o outcome) String() string {
	return [...]string{"allowed", "denied", "shadowed", "batch_denied"}[o]
}

const (
	sources     = 6   // Source values
	stripes     = 64  // of the decision counters; a power of two
	sampleEvery = 256 // decisions of a stripe and outcome for each latency sample; a power of two
)

// stripe is a share of the decision counters, on its own cache lines. A goroutine nearly always counts on the same
// stripe, so two processors seldom write to the same cache lines, even when they decide about the same key.
type stripe struct {
	// For TopDenied's sample of denials, shadowed denials included; see denials.go.
	deniedMs, exactLeft atomic.Int64

	timeNext  atomic.Bool // the latency of the next decision is measured
	decisions [sources][outcomes]atomic.Int64
	estimates [outcomes]atomic.Int64 // of the estimate mode, all local
	misses    atomic.Int64           // estimates on the first request of a key

	candidates [2]atomic.Int64                 // decisions that a candidate limit would have allowed, and denied
	trial      [evidence.Outcomes]atomic.Int64 // decisions judged by both limits of a trial
	refused    atomic.Int64                    // denials by an outage policy, which are no sign of a busy key
	// of all other denials, those in TopDenied; under the lock of the log of denials
	sampled int64

	_ [128 - ((sources+1)*int(outcomes)+8+int(evidence.Outcomes))*8%128]byte
}

// stats are the plain atomic counters of the request path. Limiter.Metrics adds names and labels when it reads them,
// so the request path looks up no labels.
type stats struct {
	decisions [stripes]stripe
	latency   latency.Latency

	strictActivations atomic.Int64
	untracked         untracked
}

// samples reports whether the latency of the goroutine's next decision should be measured: once per sampleEvery
// decisions of a kind.
func (s *stripe) samples() bool {
	if !s.timeNext.Load() {
		return false
	}
	s.timeNext.Store(false)
	return true
}

// decided counts n decisions, and returns the total of their kind.
func (s *stripe) decided(source Source, out outcome, n int64) (total int64) {
	total = s.decisions[source][out].Add(n)
	if uint64(total)%sampleEvery < uint64(n) {
		s.timeNext.Store(true)
	}
	return total
}

// estimated counts a decision of the estimate mode, and returns the total of its kind.
func (s *stripe) estimated(out outcome, met cell.Contact) (total int64) {
	total = s.estimates[out].Add(1)
	if uint64(total)%sampleEvery == 0 {
		s.timeNext.Store(true)
	}
	if met != cell.Known {
		s.misses.Add(1)
	}
	return total
}

// denials returns the number of denials without those by an outage policy. It includes shadowed denials.
func (s *stripe) denials() (n int64) {
	for _, out := range []outcome{outcomeDenied, outcomeShadowed} {
		n += s.estimates[out].Load()
		for source := range s.decisions {
			n += s.decisions[source][out].Load()
		}
	}
	return n - s.refused.Load()
}

// compared counts the verdict of a candidate limit.
func (s *stripe) compared(d *Decision) {
	if d.CandidateDenied {
		s.candidates[outcomeDenied].Add(1)
	} else {
		s.candidates[outcomeAllowed].Add(1)
	}
}

func (m *stats) comparedAll(out outcome) (n int64) {
	for i := range m.decisions {
		n += m.decisions[i].candidates[out].Load()
	}
	return n
}

func (m *stats) comparedByTrials(o evidence.Outcome) (n int64) {
	for i := range m.decisions {
		n += m.decisions[i].trial[o].Load()
	}
	return n
}

func (m *stats) eachDecision(f func(Source, outcome, int64)) {
	estimates, _ := m.estimates()
	for source := SourceLocal; source < sources; source++ {
		for out := range outcomes {
			var n int64
			if source == SourceLocal {
				n = estimates[out]
			}
			for i := range m.decisions {
				n += m.decisions[i].decisions[source][out].Load()
			}
			f(source, out, n)
		}
	}
}

// estimates returns the estimate mode's decisions so far, and the number of decisions on the first request of a key.
func (m *stats) estimates() (n [outcomes]int64, misses int64) {
	for i := range m.decisions {
		s := &m.decisions[i]
		misses += s.misses.Load()
		for out := range n {
			n[out] += s.estimates[out].Load()
		}
	}
	return n, misses
}

// untracked counts decisions on keys that have no room in the table.
type untracked struct{ byOrigin, byOverflow atomic.Int64 }

// decided counts a decision on an untracked key.
func (c *untracked) decided(source Source) {
	if source == SourceOrigin {
		c.byOrigin.Add(1)
		return
	}
	c.byOverflow.Add(1)
}
