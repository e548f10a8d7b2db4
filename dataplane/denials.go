package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/shared/window"
)

// A denial leaves no count behind, so denials are sampled separately for TopDenied. Each stripe takes the first
// deniedExact denials of a millisecond. Of a flood it takes every deniedSampleEvery-th denial, which stands for all
// denials since the last sample. Samples go into a sketch: the package denied describes its errors.

const (
	deniedSampleEvery = 509 // a prime, so that callers who take turns don't fall into step with it
	deniedExact       = 16  // of a stripe and millisecond
)

// tally samples a denial that has been counted, the nth of its kind on its stripe. e is the key's entry, or nil.
// tally writes nothing to memory while a flood is only sampled.
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

// sample adds a denial to the sketch, with the weight of all denials of its stripe since the last sample. If the
// sketch is busy, a later sample stands for this denial too.
//
// The usage of the namespace gets the same sample: the cost of this denial stands for the cost of all of them.
func (g *engine) sample(e *cell.Entry, c *call) {
	var weight int64
	g.denied.Add(*c.id, g.clock.Steady(), c.limit, func() int64 {
		n := c.counts.denials()
		weight = n - c.counts.sampled
		c.counts.sampled = max(n, c.counts.sampled)
		return weight
	}, func() cell.Names {
		if e != nil {
			return *e.Names()
		}
		key := c.key()
		return g.table.NamesOf(&key, nil)
	})
	g.usage.TryDeny(c.request.Workspace, c.request.Namespace, c.cost, weight)
}

// Refused samples a lease or a reservation that was refused. The key of a lease has no duration.
func (g *engine) Refused(key window.Key, reset *window.Reset, limit int64) {
	id := g.table.IdentityOfKey(&key, reset)
	g.denied.AddOne(id, g.clock.ReadSteady(), limit, func() cell.Names {
		return g.table.NamesOf(&key, nil)
	})
}
