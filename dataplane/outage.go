package dataplane

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
)

// outagePolicy decides in place of the origin when a decision needed the origin's answer and did
// not get it: the read failed or timed out, the key rests after a failed read, or the breaker of
// its shard is open. The policies open and closed also apply while the shard refuses writes,
// because its answers then lack other nodes' cost. See breaker.Writes.
type outagePolicy uint8

const (
	// outageLocal decides from what this node knows.
	outageLocal outagePolicy = iota

	// outageOpen lets every cost pass that its limit could ever hold, also past what
	// this node knows. It is counted here and sent when the origin is back, so that
	// the counts tell the truth afterwards.
	outageOpen

	// outageClosed denies, whatever this node knows, and changes nothing.
	outageClosed
)

func parseOutage(text string) (outagePolicy, error) {
	switch text {
	case "", "local":
		return outageLocal, nil
	case "open":
		return outageOpen, nil
	case "closed":
		return outageClosed, nil
	}
	return outageLocal, fmt.Errorf("%w: outage is %q (local, open or closed)", ErrInvalid, text)
}

// String is the inverse of parseOutage.
func (p outagePolicy) String() string {
	return [...]string{outageLocal: "local", outageOpen: "open", outageClosed: "closed"}[p]
}

// source is what such a decision tells of itself.
func (p outagePolicy) source() Source {
	return [...]Source{outageLocal: SourceDegraded, outageOpen: SourceDegradedOpen, outageClosed: SourceDegradedClosed}[p]
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
	sh.writes.Note(err, int64(l.clock.ReadSteady()), milliseconds(l.rules.InForce().twoTicksMs)+replayTimeout)
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
