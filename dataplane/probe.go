package dataplane

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A node whose keys are all silent hears nothing of an origin that has lost its counts. So it reads, each second, a
// cell of each epoch in which it has cost and of which no answer has told for a second. A server has one epoch; on a
// Redis Cluster each bucket of cells has its own.

// counted is where to ask whether an epoch goes on.
type counted struct {
	cell    window.Cell // that this node has cost in: of all such cells one that counts as long as any
	heardAt time.Time   // the last answer of the epoch
}

const (
	// probesMax is how many epochs a second asks about. Once one is found to be lost, the next tick asks about more: a
	// server loses all of its buckets.
	probesMax     = 32
	probesMaxLost = 500
)

// countedIn notes the epochs of answers about cells that this node has sent cost of.
func (s *epochs) countedIn(totals []store.Total, cell func(i int) *window.Cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range totals {
		epoch := totals[i].Epoch
		if _, lost := s.ended[epoch]; lost || epoch == 0 || totals[i].Err != nil {
			continue
		}
		of, known := s.counted[epoch]
		if c := cell(i); !known || c.ExpiresAtMs() > of.cell.ExpiresAtMs() {
			if s.counted == nil {
				s.counted = make(map[store.Epoch]counted)
			}
			s.counted[epoch] = counted{*c, now}
		}
	}
}

// heard notes the epochs of answers.
func (s *epochs) heard(totals []store.Total) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range totals {
		if of, ok := s.counted[totals[i].Epoch]; ok && of.heardAt != now {
			of.heardAt = now
			s.counted[totals[i].Epoch] = of
		}
	}
}

// silent are epochs to ask about, and a cell of each.
func (s *epochs) silent(now time.Time, nowMs int64) (epochs []store.Epoch, cells []window.Cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := probesMax
	if s.lostAt.After(s.probedAt) {
		most = probesMaxLost
	} else if now.Sub(s.probedAt) < idleEvery {
		return nil, nil
	}
	s.probedAt = now
	for epoch, of := range s.counted {
		switch {
		case of.cell.ExpiresAtMs() <= nowMs:
			delete(s.counted, epoch)
		case now.Sub(of.heardAt) >= idleEvery && len(cells) < most:
			epochs, cells = append(epochs, epoch), append(cells, of.cell)
		}
	}
	return epochs, cells
}

// probe finds out whether the epochs go on in which this node has cost. What it has accepted in those that do not, it
// restores.
func (l *Limiter) probe(ctx context.Context, sh *shard) error {
	epochs, cells := sh.epochs.silent(time.Now(), l.nowMs())
	if len(cells) == 0 {
		return nil
	}
	end, ok := sh.sends.Begin()
	if !ok {
		return breaker.ErrOpen
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	totals, err := l.get(ctx, sh, cells, end)
	for i := range totals {
		if epoch := totals[i].Epoch; epoch != 0 && epoch != epochs[i] && sh.epochs.end(epochs[i]) {
			l.restore(sh, epochs[i], epoch)
		}
	}
	return err
}
