package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/shared/window"
)

// A denial leaves no count behind, so denials are sampled on their own way out, for
// TopDenied. Each stripe takes the first few of a millisecond as they are, and of a flood
// one in deniedSampleEvery, which then stands for all since the one before. Samples go
// into a sketch: see package denied for what it may miss.

const (
	deniedSampleEvery = 509 // a prime: callers who take turns are not in step with it
	deniedExact       = 16  // of a stripe and millisecond
)

// tally takes note of a denial that has been counted, the nth of its kind on its stripe,
// of e if the key is held. It writes nothing to memory while a flood is only sampled.
func (g *engine) tally(e *cell.Entry, c *call, n int64) {
	if s := c.counts; s.exactLeft.Load() > 0 || s.deniedMs.Load() != c.nowMs || n%deniedSampleEvery == 0 {
		g.takeSample(e, c)
	}
}

func (g *engine) takeSample(e *cell.Entry, c *call) {
	s := c.counts
	if s.deniedMs.Load() != c.nowMs {
		s.deniedMs.Store(c.nowMs)
		s.exactLeft.Store(deniedExact)
	}
	if left := s.exactLeft.Load(); left > 0 {
		s.exactLeft.Store(left - 1)
	}
	g.sample(e, c)
}

// sample counts a denial for all of its stripe since the last sample. Where the sketch is
// busy a later one stands for this one too.
func (g *engine) sample(e *cell.Entry, c *call) {
	g.denied.Add(*c.id, g.clock.Steady(), c.limit, func() int64 {
		n := c.counts.denials()
		weight := n - c.counts.sampled
		c.counts.sampled = max(n, c.counts.sampled)
		return weight
	}, func() cell.Names {
		if e != nil {
			return *e.Names()
		}
		key := c.key()
		return g.table.NamesOf(&key, nil)
	})
}

// Refused takes note of a lease or a reservation that was refused. The key of a lease has no duration.
func (g *engine) Refused(key window.Key, reset *window.Reset, limit int64) {
	id := g.table.IdentityOfKey(&key, reset)
	g.denied.Add(id, g.clock.ReadSteady(), limit, func() int64 { return 1 }, func() cell.Names {
		return g.table.NamesOf(&key, nil)
	})
}
