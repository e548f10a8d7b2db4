package dataplane

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/epochs"
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
	writes *breaker.Writes  // whether it takes what is sent to it

	twice     chan struct{} // of calls about reservations and leases: a caller may make many at once
	replaying chan struct{} // holds one while a step of replay runs, I/O and all: no mutex
	queue     []*cell.Entry // to be sent at the next tick, each once; under Limiter.queues
	replays   stream        // of replay; its own
	syncs     syncQueue     // of the estimate mode
	guests    guestStream
	claims    claimStream

	epochs  epochs.Epochs
	offsets clock.Offsets

	replayedAtMs atomic.Int64 // when all of it was last confirmed

	wake chan struct{} // something is kicked

	mu        sync.Mutex                   // of what follows; nothing else is locked under it
	kicked    []*cell.Entry                // to be sent at once, each once: see flagKicked
	awaited   map[*cell.Entry]*cell.Flight // closed when the reply to a kick is merged
	claimants []*cell.Claim                // that no call has taken yet
	claiming  bool                         // somebody sees to the calls
	gathered  []*gathered                  // reads of guests
	gathering bool                         // somebody sees to their calls
}

func newShards(origin store.Origin, cfg Breaker, refusing *atomic.Int64) []*shard {
	if origin == nil {
		return nil
	}
	shards := make([]*shard, origin.Shards())
	for i := range shards {
		shards[i] = &shard{index: i, label: strconv.Itoa(i), asks: breaker.New(breaker.Config(cfg)),
			sends: breaker.New(breaker.Config(cfg)), writes: breaker.NewWrites(refusing),
			twice: make(chan struct{}, twiceMax()), replaying: make(chan struct{}, 1), wake: make(chan struct{}, 1),
			awaited: make(map[*cell.Entry]*cell.Flight)}
		shards[i].replays.init(shards[i].sends)
		shards[i].syncs.stream.init(shards[i].sends)
		shards[i].guests.init(shards[i].asks)
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
func (l *Limiter) replayedAtMs() (ms int64) {
	for i, sh := range l.shards {
		if at := sh.replayedAtMs.Load(); i == 0 || at < ms {
			ms = at
		}
	}
	return ms
}

// kick puts an entry among those to be sent at once, and wakes who sends them.
func (sh *shard) kick(e *cell.Entry) {
	sh.mu.Lock()
	sh.kicked = append(sh.kicked, e)
	sh.mu.Unlock()
	sh.rouse()
}

func (sh *shard) rouse() {
	select {
	case sh.wake <- struct{}{}:
	default:
	}
}

// takeKicked takes at most n of the kicked entries, the first ones.
func (sh *shard) takeKicked(n int) []*cell.Entry {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n = min(n, len(sh.kicked))
	taken := sh.kicked[:n:n]
	if sh.kicked = sh.kicked[n:]; len(sh.kicked) == 0 {
		sh.kicked = nil
	}
	return taken
}

// await returns what is closed when the reply to the next send of e is merged, or when
// there will be none.
func (sh *shard) await(e *cell.Entry) *cell.Flight {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	f := sh.awaited[e]
	if f == nil {
		f = cell.NewFlight(nil)
		sh.awaited[e] = f
	}
	return f
}

// answer tells those who wait for kicked entries; err of an entry in failed.
func (sh *shard) answer(kicked, failed []*cell.Entry, err error) {
	if len(kicked) == 0 {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, e := range kicked {
		if f := sh.awaited[e]; f != nil {
			delete(sh.awaited, e)
			if slices.Contains(failed, e) {
				f.Err = err
			}
			close(f.Done)
		}
	}
}

// enter lets a claimant wait; lead is true for the one who has to see to the calls.
func (sh *shard) enter(c *cell.Claim) (lead bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.claimants = append(sh.claimants, c)
	lead = !sh.claiming
	sh.claiming = true
	return lead
}

// leadClaims is true for the one who has to see to the calls, until takeClaims finds nothing.
func (sh *shard) leadClaims() (lead bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	lead = !sh.claiming
	sh.claiming = true
	return lead
}

// yieldClaims ends the lead unless a claimant waits.
func (sh *shard) yieldClaims() (ended bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.claiming = len(sh.claimants) > 0
	return !sh.claiming
}

// leave takes back a claimant that no call has taken yet.
func (sh *shard) leave(c *cell.Claim) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if i := slices.Index(sh.claimants, c); i >= 0 {
		sh.claimants = slices.Delete(sh.claimants, i, i+1)
	}
}

// takeClaims takes all who wait; none ends the lead.
func (sh *shard) takeClaims() []*cell.Claim {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	taken := sh.claimants
	sh.claimants = nil
	sh.claiming = len(taken) > 0
	return taken
}

func (sh *shard) putBackClaims(later []*cell.Claim) {
	if len(later) == 0 {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.claimants = append(later, sh.claimants...)
}

// abandon sends all who wait away: the limiter is stopped.
func (sh *shard) abandon() {
	for _, c := range sh.takeClaims() {
		c.Finish(cell.WayBroken)
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.claiming = false
}
