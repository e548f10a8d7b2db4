package resend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var start = time.UnixMilli(1_700_000_000_000)

// costOf returns a cost in a window that is longer than each test. Its cell is in bucket n % buckets.
func costOf(n int, add int64) store.Cost {
	key := window.Key{Identifier: fmt.Sprint(n), Duration: 24 * time.Hour}
	return store.Cost{Cell: window.Cell{Key: key}, Epoch: store.Epoch(n%buckets + 1), Add: add}
}

func costs(n int) (costs []store.Cost) {
	for i := range n {
		costs = append(costs, costOf(i, 1))
	}
	return costs
}

const buckets = 3 // of the origin, each with an epoch

// bucket is the state of an origin in an epoch.
type bucket struct {
	number int64
	totals map[window.Cell]int64
}

// origin is a server of a single stream.
type origin struct {
	buckets [buckets]bucket
	calls   []store.Chunk
	before  func(*store.Chunk) error // a call
	after   func(*store.Chunk) error // a call, which was applied
}

func (o *origin) Send(_ context.Context, c store.Chunk) (reply store.Reply, err error) {
	c.After = slices.Clone(c.After)
	o.calls = append(o.calls, c)
	if o.before != nil {
		err = o.before(&c)
	}
	if err != nil {
		return reply, err
	}
	reply.Totals = make([]store.Total, len(c.Costs))
	for i := range o.buckets {
		o.buckets[i].apply(&c, store.Epoch(i+1), &reply)
	}
	if o.after != nil {
		err = o.after(&c)
	}
	return reply, err
}

func (b *bucket) apply(c *store.Chunk, epoch store.Epoch, reply *store.Reply) {
	asked, behind := false, false
	for _, m := range c.After {
		if m.Epoch == epoch {
			asked, behind = m.Ask, b.number < m.Number || c.Repeats && b.number > m.Number
		}
	}
	has := false
	for i, cost := range c.Costs {
		if cost.Epoch != epoch {
			continue
		}
		has = true
		if total := &reply.Totals[i]; behind {
			*total = store.Total{Epoch: epoch, Err: errors.New("behind")}
		} else if total.Epoch = epoch; c.Number > b.number {
			if b.totals == nil {
				b.totals = make(map[window.Cell]int64)
			}
			b.totals[cost.Cell] += cost.Add
		}
	}
	if behind && (has || asked) {
		reply.Behind = append(reply.Behind, store.Mark{Epoch: epoch, Number: b.number})
	}
	if has && !behind {
		b.number = max(b.number, c.Number)
	}
}

// state returns the state that a replica has received; failOver promotes it.
func (o *origin) state() (all [buckets]bucket) {
	for i, b := range o.buckets {
		all[i] = bucket{b.number, maps.Clone(b.totals)}
	}
	return all
}

func (o *origin) failOver(to [buckets]bucket) {
	for i, b := range to {
		o.buckets[i] = bucket{b.number, maps.Clone(b.totals)}
	}
}

func (o *origin) total(n int) int64 { return o.buckets[n%buckets].totals[costOf(n, 0).Cell] }

// sender is a limiter's stream.
type sender struct {
	*Stream
	*origin
	number int64
}

func newSender() *sender { return &sender{Stream: New(new(atomic.Int64)), origin: &origin{}} }

func (s *sender) send(costs ...store.Cost) error {
	s.number++
	return s.again(costs...)
}

func (s *sender) again(costs ...store.Cost) error {
	_, err := s.Stream.Send(context.Background(), s.origin.Send, store.Chunk{Stream: 7, Number: s.number, Costs: costs})
	return err
}

var errLost = errors.New("connection reset")

