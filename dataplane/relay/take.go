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
	changesMax = 5_000 // cells of one batch
	roundsMax  = 8     // batches, and rows, of one interval
	sweepEvery = 5 * time.Second
	proveEvery = 10 * time.Second // without a row
)

// own is the relay's side of its own stream: what take knows between two calls. A relay that starts on the stream
// begins with a new one.
type own struct {
	ready   bool // loaded
	tuning  Tuning
	term    int // of the lease, when it was loaded
	writer  uint64
	next    int64 // number of the next row
	epoch   store.Epoch
	pending *pending  // a row that may be stored or not
	madeAt  time.Time // of the last row
	sweptAt time.Time
	history history
	numbers map[window.Cell]uint32 // of groups, without an identifier: the last one that was given
}

// pending is a row on its way, with what holds once it is stored.
type pending struct {
	row    store.FeedRow
	totals []cellTotal
	taken  []store.Change // to be taken off the origin's changes
	rest   []*cell        // of a part of a snapshot: what the next parts have
}

// cellTotal is the total of a cell, as a row publishes it or the CountStore gets it.
type cellTotal struct {
	cell  *cell
	total int64
}

// take carries the shard's changes to the other regions. A change is taken off the origin once a row is stored that was
// appended after the change was taken: so a relay that has been replaced, whose rows are refused, takes nothing off
// that its successor has not seen.
func (s *shard) take(ctx context.Context, now time.Time) error {
	term, ok := s.lease.term(now)
	if s.own.ready && (!ok || s.own.term != term) {
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

// tune has it decided anew what is to be told and stored, if the tuning has changed. Cells whose windows were too short
// until then are known to the origin alone, so then the shard begins anew.
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

// sweep forgets what has expired. The reader fills the book of a shard that another relay leads too, whose clock is not
// asked for: those of the other shards stand for it.
func (s *shard) sweep(now time.Time, leads bool) {
	s.own.sweptAt = now
	s.imported.drop(now)
	if !leads {
		s.leave()
		s.book.suppose(s.relay.originMs())
	}
	s.book.sweep()
	maps.DeleteFunc(s.own.numbers, func(group window.Cell, _ uint32) bool { return s.book.hasExpired(&group) })
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

// round appends one row, if there is anything to tell or to take off. more is true when there is a rest.
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
	return more || changes.More, errors.Join(err, s.settle(ctx)) // a row on its way needs no origin
}

// peek reads the origin's changes.
func (s *shard) peek(ctx context.Context, max int) (store.Changes, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	changes, err := s.relay.cfg.Origin.Changes(ctx, s.index, max)
	if err != nil {
		return changes, fmt.Errorf("changes of shard %d: %w", s.index, err)
	}
	s.book.setClock(changes.Now)
	return changes, nil
}

// clock is what the origin's shows: see book.clock. It is asked where that is not known.
func (s *shard) clock(ctx context.Context) (time.Time, error) {
	if now := s.book.clock(); !now.IsZero() {
		return now, nil
	}
	_, err := s.peek(ctx, 1)
	return s.book.clock(), err
}

// changes is peek, and sees to an origin that has lost its counts.
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

// grow takes note of changes: see growLocked.
func (s *shard) grow(changes []store.Change, now time.Time) {
	s.book.mu.Lock()
	malformed := forWellFormed(changes, s.own.tuning.MinGlobalDuration, func(ch *store.Change) {
		s.book.growLocked(ch, now)
	})
	s.book.mu.Unlock()
	s.relay.noteMalformed(&store.FeedRow{Stream: s.stream}, malformed, now)
}

// compose makes the next row of what is to be told now and fits into it, the greatest shares of their limits first. If
// there is nothing to tell and nothing was taken it returns nil, and an empty row after proveEvery: the store refuses
// that one if it has lost the row before it, and then what was told in lost rows is told again.
func (s *shard) compose(taken []store.Change, now time.Time) (p *pending, more bool) {
	totals, age, left := s.choose(now)
	if len(totals) == 0 && len(taken) == 0 && now.Sub(s.own.madeAt) < proveEvery {
		return nil, false
	}
	s.own.madeAt = now
	return &pending{row: s.row(totals, age), totals: totals, taken: taken}, left
}

// choose picks the totals of a row; age is that of the oldest count. left is true when some did not fit.
func (s *shard) choose(now time.Time) (fit []cellTotal, age time.Duration, left bool) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	fit, left = pick(s.book.dueLocked(s.own.tuning.Floor), false)
	for _, t := range fit {
		age = max(age, time.Millisecond, now.Sub(t.cell.unpublishedSince)) // at least 1 ms, because 0 means unknown
	}
	return fit, age, left
}

// pick returns the totals that one row has room for, the greatest shares of their limits first.
func pick(all []cellTotal, named bool) (fit []cellTotal, left bool) {
	share := func(t cellTotal) float64 { return float64(t.cell.total) / float64(max(1, t.cell.limit)) }
	slices.SortFunc(all, func(a, b cellTotal) int { return cmp.Compare(share(b), share(a)) })
	return fitting(all, named)
}

// fitting returns those of the first totals that fit into one row; named has all cells told by their names.
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

// row makes the next row of totals. It names the cells that the relay has not named yet, and tells others by their
// numbers.
func (s *shard) row(totals []cellTotal, age time.Duration) store.FeedRow {
	slices.SortFunc(totals, func(a, b cellTotal) int { return a.cell.compare(b.cell) }) // so do new numbers
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

// encodeNamed makes a payload that can be read without the rows before it; numbered has it give the cells' numbers too.
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

// settle appends the pending row, and notes what holds once it is stored.
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
		return fmt.Errorf("take %d changes off shard %d: %w", len(p.taken), s.index, err)
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

// leave forgets the own region's side of a shard without a lease. A shard that has lost its lease before it was loaded
// may have counts for peers, and a call that began under the lease may have brought some since.
func (s *shard) leave() {
	if s.book.hasOwn() {
		s.forget()
	}
}

// forget ends the shard's part as the writer of its stream; load begins anew. What is left to delete is left to the
// next snapshot: the store may have lost the stream's rows, and the numbers below which they were not needed are used
// again.
func (s *shard) forget() {
	s.prunes.Store(0)
	s.unloaded.Store(true)
	s.own = own{term: s.own.term, tuning: s.own.tuning, sweptAt: s.own.sweptAt}
	_, leads := s.lease.term(s.relay.cfg.Clock())
	s.book.forgetOwn(leads)
}
