package dataplane_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

// A reservation must never be seen by replay or flush, in no interleaving, because a
// maximum-merge makes each over-publication permanent. Nor may a publisher miss what was
// accepted before it looked. Two seconds of it by default, and under the race detector;
// 10^8 reads with WEIR_LONG=1, as make test sets it, and 10^9 with WEIR_SOAK=1.
func TestSoakPublishersReadExactlyWhatWasAccepted(t *testing.T) {
	w := newWorld(t)
	w.tune(func(set *tuning.Tuning) { set.Floor, set.Step = 0, 0 }) // every growth is published
	a := &audit{acceptEvery: 16}
	n := w.node("eu", "a", func(c *dataplane.Config) {
		c.Origin, c.Counts = &overheardOrigin{Origin: w.origin("eu"), audit: a}, &overheardCounts{w.counts, a}
	})
	n.take("k", 0, heldLimit) // hydrated: what follows is all this node's own
	cell, ctx := w.cell("k"), context.Background()
	a.take = func() { n.Allow(ctx, ask("k", 1, heldLimit)) }
	a.takeTwo = func() {
		n.AllowMany(ctx, []dataplane.Request{ask("k", 1, heldLimit), ask("other", 0, heldLimit), ask("k", 1, heldLimit)})
	}
	a.hold = func() (keep, undo func()) {
		h := n.HoldOne(ask("k", heldCost, heldLimit))
		return h.Keep, h.Undo
	}
	a.read = func() int64 { return n.Accepted(cell) }
	a.publish = func() {
		_ = n.ReplayOnce(ctx)
		_ = n.FlushOnce(ctx)
	}
	switch deadline := time.Now().Add(2 * time.Second); {
	case os.Getenv("WEIR_SOAK") != "":
		a.enough = func() bool { return a.reads.Load() >= 1_000_000_000 }
	case os.Getenv("WEIR_LONG") != "" && !raced:
		a.enough = func() bool { return a.reads.Load() >= 100_000_000 }
	default:
		a.enough = func() bool { return time.Now().After(deadline) }
	}
	a.run()
	t.Logf("%d reads, and %d by the publishers themselves", a.reads.Load(), a.published.Load())
	if a.tooMuch.Load() != nil || a.tooLittle.Load() != nil {
		t.Errorf("too much: %v, too little: %v", a.tooMuch.Load(), a.tooLittle.Load())
	}
	n.replay()
	n.flush()
	accepted := a.finished.Load()
	if total, row := w.origin("eu").Totals()[cell], w.published("eu", cell); total != accepted || row != accepted {
		t.Errorf("the origin has %d and the count store %d of %d accepted", total, row, accepted)
	}
	if a.reads.Load() < 10_000 || a.published.Load() < 10 {
		t.Error("hardly anything was read")
	}
}

// The audit finds out what it is there for: a limiter that counts reservations apart, and
// a publisher that reads the two fields one after the other.
func TestReadingCountAndReservedApartOverPublishes(t *testing.T) {
	var count, reserved atomic.Int64
	deadline := time.Now().Add(20 * time.Second)
	a := &audit{
		acceptEvery: 1 << 20, // rarely, so that little is in doubt while the reader pauses
		take:        func() { count.Add(1) },
		takeTwo:     func() { count.Add(2) },
		hold: func() (keep, undo func()) {
			reserved.Add(heldCost)
			count.Add(heldCost)
			keep = func() { reserved.Add(-heldCost) }
			return keep, func() {
				count.Add(-heldCost)
				reserved.Add(-heldCost)
			}
		},
		read: func() int64 {
			now := count.Load()
			runtime.Gosched() // as any goroutine may at any moment
			return now - reserved.Load()
		},
		publish: runtime.Gosched,
		enough:  func() bool { return time.Now().After(deadline) },
	}
	a.run()
	if a.tooMuch.Load() == nil {
		t.Fatalf("not found out in %d reads", a.reads.Load())
	}
	t.Logf("after %d reads: %v", a.reads.Load(), a.tooMuch.Load())
}

const (
	heldLimit = 1 << 50
	heldCost  = 1000 // more than all that is in doubt at one moment, but for what is being kept
)

// audit holds the readers of a count to what its writers are sure of. Cost is begun
// before it is accepted, and finished after; a reader must find no less than was
// finished before it looked, and no more than was begun when it had.
type audit struct {
	take, takeTwo func()                     // accepts 1, and 2
	hold          func() (keep, undo func()) // reserves heldCost
	read          func() int64
	publish       func()
	acceptEvery   int // one in so many reservations is kept, and singles and batches come beside it
	enough        func() bool

	begun, finished    atomic.Int64
	reads, published   atomic.Int64
	tooMuch, tooLittle atomic.Pointer[misread]
}

type misread struct{ least, got, most int64 }

func (m *misread) String() string {
	if m == nil {
		return "never"
	}
	return fmt.Sprintf("read %d where %d to %d were accepted", m.got, m.least, m.most)
}

func (a *audit) run() {
	var stop atomic.Bool
	steps := []func(i int){
		func(i int) {
			keep, undo := a.hold()
			if i%a.acceptEvery != 0 {
				undo()
				return
			}
			a.accept(heldCost, keep)
			a.accept(1, a.take)
			a.accept(2, a.takeTwo)
		},
		func(int) {
			_, undo := a.hold()
			undo()
		},
		func(int) { a.publish() },
		func(i int) {
			least := a.finished.Load()
			a.check(least, a.read())
			a.reads.Add(1)
			if a.tooMuch.Load() != nil || i%1024 == 0 && a.enough() {
				stop.Store(true)
			}
		},
	}
	together(len(steps), func(s int) {
		for i := 0; !stop.Load(); i++ {
			steps[s](i)
		}
	})
}

func (a *audit) accept(cost int64, how func()) {
	a.begun.Add(cost)
	how()
	a.finished.Add(cost)
}

func (a *audit) check(least, got int64) {
	most := a.begun.Load()
	if got > most {
		a.tooMuch.CompareAndSwap(nil, &misread{least, got, most})
	} else if got < least {
		a.tooLittle.CompareAndSwap(nil, &misread{least, got, most})
	}
}

// overhear checks what a publisher has read some time ago.
func (a *audit) overhear(got int64) {
	a.published.Add(1)
	a.check(0, got)
}

type overheardOrigin struct {
	*memstore.Origin
	audit *audit
	sent  int64
}

func (o *overheardOrigin) Add(ctx context.Context, adds []store.Add) []store.Added {
	for _, add := range adds {
		o.sent += add.Cost
		o.audit.overhear(o.sent)
	}
	return o.Origin.Add(ctx, adds)
}

type overheardCounts struct {
	*memstore.Counts
	audit *audit
}

func (c *overheardCounts) Publish(ctx context.Context, region string, counts []store.Count) error {
	for _, row := range counts {
		c.audit.overhear(row.Count)
	}
	return c.Counts.Publish(ctx, region, counts)
}
