package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	changesMax = 5_000 // most cells of a batch
	roundsMax  = 8     // most batches, and rows, of an interval
	sweepEvery = 5 * time.Second
	proveEvery = 10 * time.Second // longest time without a row
)

// own is the relay's state as the writer of its stream, which take keeps between calls. A relay that starts on the
// stream begins with a new own.
type own struct {
	ready   bool // the shard has loaded
	tuning  Tuning
	term    int // term of the lease in which the shard loaded
	writer  uint64
	next    int64 // number of the next row
	epoch   store.Epoch
	pending *pending  // a row that may be stored or not
	madeAt  time.Time // when the last row was made
	sweptAt time.Time
	history history
	numbers map[window.Cell]uint32 // by group, without an identifier: the last number assigned
}

// pending is a row that is being appended, with the state to record once it is stored.
type pending struct {
	row    store.FeedRow
	totals []cellTotal
	taken  []store.Change // to be acknowledged
	rest   []*cell        // of a part of a snapshot: the cells for the next parts
}

// cellTotal is the total of a cell, as a row publishes it or the CountStore gets it.
type cellTotal struct {
	cell  *cell
	total int64
}

// take publishes the shard's changes to the other regions. It acknowledges a change once a row is stored that was
// appended after the change was taken. So a relay that has been replaced, whose rows are refused, acknowledges nothing
// that its successor has not seen.
func (s *shard) take(ctx context.Context, now time.Time) error {
	term, ok := s.lease.term(now)
	if setBack := s.setBack.Swap(false); s.own.ready && (!ok || s.own.term != term || setBack) {
		s.forget()
	}
	if now.Sub(s.own.sweptAt) >= sweepEvery {
		s.sweep(now, ok)
	}
	if !ok {
		return nil
	}
	s.own.term = term
	if s.tookTerm != term {
		s.tookTerm = term
		s.tookAt.Store(int64(s.relay.clock.ReadSteady()))
	}
	s.tune()
	err := s.rounds(ctx, now)
	if err == nil {
		s.tookAt.Store(int64(s.relay.clock.ReadSteady()))
	}
	if errors.Is(err, store.ErrTaken) {
		s.relay.metrics.fenced.Add(1)
		s.forget()
		_, leaseErr := s.lease.acquire(ctx, now)
		return leaseErr
	}
	return err
}

// tune applies a changed tuning: all cells are considered again for publishing and storing. If MinGlobalDuration has
// changed, the shard loads again, because only the origin has the cells whose windows were too short until now.
func (s *shard) tune() {
	was, is := s.own.tuning, s.relay.tuning()
	s.own.tuning = is
	switch {
	case !s.own.ready:
	case was.MinGlobalDuration != is.MinGlobalDuration:
		s.forget()
	case was.Floor != is.Floor || was.Step != is.Step: // StoreFloor depends on both
		s.book.reconsider()
	}
}

// sweep forgets the cells that have expired. The reader also fills the book of a shard that another relay leads. This
// relay does not read that shard's clock, so it uses the clocks of its other shards.
func (s *shard) sweep(now time.Time, leads bool) {
	s.own.sweptAt = now
	s.imported.drop(now)
	if !leads {
		s.leave()
		s.book.clock.suppose(s.relay.originMs())
	}
	s.book.sweep()
	maps.DeleteFunc(s.own.numbers, func(group window.Cell, _ uint32) bool { return s.book.expired(group.ExpiresAtMs()) })
	s.relay.reader.sweep(&s.book)
}

