package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// ErrEpoch refuses a cost that was meant for an earlier Epoch of its cell: the origin has
// lost what it acknowledged then. Nothing was applied; Total.Epoch has the new one.
var ErrEpoch = errors.New("origin: has lost its counts since")

// ErrNotApplied marks an error of Send, or of one Total, after which the cost was certainly not added: for example
// because no connection could be made. Origins may leave it out. With it, callers need not send a bounded cost again
// to find out what was added.
var ErrNotApplied = errors.New("origin: nothing was applied")

// Epoch tells what an origin remembers from what it has lost: a random number, not 0, drawn when a
// server finds that it has none. All cells of one server have the same; on a Redis Cluster each
// bucket of cells has its own. Cells that have the same lose their counts together, or not at all.
//
// 0 stands for a cell about which the node has had no answer yet. A bounded cost with 0 fits every epoch. Any other
// cost with 0 belongs to the epoch in which its chunk is first sent, and is refused by a later one.
//
// A node that is answered another epoch than the one it knows of a cell, in whatever call, begins
// anew in it: its next Cost has all that it has accepted as Restore and the highest region total of
// earlier answers as Known, and only what it accepts from then on is of this epoch. Where
// ErrEpoch refuses a cost with Epoch 0, the refused Add becomes Restore: others may know of it. Cost that
// followed it may become Restore with it, unless the origin has it. Totals of the new epoch, which another
// call may have brought first, are no part of Known. storetest's test of an emptied origin has a node that
// does no more than that.
type Epoch uint32

// CountMax is where an origin's counts end: a total that would be larger is CountMax. No limit is larger.
const CountMax = window.LimitMax

// Origin is where the nodes and the relay of one region meet. For each cell it holds two numbers:
// what the region's nodes have accepted, and what all other regions have. Both only grow, as
// long as the epoch is the same, and end some time after their cell has expired.
//
// An origin has one or more shards, which work and fail apart from each other. One call names cells
// of one shard.
//
// An origin may also be a Granter, a Mailbox or Relayed. Without those, it counts and does nothing else: see the
// package documentation.
//
// All methods may run concurrently, obey ctx's deadline, never retry by themselves and keep no
// reference to their arguments.
type Origin interface {
	// Shards is how many there are, >= 1, the same for the Origin's life. A Redis Cluster is one.
	Shards() int

	// ShardOf is the shard that holds all cells of key: 0 <= n < Shards(), always the same, and
	// the same on every node of the region.
	ShardOf(key *window.Key) int

	// Read answers for all cells, in their order, or fails as a whole. An unknown cell has no cost. No
	// cells are no call.
	Read(ctx context.Context, cells []window.Cell) (Reply, error)

	// Send adds a chunk's costs, each chunk at most once in an epoch however often it is sent:
	// see Chunk. A bounded cost is added only if its cell's region total stays at most AtMost, decided and done in one
	// atomic step: see Cost. After an error the chunk may or may not have been applied, or only some of its costs: send
	// the same chunk again. Without an error each Total of the Reply has its own Err:
	//
	//   - nil,
	//   - ErrEpoch,
	//   - any other error, with an Epoch, for a cell that will not take the cost,
	//   - any other error, without an Epoch, for a cell that got no answer: the cost may or may not have been added. Only
	//     in a chunk with bounded costs; any other chunk that is not answered as a whole fails as a whole.
	//
	// Without costs it reports the shard's Now, and finds out whether the stream's chunks are still there.
	Send(ctx context.Context, chunk Chunk) (Reply, error)

	// Listen calls apply for each foreign total that Apply has raised in a shard from then on,
	// until ctx ends (nil) or the connection is lost. Messages may be missed: what they brought
	// comes with the next answer about the cell. apply must not block or keep its argument. An origin that is not
	// Relayed has no foreign totals: its Listen returns nil when ctx ends, and does nothing else.
	Listen(ctx context.Context, shard int, apply func([]Foreign)) error
}

// Chunk is what one stream of a node sends in one call. A stream belongs to one incarnation of a
// limiter (draw it at random) and one shard. It has one chunk on its way at a time; the next has a
// larger Number. Until a chunk is answered it is sent again, the same cells with the same Number: an origin that has
// applied it adds nothing, and answers with the totals, and with what Added was then. So after an error the same chunk
// with an AtMost of -1 finds out which of its bounded costs were added, and keeps those that are still on their way
// from being added.
//
// A chunk with a smaller Number than the stream's last one adds nothing. If it has bounded costs, it fails;
// otherwise it is answered with the totals. An origin forgets a stream that has sent nothing for StreamKeptFor, once
// the cells that it has counted in have expired too, or after StreamKeptMax: a chunk that comes again later than that
// counts twice.
//
// When an origin has lost chunks that it had answered, as a replica has that was promoted, the Origin
// value that sent them applies them again, in their order and before the next chunk of their
// stream. It keeps those that were applied, first or again, in the last KeepFor.
type Chunk struct {
	Shard  int
	Stream uint64 // not 0
	Number int64  // >= 1
	Costs  []Cost
}

// Bounded reports whether the chunk has a bounded cost.
func (c *Chunk) Bounded() bool {
	return slices.ContainsFunc(c.Costs, func(c Cost) bool { return c.AtMost != 0 })
}

// KeepFor is how long an Origin value keeps answered chunks, for a promoted replica that lacks them.
const KeepFor = 5 * time.Second

const (
	// StreamKeptFor is how long an origin remembers the Number of a stream's last chunk, at least.
	StreamKeptFor = time.Hour
	// StreamKeptMax is how long at most, where cells that the stream has counted in last longer than StreamKeptFor.
	StreamKeptMax = 24 * time.Hour
)

// Cost is what a node has accepted in a cell since its last Cost in the cell's epoch; in an epoch
// that is new to the node, all of it.
type Cost struct {
	Cell  window.Cell
	Epoch Epoch // of the last Total of this cell that the node has had
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
	// stays at most AtMost. Below 0 there is no room for any cost. Above CountMax it is CountMax. Restore and Known of a
	// bounded cost must be 0. Costs of one cell are decided in the order in which they stand in the chunk.
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

	// Repeated is true when chunks of the stream that the origin had lost are there again: the next failover may lose
	// them again, and a stream that is silent then has to ask for another KeepFor.
	Repeated bool
}

// Foreign is what all other regions have accepted in a cell.
type Foreign struct {
	Cell  window.Cell
	Count int64
}
