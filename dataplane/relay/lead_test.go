package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A relay stops leading as soon as it is refused its lease, however long its own lease would have lasted.
func TestARelayIsRefusedItsLease(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	w.run(time.Second)
	if err := eu.origin.Release(t.Context(), 0, "first"); err != nil {
		t.Fatal(err)
	}
	if _, err := eu.origin.Lease(t.Context(), 0, "second", time.Hour); err != nil {
		t.Fatal(err)
	}
	w.run(time.Second) // the relay renews its lease each second
	if eu.relay.Leads() {
		t.Error("it leads beside the holder of the lease")
	}
}

// If a relay gets no more answers about its lease, it leads until the lease ends at the origin, and no longer, because
// another relay may have the lease from then on.
func TestARelayDoesNotOutliveItsLease(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	w.run(time.Second)
	eu.relayOrigin.Faults.Hook(failing(memstore.OpLease))
	for began := w.clock(); ; w.run(interval) {
		led := eu.relay.Leads()
		got, err := eu.origin.Lease(t.Context(), 0, "second", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if free := got.Holder == "second"; free && led {
			t.Fatalf("it leads though another relay has its lease, %v after it was last renewed", w.clock().Sub(began))
		} else if free {
			break
		} else if !led {
			t.Fatalf("it leads no more %v before its lease ends", got.Left)
		}
	}
}

// Only the holder of a shard's lease applies foreign totals to the shard.
func TestOnlyTheHolderOfTheLeaseTells(t *testing.T) {
	w := newWorld(t)
	eu, us := w.addRegion("eu", w.clock, 2), w.addRegion("us", w.clock, 1)
	if _, err := eu.origin.Lease(t.Context(), 1, "another", time.Hour); err != nil {
		t.Fatal(err)
	}
	w.run(time.Second)
	var cells []window.Cell
	for i := range 40 {
		cells = append(cells, us.cell(fmt.Sprint("k", i), time.Hour))
		us.accept(cells[i], 50, 100)
	}
	w.run(time.Second)
	for _, c := range cells {
		want := int64(50)
		if eu.origin.ShardOf(&c.Key) == 1 {
			want = 0
		}
		if got := eu.total(c).Foreign; got != want {
			t.Fatalf("shard %d was told %d, want %d", eu.origin.ShardOf(&c.Key), got, want)
		}
	}
}

// A relay that has lost its lease forgets the rows that it has read. Once it leads again, it reads all of them again.
func TestARelayThatLeadsAgainReadsEverything(t *testing.T) {
	w, eu, us := newPair(t)
	w.tuning.SnapshotEvery = time.Hour
	w.run(time.Second)
	for i := range 20 {
		us.accept(us.cell(fmt.Sprint("few", i), time.Hour), 1, 100)
		us.accept(us.cell(fmt.Sprint("count", i), time.Hour), 50, 100)
	}
	w.run(time.Second)
	eu.relayOrigin.Faults.Fail(errDown)
	w.run(5 * time.Second)
	if s := relay.Sizes(eu.relay); s.Cells+relay.Names(eu.relay)+relay.Leaves(eu.relay) > 0 {
		t.Fatalf("without a lease it holds %+v, and %d groups of names", s, relay.Names(eu.relay))
	}
	eu.relayOrigin.Faults.Fail(nil)
	w.run(5 * time.Second)
	if s := relay.Sizes(eu.relay); s.Cells != 40 {
		t.Errorf("it holds %+v, want 40 cells", s)
	}
}

// R2: two regions that begin to use a cell before either has read the other's row both publish their counts.
func TestR2TwoRegionsBeginAtOnce(t *testing.T) {
	w := newWorld(t, "eu", "us")
	w.run(time.Second)
	w.feed.Faults.Hook(failing(memstore.OpReadFeed))
	c := w.regions[0].cell("k", time.Hour)
	for _, r := range w.regions {
		r.accept(c, 3, 100)
	}
	w.run(2 * interval)
	if where := w.unknown(c); len(where) != 2 {
		t.Fatalf("nothing was read, and the total is unknown in %v alone", where)
	}
	w.feed.Faults.Hook(nil)
	w.run(3 * interval)
	w.wantKnown(c)
}

// A relay that has no answer with the origin's time yet applies nothing, and rejects no row as early.
func TestApplyWithoutTheOriginsTime(t *testing.T) {
	w, eu, us := newPair(t)
	published := eu.publishingRelay()
	us.relay = us.relayOver("first", speechless{us.relayOrigin}, w.feed, w.counts)
	w.run(time.Second)
	eu.accept(eu.cell("k", time.Hour), 50, 100)
	w.run(interval)
	if !us.relay.Leads() || len(*published) != 1 {
		t.Fatalf("us leads: %v, and %d rows are told", us.relay.Leads(), len(*published))
	}
	if err := us.relay.Apply((*published)[0]); !errors.Is(err, relay.ErrIdle) || errors.Is(err, store.ErrRefused) {
		t.Errorf("%v, want ErrIdle", err)
	}
}

// applyCounter records the most cells in a call to Apply, and the number of calls.
type applyCounter struct {
	*memstore.Origin
	most, calls int
}

func (o *applyCounter) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	o.most, o.calls = max(o.most, len(totals)), o.calls+1
	return o.Origin.Apply(ctx, shard, totals)
}

// No call has more than 1,000 foreign totals, even if it repeats totals that a replica may lack.
func TestForeignTotalsAreSentInCallsOf1000(t *testing.T) {
	w, eu, us := newPair(t)
	counter := &applyCounter{Origin: eu.relayOrigin}
	eu.relay = eu.relayOver("first", counter, w.feed, w.counts)
	w.run(time.Second)
	for i := range 1500 {
		us.accept(us.cell(fmt.Sprint("k", i), time.Hour), 50, 100)
	}
	w.run(store.KeepFor + 3*time.Second)
	if counter.most != 1000 || counter.calls < 4 {
		t.Errorf("%d calls of at most %d totals, want 4 or more of at most 1000", counter.calls, counter.most)
	}
}
