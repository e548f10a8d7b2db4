package dataplane

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/latency"
)

// outcome is what became of a request.
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

// stripe is one share of the decision counters, on cache lines of its own. A goroutine
// nearly always counts on the same one, so two processors seldom meet there, even when
// they decide about the same key.
type stripe struct {
	// Of denials, shadowed ones too, as TopDenied samples them; see denials.go.
	deniedMs, exactLeft atomic.Int64

	timeNext  atomic.Bool // the latency of the next decision is measured
	decisions [sources][outcomes]atomic.Int64
	estimates [outcomes]atomic.Int64 // of the estimate mode, all local
	misses    atomic.Int64           // estimates that met a key for the first time

	candidates [2]atomic.Int64 // that candidate limits would have allowed, and denied
	refused    atomic.Int64    // denials that say nothing about their key: an outage policy's
	sampled    int64           // of all other denials, those that TopDenied has; under the log of denials' lock

	_ [128 - ((sources+1)*int(outcomes)+8)*8%128]byte
}

// stats are plain atomics that the request path owns; Limiter.Metrics names
// them when it is asked, so nothing is looked up by label on the way of a request.
type stats struct {
	decisions [stripes]stripe
	latency   latency.Latency

	strictActivations atomic.Int64
	untracked         untracked
}

// samples is true when the latency of the goroutine's next decision should be measured:
// once for each sampleEvery decisions of a kind.
func (s *stripe) samples() bool {
	if !s.timeNext.Load() {
		return false
	}
	s.timeNext.Store(false)
	return true
}

// decided counts n decisions, and returns how many there have been of their kind.
func (s *stripe) decided(source Source, out outcome, n int64) (total int64) {
	total = s.decisions[source][out].Add(n)
	if uint64(total)%sampleEvery < uint64(n) {
		s.timeNext.Store(true)
	}
	return total
}

// estimated counts a decision of the estimate mode, and returns how many there have been
// of its kind.
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

// denials are those so far that say something about their key, shadowed ones too.
func (s *stripe) denials() (n int64) {
	for _, out := range []outcome{outcomeDenied, outcomeShadowed} {
		n += s.estimates[out].Load()
		for source := range s.decisions {
			n += s.decisions[source][out].Load()
		}
	}
	return n - s.refused.Load()
}

// compared counts what a candidate limit would have said.
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

// estimates are the estimate mode's decisions so far, and how many met their key for the
// first time.
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

// untracked counts what is decided without a place in the table.
type untracked struct{ byOrigin, byOverflow atomic.Int64 }

// decided counts a decision on an untracked key.
func (c *untracked) decided(source Source) {
	if source == SourceOrigin {
		c.byOrigin.Add(1)
		return
	}
	c.byOverflow.Add(1)
}
