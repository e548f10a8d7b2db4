package outbox

import (
	"context"
	"strconv"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/shared/window"
)

// A node without traffic gets no answers that would show a lost epoch. So each second it reads one cell of each epoch
// that has cost of this node and was in no answer for a second. A server has one epoch; on a Redis Cluster each bucket
// of cells has its own epoch.

// probe checks that the origin still has the epochs that hold cost of this node, and restores the cost of lost epochs.
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

// tryAsks makes the trial calls that close a half-open breaker of the calls that decisions wait for. Otherwise a node
// without requests would have an open breaker long after the origin answers again.
func (sh *Shard) tryAsks(ctx context.Context) {
	if sh.asks.State() != breaker.HalfOpen {
		return
	}
	cells := sh.trialCells()
	for len(cells) > 0 && sh.asks.State() == breaker.HalfOpen {
		end, ok := sh.asks.Begin()
		if !ok {
			return // decisions make the trial calls
		}
		within, cancel := context.WithTimeout(ctx, sh.out.cfg.ReadTimeout)
		_, err := sh.get(within, cells, end)
		cancel()
		if err != nil {
			return
		}
	}
}

// trialKeysMax bounds the search for a key of a shard. An origin may choose shards by a part of the key that the trial
// keys have in common: then decisions make the trial calls.
const trialKeysMax = 1_000

// trialCells returns a cell of the shard in which nothing is ever counted, or none.
func (sh *Shard) trialCells() []window.Cell {
	c := window.Cell{Key: window.Key{Workspace: "weir", Namespace: "trial", Duration: time.Minute}}
	c.Sequence = window.Sequence(sh.out.cfg.Clock.ReadMs(), c.DurationMs())
	for i := range trialKeysMax {
		if c.Identifier = strconv.Itoa(i); sh.out.cfg.Origin.ShardOf(&c.Key) == sh.index {
			return []window.Cell{c}
		}
	}
	return nil
}
