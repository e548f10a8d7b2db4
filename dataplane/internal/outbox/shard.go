package outbox

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/epochs"
	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var errShortAnswer = errors.New("origin: fewer answers than cells")

// ErrBusy is returned by Shard.CallTwice if as many calls are under way as may be, and none of them made room in time.
var ErrBusy = errors.New("dataplane: too many calls about reservations and leases are under way")

// Shard exchanges counts with a shard of the origin.
type Shard struct {
	out   *Outbox
	index int
	label string // of metrics

	// A breaker for each kind of call: an origin that is too slow for decisions can still
	// receive the cost that they accept.
	asks   *breaker.Breaker // reads and claims, which decisions wait for, under Config.ReadTimeout
	sends  *breaker.Breaker // for calls of the loops, under sendTimeout
	writes *breaker.Writes  // whether the shard refuses writes

	replay    replay
	syncs     syncs
	untracked untracked
	claims    claims
	reads     reads

	epochs  epochs.Epochs
	offsets clock.Offsets // of its clock, by this node's own clock
	steps   clock.Offsets // of its clock, by monotonic time

	// the latest time that its clock showed before it was set back, in Unix ms; 0: not set back since ForgetCells
	wasAheadMs atomic.Int64

	turns   *fair.Turns  // of CallTwice: a caller may make many calls at once
	answers atomic.Int64 // to calls of CallTwice
}

func newShard(o *Outbox, index int) *Shard {
	sh := &Shard{out: o, index: index, label: strconv.Itoa(index), asks: breaker.New(o.cfg.Breaker),
		sends: breaker.New(o.cfg.Breaker), writes: breaker.NewWrites(&o.refusing), turns: fair.NewTurns(twiceMax())}
	sh.replay.init(sh)
	sh.syncs.init(sh)
	sh.untracked.init(sh)
	sh.claims.init(sh)
	sh.reads.sh = sh
	return sh
}

// Label returns the shard's number in the origin's order, as metrics and logs have it.
func (sh *Shard) Label() string { return sh.label }

// States returns the states of the breakers for calls that decisions wait for, and for sends.
func (sh *Shard) States() (asks, sends string) {
	return sh.asks.State().String(), sh.sends.State().String()
}

// ReplayStream returns the number of the stream that carries accepted cost.
func (sh *Shard) ReplayStream() uint64 { return sh.replay.id }

// WaitingReads returns how many reads wait for a call.
func (sh *Shard) WaitingReads() int { return sh.reads.Len() }

// WaitingClaims returns how many costs wait for the next call that claims.
func (sh *Shard) WaitingClaims() int { return sh.claims.Len() }

// WaitingSyncs returns how many keys wait for a sync.
func (sh *Shard) WaitingSyncs() int { return sh.syncs.size() }

// TurnBreakersOff lets every call through from now on.
func (sh *Shard) TurnBreakersOff() {
	sh.asks.TurnOff()
	sh.sends.TurnOff()
}

// Listen applies the foreign totals that the shard announces, until ctx ends or the connection is
// lost.
func (sh *Shard) Listen(ctx context.Context) error {
	return sh.out.cfg.Origin.Listen(ctx, sh.index, sh.out.ApplyForeign)
}

// asking is a call that has begun.
type asking struct {
	number uint64
	at     time.Time // by the clock's own reading
	began  time.Time
}

// ask begins a call. Its answer must go through answered.
func (sh *Shard) ask() asking {
	return asking{sh.epochs.Begin(), sh.out.cfg.Clock.Own(), time.Now()}
}

// answered takes the epochs and the time from an answer. costs are the costs that the call sent. Callers must call it
// for every answer, before they merge the answer.
func (sh *Shard) answered(call asking, reply *store.Reply, costs ...store.Cost) {
	sh.epochs.Forget(call.number, reply.Totals, costs)
	sh.epochs.Answered(reply.Totals)
	sh.observeTime(call.at, reply.Now)
	sh.observeSetBack(call.began, reply.Now)
}

