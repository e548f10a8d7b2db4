package memstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
)

// Op names a method of a store, for Faults and in errors.
type Op string

// The methods of Counts, of Feed and of Origin.
const (
	OpPublish   Op = "publish"
	OpImport    Op = "import"
	OpSettings  Op = "settings"
	OpHeartbeat Op = "heartbeat"

	OpAppend   Op = "append change"
	OpReadFeed Op = "read feed"
	OpOwn      Op = "read own feed"
	OpPrune    Op = "prune feed"

	OpRead    Op = "read"
	OpSend    Op = "send"
	OpClaim   Op = "claim" // a Send of a chunk with bounded costs
	OpHold    Op = "hold"
	OpGrants  Op = "grants"
	OpListen  Op = "listen" // a message to a listener; an error is a connection that is lost
	OpLease   Op = "lease"
	OpRelease Op = "release"
	OpChanges Op = "changes"
	OpAck     Op = "ack"
	OpScan    Op = "scan"
	OpApply   Op = "apply"
	OpRaise   Op = "raise"
	OpHealed  Op = "healed"

	OpStoreSettings Op = "store settings"
	OpHeartbeats    Op = "beats"
	OpStored        Op = "stored"
)

// Faults are the failures of a store. The zero value has none. Every setting holds until it is set again, for calls
// that begin after it was set. For example, Faults.Fail makes a store look down, and Faults.LoseReplies loses the
// answers of applied calls.
//
// A call has five steps:
//
//  1. It leaves. Here Hook and Fail can keep it from arriving.
//  2. It travels for half of Delay.
//  3. It is applied.
//  4. It travels back for the other half.
//  5. It returns. Here LoseReplies can drop the reply.
//
// A caller whose ctx ends while its call travels gets ctx's error, but a chunk that has left is applied all the same,
// as over a network.
type Faults struct {
	mu      sync.Mutex
	hook    func(Op) error
	err     error
	refused map[Op]error
	way     journey // faults of a call that has left
}

// Hook calls f at the beginning of every call; if f returns an error, the call fails before anything is applied. f can
// also change other faults, or count. nil removes it.
func (f *Faults) Hook(hook func(Op) error) { f.set(func() { f.hook = hook }) }

// Fail makes every call fail with err before anything is applied, as if the store were down. Fail(nil) brings it back.
func (f *Faults) Fail(err error) { f.set(func() { f.err = err }) }

// Refuse makes every call of the given kinds fail with err before it changes anything, and lets all
// other calls succeed. Use it for a server that answers reads and refuses writes, for example
// because its memory is full or it has become a replica. Calls that were refused before stay
// refused. Refuse(nil, ops...) ends that for the given kinds, and Refuse(nil) for all.
func (f *Faults) Refuse(err error, ops ...Op) {
	f.set(func() {
		if f.refused == nil || err == nil && len(ops) == 0 {
			f.refused = make(map[Op]error)
		}
		for _, op := range ops {
			f.refused[op] = err
		}
	})
}

// OriginWrites returns the kinds of calls with which nodes write to an Origin. A Redis refuses them
// if it is full, read-only or short of replicas.
func OriginWrites() []Op {
	return []Op{OpSend, OpClaim, OpHold, OpGrants, OpHeartbeat}
}

// Delay makes every call take d, or as long as its ctx lets it.
func (f *Faults) Delay(d time.Duration) { f.set(func() { f.way.delay = d }) }

// LoseReplies makes every call fail after it was applied.
func (f *Faults) LoseReplies(lose bool) { f.set(func() { f.way.loseReplies = lose }) }

// RefuseRow makes Publish refuse, with store.ErrRefused, every chunk that holds a
// row for which refuse is true. It has no meaning for an Origin.
func (f *Faults) RefuseRow(refuse func(store.Count) bool) { f.set(func() { f.way.refuse = refuse }) }

// SlowCommits makes the rows of a Publish visible only after a delay, which is called for each Publish. nil removes it.
// An Append of Feed holds its number back as long. It has no meaning for an Origin.
func (f *Faults) SlowCommits(delay func() time.Duration) { f.set(func() { f.way.slowCommits = delay }) }

func (f *Faults) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// journey is a call on its way. Its end has three parts, because the meaning of an error for a chunk depends on where
// it occurred.
type journey struct {
	op          Op
	delay       time.Duration
	loseReplies bool
	refuse      func(store.Count) bool
	slowCommits func() time.Duration
}

// commit returns how long the next statement takes to become visible.
func (j journey) commit() time.Duration {
	if j.slowCommits == nil {
		return 0
	}
	return j.slowCommits()
}

// depart returns an error if the call never leaves.
func (f *Faults) depart(ctx context.Context, op Op) (journey, error) {
	if err := ctx.Err(); err != nil {
		return journey{}, opError(op, err)
	}
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	if hook != nil { // unlocked: it may set faults
		if err := hook(op); err != nil {
			return journey{}, opError(op, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return journey{}, opError(op, f.err)
	}
	if err := f.refused[op]; err != nil {
		return journey{}, opError(op, err)
	}
	j := f.way
	j.op = op
	return j, nil
}

// travel waits for the way there. After an error the caller is gone, but the call goes on.
func (j journey) travel(ctx context.Context) error { return j.wait(ctx, j.delay/2) }

// comeBack waits for the way back.
func (j journey) comeBack(ctx context.Context) error {
	if err := j.wait(ctx, j.delay-j.delay/2); err != nil {
		return err
	}
	if j.loseReplies {
		return opError(j.op, errReplyLost)
	}
	return nil
}

func (j journey) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if err := loop.Pause(ctx, d); err != nil {
		return opError(j.op, err)
	}
	return nil
}

// roundTrip is a whole journey of a call that applies nothing but reads on arrival, or that can be repeated.
func (f *Faults) roundTrip(ctx context.Context, op Op, apply func(journey) error) error {
	j, err := f.depart(ctx, op)
	if err != nil {
		return err
	}
	return j.roundTrip(ctx, apply)
}

func (j journey) roundTrip(ctx context.Context, apply func(journey) error) error {
	if err := j.travel(ctx); err != nil {
		return err
	}
	if err := apply(j); err != nil {
		return opError(j.op, err)
	}
	return j.comeBack(ctx)
}

func opError(op Op, err error) error { return fmt.Errorf("memstore: %s: %w", op, err) }

var errReplyLost = errors.New("the reply was lost")
