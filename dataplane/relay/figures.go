package relay

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
)

// Figures describes the state of a relay. Counters begin when the relay is made.
type Figures struct {
	Held        []int         // shards whose lease the relay holds, ascending
	Shards      int           // number of the origin's shards
	Unpublished time.Duration // how long the oldest count that is due has waited to be published

	// InStepAt is when the relay had last published the due counts of each shard that it holds, and read the change feed,
	// without an error. Before the first time, it is when the relay began to. It is zero if the relay holds no lease, or
	// has only just acquired one.
	InStepAt time.Time

	// LagP99 is by region, and has the regions whose rows were read since the last call. It is the 99th percentile of a
	// row's age when it was read, by the store's clock, and up to a fifth too large.
	LagP99 map[string]time.Duration

	Errors  int64 // steps of the loops that failed
	Rows    int64 // rows of MySQL: change feed rows written and read, counts stored
	Saved   int64 // counts stored in the CountStore
	Refused int64 // counts that the CountStore refused
	Healed  int64 // times that a shard of the origin had lost its counts, and the relay raised them again
	Fenced  int64 // times that another relay of the same shard had written first
}

// Figures returns the state of the relay. Each call resets LagP99, so only a single caller should use Figures.
// Collector has metrics for any number of callers.
func (r *Relay) Figures() Figures {
	now := r.cfg.Clock()
	m := &r.metrics
	f := Figures{
		LagP99: m.takeLags(), Shards: len(r.shards),
		Errors: m.errors.Load(), Rows: m.published.rows.Load() + m.read.rows.Load() + m.saved.Load(),
		Saved: m.saved.Load(), Refused: m.refused.Load(), Healed: m.healed.Load(), Fenced: m.fenced.Load(),
	}
	for _, s := range r.shards {
		if _, held := s.lease.term(now); held {
			f.Held = append(f.Held, s.index)
		}
		unpublished, _ := s.book.figures(now)
		f.Unpublished = max(f.Unpublished, unpublished)
	}
	if at := r.inStepAtMs(now); at > 0 {
		f.InStepAt = time.UnixMilli(at)
	}
	return f
}

// inStepAtMs returns Figures.InStepAt in milliseconds, or 0 if it is zero. The relay stores readings of the steady
// clock: if the wall clock was ahead and is set back, a relay that stalls is still noticed.
func (r *Relay) inStepAtMs(now time.Time) int64 {
	at, leads := r.metrics.readAt.Load(), false
	for _, s := range r.shards {
		if _, held := s.lease.term(now); held {
			at, leads = min(at, s.tookAt.Load()), true
		}
	}
	if !leads || at == 0 {
		return 0
	}
	return r.clock.WallOf(clock.Steady(at), now.UnixMilli()).UnixMilli()
}

// takeLags returns the percentiles of the lags since the last call.
func (m *metrics) takeLags() map[string]time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	p99 := make(map[string]time.Duration, len(m.since))
	for region, d := range m.since {
		p99[region] = d.quantile(0.99)
	}
	clear(m.since)
	return p99
}
