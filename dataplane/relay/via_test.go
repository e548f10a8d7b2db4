package relay_test

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
)

var (
	errDown = errors.New("the store cannot be reached")
	errLost = errors.New("the reply was lost")
)

// fate is the outcome of a call.
type fate int

const (
	arrives fate = iota
	fails        // it never leaves
	loses        // it is applied, and its reply is lost
	isLate       // the caller gives up, and it is applied at some later time
)

// via is a relay's connection to its stores. The relay is a coroutine: it stops before and after each of its calls,
// until the test resumes it.
type via struct {
	fate  func() fate // of the next call; nil means arrives
	pause func()      // called before and after each call, if not nil
	late  []func()    // calls that are still on their way
	dead  bool
}

func (v *via) call(apply func() error) error {
	if v.pause != nil {
		v.pause()
	}
	if v.dead {
		return errDown
	}
	f := arrives
	if v.fate != nil {
		f = v.fate()
	}
	switch f {
	case fails:
		return errDown
	case loses:
		_ = apply()
		return errLost
	case isLate:
		v.late = append(v.late, func() { _ = apply() })
		return errLost
	}
	err := apply()
	if v.pause != nil {
		v.pause()
	}
	if v.dead {
		return errDown
	}
	return err
}

// deliver applies the i-th of the late calls.
func (v *via) deliver(i int) {
	apply := v.late[i]
	v.late = append(v.late[:i:i], v.late[i+1:]...)
	apply()
}

// viaOrigin is an origin behind a via. If it is leaseless, it grants its lease to every relay.
type viaOrigin struct {
	store.FullOrigin
	*via
	leaseless bool
}

func (h viaOrigin) Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (lease store.Lease, err error) {
	if h.leaseless {
		return store.Lease{Holder: holder, Left: ttl}, nil
	}
	err = h.call(func() (err error) { lease, err = h.FullOrigin.Lease(ctx, shard, holder, ttl); return err })
	return lease, err
}

func (h viaOrigin) Changes(ctx context.Context, shard, max int) (changes store.Changes, err error) {
	err = h.call(func() (err error) { changes, err = h.FullOrigin.Changes(ctx, shard, max); return err })
	return changes, err
}

func (h viaOrigin) Ack(ctx context.Context, shard int, cells []store.Change) error {
	return h.call(func() error { return h.FullOrigin.Ack(ctx, shard, cells) })
}

func (h viaOrigin) Scan(ctx context.Context, shard int, cursor uint64, max int) (cells []store.Change, next uint64, err error) {
	err = h.call(func() (err error) { cells, next, err = h.FullOrigin.Scan(ctx, shard, cursor, max); return err })
	return cells, next, err
}

func (h viaOrigin) Apply(ctx context.Context, shard int, totals []store.Foreign) (raised int, err error) {
	err = h.call(func() (err error) { raised, err = h.FullOrigin.Apply(ctx, shard, totals); return err })
	return raised, err
}

func (h viaOrigin) Raise(ctx context.Context, shard int, epoch store.Epoch, totals []store.Change) error {
	return h.call(func() error { return h.FullOrigin.Raise(ctx, shard, epoch, totals) })
}

func (h viaOrigin) Healed(ctx context.Context, shard int, epoch store.Epoch) error {
	return h.call(func() error { return h.FullOrigin.Healed(ctx, shard, epoch) })
}

type viaFeed struct {
	store.Feed
	*via
}

func (n viaFeed) Append(ctx context.Context, row store.FeedRow) error {
	return n.call(func() error { return n.Feed.Append(ctx, row) })
}

func (n viaFeed) Read(ctx context.Context, q store.FeedQuery) (page store.FeedPage, err error) {
	err = n.call(func() (err error) { page, err = n.Feed.Read(ctx, q); return err })
	return page, err
}

func (n viaFeed) Own(ctx context.Context, stream store.Stream, yield func(store.FeedRow)) error {
	return n.call(func() error { return n.Feed.Own(ctx, stream, yield) })
}

func (n viaFeed) Prune(ctx context.Context, stream store.Stream, sequence int64, max int) (deleted int, err error) {
	err = n.call(func() (err error) { deleted, err = n.Feed.Prune(ctx, stream, sequence, max); return err })
	return deleted, err
}

type viaCounts struct {
	store.CountStore
	*via
}

func (c viaCounts) Publish(ctx context.Context, region string, counts []store.Count) error {
	return c.call(func() error { return c.CountStore.Publish(ctx, region, counts) })
}

func (c viaCounts) Import(ctx context.Context, nowMs int64, yield func(string, store.Count)) error {
	return c.call(func() error { return c.CountStore.Import(ctx, nowMs, yield) })
}

// stepper is a relay that a test moves from call to call.
type stepper struct {
	*via
	relay *relay.Relay
	next  func() (done bool, ok bool) // runs to the next call, or to the end of a step
	kill  func()                      // like kill -9
}

// stepped makes a relay of the region that stops at each of its calls.
func (r *region) stepped(holder string, leaseless bool) *stepper {
	v := &via{}
	s := &stepper{via: v}
	s.relay = r.relayOver(holder, viaOrigin{r.origin.Client(), v, leaseless}, viaFeed{r.feed, v}, viaCounts{r.counts, v})
	next, stop := iter.Pull(func(yield func(done bool) bool) {
		v.pause = func() { v.dead = v.dead || !yield(false) }
		for !v.dead {
			_ = s.relay.Step(context.Background())
			v.dead = v.dead || !yield(true)
		}
	})
	s.next, s.kill = next, func() { v.dead = true; stop() }
	r.Cleanup(s.kill)
	return s
}

// finish runs to the end of a step.
func (s *stepper) finish() {
	for done := false; !done; {
		done, _ = s.next()
		if s.dead {
			return
		}
	}
}
