// Package resend keeps the chunks that an origin has answered, and sends them again after a failover to a replica that
// lacks them. For origins it also keeps the epoch in which each chunk was first sent.
package resend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	// CostsMax bounds the costs that all streams with the same counter keep, some 120 B each with their names elsewhere. A
	// chunk that has no room is not kept.
	CostsMax = 200_000

	triesMax = 3 // of a chunk: a failover may follow another failover

	// unansweredMax is well below store.StreamKeptMax. An origin that has forgotten the stream has not lost its chunks: if
	// they were sent again, they would count twice.
	unansweredMax = store.StreamKeptMax / 2
)

// Stream keeps the chunks of a stream that were answered in the store.KeepFor before the last answer of their epoch.
// Without further answers they stay until their windows are over, but for unansweredMax at most. All methods are safe
// for concurrent use, except that only one call of Send may be under way.
type Stream struct {
	costs *atomic.Int64 // kept, of all streams with this counter

	mu   sync.Mutex // never held across I/O
	kept map[store.Epoch]*sequence
}

// New returns a stream that keeps nothing yet. costs counts the kept costs, for the bound CostsMax.
func New(costs *atomic.Int64) *Stream {
	return &Stream{costs: costs, kept: make(map[store.Epoch]*sequence)}
}

// sequence holds the answered chunks of an epoch.
type sequence struct {
	chunks     []chunk // by number, at least one
	answeredAt time.Time
	endsAt     time.Time // latest time at which a decision depends on any of the costs
}

func (s *sequence) last() int64 { return s.chunks[len(s.chunks)-1].number }

// after returns the chunks with larger numbers.
func (s *sequence) after(number int64) []chunk {
	i, _ := slices.BinarySearchFunc(s.chunks, number+1, func(c chunk, n int64) int { return cmp.Compare(c.number, n) })
	return s.chunks[i:]
}

// chunk is the part of an answered chunk that was applied in a single epoch.
type chunk struct {
	number int64
	costs  []store.Cost // without bounds; constant
	at     time.Time    // the latest time at which the origin certainly had applied it; zero: the origin has lost it since
}

var errLostAgain = errors.New("the origin has lost chunks of the stream, again and again")

// Send sends a chunk by send, with its After. If the origin has lost chunks of the stream, Send first sends these
// again, as far as they are kept, and then the chunk.
func (s *Stream) Send(ctx context.Context, send func(context.Context, store.Chunk) (store.Reply, error),
	c store.Chunk) (store.Reply, error) {
	for try := range triesMax {
		c.After = s.marks(len(c.Costs) == 0, time.Now())
		reply, err := send(ctx, c)
		if try > 0 {
			err = unsure(err)
			for i := range reply.Totals {
				reply.Totals[i].Err = unsure(reply.Totals[i].Err)
			}
		}
		if err != nil {
			return store.Reply{}, err
		}
		if len(reply.Behind) == 0 {
			s.answered(&c, &reply, time.Now())
			return reply, nil
		}
		if err := s.repeat(ctx, send, &c, reply.Behind); err != nil {
			return store.Reply{}, fmt.Errorf("resend chunks that a failover lost: %w", unsure(err))
		}
	}
	return store.Reply{}, errLostAgain
}

// unsure returns err without store.ErrNotApplied: in another epoch, an earlier try of the chunk may have been applied.
func unsure(err error) error {
	if errors.Is(err, store.ErrNotApplied) {
		return errors.New(err.Error() + "; but an earlier try may have been applied")
	}
	return err
}

// Empty reports whether nothing is kept, so that no call has to find out whether the origin has lost it.
func (s *Stream) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept) == 0
}

// Drop forgets an epoch that the origin has lost, because nodes restore their accepted cost of the epoch.
func (s *Stream) Drop(lost store.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.kept[lost]; of != nil {
		s.dropLocked(lost, of, len(of.chunks))
	}
}

// marks returns how far the stream has come in each epoch. A mark has Ask set if its epoch has had no answer for half
// of store.KeepFor, or if all is set: then the origin must answer about it.
func (s *Stream) marks(all bool, now time.Time) (marks []store.Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for epoch, of := range s.kept {
		if !now.Before(of.endsAt) || now.Sub(of.answeredAt) >= unansweredMax {
			s.dropLocked(epoch, of, len(of.chunks))
			continue
		}
		marks = append(marks, store.Mark{
			Epoch: epoch, Number: of.last(), Ask: all || now.Sub(of.answeredAt) >= store.KeepFor/2})
	}
	return marks
}