func (s *shard) rounds(ctx context.Context, now time.Time) error {
	if !s.own.ready {
		if err := s.begin(ctx, now); err != nil {
			return err
		}
	}
	for range roundsMax {
		more, err := s.round(ctx, now)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	return s.snapshot(ctx, now)
}

// round appends a row, if there are counts to publish or changes to acknowledge. more reports whether there is more to
// do.
func (s *shard) round(ctx context.Context, now time.Time) (more bool, err error) {
	changes, err := s.changes(ctx, changesMax)
	if s.own.pending == nil {
		if err != nil {
			return false, err
		}
		s.grow(changes.Cells, now)
		if s.own.pending, more = s.compose(changes.Cells, now); s.own.pending == nil {
			return false, nil
		}
	}
	return more || changes.More, errors.Join(err, s.settle(ctx)) // appending a pending row does not need the origin
}

// peek reads the origin's changes.
func (s *shard) peek(ctx context.Context, max int) (store.Changes, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	changes, err := s.relay.cfg.Origin.Changes(ctx, s.index, max)
	if err != nil {
		return changes, fmt.Errorf("changes of shard %d: %w", s.index, err)
	}
	if s.book.setClock(changes.Now) {
		s.setBack.Store(true)
		s.relay.reader.setBack.Store(true)
	}
	return changes, nil
}

// clock returns the origin's current time: see originClock.now. It calls the origin if the time is unknown.
func (s *shard) clock(ctx context.Context) (time.Time, error) {
	if now := s.book.clock.now(); !now.IsZero() {
		return now, nil
	}
	_, err := s.peek(ctx, 1)
	return s.book.clock.now(), err
}

// changes reads the origin's changes. If the origin has lost its counts, changes heals it first.
func (s *shard) changes(ctx context.Context, max int) (store.Changes, error) {
	changes, err := s.peek(ctx, max)
	if err != nil {
		return changes, err
	}
	if changes.Epoch != s.own.epoch {
		if s.own.epoch != 0 {
			s.relay.metrics.epochs.Add(1)
		}
		s.own.epoch = changes.Epoch
		s.book.resend()
	}
	if !changes.Healed {
		if err := s.heal(ctx, changes.Epoch); err != nil {
			return changes, err
		}
	}
	s.book.setHealed(changes.Epoch)
	return changes, nil
}

// grow records changes: see growLocked.
func (s *shard) grow(changes []store.Change, now time.Time) {
	s.book.mu.Lock()
	malformed := forWellFormed(changes, s.own.tuning.MinGlobalDuration, func(ch *store.Change) {
		s.book.growLocked(ch, now)
	})
	s.book.mu.Unlock()
	s.relay.noteMalformed(&store.FeedRow{Stream: s.stream}, malformed, now)
}

// compose makes the next row, with as many of the due totals as fit, the greatest shares of their limits first. Without
// due totals and taken changes it returns nil. After proveEvery without a row it returns an empty row instead: if the
// store has lost the row before it, the store refuses the empty row, and the relay publishes the counts of the lost
// rows again.
func (s *shard) compose(taken []store.Change, now time.Time) (p *pending, more bool) {
	totals, age, left := s.choose(now)
	if len(totals) == 0 && len(taken) == 0 && now.Sub(s.own.madeAt) < proveEvery {
		return nil, false
	}
	s.own.madeAt = now
	return &pending{row: s.row(totals, age), totals: totals, taken: taken}, left
}

// choose picks the totals of a row; age is that of the oldest count. left reports whether some did not fit.
func (s *shard) choose(now time.Time) (fit []cellTotal, age time.Duration, left bool) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	fit, left = pick(s.book.dueLocked(s.own.tuning.Floor), false)
	for _, t := range fit {
		age = max(age, time.Millisecond, now.Sub(t.cell.unpublishedSince)) // at least 1 ms, because 0 means unknown
	}
	return fit, age, left
}

// pick returns the totals that a row has room for, the greatest shares of their limits first.
func pick(all []cellTotal, named bool) (fit []cellTotal, left bool) {
	share := func(t cellTotal) float64 { return float64(t.cell.total) / float64(max(1, t.cell.limit)) }
	slices.SortFunc(all, func(a, b cellTotal) int { return cmp.Compare(share(b), share(a)) })
	return fitting(all, named)
}

