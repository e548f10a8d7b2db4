package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	readBytesMax = 4 << 20 // of a call
	pagesMax     = 16      // calls in an interval

	// proveCursorsEvery is how long at most it takes the relay to notice that the store has lost rows that it has read.
	proveCursorsEvery = 5 * time.Second
)

// reader reads the other regions' rows, for all shards that the relay leads. While the relay leads no shard, the reader
// reads and holds nothing.
type reader struct {
	relay *Relay
	after map[store.Stream]store.FeedCursor // nil while it reads nothing

	setBack atomic.Bool // an origin's clock was set back: the reader has left rows out by a wrong clock

	provedAt time.Time // when all cursors were last found in the store
	began    time.Time // time of the first read, by the store's clock; another relay may have read older rows

	names   names
	lacking lacking

	// Memory that merge reuses; the names' mu guards it.
	parts [][]entry // by shard
	known [blockMax]*cell

	earlyLogged, excessLogged, fullLogged, malformedLogged logged

	streamsMax int

	mu   sync.Mutex // guards open, lost and settings; held while rows from peers are merged
	open bool       // rows from peers are applied
	lost int        // how often open became false, which forgets all rows from peers

	settings   int64     // version of the settings in the last page
	settingsAt time.Time // when the relay requested that page
}

func newReader(r *Relay) *reader {
	return &reader{relay: r, names: newNames(), lacking: make(lacking), streamsMax: streamsMax,
		parts: make([][]entry, r.cfg.Origin.Shards())}
}

// read merges the rows that were written since the last call. It waits until an origin has returned its time, which
// decides whether cells are early or expired.
func (r *reader) read(ctx context.Context, now time.Time) error {
	if !r.relay.leads(now) {
		r.forget()
		return nil
	}
	if r.relay.originMs() == 0 {
		return nil
	}
	if r.setBack.Swap(false) {
		r.forget()
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

// writerChanged reports whether a stream continues with another writer than its cursor's. Either the writer was
// replaced, or the store has lost its last rows and the new writer has reused their numbers. In the second case the new
// rows come before those of this page, and only a proved read finds them.
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

// take merges a page. It forgets streams that no longer exist, for example of a region that was removed.
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

// apply merges a row. Merging a row twice, or after a later row, does no harm. Parts of snapshots that repeat rows
// already read have no payload.
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

// leftOut counts the counts of a row that were not applied:
//
//   - early: of windows that have not begun anywhere, for example because a region's clock is a year ahead;
//   - excess: of a region with more than regionCellsMax cells, or of cells beyond regionLeavesMax leaves, whose first
//     count is applied, but not the later counts, which have only numbers;
//   - nameless: by a number whose name was not read;
//   - malformed: see decodeBlocks.
type leftOut struct{ early, excess, nameless, malformed int }

// merge applies the counts of a row, except those that it counts in left. age is that of the row's oldest count. After
// an error some counts may have been applied.
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

// nameLocked applies counts that have their cells' names, and stores the cells' numbers. It returns the number of
// counts for whose cell or number the region has no room.
func (r *reader) nameLocked(row *store.FeedRow, of *window.Cell, counts []entry, now time.Time) (excess int) {
	for i, part := range r.partedLocked(of, counts) {
		known := r.known[:len(part)]
		excess += r.relay.shards[i].book.merge(row.Region, of, part, known, now)
		for j, c := range known {
			if c != nil && part[j].number != 0 && !r.names.setLocked(row, part[j].number, c) {
				excess++
			}
		}
		clear(part) // the identifiers keep this row's names in memory
	}
	return excess
}

// partedLocked returns the counts by the shards of their cells.
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

// countLocked applies counts that have only their cells' numbers. It returns the number of counts whose names were not
// read, or 0 if the group has expired.
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
	if nameless > 0 && r.relay.shards[0].book.expired(of.ExpiresAtMs()) {
		return 0
	}
	return nameless
}

func (r *reader) noteSettings(version int64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings, r.settingsAt = version, at
}

// settingsVersion returns the version that Feed returned last, and when the relay requested it.
func (r *reader) settingsVersion() (version int64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settings, r.settingsAt
}

// wake wakes the shards' loops that apply foreign totals.
func (r *reader) wake() {
	for _, s := range r.relay.shards {
		wake(s.woken)
	}
}

// forget ends reading, and forgets all counts of other regions. An import that began under a lease can still bring such
// counts later; the next call of forget removes them.
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

// sweep forgets the names that have expired by the origin's clock.
func (r *reader) sweep(b *book) {
	nowMs := b.clock.ms()
	lives := func(expiresMs int64) bool { return !hasExpired(expiresMs, nowMs) }
	r.names.keep(lives)
}

// unreadable counts and logs a row that this version cannot decode. The relay misses the names in that row until a cell
// grows that it named; then it reads the stream again from its last snapshot: see lacking.
func (r *Relay) unreadable(row *store.FeedRow, err error) {
	r.metrics.unreadable.Add(1)
	r.cfg.Logger.Error("relay leaves out a change that it cannot read", "region", row.Region, "shard", row.Shard,
		"sequence", row.Sequence, "error", err)
}

// forgetForeign forgets all counts of other regions. It is called for a shard that has lost its lease; take forgets the
// own region's counts, before or after it.
func (b *book) forgetForeign() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.regions.byName) == 0 {
		return
	}
	for c := range b.cells.all() {
		c.first, c.more, c.sent, c.unsent, c.shared = part{}, nil, 0, false, false
	}
	b.cells.tidy()
	clear(b.regions.byName)
	b.wiped++
	b.acked.sent.reset()
	b.unsent.reset()
}