// answered keeps the costs that a chunk has added, and drops chunks that are too old in the answered epochs.
func (s *Stream) answered(c *store.Chunk, reply *store.Reply, now time.Time) {
	added := make(map[store.Epoch][]store.Cost, 1)
	for i, cost := range c.Costs {
		total := &reply.Totals[i]
		if total.Epoch == 0 {
			continue
		}
		if total.Err == nil && (cost.AtMost == 0 || total.Added) {
			cost.Epoch, cost.AtMost = total.Epoch, 0
			added[total.Epoch] = append(added[total.Epoch], cost)
		} else if added[total.Epoch] == nil {
			added[total.Epoch] = nil // it was answered
		}
	}
	for _, m := range c.After {
		if _, ok := added[m.Epoch]; m.Ask && !ok && !slices.Contains(reply.Unanswered, m.Epoch) {
			added[m.Epoch] = nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for epoch, costs := range added {
		s.keepLocked(epoch, c.Number, costs, now)
	}
}

func (s *Stream) keepLocked(epoch store.Epoch, number int64, costs []store.Cost, now time.Time) {
	of := s.kept[epoch]
	if of == nil {
		of = &sequence{}
	}
	of.answeredAt = now
	for i := len(of.chunks) - 1; i >= 0 && of.chunks[i].at.IsZero(); i-- { // it was sent again
		of.chunks[i].at = now
	}
	isNew := len(of.chunks) == 0 || number > of.last()
	old := 0
	for old < len(of.chunks) && now.Sub(of.chunks[old].at) >= store.KeepFor {
		old++
	}
	s.dropLocked(epoch, of, old)
	n := int64(len(costs))
	if n == 0 || !isNew {
		return
	}
	if s.costs.Add(n) > CostsMax {
		s.costs.Add(-n)
		return
	}
	for i := range costs { // until the window that follows theirs has ended, which may have to begin
		if ends := now.Add(3 * costs[i].Cell.Duration); ends.After(of.endsAt) {
			of.endsAt = ends
		}
	}
	of.chunks = append(of.chunks, chunk{number, costs, now})
	s.kept[epoch] = of
}

// dropLocked drops the first n chunks of a sequence.
func (s *Stream) dropLocked(epoch store.Epoch, of *sequence, n int) {
	for i := range n {
		s.costs.Add(-int64(len(of.chunks[i].costs)))
	}
	clear(of.chunks[:n])
	if of.chunks = of.chunks[n:]; len(of.chunks) == 0 {
		delete(s.kept, epoch)
	}
}

// repeat sends the lost chunks again. If the origin loses more meanwhile, the next answer to c shows how much.
func (s *Stream) repeat(ctx context.Context, send func(context.Context, store.Chunk) (store.Reply, error),
	c *store.Chunk, behind []store.Mark) error {
	for _, again := range s.lost(c, behind) {
		reply, err := send(ctx, again)
		if err != nil || len(reply.Behind) > 0 {
			return err
		}
	}
	return nil
}

// lost returns the costs that were applied after some marks, merged into as few chunks as have room for them. Each
// chunk has the number of the last chunk whose costs it has, so all of them come before c.
func (s *Stream) lost(c *store.Chunk, behind []store.Mark) (again []store.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []chunk // of all epochs
	far := make(map[store.Epoch]int64, len(behind))
	for _, m := range behind {
		far[m.Epoch] = m.Number
		if of := s.kept[m.Epoch]; of != nil {
			lost := of.after(m.Number)
			for i := range lost { // the next failover may lose it again, so it is new once an answer shows it there
				lost[i].at = time.Time{}
			}
			all = append(all, lost...)
		}
	}
	slices.SortStableFunc(all, func(a, b chunk) int { return cmp.Compare(a.number, b.number) })
	next := merger{}
	for len(all) > 0 {
		n := 1 // chunks with this number, of several epochs
		for n < len(all) && all[n].number == all[0].number {
			n++
		}
		// If one part of c itself was answered and another was not, the answered part has the number of c. So no other costs
		// may share its chunk.
		if next.number > 0 && (!next.fits(all[:n]) || all[0].number == c.Number) {
			again = append(again, next.chunk(c, far))
			next = merger{}
		}
		next.add(all[:n])
		all = all[n:]
	}
	if next.number > 0 {
		again = append(again, next.chunk(c, far))
	}
	return again
}

// merger adds up costs of chunks by cell.
type merger struct {
	number int64 // of the last chunk; 0: there is none
	costs  []store.Cost
	places map[window.Cell]int // in costs
}

// fits reports whether the merged chunk has room for the costs of further chunks.
func (m *merger) fits(chunks []chunk) bool {
	n := len(m.costs)
	for _, c := range chunks {
		for i := range c.costs {
			if _, ok := m.places[c.costs[i].Cell]; !ok {
				n++
			}
		}
	}
	return n <= store.ChunkMax
}

func (m *merger) add(chunks []chunk) {
	if m.places == nil {
		m.places = make(map[window.Cell]int)
	}
	for _, c := range chunks {
		m.number = c.number
		for _, cost := range c.costs {
			at, ok := m.places[cost.Cell]
			if !ok {
				m.places[cost.Cell] = len(m.costs)
				m.costs = append(m.costs, cost)
				continue
			}
			sum := &m.costs[at]
			sum.Add, sum.Restore = plus(sum.Add, cost.Add), plus(sum.Restore, cost.Restore)
			sum.Known = max(sum.Known, cost.Known)
			if sum.Limit == 0 || cost.Limit > 0 {
				sum.Limit = min(cmp.Or(sum.Limit, cost.Limit), cost.Limit)
			}
		}
	}
}

func plus(a, b int64) int64 {
	return min(min(a, store.CountMax)+min(b, store.CountMax), store.CountMax)
}

// chunk returns the merged chunk of the stream of c. far has the number of each epoch: before the call without the
// chunk, and after it with the chunk.
func (m *merger) chunk(c *store.Chunk, far map[store.Epoch]int64) store.Chunk {
	again := store.Chunk{Shard: c.Shard, Stream: c.Stream, Number: m.number, Costs: m.costs, Repeats: true}
	epochs := make(map[store.Epoch]bool, len(far))
	for i := range m.costs {
		epochs[m.costs[i].Epoch] = true
	}
	for epoch := range epochs {
		again.After = append(again.After, store.Mark{Epoch: epoch, Number: far[epoch]})
		far[epoch] = m.number
	}
	return again
}

// ID identifies a stream's chunks that a single server applies: all of its shard, or of a bucket of the shard.
type ID struct {
	Stream        uint64
	Shard, Bucket int
}

// Stamps are the epochs in which the chunks on their way were first sent. The zero value is empty. All methods may be
// called concurrently.
type Stamps struct {
	mu      sync.Mutex
	byID    map[ID]*stamp
	sweepAt int // size of byID at which idle streams are removed
}

type stamp struct {
	number int64
	epoch  store.Epoch
	usedAt time.Time
}

const sweepMin = 64

// Of returns the epoch in which chunk number was first sent: current if this is its first send. A sender without an
// epoch passes 0 as current, before it finds out. So a chunk that may have been on its way since then belongs to first,
// the first epoch that the sender has seen.
func (s *Stamps) Of(id ID, number int64, current, first store.Epoch, now time.Time) store.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.byID[id]
	if of == nil {
		s.sweepLocked(now)
		of = &stamp{}
		s.byID[id] = of
	}
	of.usedAt = now
	switch {
	case of.number != number:
		of.number, of.epoch = number, current
	case of.epoch == 0:
		of.epoch = first
	}
	return of.epoch
}

// sweepLocked removes streams that the servers have forgotten as well.
func (s *Stamps) sweepLocked(now time.Time) {
	if s.byID == nil {
		s.byID = make(map[ID]*stamp)
	}
	if len(s.byID) < max(s.sweepAt, sweepMin) {
		return
	}
	maps.DeleteFunc(s.byID, func(_ ID, of *stamp) bool { return now.Sub(of.usedAt) >= store.StreamKeptFor })
	s.sweepAt = 2 * len(s.byID)
}
