package relay_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// live makes a world whose time is that of a synctest bubble.
func live(t *testing.T, names ...string) *world {
	w := &world{TB: t, seen: map[string]map[window.Cell]int64{}}
	w.counts = memstore.NewCounts(memstore.CountsOptions{})
	w.feed = memstore.NewFeed(memstore.FeedOptions{Settings: w.counts.SettingsVersion})
	w.clockFrom, w.tuning = time.Now, relay.DefaultTuning()
	for _, name := range names {
		w.addRegion(name, time.Now, 1)
	}
	return w
}

func start(t *testing.T, relays ...*relay.Relay) {
	t.Helper()
	for _, r := range relays {
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Stop(context.Background()) })
	}
}

// R2 with the loops, with MySQL 20 or 100 ms away and Redis 1 ms. A count of at least 10 % of the limit is known
// everywhere within two intervals and the stores' delays. A lower count is known within three turns after a second
// region uses the cell, because a relay answers a row as soon as it has read it. A turn is an interval, and longer far
// from MySQL.
func TestR2TheLoopsKeepTheBound(t *testing.T) {
	const redis = time.Millisecond
	for _, mysql := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
		turn := max(interval, interval*3/4+mysql)
		for offset := range 60 { // between the relays' intervals, and between them and the cost
			synctest.Test(t, func(t *testing.T) { loopsKeep(t, mysql, redis, offset, 10, 0, 2*(interval+mysql)+6*redis) })
			synctest.Test(t, func(t *testing.T) { loopsKeep(t, mysql, redis, offset, 2, 1, 3*turn+2*mysql+12*redis) })
		}
	}
}

func loopsKeep(t *testing.T, mysql, redis time.Duration, offset int, first, second int64, most time.Duration) {
	w := live(t, "eu", "us", "ap")
	w.feed.Faults.Delay(mysql)
	for _, r := range w.regions {
		r.relayOrigin.Faults.Delay(redis)
		start(t, r.relay)
		time.Sleep(time.Duration(37*(offset%8)) * time.Millisecond % interval)
	}
	time.Sleep(2*time.Second + time.Duration(offset)*interval/60)
	cell := w.regions[0].cell("k", time.Minute)
	w.regions[0].accept(cell, first, 100)
	if second > 0 {
		time.Sleep(2 * time.Second)
		w.regions[1].accept(cell, second, 100)
	}
	began := time.Now()
	for len(w.unknown(cell)) > 0 && time.Since(began) < time.Minute {
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(began); took > most {
		t.Errorf("%d and %d, MySQL %v away: known after %v, want at most %v", first, second, mysql, took, most)
	}
	w.checkR1()
}

// A relay that is killed is replaced within 3 s, and a relay that stops is replaced at once. The killed relay does no
// harm when it comes back.
func TestTakeover(t *testing.T) {
	for _, c := range []struct {
		what string
		most time.Duration
		end  func(r *region)
	}{
		{"killed", 3 * time.Second, func(r *region) { r.relayOrigin.Faults.Fail(errDown) }},
		{"stopped", time.Second, func(r *region) { _ = r.relay.Stop(context.Background()) }},
	} {
		for offset := range 7 {
			synctest.Test(t, func(t *testing.T) {
				w := live(t, "eu", "us")
				eu, us := w.regions[0], w.regions[1]
				start(t, eu.relay, us.relay)
				time.Sleep(930 * time.Millisecond) // its tries fall between those of the first relay
				start(t, eu.relayOver("second", eu.origin.Client(), eu.feed, eu.counts), eu.relayOver("third", eu.origin.Client(), eu.feed, eu.counts))
				time.Sleep(2*time.Second + time.Duration(offset)*150*time.Millisecond)
				cell := eu.cell("k", time.Minute)
				c.end(eu)
				eu.accept(cell, 50, 100)
				began := time.Now()
				for us.total(cell).Foreign < 50 && time.Since(began) < time.Minute {
					time.Sleep(time.Millisecond)
				}
				if took, most := time.Since(began), c.most+2*interval+10*time.Millisecond; took > most {
					t.Errorf("%s: known after %v, want at most %v", c.what, took, most)
				}
				eu.relayOrigin.Faults.Fail(nil)
				time.Sleep(10 * time.Second)
				eu.accept(cell, 30, 100)
				time.Sleep(time.Second)
				w.wantKnown(cell)
				w.checkR1()
			})
		}
	}
}

// timedFeed measures how long after a read rows are appended.
type timedFeed struct {
	store.Feed

	mu     sync.Mutex
	readAt time.Time     // when the last read ended
	latest time.Duration // longest time from a read to an append, without snapshots
}

func (n *timedFeed) Read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	page, err := n.Feed.Read(ctx, q)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.readAt = time.Now()
	return page, err
}

func (n *timedFeed) Append(ctx context.Context, row store.FeedRow) error {
	n.mu.Lock()
	if row.Snapshot == 0 {
		n.latest = max(n.latest, time.Since(n.readAt))
	}
	n.mu.Unlock()
	return n.Feed.Append(ctx, row)
}

// since returns latest and resets it.
func (n *timedFeed) since() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	latest := n.latest
	n.latest = 0
	return latest
}

