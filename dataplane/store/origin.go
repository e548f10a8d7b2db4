package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// ErrEpoch refuses a cost whose Epoch is not its cell's: the origin has lost what it acknowledged in that epoch.
// Nothing of the cost was applied; Total.Epoch has the cell's epoch.
var ErrEpoch = errors.New("origin: has lost its counts since")

// ErrNotApplied marks an error of Send, or of one Total, after which the cost was certainly not added: for example
// because no connection could be made. Origins may leave it out. With it, callers need not send a bounded cost again
// to find out what was added.
var ErrNotApplied = errors.New("origin: nothing was applied")

// Epoch identifies the data that an origin has now, so that nodes notice when it has lost the data that it had before.
// It is a random number, not 0. A server that has no epoch draws one and stores it with the counts. All cells of one
// server have the same epoch; on a Redis Cluster each bucket of cells has its own. Cells of one epoch lose their counts
// together, or not at all.
//
// 0 stands for a cell about which the node has had no answer yet. A bounded cost with 0 fits every epoch. Any other
// cost with 0 belongs to the epoch in which its chunk was first sent: once the origin has another epoch, the same chunk
// is refused with ErrEpoch. The server that lost its data cannot know that epoch, so the Origin value that sends the
// chunk has to keep it, with the Number, for each stream. Without that, a chunk whose reply was lost would count a
// second time after a loss: other nodes may have been answered with its cost, and restore it as Known.
//
// A node that is answered another epoch than the one it knows of a cell, in whatever call, begins
// anew in it: its next Cost has all that it has accepted as Restore and the highest region total of
// earlier answers as Known, and only what it accepts from then on is of this epoch. Where
// ErrEpoch refuses a cost with Epoch 0, the refused Add becomes Restore: others may know of it. Cost that
// followed it may become Restore with it, unless the origin has it. A cost with Epoch 0 that is added is of the epoch
// of its answer, and no part of Restore in that one, whatever other calls have answered meanwhile. Totals of the new
// epoch, which another call may have brought first, are no part of Known. storetest's test of an emptied origin
// has a node that does no more than that.
type Epoch uint32

// CountMax is where an origin's counts end: a total that would be larger is CountMax. No limit is larger.
const CountMax = window.LimitMax

// Origin is where the nodes and the relay of one region meet. For each cell it holds two numbers:
// what the region's nodes have accepted, and what all other regions have. Both only grow, as
// long as the epoch is the same. An unknown cell has 0 of both.
//
// A cell expires at window.Cell.ExpiresAtMs by the shard's clock, which is one window after its end: until then it
// counts as the cell before the current one. Some time later, 30 s for example, the origin may forget it. A cost of a
// cell that is older than that is no error, and leaves no count behind.
//
// An origin has one or more shards, which work and fail apart from each other. All cells of one call are of one shard:
// the limiter and the relay see to it. An origin may refuse a call that names cells of several shards.
//
// An origin may also be a Granter, a Mailbox or Relayed. Without those, it counts and does nothing else: see the
// package documentation.
//
// All methods may run concurrently, obey ctx's deadline, never retry by themselves and keep no
// reference to their arguments.
type Origin interface {
	// Shards returns the number of shards, 1 or more, which never changes. A Redis Cluster is one shard.
	Shards() int

	// ShardOf returns the shard that holds all cells of key: 0 <= n < Shards(). It is always the same, and
	// the same on every node of the region, so it must not depend on a seed that a process draws.
	ShardOf(key *window.Key) int

	// Read answers for all cells, in their order, or fails as a whole. It creates nothing. A cell may be named
	// twice. With no cells, it may return an empty Reply without a round trip.
	Read(ctx context.Context, cells []window.Cell) (Reply, error)

	// Send adds a chunk's costs, each chunk at most once in an epoch however often it is sent:
	// see Chunk. A bounded cost is added only if its cell's region total stays at most AtMost, decided and done in one
	// atomic step: see Cost. After an error the chunk may or may not have been applied, or only some of its costs: the
	// caller sends the same chunk again. A chunk whose Shard, Stream or Number is out of bounds is an error, and adds
	// nothing.
	//
	// Without an error the Reply has a Total for each cost, in their order, and each Total has its own Err:
	//
	//   - nil: the Total is the cell's. A bounded cost was added if Added is true.
	//   - ErrEpoch, with the cell's Epoch: see there. A chunk that was applied in a lost epoch, and comes again, has this
	//     error too.
	//   - any other error, with an Epoch: the origin does not take this cost, for example because a field is out of its
	//     bounds. All other costs of the chunk are applied.
	//   - any other error, without an Epoch: the cell got no answer, and the cost may or may not have been added. Only a
	//     chunk with bounded costs has such a Total; any other chunk that is not answered as a whole fails as a whole.
	//
	// With no costs, Send reports the shard's Now. An origin that may lose what it has answered also compares the chunk's
	// After, with costs or without: see Chunk.
	Send(ctx context.Context, chunk Chunk) (Reply, error)

	// Listen calls apply for each foreign total that Relayed.Apply raises in a shard from then on. It returns nil when
	// ctx ends, and an error when the connection is lost. Messages may be missed, because the next answer about the
	// cell has the same total. apply must not block or keep its argument. An origin that is not Relayed has no foreign
	// totals: its Listen waits until ctx ends, and returns nil.
	Listen(ctx context.Context, shard int, apply func([]Foreign)) error
}