// wrote records the result of a write.
func (sh *Shard) wrote(err error) {
	o := sh.out
	lasts := time.Duration(o.cfg.Rules.InForce().TwoTicksMs)*time.Millisecond + sendTimeout
	sh.writes.Note(err, int64(o.cfg.Clock.ReadSteady()), lasts)
}

// get reads cells of the shard. It passes the result to end, which the breaker returned.
func (sh *Shard) get(ctx context.Context, cells []window.Cell, end func(error)) ([]store.Total, error) {
	o, call := sh.out, sh.ask()
	reply, err := o.cfg.Origin.Read(ctx, cells)
	if err == nil && len(reply.Totals) != len(cells) {
		err = errShortAnswer
	}
	end(err)
	o.Stats.Origin.Called(collect.OpRead, len(cells), time.Since(call.began), err)
	if err != nil {
		return nil, err
	}
	sh.answered(call, &reply)
	if reply.Now.IsZero() {
		o.cfg.Clock.FollowNone()
	}
	return reply.Totals, nil
}

// twiceMax returns how many calls of CallTwice may be under way: half of go-redis' default number of connections. The
// other half is for decisions and replay.
func twiceMax() int { return 5 * runtime.GOMAXPROCS(0) }

// CallTwice makes a call that is safe to repeat, and repeats it once if it fails, because one lost reply is no outage.
// Each try takes at most within. A try that has begun goes on after ctx ends. At most twiceMax calls are under way.
// Waiting calls take turns by the callers in their contexts.
//
// If the call could not begin within that time, or by ctx's deadline, the error is ErrBusy if other calls were answered
// meanwhile. If none was, the origin hangs, and the error is context.DeadlineExceeded. Other errors come from the
// context, the breaker or the call.
func (sh *Shard) CallTwice(ctx context.Context, op collect.Op, items int, within time.Duration,
	call func(context.Context) (store.Reply, error)) (err error) {
	answers := sh.Answers()
	wait, cancel := context.WithTimeout(ctx, within)
	err = sh.turns.Begin(wait, fair.In(ctx))
	cancel()
	if err != nil {
		return sh.NotBegun(err, answers)
	}
	defer sh.turns.End()
	for range 2 {
		if ctx.Err() != nil {
			return cmp.Or(err, ctx.Err())
		}
		end, ok := sh.asks.Begin()
		if !ok {
			return cmp.Or(err, breaker.ErrOpen)
		}
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
		asking := sh.ask()
		var reply store.Reply
		reply, err = call(try)
		cancel()
		end(err)
		sh.out.Stats.Origin.Called(op, items, time.Since(asking.began), err)
		if err == nil {
			sh.answers.Add(1)
			sh.answered(asking, &reply)
			return nil
		}
	}
	return err
}

// Answers returns how many calls of CallTwice were answered.
func (sh *Shard) Answers() int64 { return sh.answers.Load() }

// NotBegun returns the error of a call that could not begin in time, because err ended its wait. answers is the result
// of Answers when the wait began.
func (sh *Shard) NotBegun(err error, answers int64) error {
	if errors.Is(err, context.DeadlineExceeded) && sh.Answers() > answers {
		return ErrBusy
	}
	return err
}

// CountedIn records the epochs of totals that came with a call of CallTwice, of these cells.
func (sh *Shard) CountedIn(totals []store.Total, cell func(i int) *window.Cell) {
	sh.epochs.CountedIn(totals, cell)
}

// Absorb merges a total that came with a call of CallTwice.
func (sh *Shard) Absorb(e *cell.Entry, sequence int64, total *store.Total) {
	lost := e.Ledger().Absorb(&sh.out.Stats.Merged, sequence, total, sh.out.cfg.Clock.ReadSteady())
	sh.lostAll([]store.Epoch{lost}, []store.Total{*total}, func(int) *cell.Entry { return e })
}
