package outbox

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
)

// An origin that has lost its counts answers with another epoch. After the first such answer this node sends the cost
// of all keys of the lost epoch again; cell/restore.go describes which part of it.

// lostAll sends again the cost that was in lost epochs. lost[i] is the epoch that the i-th answer showed to be lost, or
// 0; totals[i] has the epoch that replaced it, and entry(i) is the entry that the answer was for.
func (sh *Shard) lostAll(lost []store.Epoch, totals []store.Total, entry func(i int) *cell.Entry) {
	for i, epoch := range lost {
		switch {
		case epoch == 0:
		case sh.epochs.End(epoch, totals[i].Epoch):
			sh.restore(epoch, totals[i].Epoch)
		case entry(i).Flags().Restores(): // the walk may have passed it before it joined the lost epoch
			sh.resend(entry(i))
		}
	}
}

// restore queues all entries of a lost epoch, in the background.
func (sh *Shard) restore(lost, epoch store.Epoch) {
	o := sh.out
	o.cfg.EpochLost()
	for _, s := range []*stream{&sh.replay.stream, &sh.syncs.stream, &sh.untracked.stream, &sh.claims.stream} {
		s.kept.Drop(lost)
	}
	walk := func() {
		n := int64(0)
		o.cfg.Table.Walk(func(e *cell.Entry) {
			if o.ShardOf(e) == sh && e.Ledger().Renew(lost, epoch) {
				sh.resend(e)
				n++
			}
		})
		o.Stats.restored.Add(n)
	}
	if !o.cfg.Calls.Start(walk) {
		walk() // this is the last send before the end
	}
}

// resend queues an entry whose unsent or lost cost must be sent.
func (sh *Shard) resend(e *cell.Entry) {
	if e.Flags().Estimates() {
		sh.syncs.askUnsent(e)
		return
	}
	sh.replay.requeue([]*cell.Entry{e})
}