// A relay publishes its answer to other regions' counts with the next row, which it appends as soon as the counts are
// read, however far away MySQL is.
func TestARowLeavesOnceTheFeedIsRead(t *testing.T) {
	for _, mysql := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w := live(t, "eu", "us")
			w.feed.Faults.Delay(mysql)
			eu, us := w.regions[0], w.regions[1]
			timed := &timedFeed{Feed: w.feed}
			start(t, eu.relay, us.relayOver("timed", us.relayOrigin, timed, w.counts))
			time.Sleep(5 * time.Second)
			timed.since()
			cell := us.cell("k", time.Hour)
			for range 20 {
				us.accept(cell, 50, 1000)
				time.Sleep(interval)
			}
			if rows := len(w.feed.Rows(store.Stream{Region: "us"})); rows < 9 {
				t.Errorf("MySQL %v away: %d rows", mysql, rows)
			}
			if latest := timed.since(); latest > 5*time.Millisecond {
				t.Errorf("MySQL %v away: a row leaves %v after a read", mysql, latest)
			}
		})
	}
}

// Reads that hang do not delay the own region's rows.
func TestATakeDoesNotWaitForReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := live(t, "eu", "us")
		eu := w.regions[0]
		start(t, eu.relay)
		time.Sleep(2 * time.Second)
		w.feed.Faults.Hook(func(op memstore.Op) error {
			if op == memstore.OpReadFeed {
				time.Sleep(time.Hour)
			}
			return nil
		})
		cell := eu.cell("k", time.Hour)
		for total := int64(50); total < 60; total++ {
			began := time.Now()
			eu.accept(cell, map[bool]int64{true: 50, false: 1}[total == 50], 50)
			rows := len(w.feed.Rows(store.Stream{Region: "eu"}))
			for len(w.feed.Rows(store.Stream{Region: "eu"})) == rows && time.Since(began) < time.Minute {
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(began); took > interval*3/2+10*time.Millisecond {
				t.Errorf("stored after %v", took)
			}
		}
		w.feed.Faults.Hook(nil)
	})
}

// If another writer blocks an append, only its stream is delayed, and nothing is lost.
func TestAHeldBackAppend(t *testing.T) {
	for _, commits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := live(t, "eu", "us", "ap")
			for _, r := range w.regions {
				start(t, r.relay)
			}
			time.Sleep(2 * time.Second)
			eu, us, ap := w.regions[0], w.regions[1], w.regions[2]
			rows := w.feed.Rows(store.Stream{Region: "eu"})
			next := store.FeedRow{Stream: store.Stream{Region: "eu"}, Sequence: rows[len(rows)-1].Sequence + 1, Writer: 99, Payload: []byte{1, 0, 0}}
			commit, rollback, err := w.feed.Hold(next)
			if err != nil {
				t.Fatal(err)
			}
			mine, other := eu.cell("mine", time.Hour), us.cell("other", time.Hour)
			eu.accept(mine, 50, 100)
			us.accept(other, 50, 100)
			time.Sleep(time.Second)
			if got := ap.total(other).Foreign; got != 50 {
				t.Errorf("ap knows %d of 50 from us, which has nothing to do with it", got)
			}
			time.Sleep(9 * time.Second)
			if got := us.total(mine).Foreign; got != 0 {
				t.Errorf("us knows %d", got)
			}
			if commits {
				commit()
			} else {
				rollback()
			}
			time.Sleep(5 * time.Second)
			w.wantKnown(mine, other)
		})
	}
}

// A relay whose context was ended by a signal still releases its leases when it stops, so another relay can take over
// at once.
func TestStopReleasesLeasesAfterItsContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := live(t, "eu")
		eu := w.regions[0]
		start(t, eu.relay)
		time.Sleep(time.Second)
		eu.origin.Faults.Delay(10 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := eu.relay.Stop(ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if lease, err := eu.origin.Lease(t.Context(), 0, "other", time.Second); err != nil || lease.Holder != "other" {
			t.Errorf("after Stop the lease is %+v, %v", lease, err)
		}
	})
}

func TestStartAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := live(t, "eu")
		eu := w.regions[0]
		start(t, eu.relay)
		if err := eu.relay.Start(t.Context()); !errors.Is(err, relay.ErrStarted) {
			t.Errorf("a second Start: %v", err)
		}
		time.Sleep(time.Second)
		if lease, err := eu.origin.Lease(t.Context(), 0, "other", time.Second); err != nil || lease.Holder != "first" {
			t.Errorf("the lease is %+v, %v", lease, err)
		}
		for range 2 {
			if err := eu.relay.Stop(t.Context()); err != nil {
				t.Errorf("Stop: %v", err)
			}
		}
		if lease, err := eu.origin.Lease(t.Context(), 0, "other", time.Second); err != nil || lease.Holder != "other" {
			t.Errorf("after Stop the lease is %+v, %v", lease, err)
		}
		if err := eu.relay.Start(t.Context()); !errors.Is(err, relay.ErrStarted) {
			t.Errorf("Start after Stop: %v", err)
		}
		never := eu.newRelay("never")
		if err := never.Stop(t.Context()); err != nil {
			t.Errorf("Stop before Start: %v", err)
		}
		if err := never.Start(t.Context()); !errors.Is(err, relay.ErrStarted) {
			t.Errorf("Start after that: %v", err)
		}
	})
}
