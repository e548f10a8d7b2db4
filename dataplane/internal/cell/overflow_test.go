package cell

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// The overflow returns at least the cost that was added to a cell as long as a decision can depend on it, however full
// it is and however the clock moves on. The cost is gone when its generation is used again.
//
//weir:unraced
func TestTheOverflowNeverUnderCounts(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		var o overflow
		o.init(0)
		type cell struct {
			id         Identity
			sequence   int64
			durationMs int64
		}
		durations := []time.Duration{time.Second, time.Minute, 90 * time.Second, time.Hour, 25 * time.Hour, window.DurationMax}
		ids := make([]Identity, 3000)
		for i := range ids {
			ids[i] = Identity{r.Uint64(), r.Uint64()}
		}
		added := map[cell]int64{}
		nowMs := epochMs
		for range 20_000 {
			d := durations[r.IntN(len(durations))].Milliseconds()
			c := cell{ids[r.IntN(len(ids))], window.Sequence(nowMs, d), d}
			cost := 1 + r.Int64N(100)
			o.add(&c.id, c.sequence, d, cost, clock.Steady(nowMs))
			added[c] += cost
			if r.IntN(50) == 0 {
				nowMs += r.Int64N(durations[r.IntN(3)].Milliseconds())
			}
		}
		for c, want := range added {
			if got := o.count(&c.id, c.sequence, c.durationMs, clock.Steady(nowMs)); got < want && window.ExpiresAt(c.sequence, c.durationMs) > nowMs {
				t.Fatalf("seed %d: %d of %d counted for %+v", seed, got, want, c)
			}
		}
		nowMs += 4 * time.Minute.Milliseconds()
		one := Identity{1, 2}
		if got := o.count(&one, 0, 60_000, clock.Steady(nowMs)); got != 0 {
			t.Errorf("seed %d: %d left of windows that are over", seed, got)
		}
	}
}

const epochMs = int64(1_735_000_080_000)

// The sketch has a fixed size whatever is added, and counts stop at the same bound as merges.
func TestTheOverflowIsBounded(t *testing.T) {
	var o overflow
	o.init(1 << 30)
	one := Identity{3, 4}
	for range 3 {
		o.add(&one, 1, 60_000, mergedMax, clock.Steady(epochMs))
	}
	if got := o.count(&one, 1, 60_000, clock.Steady(epochMs)); got != mergedMax {
		t.Errorf("%d counted, want it to stop at %d", got, int64(mergedMax))
	}
	if got := len(o.spans[0].generations.Load().newer.counts); got != overflowRows*overflowWidthMax {
		t.Errorf("%d places", got)
	}
	if o.spans[1].generations.Load() != nil {
		t.Error("durations that nothing is counted of take memory")
	}
}

// plainSketch is the simplest possible sketch: it would need a single lock, and can't report a cell as absent.
type plainSketch map[[2]int64][]int64 // by span and number of the generation

func (p plainSketch) least(o *overflow, c *overflowCell, at [2]int64) (count int64) {
	counts := p[at]
	if counts == nil {
		return 0
	}
	places := o.places(&c.id, c.sequence)
	count = counts[places[0]]
	for _, place := range places[1:] {
		count = min(count, counts[place])
	}
	return count
}

func (p plainSketch) add(o *overflow, c *overflowCell, span, generation, cost int64) {
	at := [2]int64{span, generation}
	if p[at] == nil {
		p[at] = make([]int64, overflowRows*o.width)
	}
	to := p.least(o, c, at) + cost
	for _, place := range o.places(&c.id, c.sequence) {
		p[at][place] = max(p[at][place], to)
	}
}

type overflowCell struct {
	id                   Identity
	sequence, durationMs int64
}

