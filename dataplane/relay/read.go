package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	readBytesMax = 4 << 20 // of one call
	pagesMax     = 16      // calls of one interval

	// proveCursorsEvery is how late a relay may find that the store has lost rows that it has read.
	proveCursorsEvery = 5 * time.Second
)

// reader reads the other regions' news, for all shards that the relay leads. While it leads none it reads and holds
// nothing.
type reader struct {
	relay *Relay
	after map[store.Stream]store.FeedCursor // nil while it reads nothing

	provedAt time.Time // when all cursors were found to be stored
	began    time.Time // of the first read, by the store's clock: another relay may have read what was written before

	names   names
	lacking lacking

	// Memory of merge, which holds the names' mu.
	parts [][]entry // by shard
	known [blockMax]*cell

	earlyLogged, excessLogged, fullLogged, malformedLogged logged

	streamsMax int

	mu   sync.Mutex // guards open and lost; held while rows from peers are merged
	open bool       // rows that are heard are taken in
	lost int        // how often open became false, which forgets all rows from peers

	settings   int64     // their version, as the last page has it
	settingsAt time.Time // when that page was asked for
}

func newReader(r *Relay) *reader {
	return &reader{relay: r, names: newNames(), lacking: make(lacking), streamsMax: streamsMax,
		parts: make([][]entry, r.cfg.Origin.Shards())}
}

// read brings the shards what has been told since the last call, once an origin has told the time, by which cells are
// of the future or expired.
func (r *reader) read(ctx context.Context, now time.Time) error {
	if !r.relay.leads(now) {
		r.forget()
		return nil
	}
	if r.relay.originMs() == 0 {
		return nil
	}
	if r.after == nil {
		r.relay.metrics.readAt.Store(int64(r.relay.clock.ReadSteady()))
		r.after = make(map[store.Stream]store.FeedCursor)
		r.setOpen(true)
	}
	prove := now.Sub(r.provedAt) >= proveCursorsEvery
	for range pagesMax {
		page, err := r.page(ctx, prove)
		if err != nil {
			return err
		}
		if !prove && r.writerChanged(&page) {
			prove = true
			continue
		}
		r.noteSettings(page.Settings, now)
		r.take(&page, now)
		r.relay.metrics.noteLag(&page, now)
		r.wake()
		if page.More {
			continue
		}
		if prove {
			r.provedAt = now
		}
		break
	}
	r.relay.metrics.readAt.Store(int64(r.relay.clock.ReadSteady()))
	return nil
}

// writerChanged tells whether a stream goes on by another writer than that of its cursor. The writer of before may only
// have been replaced; or the store has lost its last rows, and the new one has written others with their numbers, which
// come before what the page has. Only a proved read tells.
func (r *reader) writerChanged(page *store.FeedPage) bool {
	seen := store.Stream{}
	for i := range page.Rows {
		row := &page.Rows[i]
		if after, ok := r.after[row.Stream]; ok && row.Stream != seen && after.Writer != row.Writer {
			return true
		}
		seen = row.Stream
	}
	return false
}

func (r *reader) page(ctx context.Context, prove bool) (store.FeedPage, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, err := r.relay.cfg.Feed.Read(ctx, store.FeedQuery{
		Region: r.relay.cfg.Region, After: r.after, Prove: prove, Parts: r.lacking.isWithin(), MaxBytes: readBytesMax,
		StreamsMax: r.streamsMax,
	})
	if err != nil {
		return page, fmt.Errorf("read the change feed: %w", err)
	}
	return page, nil
}

// take merges a page, and forgets streams that are no more: those of a region that was removed.
func (r *reader) take(page *store.FeedPage, now time.Time) {
	if r.began.IsZero() {
		r.began = page.Now
	}
	for i := range page.Rows {
		r.apply(&page.Rows[i], page.Now, now)
	}
	r.relay.noteFull(page, now)
	r.lacking.begin(r.after, now)
	for _, s := range page.Gone {
		delete(r.lacking, s)
		delete(r.after, s)
	}
}

// apply merges a row: twice, or after a later one, does no harm. Parts of snapshots that tell nothing new have no
// payload.
func (r *reader) apply(row *store.FeedRow, storeNow, now time.Time) {
	r.relay.metrics.read.add(len(row.Payload))
	if row.Snapshot == 0 || len(row.Payload) > 0 {
		left, age, err := r.merge(row, now)
		if err != nil {
			r.relay.unreadable(row, err)
		}
		r.relay.noteLeftOut(row, left, now)
		r.lacking.note(row, left.nameless)
		if age > 0 && row.WrittenAt.After(r.began) {
			r.relay.metrics.convergence.Observe((age + storeNow.Sub(row.WrittenAt)).Seconds())
		}
	}
	r.after[row.Stream] = row.Cursor()
}

