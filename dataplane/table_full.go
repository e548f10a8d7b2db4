package dataplane

import (
	"log/slog"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
)

// fullLogEvery is the least time between two log lines about a full table. It is also how long the table counts as
// full after the last key without room.
const fullLogEvery = time.Minute

// fullLog logs that a table is full, or that new keys are held back.
type fullLog struct {
	table  *cell.Table
	logger *slog.Logger

	held               int64 // NewKeys.HeldBack when it was last logged; only the sweep uses it
	full               int64 // table.Full when it was last logged; only the sweep uses it
	logged, heldLogged clock.Steady
}

// reportFull logs a full table, at most once per fullLogEvery.
func (c *fullLog) reportFull(now clock.Steady) {
	full := c.table.Full.Load()
	if full == c.full || c.logged != 0 && int64(now-c.logged) < fullLogEvery.Milliseconds() {
		return
	}
	workspace, namespace, share := c.table.Largest()
	c.logger.Warn("the table is full; keys without room are decided by the origin or a sketch, which errs towards "+
		"denying",
		"entries", c.table.Len(), "without_room", full-c.full, "largest_workspace", workspace, "largest_namespace", namespace,
		"largest_share", share, "evicted_for_shares", c.table.Evicted.Share.Load())
	c.full, c.logged = full, now
}

// reportHeldBack logs, at most once per fullLogEvery, that new keys were held back.
func (c *fullLog) reportHeldBack(now clock.Steady) {
	times, workspace, namespace := c.table.NewKeys.HeldBack()
	if times == c.held || c.heldLogged != 0 && int64(now-c.heldLogged) < fullLogEvery.Milliseconds() {
		return
	}
	c.logger.Warn("too many new keys: some are not created at the origin and count at this node alone until they "+
		"are used again", "times", times-c.held, "last_workspace", workspace, "last_namespace", namespace)
	c.held, c.heldLogged = times, now
}
