package memstore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/holds"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// originShard is a server of an Origin: its data, and its atomic operations.
type originShard struct {
	clock   shardClock
	epoch   store.Epoch // 0 until it is read
	healed  bool
	cells   map[window.Cell]originRecord
	streams map[uint64]streamState
	changed map[window.Cell]bool
	holds   *holds.Group
	grants  map[window.Key]*keyGrants
	lease   heldLease
	lostMs  int64 // Unix ms when it lost its data; 0: long ago

	settings settingsCopy
	beats    map[string]waitingHeartbeat // by node
	marks    int64                       // of beats, so far

	listeners     map[*listener]bool
	sweepAt       int // size of cells and streams at which expired entries are removed
	sweepGrantsAt int // the same of grants
}

// originRecord is an origin's data about a cell. All counts are 0 to store.CountMax and only grow.
type originRecord struct {
	added, restored, known, foreign int64 // see store.Cost
	limit                           int64 // lowest, 0 for none
	history                         window.History
	forgottenMs                     int64 // Unix ms from which it is not there any more
}

type streamState struct {
	number      int64
	added       []bool // by cost of that number, whether it is bounded and was added; constant
	forgottenMs int64
}

// stream returns a stream's state, or an empty state if it was dropped.
func (s *originShard) stream(id uint64, nowMs int64) streamState {
	if state := s.streams[id]; state.forgottenMs > nowMs {
		return state
	}
	return streamState{}
}

// keepStream stores the state of a chunk's stream for as long as its cells last.
func (s *originShard) keepStream(c *store.Chunk, state streamState, nowMs int64) {
	keepMs := max(state.forgottenMs, nowMs+store.StreamKeptFor.Milliseconds())
	for i := range c.Costs {
		keepMs = max(keepMs, s.cells[c.Costs[i].Cell].forgottenMs)
	}
	state.forgottenMs = min(keepMs, nowMs+store.StreamKeptMax.Milliseconds())
	s.streams[c.Stream] = state
}

type heldLease struct {
	holder string
	until  time.Time
}

func newOriginShard() *originShard {
	return &originShard{
		cells:         make(map[window.Cell]originRecord),
		streams:       make(map[uint64]streamState),
		changed:       make(map[window.Cell]bool),
		holds:         holds.NewGroup(false),
		grants:        make(map[window.Key]*keyGrants),
		beats:         make(map[string]waitingHeartbeat),
		listeners:     make(map[*listener]bool),
		sweepAt:       sweepMin,
		sweepGrantsAt: sweepMin,
	}
}

// region returns the cell's total: see store.Cost.
func (r originRecord) region() int64 { return capped(r.added, max(r.restored, r.known)) }

// total returns the answer about the cell.
func (r originRecord) total(epoch store.Epoch) store.Total {
	return store.Total{Region: r.region(), Foreign: r.foreign, Epoch: epoch, History: r.history}
}

// marked returns the record with the marks that its total has reached by now.
func (r originRecord) marked(c *window.Cell, nowMs int64) originRecord {
	durationMs := c.DurationMs()
	r.history = r.history.Count(capped(r.region(), r.foreign), nowMs-window.Start(c.Sequence, durationMs), durationMs)
	return r
}

// capped returns a + b, at most store.CountMax. Both must be 0 to store.CountMax.
func capped(a, b int64) int64 { return min(a+b, store.CountMax) }

// counted returns n, but at most store.CountMax.
func counted(n int64) int64 { return min(n, store.CountMax) }

