package outbox

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
)

// A node whose keys are all silent hears nothing of an origin that has lost its counts. So it reads, each second, a
// cell of each epoch in which it has cost and of which no answer has told for a second. A server has one epoch; on a
// Redis Cluster each bucket of cells has its own.

// probe finds out whether the epochs go on in which this node has cost. What it has accepted in those that do not, it
// restores.
func (sh *Shard) probe(ctx context.Context) error {
	o := sh.out
	epochs, cells := sh.epochs.Silent(time.Now(), o.cfg.Clock.ReadMs())
	if len(cells) == 0 {
		return nil
	}
	end, ok := sh.sends.Begin()
	if !ok {
		return breaker.ErrOpen
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	totals, err := sh.get(ctx, cells, end)
	for i := range totals {
		if epoch := totals[i].Epoch; epoch != 0 && epoch != epochs[i] && sh.epochs.End(epochs[i]) {
			sh.restore(epochs[i], epoch)
		}
	}
	return err
}
