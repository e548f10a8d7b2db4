package hunt

import (
	"context"
	"sync"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// replica is the durable counter as relays import it. While it lags, it keeps the rows of the moment when the lag
// began.
type replica struct {
	*memstore.Counts

	mu    sync.Mutex
	stale []memstore.Row // nil while it does not lag
}

// lag stops the replica from receiving rows, or delivers all missed rows.
func (r *replica) lag(lags bool) {
	var found []memstore.Row
	if lags {
		found = append([]memstore.Row{}, r.Counts.Rows()...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = found
}

// Import implements store.CountStore.
func (r *replica) Import(ctx context.Context, nowMs int64, yield func(region string, n store.Count)) error {
	r.mu.Lock()
	stale := r.stale
	r.mu.Unlock()
	if stale == nil {
		return r.Counts.Import(ctx, nowMs, yield)
	}
	for _, row := range stale {
		if row.Cell.ExpiresAtMs() > nowMs {
			yield(row.Region, store.Count{Cell: row.Cell, Count: row.Count})
		}
	}
	return nil
}