// Of each cell the overflow has at least the cost that an exact map has, for as long as a decision can depend on it,
// and at most the cost that a plain sketch has of the same adds. It is small here, so that most cells share counters.
func TestTheOverflowIsBetweenAnExactMapAndAPlainSketch(t *testing.T) {
	type cost struct{ amount, at int64 }
	rapid.Check(t, func(t *rapid.T) {
		o := overflow{width: 8}
		plain, exact := plainSketch{}, map[overflowCell][]cost{}
		key := rapid.Custom(func(t *rapid.T) Identity {
			n := rapid.Uint64Range(1, 60).Draw(t, "key")
			return Identity{n * 0x9e3779b97f4a7c15, n * 0xd6e8feb86659fd93}
		})
		durations := rapid.SampledFrom([]int64{1000, 60_000, 90_000, time.Hour.Milliseconds()})
		// A clock set back, and callers who bring their own times, use other cells than the clock's.
		beside := rapid.SampledFrom([]int64{0, 0, 0, 0, -1, 1})
		nowMs := epochMs
		drawn := func() overflowCell {
			d := durations.Draw(t, "duration")
			return overflowCell{key.Draw(t, "id"), window.Sequence(nowMs, d) + beside.Draw(t, "beside"), d}
		}
		numbers := func(c *overflowCell) (span, generation int64) {
			s, generationMs := o.spanOf(c.durationMs)
			for i := range o.spans {
				if &o.spans[i] == s {
					span = int64(i)
				}
			}
			return span, nowMs / generationMs
		}
		check := func(c overflowCell) {
			span, generation := numbers(&c)
			got, least := o.count(&c.id, c.sequence, c.durationMs, clock.Steady(nowMs)), int64(0)
			for _, added := range exact[c] {
				if nowMs-added.at < 2*c.durationMs {
					least += added.amount
				}
			}
			most := plain.least(&o, &c, [2]int64{span, generation}) + plain.least(&o, &c, [2]int64{span, generation - 1})
			if got < least || got > most {
				t.Fatalf("%+v at %d: %d counted of %d added, and %d in a plain sketch", c, nowMs, got, least, most)
			}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			c := drawn()
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				nowMs += rapid.Int64Range(0, 3*time.Minute.Milliseconds()).Draw(t, "later")
			case 1, 2:
				check(c)
			default:
				amount := rapid.Int64Range(1, 100).Draw(t, "amount")
				span, generation := numbers(&c)
				o.add(&c.id, c.sequence, c.durationMs, amount, clock.Steady(nowMs))
				plain.add(&o, &c, span, generation, amount)
				exact[c] = append(exact[c], cost{amount, nowMs})
			}
		}
		for c := range exact {
			check(c)
		}
	})
}

// However many goroutines add to one cell at once, and whichever of them begins a generation: no cost is lost.
func TestTheOverflowLosesNoCostThatIsAddedAtOnce(t *testing.T) {
	const workers, adds = 4, 100
	id := Identity{1 << 40, 1 << 50}
	for round := range int64(100) {
		o := overflow{width: 2}
		var nowMs atomic.Int64
		nowMs.Store(2 * round * time.Minute.Milliseconds()) // the start of a generation
		var running sync.WaitGroup
		begin := make(chan struct{})
		for worker := range workers {
			running.Go(func() {
				<-begin
				for i := range adds {
					o.add(&id, 1, 60_000, 1, clock.Steady(nowMs.Load()))
					if worker == 0 && i == adds/2 {
						nowMs.Add(2 * time.Minute.Milliseconds()) // the next generation
					}
				}
			})
		}
		close(begin)
		running.Wait()
		if got := o.count(&id, 1, 60_000, clock.Steady(nowMs.Load())); got != workers*adds {
			t.Fatalf("round %d: %d counted of %d", round, got, workers*adds)
		}
	}
}

// A cell before or after all added cells has no cost, even if other cells have filled every counter: most keys have
// counted nothing in the window before, and none in the next window.
func TestACellOutsideOfWhatWasAddedHasNoCost(t *testing.T) {
	o := overflow{width: 1}
	id := Identity{1, 2}
	for sequence := int64(10); sequence <= 12; sequence += 2 {
		o.add(&id, sequence, 60_000, 7, clock.Steady(epochMs))
	}
	other := Identity{3, 4}
	for sequence, want := range map[int64]int64{9: 0, 10: 14, 11: 14, 12: 14, 13: 0} {
		if got := o.count(&other, sequence, 60_000, clock.Steady(epochMs)); got != want {
			t.Errorf("cell %d: %d, want %d", sequence, got, want)
		}
	}
}

// A decision on a key that the overflow has counted waits for no other goroutine: neither for an add, nor for the start
// of a generation, nor for a first contact with another key of its part.
func TestAKeyInTheOverflowIsTurnedAwayWithoutALock(t *testing.T) {
	table := NewTable(100, 1000, clock.New(nil), false)
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := table.IdentityOfKey(&key, nil)
	if table.TurnsAway(&id, &key, ledgerSeq) {
		t.Error("a key is turned away of which nothing is in the overflow")
	}
	table.Spill(table.newEntry(&id, &key, nil, false, ledgerSeq), ledgerSeq, 3)
	for i := range table.parts {
		table.parts[i].mu.Lock()
	}
	for i := range table.overflow.stripes {
		table.overflow.stripes[i].Lock()
	}
	for i := range table.overflow.spans {
		table.overflow.spans[i].mu.Lock()
	}
	if allocations := testing.AllocsPerRun(100, func() {
		if !table.TurnsAway(&id, &key, ledgerSeq) {
			t.Error("a key is not turned away of which the overflow has some cost")
		}
	}); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
	if got := table.Full.Load(); got != 101 {
		t.Errorf("%d first contacts without room are counted, want 101", got)
	}
}

// Adds to keys of different stripes do not wait for each other.
func TestAddsToTheOverflowShareALockByStripe(t *testing.T) {
	var o overflow
	o.init(0)
	o.stripes[0].Lock()
	for stripe := range uint64(overflowStripes - 1) {
		id := Identity{(stripe + 1) << 48, 1}
		if o.add(&id, 1, 60_000, 2, clock.Steady(epochMs)); o.count(&id, 1, 60_000, clock.Steady(epochMs)) < 2 {
			t.Errorf("stripe %d: not added", stripe+1)
		}
	}
}
