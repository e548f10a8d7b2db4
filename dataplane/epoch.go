package dataplane

import (
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
)

// An origin that has lost its counts answers another epoch. The first answer that tells has all
// keys of the lost epoch told again; cell/restore.go has what of them.

// epochs orders the answers of a shard: those to calls that began before an epoch was found to be
// lost, and that come in later, tell of that epoch still.
type epochs struct {
	mu    sync.Mutex
	calls uint64                 // begun
	ended map[store.Epoch]uint64 // lost epochs, and how many calls had begun then

	counted  map[store.Epoch]counted // epochs in which this node has cost: see probe.go
	probedAt time.Time
	lostAt   time.Time // when the last epoch was found to be lost
}

// endedMax bounds the lost epochs that are remembered.
const endedMax = 1024

// asking is a call that has begun.
type asking struct {
	number uint64
	at     time.Time // by the clock's own reading
	began  time.Time
}

// ask begins a call, whose answer goes through answered.
func (l *Limiter) ask(sh *shard) asking {
	sh.epochs.mu.Lock()
	defer sh.epochs.mu.Unlock()
	sh.epochs.calls++
	return asking{sh.epochs.calls, l.clock.Own(), time.Now()}
}

// forget takes out of an answer the epochs that were found to be lost after the call had begun.
func (s *epochs) forget(call uint64, totals []store.Total) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) == 0 {
		return
	}
	for i := range totals {
		if end, ok := s.ended[totals[i].Epoch]; ok && call <= end {
			totals[i].Epoch = 0
		} else if ok {
			delete(s.ended, totals[i].Epoch) // it is back
		}
	}
}

// end notes a lost epoch; first is false if it is known.
func (s *epochs) end(lost store.Epoch) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.ended[lost]; known {
		return false
	}
	if s.ended == nil || len(s.ended) >= endedMax {
		s.ended = make(map[store.Epoch]uint64)
	}
	s.ended[lost] = s.calls
	s.lostAt = time.Now()
	delete(s.counted, lost)
	return true
}

// answered is for every answer of the origin, before it is merged.
func (l *Limiter) answered(sh *shard, call asking, reply *store.Reply) {
	sh.epochs.forget(call.number, reply.Totals)
	sh.epochs.heard(reply.Totals)
	l.hearTime(sh, call.at, reply.Now)
}

// lostAll has everything told again that was in lost epochs, 0 for none; totals has the epochs that they made way for,
// and entry whose they are.
func (l *Limiter) lostAll(sh *shard, lost []store.Epoch, totals []store.Total, entry func(i int) *cell.Entry) {
	for i, epoch := range lost {
		switch {
		case epoch == 0:
		case sh.epochs.end(epoch):
			l.restore(sh, epoch, totals[i].Epoch)
		case entry(i).Flags().Restores(): // it may have heard of the lost epoch after it was passed by
			l.sendAgain(sh, entry(i))
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
				l.sendAgain(sh, e)
				n++
			}
		})
		l.metrics.restored.Add(n)
	}
	if !l.calls.Start(walk) {
		walk() // this is the last send before the end
	}
}

// sendAgain queues an entry that has something to restore.
func (l *Limiter) sendAgain(sh *shard, e *cell.Entry) {
	if e.Flags().Estimates() {
		l.askUnsent(sh, e)
		return
	}
	l.requeue(sh, []*cell.Entry{e})
}
