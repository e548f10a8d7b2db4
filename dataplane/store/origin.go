package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// ErrEpoch is returned for a cost whose Epoch is not its cell's, because the origin has lost the counts of that
// epoch. Nothing of the cost was applied; Total.Epoch has the cell's epoch.
var ErrEpoch = errors.New("origin: has lost its counts since")

// ErrNotApplied marks an error of Send, or of a Total, after which the cost was certainly not added: for example,
// because no connection could be made. Origins can leave it out. With it, callers need not send a bounded cost again
// to find out whether it was added.
var ErrNotApplied = errors.New("origin: nothing was applied")

// Epoch identifies the data that an origin has now, so that nodes notice when it has lost its earlier data. It is a
// random number, not 0. A server that has no epoch draws one and stores it with the counts. All cells of a server
// have the same epoch; on a Redis Cluster each bucket of cells has its own epoch. Cells of an epoch lose their
// counts together, or not at all.
//
// 0 stands for a cell about which the node has had no answer yet. A bounded cost with 0 fits every epoch. Any other
// cost with 0 belongs to the epoch in which its chunk was first sent: if the origin then has another epoch, the same
// chunk is refused with ErrEpoch. A server that has lost its data cannot have stored that epoch. So the Origin value
// that sends the chunk must keep it, with the Number, for each stream. Without it, a chunk whose reply was lost would
// count a second time after a loss, because other nodes may have received its cost in answers, and restore it as
// Known.
//
// If an answer of any call has another epoch than the node's epoch of the cell, the node starts again in that cell:
//
//   - Its next Cost has all cost that it has accepted as Restore, and the highest region total of earlier answers as
//     Known. Only cost that it accepts from then on belongs to the new epoch.
//   - If ErrEpoch refuses a cost with Epoch 0, the refused Add becomes Restore, because other nodes may have read it.
//     Cost that followed it may become Restore with it, unless the origin has it.
//   - A cost with Epoch 0 that is added belongs to the epoch of its answer, and is no part of Restore in that epoch,
//     whatever other calls have returned meanwhile.
//   - Totals of the new epoch, which another call may have returned first, are no part of Known.
//   - A bounded cost that was added in an epoch that is lost by the time of the answer becomes Restore as well.
//
// For example, the node in storetest's test of an emptied origin does exactly this.
type Epoch uint32

const (
	// ClockSetBack is how far a clock can be set back without an effect on the data of an origin.
	ClockSetBack = time.Second

	// AheadMax is how long before its beginning a cell can have counts, if its window is not shorter. For example, nodes
	// may count in the next cell because callers pass their own times.
	AheadMax = time.Minute
)

// Ahead reports whether a cell begins so long after a time that its counts cannot be right: more than AheadMax after
// it, or after the cell that follows the time's own cell.
func Ahead(c *window.Cell, nowMs int64) bool {
	durationMs := c.DurationMs()
	return window.Start(c.Sequence, durationMs) > nowMs+min(durationMs, AheadMax.Milliseconds())
}

// CountMax is the largest count of an origin: a total that would be larger is CountMax. No limit is larger.
const CountMax = window.LimitMax