// lowered returns the lower of two limits; 0 is no limit.
func lowered(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func (s *originShard) record(c window.Cell, nowMs int64) originRecord {
	if r := s.cells[c]; r.forgottenMs > nowMs {
		return r
	}
	return originRecord{}
}

// put stores a record, and adds the cell to the changes if a relay must publish it. It reports whether the cell has
// changed.
func (h *originServers) put(s *originShard, c window.Cell, before, after originRecord, nowMs int64) bool {
	if after == before {
		return false
	}
	after.forgottenMs = c.ExpiresAtMs() + (h.grace + jitter(c)).Milliseconds()
	if after.forgottenMs <= nowMs || s.clock.early(&c, nowMs) {
		return false // like a key whose expiry is set in the past
	}
	s.cells[c] = after
	if after.limit > 0 && after.region() > 0 && (after.region() != before.region() || after.limit != before.limit) {
		s.changed[c] = true
	}
	if len(s.cells)+len(s.streams) >= s.sweepAt {
		s.sweep(nowMs)
	}
	return true
}

func (s *originShard) sweep(nowMs int64) {
	maps.DeleteFunc(s.cells, func(_ window.Cell, r originRecord) bool { return r.forgottenMs <= nowMs })
	maps.DeleteFunc(s.streams, func(_ uint64, st streamState) bool { return st.forgottenMs <= nowMs })
	s.holds.ForgetCells(func(c window.Cell) bool {
		_, counts := s.cells[c] // of tentative holds alone it has none
		return !counts && c.ExpiresAtMs() <= nowMs
	})
	maps.DeleteFunc(s.changed, func(c window.Cell, _ bool) bool { _, alive := s.cells[c]; return !alive })
	s.sweepAt = max(sweepMin, 2*(len(s.cells)+len(s.streams)))
}

var errBehind = errors.New("earlier chunks of the stream are missing")

// behindLocked reports whether the shard has lost chunks of a stream whose last chunk there is last. If the chunk
// repeats some, it also reports whether the shard has chunks that the sender does not have.
func (h *originServers) behindLocked(chunk *store.Chunk, last int64) bool {
	epoch := h.epochLocked(chunk.Shard)
	return slices.ContainsFunc(chunk.After, func(m store.Mark) bool {
		return m.Epoch == epoch && (last < m.Number || chunk.Repeats && last > m.Number)
	})
}

func (h *originServers) sendLocked(c *store.Chunk) (store.Reply, error) {
	epoch := h.epochLocked(c.Shard)
	s, now := h.shardLocked(c.Shard)
	nowMs := now.UnixMilli()
	state := s.stream(c.Stream, nowMs)
	if h.behindLocked(c, state.number) {
		return store.Reply{
			Totals: slices.Repeat([]store.Total{{Epoch: epoch, Err: errBehind}}, len(c.Costs)), Now: now,
			Behind: []store.Mark{{Epoch: epoch, Number: state.number}},
		}, nil
	}
	if c.Number < state.number && c.Bounded() {
		return store.Reply{}, fmt.Errorf("chunk %d is late: %d was applied", c.Number, state.number)
	}
	isNew := c.Number > state.number
	reply := store.Reply{Totals: make([]store.Total, len(c.Costs)), Now: now}
	added := make([]bool, len(c.Costs))
	for i, cost := range c.Costs {
		reply.Totals[i] = h.costLocked(s, epoch, cost, isNew, nowMs)
		if total := &reply.Totals[i]; !isNew && total.Err == nil && i < len(state.added) {
			total.Added = state.added[i]
		}
		added[i] = reply.Totals[i].Added
	}
	if isNew {
		state.number, state.added = c.Number, added
		s.keepStream(c, state, nowMs)
	}
	return reply, nil
}

func (h *originServers) costLocked(s *originShard, epoch store.Epoch, c store.Cost, isNew bool,
	nowMs int64) store.Total {
	if err := checkCost(c); err != nil {
		return store.Total{Epoch: epoch, Err: err}
	}
	bounded := c.AtMost != 0
	if c.Epoch != epoch && (c.Epoch != 0 || !bounded) {
		return store.Total{Epoch: epoch, Err: store.ErrEpoch}
	}
	before := s.record(c.Cell, nowMs)
	after := before
	hasRoom := !bounded || c.Add <= counted(c.AtMost) && before.region() <= counted(c.AtMost)-c.Add
	if isNew && hasRoom {
		after.added = capped(after.added, counted(c.Add))
		after.restored = capped(after.restored, counted(c.Restore))
		after.known = max(after.known, counted(c.Known))
		if after.region() > 0 { // a limit alone creates nothing
			after.limit = lowered(after.limit, counted(c.Limit))
		}
		if after.history == 0 && after != before {
			after.history = c.History.Empty()
		}
		after = after.marked(&c.Cell, nowMs)
		h.put(s, c.Cell, before, after, nowMs)
	}
	total := after.total(epoch)
	total.Added = bounded && isNew && hasRoom
	return total
}

var errCost = errors.New("cost out of bounds")

func checkCost(c store.Cost) error {
	switch {
	case c.Add < 0 || c.Restore < 0 || c.Known < 0 || c.Limit < 0:
		return opError(OpSend, fmt.Errorf("%w: add, restore, known and limit of %v are %d, %d, %d and %d, want >= 0",
			errCost, c.Cell, c.Add, c.Restore, c.Known, c.Limit))
	case c.AtMost != 0 && (c.Add == 0 || c.Restore != 0 || c.Known != 0):
		return opError(OpClaim, fmt.Errorf(
			"%w: add, restore and known of %v, which is bounded, are %d, %d and %d, want > 0, 0 and 0",
			errCost, c.Cell, c.Add, c.Restore, c.Known))
	}
	return nil
}
