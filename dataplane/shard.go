package dataplane

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/epochs"
	"github.com/weirhq/weir/dataplane/internal/queue"
	"github.com/weirhq/weir/dataplane/store"
)

// shard is what the limiter keeps for one of the origin's shards, so that one that is
// slow or dead delays no other shard's keys: what is to be sent there, one step of
// replay at a time, and breakers.
type shard struct {
	index int
	label string // of metrics

	// An origin that answers later than decisions may wait can still take what they
	// have accepted: a breaker for each kind of call.
	asks   *breaker.Breaker // reads and claims, which decisions wait for, under Config.ReadTimeout
	sends  *breaker.Breaker // what the loops send, under replayTimeout
	writes *breaker.Writes  // whether the shard refuses writes

	twice     chan struct{} // of calls about reservations and leases: a caller may make many at once
	replaying chan struct{} // holds one while a step of replay runs, I/O and all: no mutex
	queue     []*cell.Entry // to be sent at the next tick, each once; under Limiter.queues
	replays   stream        // of replay; its own
	syncs     syncQueue     // of the estimate mode
	untracked untrackedStream
	claims    claimStream

	epochs  epochs.Epochs
	offsets clock.Offsets

	replayedAt atomic.Int64 // clock.Steady when the origin last confirmed all cost in queue; 0: never

	flushes   *queue.Flushes // entries to send before the next tick
	claimants queue.Claims
	reads     queue.Reads

	mu sync.Mutex // guards untracked keys; no other lock is taken under it
}

func newShards(origin store.Origin, cfg Breaker, refusing *atomic.Int64) []*shard {
	if origin == nil {
		return nil
	}
	shards := make([]*shard, origin.Shards())
	for i := range shards {
		shards[i] = &shard{index: i, label: strconv.Itoa(i), asks: breaker.New(breaker.Config(cfg)),
			sends: breaker.New(breaker.Config(cfg)), writes: breaker.NewWrites(refusing),
			twice: make(chan struct{}, twiceMax()), replaying: make(chan struct{}, 1), flushes: queue.NewFlushes()}
		shards[i].replays.init(shards[i].sends)
		shards[i].syncs.stream.init(shards[i].sends)
		shards[i].untracked.init(shards[i].asks)
		shards[i].claims.init(shards[i].asks)
	}
	return shards
}

// begin waits for the step of replay that runs, if one does; end lets the next one run.
func (sh *shard) begin() { sh.replaying <- struct{}{} }
func (sh *shard) end()   { <-sh.replaying }

// shardOf is the shard of an entry's key. It is asked when an entry is queued or
// about to be read, never for a decision from memory, so no entry carries it.
func (l *Limiter) shardOf(e *cell.Entry) *shard {
	if len(l.shards) == 1 {
		return l.shards[0]
	}
	key := e.Names().Key()
	return l.shards[l.cfg.Origin.ShardOf(&key)]
}

// eachShard runs f for all shards at the same time.
func (l *Limiter) eachShard(f func(*shard)) {
	if len(l.shards) == 1 {
		f(l.shards[0])
		return
	}
	var running sync.WaitGroup
	for _, sh := range l.shards {
		running.Go(func() { f(sh) })
	}
	running.Wait()
}

// replayedAtMs is when everything pending was last confirmed, by all shards.
func (l *Limiter) replayedAtMs() int64 {
	var first int64
	for i, sh := range l.shards {
		if at := sh.replayedAt.Load(); i == 0 || at < first {
			first = at
		}
	}
	return l.wallMs(first)
}
