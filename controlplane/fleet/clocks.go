package fleet

// Clocks compares the clock of the database, by which nodes are live, with the rollout's own clock, as of the newest
// look.
type Clocks struct {
	OwnMs      int64 `json:"own_ms,omitempty"` // own time of the newest look; 0: none
	GapMs      int64 `json:"gap_ms,omitempty"` // own time between the last two looks
	DatabaseMs int64 `json:"database_ms,omitempty"`
	// JumpedMs is the own time at which the database's clock was first seen to have jumped ahead; 0: never.
	JumpedMs int64 `json:"jumped_ms,omitempty"`
}

// See adds a look. The clocks may drift apart by a quarter of the age at which a node counts as silent; a larger gain
// of the database's clock is a jump.
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

// Unsure reports whether nodes can look silent only because the clock jumped. After a jump each node has as long to
// send a heartbeat as a live node may be silent.
func (c *Clocks) Unsure(look Look, nowMs int64) bool {
	return c.JumpedMs > 0 && nowMs >= c.JumpedMs && nowMs-c.JumpedMs < look.LiveMs
}
