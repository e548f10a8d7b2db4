package level

// Tier is how near a key is to its limit. It decides how often the key is synced with the origin.
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

// TierOf returns the tier of a level. Tiers include their lower bound: half the limit is normal. It multiplies, which
// is quicker than to divide, and exact where the level is whole.
func TierOf(level float64, limit int64) Tier {
	most := float64(limit)
	switch {
	case 10*level < most || limit == 0: // with a limit of 0 no answer of the origin matters
		return Idle
	case 2*level < most:
		return Low
	case 5*level < 4*most:
		return Normal
	}
	return Hot
}

// IntervalMs returns the time after which a key of the tier is synced again. Idle keys below their floor are not synced
// at all.
func (t Tier) IntervalMs(baseMs int64) int64 {
	switch t {
	case Hot:
		return baseMs / 2
	case Normal:
		return baseMs
	}
	return 4 * baseMs
}

// EffectiveFloor returns how much local cost an idle key gathers before it is worth a sync: the floor, but no more than
// a hundredth of the limit.
func EffectiveFloor(floor, limit int64) int64 { return min(floor, max(limit/100, 1)) }

// Overdue reports whether a key that was last synced at refreshedMs, 0 for never, may sync
// again.
func (t Tier) Overdue(nowMs, refreshedMs, baseMs int64) bool {
	return refreshedMs == 0 || nowMs-refreshedMs >= t.IntervalMs(baseMs)
}

// Costly reports whether a key only syncs once its local cost has reached the floor.
func (t Tier) Costly(refreshedMs int64) bool { return refreshedMs == 0 || t == Idle }

// Step returns how much local cost is sent in any tier: a fiftieth of the limit, or the floor if that is more. So n
// nodes lack at most n steps of each other's cost.
func Step(floor, limit int64) int64 { return max(EffectiveFloor(floor, limit), limit/50, 1) }
