package nodecmd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/relay"
)

// releaseTimeout is how long the end of a relay may take: a lease that is not released ends by itself.
const releaseTimeout = 2 * time.Second

// newRelay makes this node's relay, nil without both stores. Each node of a region has one; the one that
// holds the lease of a shard works.
func newRelay(config Config, stores *stores, limiter *dataplane.Limiter, logger *slog.Logger) (*relay.Relay, error) {
	if stores.hub == nil || stores.news == nil {
		return nil, nil
	}
	r, err := relay.New(relay.Config{
		Region: config.Region, Holder: config.NodeID,
		Hub: stores.hub, News: stores.news, Counts: stores.counts,
		Tuning: func() relay.Tuning {
			t := limiter.RelayTuning()
			return relay.Tuning{Interval: t.NewsInterval, Floor: t.Floor, Step: t.Step, MinGlobalDuration: t.MinGlobalDuration}
		},
		Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("make the relay: %w", err)
	}
	stores.collectors = append(stores.collectors, r.Collector())
	return r, nil
}

// stopRelay ends it. What it has not told stays in Redis, where the next relay finds it.
func stopRelay(r *relay.Relay, logger *slog.Logger) {
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		logger.Warn("the relay's lease is not released; it ends by itself", "error", err)
	}
}