// Chunks get lost or arrive twice, and failovers go to any earlier state: in the end the origin has each cost once.
func TestWhatAFailoverLosesIsThereOnceInTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, want := newSender(), make(map[int]int64)
		replicas := [][buckets]bucket{s.state()}
		var late []store.Chunk       // on their way, and given up
		fails := func(what string) { // the next call, before or after it was applied, or fails over there
			once := func(act func(*store.Chunk) error) func(*store.Chunk) error {
				return func(c *store.Chunk) error {
					s.before, s.after = nil, nil
					return act(c)
				}
			}
			lose := func(*store.Chunk) error { return errLost }
			switch rapid.IntRange(0, 6).Draw(rt, what) {
			case 0:
				s.before = once(lose)
			case 1:
				s.after = once(lose)
			case 2:
				s.before = once(func(*store.Chunk) error { s.failOver(replicas[len(replicas)-1]); return nil })
			case 3:
				s.before = once(func(c *store.Chunk) error { late = append(late, *c); return errLost })
			case 4:
				s.before = func(c *store.Chunk) error { // the recovery's, and then each
					if !c.Repeats {
						return nil
					}
					s.before = nil
					late = append(late, *c)
					return errLost
				}
			}
		}
		var pending []store.Cost
		send := func() {
			if err := s.again(pending...); err == nil {
				pending = nil
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"send": func(rt *rapid.T) {
				if pending == nil {
					s.number++
					pending = []store.Cost{}
					for range rapid.IntRange(0, 5).Draw(rt, "costs") {
						n, add := rapid.IntRange(0, 6).Draw(rt, "cell"), rapid.Int64Range(0, 9).Draw(rt, "add")
						pending = append(pending, costOf(n, add))
						want[n] += add
					}
				}
				fails("fault")
				send()
			},
			"arrive late": func(rt *rapid.T) {
				if len(late) > 0 {
					s.before, s.after = nil, nil
					_, _ = s.origin.Send(context.Background(), rapid.SampledFrom(late).Draw(rt, "chunk"))
				}
			},
			"replicate": func(*rapid.T) { replicas = append(replicas, s.state()) },
			"fail over": func(rt *rapid.T) {
				n := rapid.IntRange(0, len(replicas)-1).Draw(rt, "replica")
				replicas = replicas[:n+1] // the others follow the promoted replica
				s.failOver(replicas[n])
			},
			"fail over in one bucket": func(rt *rapid.T) {
				n := rapid.IntRange(0, buckets-1).Draw(rt, "bucket")
				to := s.state()
				to[n] = replicas[len(replicas)-1][n]
				s.failOver(to)
			},
		})
		s.before, s.after = nil, nil
		for pending != nil {
			send()
		}
		if err := s.send(); err != nil { // notices the last loss
			rt.Fatal(err)
		}
		for n, want := range want {
			if got := s.total(n); got != want {
				rt.Fatalf("cell %d has %d, want %d", n, got, want)
			}
		}
	})
}

// A thousand chunks with no more keys than a chunk may have are sent again in a single call. Chunks with more keys are
// sent in as few calls as have room for them in their order.
func TestLostChunksAreMerged(t *testing.T) {
	for name, c := range map[string]struct{ keys, each, want int }{
		"the same keys": {20, 20, 1}, "as many keys as fit": {500, 100, 1}, "each another": {1000, 1, 2},
		"more keys than fit": {1200, 100, 200},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSender()
			for i := range 1000 {
				var costs []store.Cost
				for j := range c.each {
					costs = append(costs, costOf((i*c.each+j)%c.keys, 1))
				}
				if err := s.send(costs...); err != nil {
					t.Fatal(err)
				}
			}
			full := s.state()
			s.failOver([buckets]bucket{})
			s.calls = nil
			if err := s.send(); err != nil {
				t.Fatal(err)
			}
			if got := len(s.calls) - 2; got != c.want {
				t.Errorf("%d calls repeat what was lost, want %d", got, c.want)
			}
			for _, call := range s.calls {
				if len(call.Costs) > store.ChunkMax {
					t.Errorf("%d costs in one call", len(call.Costs))
				}
			}
			for i, b := range full {
				if !maps.Equal(s.buckets[i].totals, b.totals) {
					t.Errorf("bucket %d has other totals than before", i)
				}
			}
		})
	}
}

