package memstore

import (
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/resend"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// HubOptions are all optional.
type HubOptions struct {
	// Clock is the servers': Reply.Now, and when cells expire; nil is time.Now.
	Clock func() time.Time

	// Grace is how long a cell stays after it has expired, 30 s unless set.
	Grace time.Duration

	// Shards is how many there are, 1 unless set.
	Shards int
}

// Hub is a store.RelayHub in memory: one region's counts, and a way to them. Client makes
// other ways to the same counts, each with faults of its own: give each node one, and the relay.
//
// It loses what it is told to: Wipe empties it, Rollback puts it back to an earlier state.
type Hub struct {
	// Faults make this way to the counts fail; see there. ShardFaults are for one shard alone.
	Faults Faults

	*hubServers
	shardFaults []Faults
	streams     resend.Streams
	counters    hubCounters

	mu      sync.Mutex
	holding bool
	held    []func()
}

var _ store.RelayHub = (*Hub)(nil)

// hubServers is what all ways lead to.
type hubServers struct {
	clock func() time.Time
	grace time.Duration

	mu     sync.Mutex
	shards []*hubShard
	epochs uint32 // drawn so far
}

// NewHub returns an empty one.
func NewHub(o HubOptions) *Hub {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	servers := &hubServers{clock: o.Clock, grace: o.Grace, shards: make([]*hubShard, max(1, o.Shards))}
	for i := range servers.shards {
		servers.shards[i] = newHubShard()
	}
	return servers.client()
}

// Client returns another way to the same counts, as another process has one.
func (h *Hub) Client() *Hub { return h.client() }

func (s *hubServers) client() *Hub {
	return &Hub{hubServers: s, shardFaults: make([]Faults, len(s.shards))}
}

// ShardFaults are what this way to one shard does besides working, on top of Faults.
func (h *Hub) ShardFaults(shard int) *Faults { return &h.shardFaults[shard] }

// HoldChunks keeps chunks that are sent from now on from arriving, and their callers from an
// answer, until DeliverChunks.
func (h *Hub) HoldChunks() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holding = true
}

// DeliverChunks lets the chunks that were held arrive, late and in the order in which they were
// sent; their answers are lost.
func (h *Hub) DeliverChunks() {
	h.mu.Lock()
	held := h.held
	h.holding, h.held = false, nil
	h.mu.Unlock()
	for _, arrive := range held {
		arrive()
	}
}

func (h *Hub) hold(arrive func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holding {
		h.held = append(h.held, arrive)
	}
	return h.holding
}

// Shards implements store.Hub.
func (s *hubServers) Shards() int { return len(s.shards) }

// ShardOf implements store.Hub.
func (s *hubServers) ShardOf(key *window.Key) int { return shardOf(key, len(s.shards)) }

// Wipe empties all shards, as servers do that restart without their data. Each draws a new
// epoch with the next call.
func (s *hubServers) Wipe() {
	for i := range s.shards {
		s.WipeShard(i)
	}
}

// WipeShard is Wipe for one shard.
func (s *hubServers) WipeShard(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listeners := s.shards[shard].listeners
	s.shards[shard] = newHubShard()
	s.shards[shard].listeners = listeners
}

// HubState is all that a Hub held at a moment.
type HubState struct{ shards []*hubShard }

// State is what a replica has received that receives no more.
func (s *hubServers) State() HubState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return HubState{cloneShards(s.shards)}
}

// Rollback puts the Hub back to a state, as a replica is that was promoted before it had received
// what came since.
func (s *hubServers) Rollback(state HubState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, earlier := range cloneShards(state.shards) {
		earlier.listeners = s.shards[i].listeners
		s.shards[i] = earlier
	}
}

func cloneShards(shards []*hubShard) []*hubShard {
	clones := make([]*hubShard, len(shards))
	for i, s := range shards {
		clone := *s
		clone.cells, clone.streams, clone.changed = maps.Clone(s.cells), maps.Clone(s.streams), maps.Clone(s.changed)
		clone.listeners = nil
		clones[i] = &clone
	}
	return clones
}

// Totals is what is there, by cell.
func (s *hubServers) Totals() map[window.Cell]store.Total {
	s.mu.Lock()
	defer s.mu.Unlock()
	totals := make(map[window.Cell]store.Total)
	for i, shard := range s.shards {
		epoch := s.epochLocked(i)
		for c, r := range shard.cells {
			if r.forgottenMs > s.clock().UnixMilli() {
				totals[c] = store.Total{Region: r.region(), Foreign: r.foreign, Epoch: epoch}
			}
		}
	}
	return totals
}

// epochLocked draws the shard's epoch if it has none.
func (s *hubServers) epochLocked(shard int) store.Epoch {
	at := s.shards[shard]
	for at.epoch == 0 {
		s.epochs++
		at.epoch = store.Epoch(uint64(s.epochs) * 0x9e3779b97f4a7c15 >> 32) // repeatable, and never the same twice
	}
	return at.epoch
}
