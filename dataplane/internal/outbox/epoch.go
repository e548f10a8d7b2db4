package outbox

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
)

// An origin that has lost its counts answers another epoch. The first answer that tells has all
// keys of the lost epoch told again; cell/restore.go has what of them.

// lostAll has everything told again that was in lost epochs, 0 for none; totals has the epochs that they made way for,
// and entry whose they are.
func (sh *Shard) lostAll(lost []store.Epoch, totals []store.Total, entry func(i int) *cell.Entry) {
	for i, epoch := range lost {
		switch {
		case epoch == 0:
		case sh.epochs.End(epoch):
			sh.restore(epoch, totals[i].Epoch)
		case entry(i).Flags().Restores(): // it may have heard of the lost epoch after it was passed by
			sh.resend(entry(i))
		}
	}
}

// restore walks the table once, in the background.
func (sh *Shard) restore(lost, epoch store.Epoch) {
	o := sh.out
	o.cfg.EpochLost()
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

// resend queues an entry that has something to restore.
func (sh *Shard) resend(e *cell.Entry) {
	if e.Flags().Estimates() {
		sh.syncs.askUnsent(e)
		return
	}
	sh.replay.requeue([]*cell.Entry{e})
}