// leftOut counts cells that were not applied: cells of windows that have not begun anywhere, of a
// region with more than regionCellsMax cells or regionLeavesMax leaves, counts by number whose
// names were not read, and malformed cells. The first count of a cell beyond regionLeavesMax is
// applied, but its later counts, which come by number, are not.
type leftOut struct{ early, excess, nameless, malformed int }

// merge takes in what a row tells, except what is left out. age is that of its oldest count. After an error some of it
// may be taken in.
func (r *reader) merge(row *store.FeedRow, now time.Time) (left leftOut, age time.Duration, err error) {
	r.names.mu.Lock()
	defer r.names.mu.Unlock()
	defer clear(r.known[:])
	originMs := r.relay.originMs()
	age, left.malformed, err = decodeBlocks(row.Payload, func(of *window.Cell, counts []entry) {
		switch {
		case len(counts) == 0:
		case isEarly(of.ExpiresAtMs(), of.Duration, originMs):
			left.early += len(counts)
		case counts[0].identifier != "":
			left.excess += r.nameLocked(row, of, counts, now)
		default:
			left.nameless += r.countLocked(row, of, counts, now)
		}
	})
	return left, age, err
}

// nameLocked takes in counts that have their cells' names, and keeps the numbers. It returns of how many the region has
// no room for the cell, or for its number.
func (r *reader) nameLocked(row *store.FeedRow, of *window.Cell, counts []entry, now time.Time) (excess int) {
	for i, part := range r.partedLocked(of, counts) {
		known := r.known[:len(part)]
		excess += r.relay.shards[i].book.merge(row.Region, of, part, known, now)
		for j, c := range known {
			if c != nil && part[j].number != 0 && !r.names.setLocked(row, part[j].number, c) {
				excess++
			}
		}
		clear(part) // the identifiers are of this row's names
	}
	return excess
}

// partedLocked are counts by the shards of their cells.
func (r *reader) partedLocked(of *window.Cell, counts []entry) [][]entry {
	if len(r.parts) == 1 {
		r.parts[0] = counts
		return r.parts
	}
	for i := range r.parts {
		r.parts[i] = r.parts[i][:0]
	}
	key := of.Key
	for i := range counts {
		key.Identifier = counts[i].identifier
		at := r.relay.cfg.Origin.ShardOf(&key)
		r.parts[at] = append(r.parts[at], counts[i])
	}
	return r.parts
}

// countLocked takes in counts by their cells' numbers. It returns of how many the name was not read, unless they have
// expired.
func (r *reader) countLocked(row *store.FeedRow, of *window.Cell, counts []entry, now time.Time) (nameless int) {
	in, known := r.names.groupLocked(numbered{row.Stream, row.Writer, *of}), r.known[:len(counts)]
	for i := range counts {
		if known[i] = in.find(counts[i].number); known[i] == nil {
			nameless++
		}
	}
	for _, s := range r.relay.shards {
		s.book.raise(row.Region, of, counts, known, now)
	}
	if nameless > 0 && r.relay.shards[0].book.hasExpired(of) {
		return 0
	}
	return nameless
}

func (r *reader) noteSettings(version int64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings, r.settingsAt = version, at
}

// settingsVersion is the last that Feed has told, and when it was asked.
func (r *reader) settingsVersion() (version int64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settings, r.settingsAt
}

// wake has the shards tell their origins what is new.
func (r *reader) wake() {
	for _, s := range r.relay.shards {
		wake(s.woken)
	}
}

// forget ends the reader's part. An import that began under a lease may bring counts of other regions afterwards, which
// the next call forgets.
func (r *reader) forget() {
	if r.after != nil {
		r.after, r.began = nil, time.Time{}
		r.setOpen(false)
		none := func(int64) bool { return false }
		r.names.keep(none)
		clear(r.lacking)
	}
	for _, s := range r.relay.shards {
		s.book.forgetForeign()
	}
}

// sweep removes names that have expired by an origin's clock.
func (r *reader) sweep(b *book) {
	nowMs := b.clockMs()
	lives := func(expiresMs int64) bool { return !hasExpired(expiresMs, nowMs) }
	r.names.keep(lives)
}

// unreadable takes note of a row that this version cannot read. Of a cell that it named nothing more is
// known until the cell grows and the stream is read again from its last snapshot: see lacking.
func (r *Relay) unreadable(row *store.FeedRow, err error) {
	r.metrics.unreadable.Add(1)
	r.cfg.Logger.Error("relay leaves out a change that it cannot read", "region", row.Region, "shard", row.Shard,
		"sequence", row.Sequence, "error", err)
}

// forgetForeign forgets all that other regions have told. It is for a shard that has lost its lease: take forgets the
// own region's side, before or after.
func (b *book) forgetForeign() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.regions) == 0 {
		return
	}
	for c := range b.cells.all() {
		c.first, c.more, c.sent, c.unsent, c.shared = part{}, nil, 0, false, false
	}
	b.cells.tidy()
	clear(b.regions)
	b.wiped++
	b.acked.sent.reset()
	b.unsent.reset()
}
