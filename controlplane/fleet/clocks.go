package fleet

// Clocks are what the newest look says of the clock of the database, by which nodes are live, beside the rollout's own.
type Clocks struct {
	OwnMs      int64 `json:"own_ms,omitempty"` // of the newest look; 0: there was none
	GapMs      int64 `json:"gap_ms,omitempty"` // own time between the newest look and the one before
	DatabaseMs int64 `json:"database_ms,omitempty"`
	// own clock when the database's was first seen ahead of what had passed; 0: never
	JumpedMs int64 `json:"jumped_ms,omitempty"`
}

// See takes in a look. The two clocks may drift apart by a part of the age at which a node counts as silent.
func (c *Clocks) See(look Look, nowMs int64) {
	if c.OwnMs > 0 && (look.AtMs-c.DatabaseMs)-(nowMs-c.OwnMs) > look.LiveMs/4 {
		c.JumpedMs = nowMs
	}
	c.GapMs = 0
	if c.OwnMs > 0 {
		c.GapMs = max(0, nowMs-c.OwnMs)
	}
	c.OwnMs, c.DatabaseMs = nowMs, look.AtMs
}

// Unsure tells that nodes may look silent by a jump of the clock alone: each has as long to speak again as one that is
// live may be silent.
func (c *Clocks) Unsure(look Look, nowMs int64) bool {
	return c.JumpedMs > 0 && nowMs >= c.JumpedMs && nowMs-c.JumpedMs < look.LiveMs
}