// Origin is the store in which the nodes and the relay of one region meet. For each cell it holds two numbers: the
// cost that the region's nodes have accepted, and the cost that all other regions have accepted. Both only grow, as
// long as the epoch is the same and the cell has not expired. A cell that the origin does not have counts as 0 of both.
//
// A cell expires at window.Cell.ExpiresAtMs by the shard's clock, which is one window after its end: until then it
// counts as the cell before the current cell. Some time later, for example 30 s, the origin can delete it. A cost of
// an older cell is no error, and leaves no count behind.
//
// A shard's clock may be set back, for example after it was an hour ahead. Cells are named by time, so the counts of
// that hour would count once more when the clock reaches their cells again, and limited callers would be locked out
// then. An origin that finds its clock more than ClockSetBack behind an earlier reading must therefore do the
// following:
//
//   - It deletes all cells that are Ahead. Until the clock has caught up with that reading, a cell that is Ahead
//     counts as expired: it reads as 0, and no cost, foreign total or hold of it leaves a count behind.
//   - It keeps the ends of holds, records, slots and leases as far in the future as they were, and settings as old.
//
// Cells that expired while the clock was ahead, and that are current again after it was set back, have all of their
// counts or none. An origin need not keep them, in the same epoch, and counts later cost in them as in any cell. A
// sender finds this out by Reply.Now.
//
// A clock that is set back by less changes nothing. An origin may check its clock only once a second, so a clock that
// is set back by up to a second more may change nothing either.
//
// An origin has one or more shards, which work and fail independently. All cells of one call must be of one shard:
// the limiter and the relay ensure it. An origin may refuse a call that names cells of several shards.
//
// An origin can also be a Granter, a Mailbox or Relayed. Without them, it counts and does nothing else: see the
// package documentation.
//
// All methods must be safe to call concurrently, obey ctx's deadline, never retry by themselves and keep no reference
// to their arguments.
type Origin interface {
	// Shards returns the number of shards, 1 or more, which never changes. A Redis Cluster is one shard.
	Shards() int

	// ShardOf returns the shard that holds all cells of key: 0 <= n < Shards(). It must always be the same, and the same
	// on every node of the region, so it must not depend on a seed that a process draws.
	ShardOf(key *window.Key) int

	// Read returns the totals of all cells, in their order, or fails as a whole. It creates nothing. A cell can be named
	// twice. With no cells, Read may return an empty Reply without a round trip.
	Read(ctx context.Context, cells []window.Cell) (Reply, error)

	// Send adds a chunk's costs. It must add each chunk at most once in an epoch, however often the chunk is sent: see
	// Chunk. A bounded cost is added only if its cell's region total stays at most AtMost. The check and the addition
	// are one atomic step: see Cost. After an error, all, some or none of the chunk's costs may have been applied, and
	// the caller sends the same chunk again. A chunk whose Shard, Stream or Number is out of bounds is an error, and
	// adds nothing.
	//
	// Without an error the Reply has a Total for each cost, in their order, and each Total has its own Err:
	//
	//   - nil: the Total is the cell's. A bounded cost was added if Added is true.
	//   - ErrEpoch, with the cell's Epoch: see ErrEpoch. A chunk that was applied in a lost epoch, and is sent again,
	//     has this error too.
	//   - any other error, with an Epoch: the origin does not accept this cost, for example because a field is out of
	//     its bounds. All other costs of the chunk are applied.
	//   - any other error, without an Epoch: the cell got no answer, and the cost may or may not have been added. Only a
	//     chunk with bounded costs has such a Total; any other chunk that is not answered as a whole fails as a whole.
	//
	// With no costs, Send returns the shard's Now. An origin that may lose answered chunks also compares the chunk's
	// After, with costs or without: see Chunk.
	Send(ctx context.Context, chunk Chunk) (Reply, error)

	// Listen calls apply for each foreign total that Relayed.Apply raises in a shard from then on. It returns nil when
	// ctx ends, and an error when the connection is lost. It may miss messages, because the next answer about the cell
	// has the same total. apply must not block or keep its argument. An origin that is not Relayed has no foreign
	// totals: its Listen waits until ctx ends, and returns nil.
	Listen(ctx context.Context, shard int, apply func([]Foreign)) error
}

// Chunk has the costs that a stream of a node sends in a call. A stream belongs to a single run of a limiter and to a
// single shard; the limiter draws Stream at random. A stream has only a single chunk in flight at a time.
//
// An origin must store the Number of each stream's last chunk, and compare:
//
//   - A chunk with a larger Number is new. The origin applies it and stores its Number, in an atomic step.
//   - A chunk with the same Number is the last chunk again, because its reply was lost. It names the same cells. The
//     origin adds nothing, and answers with the current totals, and with the Added of the first time. So after an
//     error, the same chunk with an AtMost of -1 finds out which of its bounded costs were added. It also prevents
//     the addition of its costs that are still in flight.
//   - A chunk with a smaller Number is late. The origin adds nothing. If the chunk has bounded costs, Send fails;
//     otherwise it answers with the totals.
//
// An origin can forget a stream that has sent nothing for StreamKeptFor, once all cells that the stream has counted
// in have expired too, or after StreamKeptMax. A chunk that is sent again later than that counts twice.
//
// A replica that was promoted may lack answered chunks. The sender keeps each chunk for KeepFor after the origin has
// applied it, and After has the stream's last answered chunks. If the origin's last chunk of the stream is earlier
// than that, the origin has lost chunks. It then applies nothing of the chunk in that epoch, gives the Totals of
// these costs any Err, and returns its own last chunk in Reply.Behind. The sender then sends the lost costs, in
// chunks with Repeats, and the chunk again. An origin that loses either everything or nothing can ignore After and
// Repeats.
type Chunk struct {
	Shard  int
	Stream uint64 // not 0
	Number int64  // >= 1
	Costs  []Cost // at most ChunkMax

	// After has the last answered chunk of each epoch in which the sender keeps chunks. The origin ignores marks of
	// epochs that it does not have now.
	After []Mark

	// Repeats marks a chunk with costs that the origin has lost. In each epoch the origin applies it only if the last
	// chunk of the stream is the chunk that After names, neither an earlier nor a later chunk. So it adds nothing twice,
	// whatever else arrives late. Its costs have no bounds: a later bounded chunk with its number has an Added of false
	// for them.
	Repeats bool
}

