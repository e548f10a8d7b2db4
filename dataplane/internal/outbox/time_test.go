package outbox

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// threeShards is an origin that no test calls.
type threeShards struct{ store.Origin }

func (threeShards) Shards() int             { return 3 }
func (threeShards) ShardOf(*window.Key) int { return 0 }
func (threeShards) Listen(ctx context.Context, _ int, _ func([]store.Foreign)) error {
	<-ctx.Done()
	return nil
}

// testOutbox returns an outbox without a limiter, on its own clock.
func testOutbox(t *testing.T, origin store.Origin, now func() time.Time, change ...func(*Config)) *Outbox {
	t.Helper()
	wall := clock.New(now)
	wall.WillFollow()
	cfg := Config{Origin: origin, ReadTimeout: time.Second, Table: cell.NewTable(1000, 1000, wall, true),
		Dirty: new(cell.DirtyList), Clock: wall, Rules: new(rules.Rules), Calls: new(loop.Calls), EpochLost: func() {},
		Trace: func(ctx context.Context, _ string) (context.Context, func(error)) { return ctx, func(error) {} }}
	cfg.Rules.Init(rules.Config{Fleet: true, Clock: wall, Walk: cfg.Table.Walk})
	for _, f := range change {
		f(&cfg)
	}
	o := New(cfg)
	t.Cleanup(cfg.Calls.Wait)
	return o
}

// timed returns an outbox with three shards, on a clock that the test sets.
func timed(t *testing.T) (o *Outbox, now *time.Time) {
	t.Helper()
	at := time.UnixMilli(1_735_000_000_000)
	return testOutbox(t, threeShards{}, func() time.Time { return at }), &at
}

// An answer is half a round trip old, and an answer without a time leaves the clock as it is.
func TestAnAnswerIsHalfARoundTripOld(t *testing.T) {
	o, now := timed(t)
	began := *now
	*now = now.Add(400 * time.Millisecond)
	o.shards[0].observeTime(began, time.Time{})
	if got := o.cfg.Clock.ReadMs() - now.UnixMilli(); got != 0 {
		t.Errorf("%d ms ahead by an answer without a time", got)
	}
	o.shards[0].observeTime(began, now.Add(7*time.Second))
	if got := o.cfg.Clock.ReadMs() - now.UnixMilli(); got != 7200 {
		t.Errorf("%d ms ahead, want 7000 and half of 400", got)
	}
}

// If the node's own clock is set while an answer is on its way, the answer leaves the clock as it is.
func TestAnAnswerDuringAStepTellsNoTime(t *testing.T) {
	for _, step := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		o, now := timed(t)
		began := *now
		o.shards[0].observeTime(began, now.Add(7*time.Second))
		right := *now
		*now = now.Add(step)
		o.shards[0].observeTime(began, right.Add(7*time.Second))
		if got := o.cfg.Clock.ReadMs() - now.UnixMilli(); got != 7000 {
			t.Errorf("step of %v: %d ms ahead, want the 7000 of before", step, got)
		}
	}
}

// An answer that took longer than any call can take shows that the node's clock was set ahead meanwhile. It leaves the
// clock as it is, even if there is no other answer: half of that time is not half of a round trip.
func TestAFirstAnswerDuringAStepAheadTellsNoTime(t *testing.T) {
	o, now := timed(t)
	began := *now
	*now = now.Add(10 * time.Minute)
	o.shards[0].observeTime(began, began.Add(7*time.Second))
	if got := o.cfg.Clock.ReadMs() - now.UnixMilli(); got != 0 || o.cfg.Clock.Known() {
		t.Errorf("%d ms ahead, and known: %v", got, o.cfg.Clock.Known())
	}
}

// Time is the median of the shards that have answered, and the lower time of two.
func TestTimeIsTheMedianOfTheShards(t *testing.T) {
	o, now := timed(t)
	for _, c := range []struct {
		shard       int
		ahead, want time.Duration
	}{
		{0, 20 * time.Second, 20 * time.Second},
		{1, 40 * time.Second, 20 * time.Second},
		{2, time.Hour, 40 * time.Second},
	} {
		o.shards[c.shard].observeTime(*now, now.Add(c.ahead))
		if got := time.Duration(o.cfg.Clock.ReadMs()-now.UnixMilli()) * time.Millisecond; got != c.want {
			t.Errorf("with shard %d: %v ahead, want %v", c.shard, got, c.want)
		}
	}
}

// If a shard's clock goes back a little, time stands still; if it goes back by more than 1 s, the node follows it.
func TestTimeStandsStillWhereAnOriginGoesBack(t *testing.T) {
	o, now := timed(t)
	observe := func(ahead time.Duration) (shown int64) {
		for range 16 { // replaces all earlier answers
			for _, sh := range o.shards {
				sh.observeTime(*now, now.Add(ahead))
			}
		}
		return o.cfg.Clock.ReadMs() - now.UnixMilli()
	}
	if got := observe(time.Minute); got != 60_000 {
		t.Fatalf("%d ms ahead", got)
	}
	if got := observe(time.Minute - 500*time.Millisecond); got != 60_000 {
		t.Errorf("%d ms ahead after half a second back, want 60,000 still", got)
	}
	*now = now.Add(time.Second)
	if got := o.cfg.Clock.ReadMs() - now.UnixMilli(); got != 59_500 {
		t.Errorf("%d ms ahead once the origin has caught up, want 59,500", got)
	}
	if got := observe(30 * time.Second); got != 30_000 {
		t.Errorf("%d ms ahead after 30 s back, want 30,000", got)
	}
}

// A shard whose clock is set back may have forgotten cells of its own keys. Cells of other shards keep their credit.
func TestAShardThatWasAheadEndsCreditOfItsOwnKeys(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -time.Second, time.Hour} {
		for shard := range 3 {
			o, now := timed(t)
			key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute} // of shard 0
			id, sequence := o.cfg.Table.IdentityOfKey(&key, nil), window.Sequence(now.UnixMilli(), key.DurationMs())
			e, _ := o.cfg.Table.Add(&id, &key, nil, false, o.cfg.Table.Horizon(false), sequence, now.UnixMilli())
			e.Ledger().Absorb(&o.Stats.Merged, sequence, &store.Total{Region: 20}, clock.SteadyStart)
			e.Ledger().GiveBack(sequence, 15)
			began := time.Now()
			o.shards[shard].observeSetBack(began, now.Add(time.Hour))
			o.shards[shard].observeSetBack(began, time.Time{})
			o.shards[shard].observeSetBack(began, now.Add(time.Hour+step))
			o.ForgetCells()
			want := int64(15)
			if shard == 0 && step == -time.Hour {
				want = 0
			}
			if got := e.LookAt(sequence).Credit; got != want {
				t.Errorf("shard %d set by %v: credit %d, want %d", shard, step, got, want)
			}
		}
	}
}
