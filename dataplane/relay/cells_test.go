package relay

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func newTestRelay(t testing.TB) *Relay {
	r, err := New(Config{Region: "eu", Holder: "node", Origin: memstore.NewOrigin(memstore.OriginOptions{}),
		Feed: memstore.NewFeed(memstore.FeedOptions{}), Counts: memstore.NewCounts(memstore.CountsOptions{})})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mergeOne merges a count that has its cell's name.
func mergeOne(b *book, from string, c counted, now time.Time) {
	of := groupOf(c.cell)
	b.merge(from, &of, []entry{{identifier: c.cell.Identifier, total: c.total}}, make([]*cell, 1), now)
}

func toSend(b *book, now time.Time) *foreignChunk {
	var t foreignChunk
	b.toSend(&t, now)
	return &t
}

// A foreign total is the sum of the regions' components. It never exceeds the origin's bound, store.CountMax.
func TestForeignTotals(t *testing.T) {
	c, regions := cell{}, map[string]*region{"us": {name: "us"}, "ap": {name: "ap"}}
	for _, step := range []struct {
		region string
		total  int64
		want   int64
		raised bool
	}{
		{"us", 5, 5, true}, {"ap", 2, 7, true}, {"us", 4, 7, false}, {"us", 6, 8, true}, {"ap", 2, 8, false},
		{"ap", store.CountMax, store.CountMax, true}, {"us", store.CountMax, store.CountMax, false},
	} {
		if raised := c.merge(regions[step.region], step.total); raised != step.raised || c.foreign() != step.want {
			t.Errorf("%s tells %d: total %d, raised %v; want %d, %v", step.region, step.total, c.foreign(), raised, step.want, step.raised)
		}
	}
}

// The stored count and the published count of a region are the same component: the larger count holds. Counts of other
// regions do not matter.
func TestStoredAndToldCountsMeetByRegion(t *testing.T) {
	r := newTestRelay(t)
	s, x := r.shards[0], minuteCell("a")
	s.book.setClock(time.UnixMilli(x.ExpiresAtMs() - 1))
	for region, n := range map[string]int64{"eu": 9, "us": 5, "ap": 2} {
		if err := r.cfg.Counts.Publish(t.Context(), region, []store.Count{{Cell: x, Count: n}}); err != nil {
			t.Fatal(err)
		}
	}
	mergeOne(&s.book, "ap", counted{cell: x, total: 6}, time.Now())
	if err := s.importStored(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if c := s.book.cells.find(&x); c.stored != 9 || c.foreign() != 11 || !c.shared {
		t.Errorf("stored %d, foreign %d, shared %v; want 9, 11, true", c.stored, c.foreign(), c.shared)
	}
}

// Foreign totals that were on their way to an origin when it lost its counts are sent again.
func TestATotalSentToAnEmptiedOriginIsSentAgain(t *testing.T) {
	b, now := &newTestRelay(t).shards[0].book, time.Now()
	mergeOne(b, "us", counted{cell: minuteCell("a"), total: 5}, now)
	first := toSend(b, now)
	b.resend()
	b.setSent(first, true, now)
	if again := toSend(b, now).totals; len(first.totals) != 1 || len(again) != 1 || again[0] != first.totals[0] {
		t.Errorf("first %v, then %v", first.totals, again)
	}
}

// A foreign total that was sent again to an emptied origin is repeated later like any other, because a replica may lack
// it.
func TestWhatAnEmptiedOriginWasSentIsRepeated(t *testing.T) {
	b, now := &newTestRelay(t).shards[0].book, time.Now()
	mergeOne(b, "us", counted{cell: minuteCell("a"), total: 5}, now)
	for range 2 {
		first := toSend(b, now)
		if b.setSent(first, true, now); len(first.totals) != 1 {
			t.Fatalf("%v is sent", first.totals)
		}
		if more := toSend(b, now).totals; len(more) != 0 {
			t.Fatalf("%v is sent twice", more)
		}
		b.resend()
	}
	first := toSend(b, now)
	b.setSent(first, true, now)
	if again := toSend(b, now.Add(store.KeepFor)).totals; len(again) != 1 {
		t.Errorf("%v is repeated, want the total of 5", again)
	}
}

// A foreign total that grows while it is on its way is sent again.
func TestATotalThatGrowsOnItsWayIsSentAgain(t *testing.T) {
	b, now := &newTestRelay(t).shards[0].book, time.Now()
	mergeOne(b, "us", counted{cell: minuteCell("a"), total: 5}, now)
	first := toSend(b, now)
	mergeOne(b, "us", counted{cell: minuteCell("a"), total: 6}, now)
	b.setSent(first, true, now)
	if again := toSend(b, now).totals; len(again) != 1 || again[0].Count != 6 {
		t.Errorf("then %v is sent, want 6", again)
	}
}

// A foreign total that could not be applied is sent with the next call.
func TestATotalThatCouldNotBeToldIsSentAgain(t *testing.T) {
	r, now := newTestRelay(t), time.Now()
	s, origin := r.shards[0], r.cfg.Origin.(*memstore.Origin)
	s.lease.until = now.Add(time.Hour)
	mergeOne(&s.book, "us", counted{cell: minuteCell("a"), total: 5}, now)
	origin.Faults.Fail(errors.New("down"))
	if err := s.applyForeign(t.Context(), now); err == nil {
		t.Fatal("no error")
	}
	if again := toSend(&s.book, now).totals; len(again) != 1 {
		t.Errorf("%v is sent again, want one total", again)
	}
}

// A cell stays for a minute after its end, so that a clock that was ahead can be set back.
func TestACellOutlivesItsEndByAMinute(t *testing.T) {
	b, now := &newTestRelay(t).shards[0].book, time.Now()
	x := minuteCell("a")
	mergeOne(b, "us", counted{cell: x, total: 5}, now)
	for _, past := range []time.Duration{0, keptFor - time.Millisecond} {
		b.setClock(time.UnixMilli(x.ExpiresAtMs()).Add(past))
		if b.sweep(); b.cells.find(&x) == nil || b.unsent.len() != 1 {
			t.Errorf("it is forgotten %v after its end", past)
		}
	}
	b.setClock(time.UnixMilli(x.ExpiresAtMs()).Add(keptFor))
	if b.sweep(); b.cells.n+b.unsent.len() != 0 {
		t.Errorf("%d cells a minute after its end", b.cells.n)
	}
}

// A total stays when an origin that has lost counts returns a lower total.
func TestATotalOnlyGrows(t *testing.T) {
	b, now := &newTestRelay(t).shards[0].book, time.Now()
	x := minuteCell("a")
	for i, total := range []int64{5, 3, 5} {
		at := now.Add(time.Duration(i) * time.Second)
		b.growLocked(&store.Change{Cell: x, Total: total, Limit: 100}, at)
	}
	if c := b.cells.find(&x); c.total != 5 {
		t.Errorf("%d, want 5", c.total)
	}
	if known := b.known(1); len(known) != 1 || known[0].Total != 5 {
		t.Errorf("an emptied origin is raised to %v, want 5", known)
	}
}

// A sweep forgets exactly the cells that have expired, including cells that were kept when forgetOwn or forgetForeign
// removed the others.
func TestASweepForgetsWhatHasExpired(t *testing.T) {
	s, now := newTestRelay(t).shards[0], time.Now()
	long, short, own := minuteCell("long"), minuteCell("short"), minuteCell("own")
	long.Duration, long.Sequence = time.Hour, short.ExpiresAtMs()/time.Hour.Milliseconds()
	for _, c := range []window.Cell{long, short} {
		mergeOne(&s.book, "us", counted{cell: c, total: 5}, now)
	}
	s.book.growLocked(&store.Change{Cell: own, Total: 1, Limit: 100}, now)
	s.book.forgetOwn(false)
	s.book.clock.suppose(short.ExpiresAtMs() + keptFor.Milliseconds())
	s.book.sweep()
	if s.book.cells.n != 1 || s.book.cells.find(&long) == nil || len(s.book.cells.endings) != 1 || s.book.regions.cellsOf("us") != 1 {
		t.Errorf("%d cells and %d expiries are left", s.book.cells.n, len(s.book.cells.endings))
	}
}

// A row or a stored count that is on its way while the own region's counts are forgotten does no harm.
func TestWhatIsOnItsWayWhenTheOwnSideIsForgotten(t *testing.T) {
	s, now := newTestRelay(t).shards[0], time.Now()
	b, own, both := &s.book, minuteCell("own"), minuteCell("both")
	mergeOne(b, "us", counted{cell: both, total: 5}, now)
	for _, c := range []window.Cell{own, both} {
		b.growLocked(&store.Change{Cell: c, Total: 100, Limit: 100}, now)
	}
	published := []cellTotal{{b.cells.find(&own), 100}, {b.cells.find(&both), 100}}
	totals := b.toSave(DefaultTuning())
	b.forgetOwn(false)
	if payload := encodeNamed(published, false); len(payload) == 0 || len(totals) != 2 {
		t.Errorf("peers get %x, and %d cells are stored", payload, len(totals))
	}
	b.setStored(totals)
	b.setRefused(totals[0].cell)
	b.saveAgain(totals)
	if again := b.toSave(DefaultTuning()); len(again) != 0 || b.cells.n != 1 || b.cells.find(&both).stored != 100 {
		t.Errorf("%v are stored again, and %d cells are left", again, b.cells.n)
	}
}

// A cell is removed once the own region's count and the foreign counts are both forgotten, and the other region has
// room for a cell again.
func TestACellThatAllHaveForgottenIsGone(t *testing.T) {
	b, now := &newTestRelay(t).shards[0].book, time.Now()
	x := minuteCell("a")
	mergeOne(b, "us", counted{cell: x, total: 5}, now)
	b.growLocked(&store.Change{Cell: x, Total: 1, Limit: 100}, now)
	b.forgetForeign()
	if c := b.cells.find(&x); c == nil || c.isForeign() || b.unsent.len() != 0 || b.regions.cellsOf("us") != 0 {
		t.Errorf("without the others' side: %+v", c)
	}
	if b.forgetOwn(false); b.cells.n+len(b.cells.groups)+len(b.cells.endings) != 0 {
		t.Errorf("%d cells in %d groups are left", b.cells.n, len(b.cells.groups))
	}
}

// A foreign total that is on its way while the book forgets it is not recorded as sent: a relay that leads again sends
// all totals.
func TestWhatIsForgottenOnItsWayIsNotSent(t *testing.T) {
	s, now := newTestRelay(t).shards[0], time.Now()
	x := minuteCell("x")
	mergeOne(&s.book, "us", counted{x, 0, 5}, now)
	chunk := toSend(&s.book, now)
	s.book.forgetForeign()
	s.book.setSent(chunk, true, now)
	if len(chunk.cells) != 1 || chunk.cells[0].sent != 0 || s.book.acked.sent.len() != 0 {
		t.Errorf("%d cells on their way, of the first %d is taken for sent, and %d wait to be repeated; want 1, 0 and 0",
			len(chunk.cells), chunk.cells[0].sent, s.book.acked.sent.len())
	}
}

// R6: if an answer to a read for peers arrives after the origin was emptied and healed, it raises nothing, and leaves
// the healed epoch as it is. Otherwise the next heal of that epoch would count its totals twice.
func TestR6AnAnswerFromBeforeAHealRaisesNothing(t *testing.T) {
	s, x := newTestRelay(t).shards[0], minuteCell("a")
	now := time.UnixMilli(x.ExpiresAtMs() - 1)
	s.book.setClock(now)
	see := func(epoch, healed store.Epoch, total int64) {
		s.see(&store.Changes{Epoch: epoch, Healed: true, Cells: []store.Change{{Cell: x, Total: total, Limit: 100}}},
			healed, time.Second, now)
	}
	see(7, 0, 40)
	before := s.book.lastHealed()
	s.book.setHealed(8)
	see(7, before, 80)
	if got := s.book.lastHealed(); got != 8 {
		t.Errorf("epoch %d is healed, want 8", got)
	}
	if known := s.book.known(9); len(known) != 1 || known[0].Total != 40 {
		t.Errorf("an origin that is emptied is raised to %+v, want 40", known)
	}
	see(8, 8, 90)
	if known := s.book.known(9); len(known) != 1 || known[0].Total != 90 {
		t.Errorf("after an answer in the healed epoch, it is raised to %+v, want 90", known)
	}
}