// Costs of a cell add up as the origin would have added them up.
func TestMergedCostsAreThoseOfTheirChunks(t *testing.T) {
	a, b, c := costOf(0, 1), costOf(0, math.MaxInt64), costOf(0, 2)
	a.Restore, b.Known, c.Known = 5, 7, 6
	b.Limit, c.Limit = 30, 20
	var m merger
	m.add([]chunk{{number: 3, costs: []store.Cost{a}}, {number: 3, costs: []store.Cost{b, c}}})
	want := costOf(0, store.CountMax)
	want.Restore, want.Known, want.Limit = 5, 7, 20
	if len(m.costs) != 1 || m.costs[0] != want || m.number != 3 {
		t.Errorf("%+v, want %+v", m.costs, want)
	}
}

// A bounded cost is sent again without its bound if it was added, and otherwise not.
func TestBoundedCostsAreRepeatedIfTheyWereAdded(t *testing.T) {
	s := New(new(atomic.Int64))
	c := store.Chunk{Number: 1, Costs: costs(4)}
	for i := range c.Costs {
		c.Costs[i].Epoch, c.Costs[i].AtMost = 0, 9
	}
	c.Costs[3].AtMost = 0
	s.answered(&c, &store.Reply{Totals: []store.Total{
		{Epoch: 1, Added: true}, {Epoch: 1}, {Err: errLost}, {Epoch: 1, Err: errLost}}}, start)
	again := s.lost(&store.Chunk{Number: 2}, []store.Mark{{Epoch: 1}})
	if len(again) != 1 || len(again[0].Costs) != 1 || again[0].Costs[0] != costOf(0, 1) {
		t.Errorf("%+v", again)
	}
}

// An answered part of a call has the call's number, and no other repeated chunk uses that number.
func TestAPartThatWasAnsweredIsRepeatedByItself(t *testing.T) {
	for name, failsOver := range map[string]bool{"which is all that was lost": false, "with all before it": true} {
		t.Run(name, func(t *testing.T) {
			s := newSender()
			for range 2 {
				_ = s.send(costOf(0, 1), costOf(1, 1))
			}
			if failsOver {
				s.failOver([buckets]bucket{})
			}
			answered := store.Reply{Totals: []store.Total{{Epoch: 1, Added: true}, {Err: errLost}}}
			call := store.Chunk{Stream: 7, Number: 3, Costs: []store.Cost{costOf(0, 10), costOf(1, 10)}}
			for i := range call.Costs {
				call.Costs[i].AtMost = 99
			}
			s.answered(&call, &answered, time.Now())
			s.number = 3
			if err := s.again(call.Costs...); err != nil {
				t.Fatal(err)
			}
			if a, b := s.total(0), s.total(1); a != 12 || b != 12 {
				t.Errorf("the origin has %d and %d, want 12 each", a, b)
			}
		})
	}
}

// Answered chunks are kept for store.KeepFor, and then until the next answer, but not beyond their windows.
func TestAnsweredChunksAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender()
		short := costOf(1, 1)
		short.Cell.Duration = time.Second
		_ = s.send(costOf(0, 1), short)
		time.Sleep(store.KeepFor - 1)
		if _ = s.send(costOf(0, 1)); s.costs.Load() != 2 {
			t.Errorf("%d costs are kept, want 2: the short window is over", s.costs.Load())
		}
		time.Sleep(store.KeepFor - 1)
		if _ = s.send(); s.costs.Load() != 1 {
			t.Errorf("%d costs are kept, want 1", s.costs.Load())
		}
		s.failOver([buckets]bucket{})
		if _ = s.send(); s.total(0) != 1 {
			t.Errorf("the origin has %d, want the 1 that was kept", s.total(0))
		}
		time.Sleep(store.KeepFor - 1) // the next failover may lose it again
		s.failOver([buckets]bucket{})
		if _ = s.send(); s.total(0) != 1 {
			t.Errorf("after another failover the origin has %d, want 1", s.total(0))
		}
		s.before = func(*store.Chunk) error { return errLost }
		time.Sleep(10 * store.KeepFor)
		if _ = s.send(); s.Empty() {
			t.Error("nothing is kept while the origin does not answer")
		}
		s.before = nil
		if _ = s.send(); !s.Empty() || s.costs.Load() != 0 {
			t.Errorf("%d costs are kept in the end", s.costs.Load())
		}
	})
}

