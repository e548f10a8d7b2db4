package level

// Tier is how near a key is to its limit: what decides how often it talks to the origin.
type Tier uint8

// Tiers, from far from the limit to near it.
const (
	Idle   Tier = iota // below a tenth of the limit
	Low                // below half
	Normal             // below four fifths
	Hot
	Tiers
)

func (t Tier) String() string { return [...]string{"idle", "low", "normal", "hot"}[t] }

// TierOf is left-closed: half the limit is normal. It multiplies, which is quicker than
// to divide, and exact where the level is whole.
func TierOf(level float64, limit int64) Tier {
	most := float64(limit)
	switch {
	case 10*level < most || limit == 0: // of 0, nothing that the origin could say matters
		return Idle
	case 2*level < most:
		return Low
	case 5*level < 4*most:
		return Normal
	}
	return Hot
}

// IntervalMs is how long ago a key of the tier must have been synced to be synced
// again. What is idle and below its floor is not synced at all.
func (t Tier) IntervalMs(baseMs int64) int64 {
	switch t {
	case Hot:
		return baseMs / 2
	case Normal:
		return baseMs
	}
	return 4 * baseMs
}

// EffectiveFloor is how much local cost an idle key gathers before it is worth a sync:
// the floor, but no more than a hundredth of the limit.
func EffectiveFloor(floor, limit int64) int64 { return min(floor, max(limit/100, 1)) }

// Overdue reports whether a key that was last synced at refreshedMs, 0 for never, may sync
// again.
func (t Tier) Overdue(nowMs, refreshedMs, baseMs int64) bool {
	return refreshedMs == 0 || nowMs-refreshedMs >= t.IntervalMs(baseMs)
}

// Costly is true of keys that only sync once their local cost has reached the floor.
func (t Tier) Costly(refreshedMs int64) bool { return refreshedMs == 0 || t == Idle }

// Step is how much local cost is sent whatever the tier: a fiftieth of the limit, or the
// floor where that is more. It bounds what n nodes can keep from each other to n steps.
func Step(floor, limit int64) int64 { return max(EffectiveFloor(floor, limit), limit/50, 1) }