// fitting returns the first totals that fit into a row; named means that the row has all cells' names.
func fitting(all []cellTotal, named bool) (fit []cellTotal, left bool) {
	r := newRoom(store.FeedBytesMax)
	for i, t := range all {
		name := t.cell.name()
		if !r.count(&name, !named && t.cell.number != 0) {
			return all[:i], true
		}
	}
	return all, false
}

// dueLocked lists the totals to publish now. The others wait until they grow or another region uses
// the cell.
func (b *book) dueLocked(floor float64) (all []cellTotal) {
	for c := range b.due {
		if c.standing(c.published).isDue(floor) {
			all = append(all, cellTotal{c, c.total})
			continue
		}
		delete(b.due, c)
		c.unpublishedSince = time.Time{}
	}
	return all
}

// row makes the next row of totals. A cell that the relay has not named yet gets its name and a new number; other cells
// have only their numbers.
func (s *shard) row(totals []cellTotal, age time.Duration) store.FeedRow {
	// sorted, so that new numbers are in the order of names
	slices.SortFunc(totals, func(a, b cellTotal) int { return a.cell.compare(b.cell) })
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	var counts []counted
	for _, t := range totals {
		if c := t.cell; c.number != 0 {
			counts = append(counts, counted{c.group.of, c.number, t.total})
		} else {
			s.own.number(c)
			counts = append(counts, counted{c.name(), c.number, t.total})
		}
	}
	return s.rowOf(encode(counts, age))
}

func (s *shard) rowOf(payload []byte) store.FeedRow {
	return store.FeedRow{Stream: s.stream, Sequence: s.own.next, Writer: s.own.writer, Payload: payload}
}

// encodeNamed encodes totals with the names of all cells, so that the payload can be decoded without earlier rows. If
// numbered, it also has the cells' numbers. It needs no lock: names never change, and only take assigns numbers.
func encodeNamed(totals []cellTotal, numbered bool) []byte {
	var counts []counted
	for _, t := range totals {
		number := uint32(0)
		if numbered {
			number = t.cell.number
		}
		counts = append(counts, counted{t.cell.name(), number, t.total})
	}
	return encode(counts, 0)
}

// settle appends the pending row, records its totals as published, and acknowledges the taken changes.
func (s *shard) settle(ctx context.Context) error {
	p := s.own.pending
	if err := s.append(ctx, p.row); err != nil {
		return err
	}
	s.own.pending = nil
	if below := s.own.history.stored(&p.row, p.rest); below > 0 {
		s.prunes.Store(below)
	}
	s.book.mu.Lock()
	for _, t := range p.totals {
		t.cell.setPublished(t.total)
	}
	s.book.mu.Unlock()
	if len(p.taken) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.relay.cfg.Origin.Ack(ctx, s.index, p.taken); err != nil {
		return fmt.Errorf("acknowledge %d changes of shard %d: %w", len(p.taken), s.index, err)
	}
	return nil
}

// append stores a row. After an error other than ErrTaken it may be stored or not.
func (s *shard) append(ctx context.Context, row store.FeedRow) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.relay.cfg.Feed.Append(ctx, row); err != nil {
		return fmt.Errorf("append row %d of %v: %w", row.Sequence, row.Stream, err)
	}
	s.own.next = row.Sequence + 1
	s.relay.metrics.published.add(len(row.Payload))
	return nil
}

// leave forgets the own region's counts of a shard without a lease. For example, a shard that lost its lease before it
// was loaded may have counts for peers, and a call that began under the lease may have added counts since.
func (s *shard) leave() {
	if s.book.hasOwn() {
		s.forget()
	}
}

// forget ends the shard's part as the writer of its stream, until the next load. It also drops the pending pruning,
// which the next snapshot does again: the store may have lost the stream's rows, so the numbers of rows that were not
// needed can be in use again.
func (s *shard) forget() {
	s.prunes.Store(0)
	s.unloaded.Store(true)
	s.own = own{term: s.own.term, tuning: s.own.tuning, sweptAt: s.own.sweptAt}
	_, leads := s.lease.term(s.relay.cfg.Clock())
	s.book.forgetOwn(leads)
}
