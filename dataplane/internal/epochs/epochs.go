// Package epochs records which epochs of a shard of the origin go on, and which were lost.
package epochs

import (
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Epochs orders the answers of a shard. If an epoch is found to be lost, answers to calls that began earlier, and that
// arrive later, still have that epoch. The zero Epochs has none.
type Epochs struct {
	mu    sync.Mutex
	calls uint64                 // begun
	ended map[store.Epoch]ending // lost epochs

	counted  map[store.Epoch]counted // epochs in which this node has cost
	probedAt time.Time
	lostAt   time.Time // when the last epoch was found to be lost
}

// ending is the end of a lost epoch.
type ending struct {
	calls uint64      // that had begun
	by    store.Epoch // that followed
}

// endedMax bounds the lost epochs that are remembered.
const endedMax = 1024

// counted has the cell by which to find out whether an epoch goes on.
type counted struct {
	cell       window.Cell // a cell in which this node has cost: of all such cells, one that counts for as long as any
	answeredAt time.Time   // the last answer of the epoch
}

const (
	// probesMax is how many epochs a second are probed. Once an epoch is found to be lost, the next tick probes more,
	// because a server loses all of its buckets.
	probesMax     = 32
	probesMaxLost = 500

	// silentFor is how long an epoch must be without an answer to be probed.
	silentFor = time.Second
)

// Begin returns the number of a call that begins.
func (s *Epochs) Begin() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return s.calls
}

// Forget removes from an answer the epochs that were found to be lost after the call had begun. costs are the call's
// costs, nil for a read. A cost that was sent without an epoch, and that the origin added in an epoch that is lost,
// gets store.ErrEpoch with the epoch that followed, as if the origin had refused it. For example, if a cost was added
// in epoch 7, and another answer shows that 7 is lost and 8 followed, its total becomes {Epoch: 8, Err:
// store.ErrEpoch}.
func (s *Epochs) Forget(call uint64, totals []store.Total, costs []store.Cost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) == 0 {
		return
	}
	for i := range totals {
		end, ok := s.ended[totals[i].Epoch]
		switch {
		case ok && call <= end.calls && i < len(costs) && costs[i].Epoch == 0 && costs[i].AtMost == 0:
			totals[i] = store.Total{Epoch: s.followedLocked(end.by), Err: store.ErrEpoch}
		case ok && call <= end.calls:
			totals[i].Epoch = 0
		case ok:
			delete(s.ended, totals[i].Epoch) // it is back
		}
	}
}

// followedLocked returns the last of the epochs that followed an epoch, or the epoch itself if that is not lost. The
// number of steps is bounded, because answers at the same time may show that each of two epochs followed the other.
func (s *Epochs) followedLocked(epoch store.Epoch) store.Epoch {
	for range len(s.ended) {
		end, lost := s.ended[epoch]
		if !lost {
			break
		}
		epoch = end.by
	}
	return epoch
}

// End records a lost epoch and the epoch that followed it. It reports whether the loss is new.
func (s *Epochs) End(lost, by store.Epoch) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.ended[lost]; known {
		return false
	}
	if s.ended == nil || len(s.ended) >= endedMax {
		s.ended = make(map[store.Epoch]ending)
	}
	s.ended[lost] = ending{s.calls, by}
	s.lostAt = time.Now()
	delete(s.counted, lost)
	return true
}

// CountedIn notes the epochs of answers about cells that this node has sent cost of.
func (s *Epochs) CountedIn(totals []store.Total, cell func(i int) *window.Cell) {
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

// Answered notes the epochs of answers.
func (s *Epochs) Answered(totals []store.Total) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range totals {
		if of, ok := s.counted[totals[i].Epoch]; ok && of.answeredAt != now {
			of.answeredAt = now
			s.counted[totals[i].Epoch] = of
		}
	}
}

// Silent returns epochs to probe, and a cell of each.
func (s *Epochs) Silent(now time.Time, nowMs int64) (epochs []store.Epoch, cells []window.Cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := probesMax
	if s.lostAt.After(s.probedAt) {
		most = probesMaxLost
	} else if now.Sub(s.probedAt) < silentFor {
		return nil, nil
	}
	s.probedAt = now
	for epoch, of := range s.counted {
		switch {
		case of.cell.ExpiresAtMs() <= nowMs:
			delete(s.counted, epoch)
		case now.Sub(of.answeredAt) >= silentFor && len(cells) < most:
			epochs, cells = append(epochs, epoch), append(cells, of.cell)
		}
	}
	return epochs, cells
}