// If a stream has no costs for an epoch, its next chunk asks about the epoch in the middle of the time for which the
// epoch's chunks are kept.
func TestAQuietEpochIsAskedBeforeItsChunksAreForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		costs int
		quiet time.Duration
		asked bool
	}{
		"too early":              {1, store.KeepFor/2 - 1, false},
		"half of the time":       {1, store.KeepFor / 2, true},
		"a chunk without a cost": {0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSender()
				_ = s.send(costOf(1, 1))
				time.Sleep(c.quiet)
				s.failOver([buckets]bucket{})
				_ = s.send(costs(c.costs)...)
				if got := s.total(1) == 1; got != c.asked {
					t.Errorf("repeated: %v, want %v", got, c.asked)
				}
			})
		})
	}
}

// Nodes restore the losses of an earlier epoch, so its chunks are not repeated.
func TestNothingOfALostEpochIsRepeated(t *testing.T) {
	s := newSender()
	_ = s.send(costOf(0, 1), costOf(1, 1))
	s.Drop(1)
	s.failOver([buckets]bucket{})
	if _ = s.send(); s.total(0) != 0 || s.total(1) != 1 || s.costs.Load() != 1 {
		t.Errorf("the origin has %d and %d, want 0 and 1; %d costs are kept", s.total(0), s.total(1), s.costs.Load())
	}
}

// If an origin loses the repeated chunks each time, the call fails, and the next call goes on.
func TestAnOriginThatLosesEverythingAgainFailsTheCall(t *testing.T) {
	s := newSender()
	_ = s.send(costOf(0, 1))
	s.before = func(c *store.Chunk) error {
		if !c.Repeats {
			s.failOver([buckets]bucket{})
		}
		return nil
	}
	if err := s.send(costOf(0, 1)); !errors.Is(err, errLostAgain) {
		t.Errorf("%v, want %v", err, errLostAgain)
	}
	s.before = nil
	if err := s.again(costOf(0, 1)); err != nil || s.total(0) != 2 {
		t.Errorf("the origin has %d, want 2: %v", s.total(0), err)
	}
}

// The memory of all streams with the same counter is bounded. Chunks that a stream drops make room for the others.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which no time passes
		first := newSender()
		second, chunk := &sender{Stream: New(first.costs), origin: &origin{}}, costs(store.ChunkMax)
		for range CostsMax/store.ChunkMax + 10 {
			_ = first.send(chunk...)
		}
		if kept := first.costs.Load(); kept > CostsMax || kept < CostsMax-store.ChunkMax {
			t.Errorf("%d costs are kept", kept)
		}
		for epoch := range store.Epoch(buckets) {
			first.Drop(epoch + 1)
		}
		if _ = second.send(costs(2)...); first.costs.Load() != 2 {
			t.Errorf("%d costs are kept, want 2", first.costs.Load())
		}
	})
}

func TestAChunkKeepsTheEpochItWasFirstSentIn(t *testing.T) {
	var s Stamps
	id := ID{Stream: 7}
	for _, step := range []struct {
		number               int64
		current, first, want store.Epoch
	}{{1, 0, 0, 0}, {1, 6, 5, 5}, {1, 7, 5, 5}, {2, 7, 5, 7}, {2, 8, 5, 7}} {
		if got := s.Of(id, step.number, step.current, step.first, start); got != step.want {
			t.Errorf("chunk %d in %d belongs to %d, want %d", step.number, step.current, got, step.want)
		}
	}
}

// Streams without further chunks are forgotten. A stream in use is not, however many others there are.
func TestStampsOfUnusedStreamsAreForgotten(t *testing.T) {
	var s Stamps
	used := ID{Stream: 7}
	s.Of(used, 1, 9, 9, start)
	for i := range 10_000 { // an incarnation each second
		at := start.Add(time.Duration(i) * time.Second)
		s.Of(ID{Stream: uint64(i) + 10}, 1, 9, 9, at)
		if got := s.Of(used, 1, 10, 10, at); got != 9 {
			t.Fatalf("the stamp of a stream in use is %d, want 9", got)
		}
		if n := len(s.byID); n > 3*int(store.StreamKeptFor/time.Second) {
			t.Fatalf("%d streams are remembered", n)
		}
	}
}