// Mark is the last chunk of a stream in an epoch.
type Mark struct {
	Epoch  Epoch
	Number int64 // of the last chunk

	// Ask, in Chunk.After, makes the origin compare the mark even if the chunk has no cost in this epoch.
	Ask bool
}

// Bounded reports whether the chunk has a bounded cost.
func (c *Chunk) Bounded() bool {
	return slices.ContainsFunc(c.Costs, func(c Cost) bool { return c.AtMost != 0 })
}

// ChunkMax is the highest number of costs in a chunk. An origin may refuse a larger chunk.
const ChunkMax = 500

// KeepFor is how long a sender keeps answered chunks, for a promoted replica that lacks them.
const KeepFor = 5 * time.Second

const (
	// StreamKeptFor is the shortest time for which an origin keeps the Number of a stream's last chunk.
	StreamKeptFor = time.Hour
	// StreamKeptMax is the longest time, if cells that the stream has counted in last longer than StreamKeptFor.
	StreamKeptMax = 24 * time.Hour
)

// Cost is the cost that a node has accepted in a cell since its last Cost in the cell's epoch. In an epoch that is
// new to the node, it is all of its cost. A cost with a field below 0 is refused: see Send.
type Cost struct {
	Cell  window.Cell
	Epoch Epoch // of the last Total of this cell that the node has received; 0: it has received none
	Add   int64 // >= 0: accepted in this epoch

	// Restore and Known are for an origin that has lost its counts. Restore is the cost of the cell that this node had
	// accepted when it received the new epoch. Known is the highest region total that it received in earlier epochs.
	// Both are 0 otherwise. The region's total is then
	//
	//	sum of Add + max(sum of Restore, greatest Known)
	//
	// This is no less than the cost that the remaining nodes have accepted, and no more than the cost that was accepted:
	// Known counts only cost that a node sent in an earlier epoch, Restore the cost accepted before the node received
	// the new epoch, and Add the cost accepted since.
	Restore, Known int64

	// Limit is the lowest limit that the cost was counted against. With a Limit > 0 the cell is among the Changes that a
	// relay reads; 0 keeps it in the region.
	Limit int64

	// AtMost, if it is not 0, bounds the cost: Add, which must be > 0, is added only if the region's total, Add
	// included, stays at most AtMost; the foreign total does not count. Below 0 there is no room for any cost. A value
	// above CountMax means CountMax. Restore and Known of a bounded cost must be 0. Costs of a cell are decided in the
	// order of the chunk. For example, a claim of a node is a bounded cost.
	AtMost int64

	// History is an empty history if the cell's namespace has a precise window, and 0 otherwise. An origin that keeps
	// histories starts a history of that division, with the cost or later, unless the cell has one, and returns it in
	// Total.History.
	History window.History
}

// Total is an origin's data about a cell.
type Total struct {
	Region  int64 // accepted by this region's nodes, at most CountMax
	Foreign int64 // accepted by all other regions, as far as the relay has applied, at most CountMax
	Epoch   Epoch
	// History has the times at which the cell's total, Region + Foreign, reached its marks, by the shard's clock. A mark
	// may be late, but must never be early. It is 0 if the cell has none: an origin need not keep histories. Without
	// histories, nodes that do not use a cell for a while count its cost for longer.
	History window.History
	Added   bool  // of a bounded cost: reports whether it was added; it has no meaning for others
	Err     error // why the cell was not answered; then Region and Foreign are 0, and Added is false
}

// Reply is an origin's answer about cells, in the order in which they were named.
type Reply struct {
	Totals []Total
	Now    time.Time // the shard's clock, read while it answered; zero if it did not

	// Behind has the epochs in which the origin has lost answered chunks of the stream, with the last chunk that it has.
	// The origin has applied nothing in these epochs: see Chunk.
	Behind []Mark

	// Unanswered has epochs of After that the origin could not compare, because their server gave no answer. Only the
	// answer to a chunk with bounded costs has any, because another chunk fails as a whole.
	Unanswered []Epoch
}

// Foreign is the cost that all other regions have accepted in a cell.
type Foreign struct {
	Cell  window.Cell
	Count int64
}
