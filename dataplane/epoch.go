package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
)

// An origin that has lost its counts answers another epoch. The first answer that tells has all
// keys of the lost epoch told again; cell/restore.go has what of them.

// asking is a call that has begun.
type asking struct {
	number uint64
	at     time.Time // by the clock's own reading
	began  time.Time
}

// ask begins a call, whose answer goes through answered.
func (l *Limiter) ask(sh *shard) asking {
	return asking{sh.epochs.Begin(), l.clock.Own(), time.Now()}
}

// answered is for every answer of the origin, before it is merged.
func (l *Limiter) answered(sh *shard, call asking, reply *store.Reply) {
	sh.epochs.Forget(call.number, reply.Totals)
	sh.epochs.Answered(reply.Totals)
	l.observeTime(sh, call.at, reply.Now)
}

// lostAll has everything told again that was in lost epochs, 0 for none; totals has the epochs that they made way for,
// and entry whose they are.
func (l *Limiter) lostAll(sh *shard, lost []store.Epoch, totals []store.Total, entry func(i int) *cell.Entry) {
	for i, epoch := range lost {
		switch {
		case epoch == 0:
		case sh.epochs.End(epoch):
			l.restore(sh, epoch, totals[i].Epoch)
		case entry(i).Flags().Restores(): // it may have heard of the lost epoch after it was passed by
			l.resend(sh, entry(i))
		}
	}
}

// restore walks the table once, in the background.
func (l *Limiter) restore(sh *shard, lost, epoch store.Epoch) {
	l.there.Lose()
	walk := func() {
		n := int64(0)
		l.table.Walk(func(e *cell.Entry) {
			if l.shardOf(e) == sh && e.Renew(lost, epoch) {
				l.resend(sh, e)
				n++
			}
		})
		l.metrics.restored.Add(n)
	}
	if !l.calls.Start(walk) {
		walk() // this is the last send before the end
	}
}

// resend queues an entry that has something to restore.
func (l *Limiter) resend(sh *shard, e *cell.Entry) {
	if e.Flags().Estimates() {
		l.askUnsent(sh, e)
		return
	}
	l.requeue(sh, []*cell.Entry{e})
}
