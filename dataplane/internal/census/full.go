package census

import (
	"log/slog"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
)

// FullFor is how long a table counts as full after the last key without room. It is also the least time between two
// log lines about a full table.
const FullFor = time.Minute

// FullLog logs that a table is full, or that new keys are held back. Only a single goroutine may use it.
type FullLog struct {
	Table  *cell.Table
	Logger *slog.Logger

	held               int64 // NewKeys.HeldBack when it was last logged
	full               int64 // Table.Full when it was last logged
	logged, heldLogged clock.Steady
}

// Full logs a full table, at most once per FullFor.
func (f *FullLog) Full(now clock.Steady) {
	full := f.Table.Full.Load()
	if full == f.full || f.logged != 0 && int64(now-f.logged) < FullFor.Milliseconds() {
		return
	}
	workspace, namespace, share := f.Table.Largest()
	f.Logger.Warn("the table is full; keys without room are decided by the origin or a sketch, which errs towards "+
		"denying",
		"entries", f.Table.Len(), "without_room", full-f.full, "largest_workspace", workspace, "largest_namespace", namespace,
		"largest_share", share, "evicted_for_shares", f.Table.Evicted.Share.Load())
	f.full, f.logged = full, now
}

// HeldBack logs, at most once per FullFor, that new keys were held back.
func (f *FullLog) HeldBack(now clock.Steady) {
	times, workspace, namespace := f.Table.NewKeys.HeldBack()
	if times == f.held || f.heldLogged != 0 && int64(now-f.heldLogged) < FullFor.Milliseconds() {
		return
	}
	f.Logger.Warn("too many new keys: some are not created at the origin and count at this node alone until they "+
		"are used again", "times", times-f.held, "last_workspace", workspace, "last_namespace", namespace)
	f.held, f.heldLogged = times, now
}
