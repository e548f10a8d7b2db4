package relay

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
)

// Figures is how a relay does. Counters are of the relay's life.
type Figures struct {
	Held        []int         // shards whose lease it holds, ascending
	Shards      int           // that its origin has
	Unpublished time.Duration // how long the oldest count that is due to be told has waited

	// InStepAt is when it had last told what was due, for each shard that it holds, and read news, without an error; at
	// first when it began to. Zero: it holds no lease, or has only just got it.
	InStepAt time.Time

	// LagP99 has the regions whose news was read since the last call: the 99th percentile of how old a row was when
	// it was read, by the store's clock; at most a fifth too large.
	LagP99 map[string]time.Duration

	Errors  int64 // steps of the loops that failed
	Rows    int64 // of MySQL: news written and read, counts stored
	Saved   int64 // counts that were stored for good
	Refused int64 // counts that the store does not take
	Healed  int64 // times that a shard of the origin had lost its counts and was raised again
	Fenced  int64 // times that another relay of the same shard had written first
}

// Figures returns how the relay does. LagP99 begins anew with each call, so one caller calls it.
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

// inStepAtMs is Figures.InStepAt; 0 if that is zero. What is kept is a reading of the steady clock, so a wall clock
// that was ahead does not hide for as long that the relay stalls.
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
