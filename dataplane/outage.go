package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// sourceOut is what a decision by an outage policy tells of itself.
func sourceOut(p rules.Outage) Source {
	return [...]Source{rules.OutageLocal: SourceDegraded, rules.OutageOpen: SourceDegradedOpen,
		rules.OutageClosed: SourceDegradedClosed}[p]
}

// outOf is true when a decision about e that wants the origin would not get it, as far
// as is known without trying.
func (l *Limiter) outOf(e *cell.Entry, now clock.Steady) bool {
	return e.RestsFor(now) > 0 || l.shardOf(e).asks.State() != breaker.Closed
}

// refuses reports whether the shard of e is known to refuse writes. The policies open and closed
// treat that as an outage even if the shard still answers reads. After Stop it is always true,
// because a stopped limiter writes nothing.
func (l *Limiter) refuses(e *cell.Entry) bool {
	return l.refusing.Load() > 0 && (l.stopping.Load() || l.shardOf(e).writes.Refused(int64(l.clock.Steady())))
}

// wrote records the result of a write to a shard.
func (l *Limiter) wrote(sh *shard, err error) {
	sh.writes.Note(err, int64(l.clock.ReadSteady()), milliseconds(l.rules.InForce().TwoTicksMs)+replayTimeout)
}

// refusal is how long a closed namespace tells its callers to stay away: until the
// origin is tried again.
func (l *Limiter) refusal(e *cell.Entry, now clock.Steady) time.Duration {
	wait := max(e.RestsFor(now), l.shardOf(e).asks.OpensFor().Round(time.Millisecond))
	if wait <= 0 {
		return cell.RetryPause // its read is still out
	}
	return wait
}

// judgeOut is judge for a decision that goes by an outage policy other than local.
func (l *Limiter) judgeOut(v *cell.Verdict, e *cell.Entry, c *call, source Source) (alive bool) {
	if source == SourceDegradedClosed {
		alive = e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, false)
		v.Refuse(c.nowMs, l.refusal(e, l.clock.Steady()))
		return alive
	}
	alive = e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting())
	if alive && !v.Allowed && c.cost <= c.limit {
		v.Allowed = true
		return !c.counting() || e.Force(v.Sequence, c.limit, c.cost)
	}
	return alive
}
