package dataplane

import (
	"strconv"
	"sync"
	"sync/atomic"
)

// shard is what the limiter keeps for one of the origin's shards, so that one that is
// slow or dead delays nobody else's keys: what is to be sent there, one step of
// replay at a time, and a breaker.
type shard struct {
	index   int
	label   string // of metrics
	breaker *breaker

	replaying sync.Mutex // one step of replay at a time
	queue     []*entry   // to be sent at the next tick, each once; under Limiter.queues
	syncs     syncSet    // of the estimate mode

	replayedAtMs atomic.Int64 // when all of it was last confirmed
}

func newShards(origin Origin, cfg Breaker) []*shard {
	if origin == nil {
		return nil
	}
	shards := make([]*shard, origin.Shards())
	for i := range shards {
		shards[i] = &shard{index: i, label: strconv.Itoa(i), breaker: newBreaker(cfg)}
	}
	return shards
}

// shardOf is the shard of an entry's key. It is asked when an entry is queued or
// about to be read, never for a decision from memory, so no entry carries it.
func (l *Limiter) shardOf(e *entry) *shard {
	if len(l.shards) == 1 {
		return l.shards[0]
	}
	key := e.names.key()
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
func (l *Limiter) replayedAtMs() (ms int64) {
	for i, sh := range l.shards {
		if at := sh.replayedAtMs.Load(); i == 0 || at < ms {
			ms = at
		}
	}
	return ms
}
