package rules

import (
	"log/slog"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
)

// newRules makes the rules of a node without entries.
func newRules(source Source, nodeID string, now func() time.Time) *Rules {
	r := new(Rules)
	r.Init(Config{Source: source, Region: "eu", NodeID: nodeID, Clock: clock.New(now), Walk: func(func(*cell.Entry)) {},
		Logger: slog.New(slog.DiscardHandler)})
	return r
}
