package memstore

import (
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/anyshard"
	"github.com/weirhq/weir/dataplane/internal/resend"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// OriginOptions are all optional.
type OriginOptions struct {
	// Clock returns the servers' time, for Reply.Now and the expiry of cells; nil means time.Now. Set it in tests of
	// clocks that differ.
	Clock func() time.Time

	// Grace is how long a cell stays after it has expired; 0 means 30 s.
	Grace time.Duration

	// Shards is the number of shards; 0 means 1. Set more to test a node whose shards fail separately.
	Shards int
}

// Origin is a store.FullOrigin in memory: a region's counts, and a way to them. Client makes other ways to the same
// counts, each with its own faults: give each node a way, and the relay.
//
// Tests can make it lose data: Wipe empties it, Rollback puts it back to an earlier state.
type Origin struct {
	// Faults make this way to the counts fail; see there. ShardFaults are for a single shard.
	Faults Faults

	*originServers
	shardFaults []Faults
	stamps      resend.Stamps
	keyless     int // shards with data that belongs to no key, from 0 on
	last        anyshard.Last
	counters    originCounters

	mu      sync.Mutex
	holding bool
	held    []func()
	changes []window.Cell // by shard: the last change that Changes has returned
	known   []store.Epoch // by shard: the epoch of the last answer; 0: none yet
}

var _ store.FullOrigin = (*Origin)(nil)

// originServers is the data that all ways share.
type originServers struct {
	clock func() time.Time
	grace time.Duration

	mu     sync.Mutex
	shards []*originShard
	epochs uint32 // drawn so far
}

// NewOrigin returns an empty Origin.
func NewOrigin(o OriginOptions) *Origin {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	servers := &originServers{clock: o.Clock, grace: o.Grace, shards: make([]*originShard, max(1, o.Shards))}
	for i := range servers.shards {
		servers.shards[i] = newOriginShard()
	}
	return servers.client()
}

// Client returns another way to the same counts, as another process would have.
func (h *Origin) Client() *Origin { return h.client() }

func (s *originServers) client() *Origin {
	return &Origin{originServers: s, keyless: len(s.shards), shardFaults: make([]Faults, len(s.shards)),
		changes: make([]window.Cell, len(s.shards)), known: make([]store.Epoch, len(s.shards))}
}

// ShardFaults returns the faults of this way to a shard, in addition to Faults.
func (h *Origin) ShardFaults(shard int) *Faults { return &h.shardFaults[shard] }

// HoldChunks keeps chunks that are sent from now on from arriving, and their callers from an
// answer, until DeliverChunks.
func (h *Origin) HoldChunks() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holding = true
}

// DeliverChunks lets the chunks that were held arrive, late and in the order in which they were
// sent; their answers are lost.
func (h *Origin) DeliverChunks() {
	h.mu.Lock()
	held := h.held
	h.holding, h.held = false, nil
	h.mu.Unlock()
	for _, arrive := range held {
		arrive()
	}
}

func (h *Origin) hold(arrive func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holding {
		h.held = append(h.held, arrive)
	}
	return h.holding
}

// Shards implements store.Origin.
func (s *originServers) Shards() int { return len(s.shards) }

// ShardOf implements store.Origin.
func (s *originServers) ShardOf(key *window.Key) int { return shardOf(key, len(s.shards)) }

// Wipe empties all shards, as servers do that restart without their data. Each draws a new
// epoch with the next call.
func (s *originServers) Wipe() {
	for i := range s.shards {
		s.WipeShard(i)
	}
}

// WipeShard is Wipe for a single shard.
func (s *originServers) WipeShard(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listeners := s.shards[shard].listeners
	s.shards[shard] = newOriginShard()
	s.shards[shard].listeners = listeners
	s.shards[shard].lostMs = s.clock().UnixMilli()
}

// OriginState is all data of an Origin at a moment.
type OriginState struct{ shards []*originShard }

// State returns the data of a replica that receives no more from now on.
func (s *originServers) State() OriginState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := OriginState{make([]*originShard, len(s.shards))}
	for i, shard := range s.shards {
		state.shards[i] = shard.clone()
	}
	return state
}

// Rollback puts the Origin back to a state, as if a replica was promoted that had not received later writes.
func (s *originServers) Rollback(state OriginState) {
	for i := range state.shards {
		s.RollbackShard(i, state)
	}
}

// RollbackShard is Rollback for a single shard.
func (s *originServers) RollbackShard(shard int, state OriginState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	earlier := state.shards[shard].clone()
	earlier.listeners = s.shards[shard].listeners
	s.shards[shard] = earlier
}

func (s *originShard) clone() *originShard {
	clone := *s
	clone.cells, clone.streams, clone.changed = maps.Clone(s.cells), maps.Clone(s.streams), maps.Clone(s.changed)
	clone.beats = maps.Clone(s.beats)
	clone.holds = s.holds.Clone()
	clone.grants = cloneGrants(s.grants)
	clone.listeners = nil
	return &clone
}

// Totals returns all totals, by cell.
func (s *originServers) Totals() map[window.Cell]store.Total {
	s.mu.Lock()
	defer s.mu.Unlock()
	totals := make(map[window.Cell]store.Total)
	for i := range s.shards {
		epoch := s.epochLocked(i)
		shard, _ := s.shardLocked(i)
		for c, r := range shard.cells {
			if r.forgottenMs > s.clock().UnixMilli() {
				totals[c] = r.total(epoch)
			}
		}
	}
	return totals
}

// epochLocked draws the shard's epoch if it has none.
func (s *originServers) epochLocked(shard int) store.Epoch {
	at := s.shards[shard]
	for at.epoch == 0 {
		s.epochs++
		at.epoch = store.Epoch(uint64(s.epochs) * 0x9e3779b97f4a7c15 >> 32) // repeatable, and never the same twice
	}
	return at.epoch
}
