package outbox

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
)

// A node without traffic gets no answers that would show a lost epoch. So each second it reads one cell of each epoch
// that has cost of this node and was in no answer for a second. A server has one epoch; on a Redis Cluster each bucket
// of cells has its own.

// probe checks that the origin still has the epochs that hold cost of this node, and restores the cost of those that it
// has lost.
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
		if epoch := totals[i].Epoch; epoch != 0 && epoch != epochs[i] && sh.epochs.End(epochs[i], epoch) {
			sh.restore(epochs[i], epoch)
		}
	}
	return err
}