// A claim without an answer does not show that the origin still has the kept chunks: they are kept until an answer
// shows it.
func TestAnEpochWithoutAnAnswerKeepsItsChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender()
		_ = s.send(costOf(0, 1))
		time.Sleep(store.KeepFor)
		claim := costOf(0, 5)
		claim.AtMost = 9
		failed := store.Reply{Totals: []store.Total{{Err: errLost}}, Unanswered: []store.Epoch{1}}
		_, err := s.Stream.Send(context.Background(), func(context.Context, store.Chunk) (store.Reply, error) {
			return failed, nil
		}, store.Chunk{Stream: 7, Number: 2, Costs: []store.Cost{claim}})
		if err != nil || s.costs.Load() != 1 {
			t.Errorf("%d costs are kept, want 1: %v", s.costs.Load(), err)
		}
		s.number = 2
		s.failOver([buckets]bucket{})
		if err := s.send(); err != nil || s.total(0) != 1 {
			t.Errorf("the origin has %d, want 1: %v", s.total(0), err)
		}
	})
}

// The first try may have been applied in an epoch that was not behind, so nothing after it is certain not to be.
func TestAnErrorOfALaterTryIsNoProofThatNothingWasApplied(t *testing.T) {
	never := fmt.Errorf("%w: connection refused", store.ErrNotApplied)
	call := func(s *sender, fails func(*store.Chunk) bool) (store.Reply, error) {
		return s.Stream.Send(context.Background(), func(ctx context.Context, c store.Chunk) (store.Reply, error) {
			if c.Number == 2 && fails(&c) {
				return store.Reply{Totals: []store.Total{{Epoch: 1}, {Err: never}}}, nil
			}
			if c.Repeats && fails(&c) {
				return store.Reply{}, never
			}
			return s.origin.Send(ctx, c)
		}, store.Chunk{Stream: 7, Number: 2, Costs: costs(2)})
	}
	for name, c := range map[string]struct {
		failsOver bool
		fails     func(tries int, c *store.Chunk) bool
		certain   bool
	}{
		"the first try":  {false, func(int, *store.Chunk) bool { return true }, true},
		"the second try": {true, func(tries int, c *store.Chunk) bool { return !c.Repeats && tries > 1 }, false},
		"the recovery":   {true, func(_ int, c *store.Chunk) bool { return c.Repeats }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, tries := newSender(), 0
			_ = s.send(costOf(0, 1))
			if c.failsOver {
				s.failOver([buckets]bucket{})
			}
			reply, err := call(s, func(chunk *store.Chunk) bool { tries++; return c.fails(tries, chunk) })
			if err == nil {
				err = reply.Totals[1].Err
			}
			if err == nil || errors.Is(err, store.ErrNotApplied) != c.certain {
				t.Errorf("%v, want it to be certain: %t", err, c.certain)
			}
		})
	}
}

// Chunks that were sent again are kept from the answer that shows them at the origin, also if the answer to the
// repeated call was lost.
func TestChunksWhoseRecoveryIsNotAnsweredAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender()
		_ = s.send(costOf(0, 1))
		time.Sleep(store.KeepFor - 1)
		s.failOver([buckets]bucket{})
		s.after = func(c *store.Chunk) error {
			if c.Repeats {
				return errLost
			}
			return nil
		}
		if err := s.send(costOf(0, 10)); !errors.Is(err, errLost) {
			t.Errorf("%v, want %v", err, errLost)
		}
		s.after = nil
		time.Sleep(time.Nanosecond)
		if err := s.again(costOf(0, 10)); err != nil {
			t.Error(err)
		}
		s.failOver([buckets]bucket{})
		if err := s.send(); err != nil || s.total(0) != 11 {
			t.Errorf("the origin has %d, want 11: %v", s.total(0), err)
		}
	})
}

// An origin forgets a stream after store.StreamKeptMax, although it may have lost nothing.
func TestNothingIsRepeatedToAnOriginThatMayHaveForgottenTheStream(t *testing.T) {
	for away, want := range map[time.Duration]int64{unansweredMax - 1: 2, unansweredMax: 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newSender()
			_ = s.send(costOf(0, 1))
			s.buckets[0].number = 0
			time.Sleep(away)
			if err := s.send(); err != nil || s.total(0) != want {
				t.Errorf("after %v the origin has %d, want %d: %v", away, s.total(0), want, err)
			}
		})
	}
}