// Chunk is what one stream of a node sends in one call. A stream belongs to one run of a limiter and to
// one shard; the limiter draws Stream at random. It has one chunk on its way at a time.
//
// An origin stores the Number of each stream's last chunk, and compares:
//
//   - A chunk with a larger Number is new. The origin applies it and stores its Number, in one atomic step.
//   - A chunk with the same Number is the last one again, because its reply was lost. It names the same cells. The
//     origin adds nothing, and answers with the totals as they are now, and with the Added of the first time. So after
//     an error the same chunk with an AtMost of -1 finds out which of its bounded costs were added, and keeps those
//     that are still on their way from being added.
//   - A chunk with a smaller Number is late. The origin adds nothing. If the chunk has bounded costs, Send fails;
//     otherwise it answers with the totals.
//
// An origin forgets a stream that has sent nothing for StreamKeptFor, once the cells that it has counted in have
// expired too, or after StreamKeptMax. A chunk that is sent again later than that counts twice.
//
// A replica that was promoted may lack chunks that were answered. The sender keeps each chunk for KeepFor after the
// origin has applied it, and After says how far the stream has come. Where the last chunk that an origin has of the
// stream is an earlier one, it has lost some: it then applies nothing of the chunk in that epoch, gives the Totals of
// these costs any Err, and reports in Reply.Behind how far it is. The sender then sends what was lost, in chunks that
// Repeat, and the chunk again. An origin that loses everything or nothing may leave After and Repeats unread.
type Chunk struct {
	Shard  int
	Stream uint64 // not 0
	Number int64  // >= 1
	Costs  []Cost // at most ChunkMax

	// After has the last answered chunk of each epoch in which the sender keeps some. Marks of epochs that the origin does
	// not have now count for nothing.
	After []Mark

	// Repeats is true for a chunk with costs that the origin has lost. In each epoch it is applied only where the last
	// chunk of the stream is the one that After names, neither an earlier nor a later one: so it adds nothing twice,
	// whatever else comes late. Its costs have no bounds: a bounded chunk with its number that comes later has an Added of
	// false for them.
	Repeats bool
}

// Mark is how far a stream has come in an epoch.
type Mark struct {
	Epoch  Epoch
	Number int64 // of the last chunk

	// Ask, in Chunk.After, has the origin compare the mark even if the chunk has no cost in this epoch.
	Ask bool
}

// Bounded reports whether the chunk has a bounded cost.
func (c *Chunk) Bounded() bool {
	return slices.ContainsFunc(c.Costs, func(c Cost) bool { return c.AtMost != 0 })
}

// ChunkMax is how many costs a chunk has at most. An origin may refuse a larger one.
const ChunkMax = 500

// KeepFor is how long a sender keeps answered chunks, for a promoted replica that lacks them.
const KeepFor = 5 * time.Second

const (
	// StreamKeptFor is how long an origin remembers the Number of a stream's last chunk, at least.
	StreamKeptFor = time.Hour
	// StreamKeptMax is how long at most, where cells that the stream has counted in last longer than StreamKeptFor.
	StreamKeptMax = 24 * time.Hour
)

// Cost is what a node has accepted in a cell since its last Cost in the cell's epoch; in an epoch
// that is new to the node, all of it. A cost with a field below 0 is refused: see Send.
type Cost struct {
	Cell  window.Cell
	Epoch Epoch // of the last Total of this cell that the node has had; 0: it has had none
	Add   int64 // >= 0: accepted in this epoch

	// Restore and Known are for an origin that has lost its counts. Restore is what this node had
	// accepted of the cell when it heard of the new epoch, Known the highest region total
	// that it was answered in earlier ones. Both are 0 otherwise. The region's total is then
	//
	//	sum of Add + max(sum of Restore, greatest Known)
	//
	// no less than what the nodes that are left have accepted, and no more than was accepted: Known
	// counts only what some node told in an earlier epoch, Restore what was accepted before the
	// new one was heard of, Add what was accepted since.
	Restore, Known int64

	// Limit is the lowest limit that the cost was counted against. With a Limit > 0 the cell is
	// among the Changes that a relay takes; 0 keeps it to the region.
	Limit int64

	// AtMost, if it is not 0, bounds the cost: Add, which must be > 0, is added only if the region's total, Add included,
	// stays at most AtMost; the foreign total does not count. Below 0 there is no room for any cost. Above CountMax it is
	// CountMax. Restore and Known of a bounded cost must be 0. Costs of one cell are decided in the order in which they
	// stand in the chunk. A claim of a node is such a cost.
	AtMost int64
}

// Total is what an origin holds of a cell.
type Total struct {
	Region  int64 // accepted by this region's nodes, at most CountMax
	Foreign int64 // accepted by all other regions, as far as the relay has told, at most CountMax
	Epoch   Epoch
	Added   bool  // of a bounded cost, whether it was added; it has no meaning for others
	Err     error // why the cell was not answered; then Region and Foreign are 0, and Added is false
}

// Reply is an origin's answer about some cells, in the order in which they were named.
type Reply struct {
	Totals []Total
	Now    time.Time // the shard's clock, read while it answered; zero if it did not

	// Behind has the epochs in which the origin has lost chunks of the stream that it had answered, and the last one that
	// it has. In these it has applied nothing: see Chunk.
	Behind []Mark

	// Unanswered has epochs of After that the origin could not compare, because their server gave no answer. Only the
	// answer to a chunk with bounded costs has any: another chunk fails as a whole.
	Unanswered []Epoch
}

// Foreign is what all other regions have accepted in a cell.
type Foreign struct {
	Cell  window.Cell
	Count int64
}