// A chunk for which there was no room is lost with a failover, and no other chunk counts for it or twice.
func TestAChunkWithoutRoomLeavesAGap(t *testing.T) {
	for name, c := range map[string]struct {
		has  int   // chunks that the replica has
		want int64 // each chunk adds ten times as much as the chunk before
	}{
		"nothing": {0, 101}, "the first": {1, 101}, "that without room": {2, 111}, "all": {3, 111},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSender()
			replicas := [][buckets]bucket{s.state()}
			for i, kept := range []int64{0, CostsMax, 0} {
				s.costs.Add(kept)
				if err := s.send(costOf(0, []int64{1, 10, 100}[i])); err != nil {
					t.Fatal(err)
				}
				s.costs.Add(-kept)
				replicas = append(replicas, s.state())
			}
			s.failOver(replicas[c.has])
			for range 2 {
				if err := s.send(); err != nil || s.total(0) != c.want || s.costs.Load() != 2 {
					t.Errorf("the origin has %d, want %d; %d costs are kept: %v", s.total(0), c.want, s.costs.Load(), err)
				}
			}
		})
	}
}

// An epoch that ends during its recovery does not affect the others, and is sent no more.
func TestAnEpochThatEndsDuringItsRecoveryIsForgotten(t *testing.T) {
	s := newSender()
	_ = s.send(costOf(0, 1), costOf(1, 10))
	s.failOver([buckets]bucket{})
	s.before = func(c *store.Chunk) error {
		if c.Repeats {
			s.Drop(1)
		}
		return nil
	}
	if err := s.send(costOf(1, 100)); err != nil || s.total(1) != 110 || s.costs.Load() != 2 {
		t.Errorf("the origin has %d, want 110; %d costs are kept: %v", s.total(1), s.costs.Load(), err)
	}
	s.before, s.calls = nil, nil
	s.failOver([buckets]bucket{})
	if err := s.send(); err != nil || s.total(0) != 0 || s.total(1) != 110 {
		t.Errorf("the origin has %d and %d, want 0 and 110: %v", s.total(0), s.total(1), err)
	}
}

// Chunks are kept until no decision depends on them: until the window after a cost's own window is over, which may have
// to begin. A later cost with a shorter window does not change that.
func TestChunksAreKeptUntilTheirWindowsAreOver(t *testing.T) {
	for away, want := range map[time.Duration]int64{3*time.Minute - 1: 1, 3 * time.Minute: 0} {
		synctest.Test(t, func(t *testing.T) {
			s := newSender()
			long, short := costOf(0, 1), costOf(3, 1) // of the same epoch
			long.Cell.Duration, short.Cell.Duration = time.Minute, time.Second
			_ = s.send(long)
			_ = s.send(short)
			time.Sleep(away)
			s.failOver([buckets]bucket{})
			if err := s.send(); err != nil || s.buckets[0].totals[long.Cell] != want {
				t.Errorf("after %v the origin has %v, want %d: %v", away, s.buckets[0].totals, want, err)
			}
		})
	}
}

// A claim that is repeated because another part of its call got no answer gets the first answer again, and is kept
// once.
func TestAClaimThatIsAnsweredTwiceIsKeptOnce(t *testing.T) {
	s := New(new(atomic.Int64))
	call := store.Chunk{Number: 1, Costs: costs(2)}
	for i := range call.Costs {
		call.Costs[i].AtMost = 9
	}
	s.answered(&call, &store.Reply{Totals: []store.Total{{Epoch: 1, Added: true}, {Err: errLost}}}, start)
	s.answered(&call, &store.Reply{Totals: []store.Total{{Epoch: 1, Added: true}, {Epoch: 2, Added: true}}}, start)
	again := s.lost(&store.Chunk{Number: 2}, []store.Mark{{Epoch: 1}, {Epoch: 2}})
	if len(again) != 1 || !slices.Equal(again[0].Costs, costs(2)) || s.costs.Load() != 2 {
		t.Errorf("%+v; %d costs are kept, want 2", again, s.costs.Load())
	}
}
