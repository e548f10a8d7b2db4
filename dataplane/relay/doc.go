// Package relay carries what the nodes of one region accept to all other regions, and back.
//
// # Where it stands
//
//	nodes ─ Send, Read ────────► Origin (Redis) ◄─ relay ─► Feed, CountStore (MySQL) ◄─ relay ─► Origin ─► nodes
//	      ◄─ region, foreign ──             one lease a shard    one writer a (region, shard)
//
// A node talks to its region's origin and to nothing else: each answer about a cell has the region's total and that of
// all other regions. For each shard of an origin one relay has a lease, and keeps the shard in step with MySQL. Package
// relay knows store.RelayOrigin, store.Mailbox, store.Feed and store.CountStore, and nothing of the limiter.
//
// weir-node runs one in each node that has Redis and MySQL, and so does weir-sim.
//
// # A cost's way
//
//  1. A node accepts it and sends it to its origin, which adds it to the cell and to the shard's changes.
//  2. Each time that it has read the news, an Interval (200 ms) after it began to read them the last time and at least
//     three quarters of one after it was done, the relay takes the changes, compares each with what it has told about
//     the cell, and appends a row of news: state, not differences, so that applying it twice, or in any order, is
//     taking the maximum. So what others have told, and the relay is to answer, it answers at once. Once the row is
//     stored the relay takes off the changes what it had taken before it appended the row. Reads that take long hold it
//     back for no more than one and a half intervals.
//  3. The relays of other regions read the rows that they do not have yet, add up the cell's components, and tell their
//     origins, which store the sum beside the region's own total and announce it to the nodes that listen. A node that
//     does not hold the key learns it with its first answer. A sum is told once more after store.KeepFor, for a replica
//     that was promoted before it had received it; one that the origin then lacked, as often as it does.
//
// # What is told
//
// For each cell of a window of at least MinGlobalDuration a relay publishes its region's total:
//
//   - when the region first uses the cell;
//   - while no other region is known to use the cell: with each multiple of the floor (10 % of the limit) that the
//     total reaches, and when it reaches the limit;
//   - once another region is known to use the cell: at once, and at each interval in which the total has grown.
//
// Most cells are used by one region only, and most of the traffic would be their counts. Other regions need the first
// count of such a cell, to know that the region uses it, and then a count that is less than a floor too low. As soon as
// a second region uses the cell both regions publish each growth.
//
// The floor is the tuning's, and at least 1. When it changes, the relay decides again about all cells; when
// MinGlobalDuration changes, the relay starts anew, because windows that were too short are known to the origin alone.
//
// The first count of a cell has its name, and a number; later ones have the number, and take 2 bytes: see payload.go
// and names.go. A reader that lacks a name, of a window that it had left out, reads the stream again from its last
// snapshot.
//
// What does not fit into a row goes with the next, greatest share of its limit first; an interval has up to 8 rows,
// each with 5,000 changes and 256 KiB at most. Nothing is discarded, and weir_relay_unpublished_age_seconds is how long
// the oldest has waited.
//
// # Settings and heartbeats
//
// With Config.Settings the relay also carries what operators set to its origin, every SettingsInterval (5 s), and
// the nodes' heartbeats back, up to 100 with one statement. So nodes need no way to MySQL, and its load follows
// regions. Feed brings the settings' version with each read: they are read when it has changed, when a node of the
// region has come or gone, as they tell how many there are, and once a minute. While MySQL is out the origin's copy
// stays, and grows old: store.SettingsRows.Age. While a tuning is on trial they are read each time that a third of its
// lease is over. An origin that was emptied is told them again with the next turn.
// Heartbeats that claim to be of another region are left out.
//
// # Peers
//
// Regions may also tell each other straight: Config.Publish hands out what peers are to know, and Apply takes it in;
// package peers carries it. What is told is decided as above, but by what the peers were handed: every half interval,
// and as soon as another region is found to use a cell whose count was kept back, though no more than eight times an
// interval. It waits for no store and makes no row of news more, and while Feed is out peers hear on. Handed repeats
// all of it for a peer's relay that has just taken over. Lost counts how often the own relay has forgotten what peers
// sent.
//
// Feed stays the truth: all that peers are told is stored and read all the same, and no cursor moves for what is heard.
// All that holds below holds with peers, without them, and with rows lost, repeated or out of order between them: a row
// is a lower bound of what its region has accepted, whether or not it is ever stored.
//
// # A relay's memory
//
// Everything a relay knows is in its origin, in MySQL, or can be asked again:
//
//	told      cell → total that was told       its own rows since the last snapshot
//	total     cell → the region's total        Scan of its origin
//	foreign   cell → region → count            other regions' rows, read or heard
//	names     writer, number → cell            the rows of a stream, from its last snapshot on
//	sequence  of its next row                  its own last row
//
// A relay that takes over reads its own stream (Own), appends an empty row, scans its origin once (Scan), and goes on.
// A snapshot is all of told, over as many rows as it takes, one an interval; readers begin with the last whole one. One
// is due after SnapshotEvery (30 s), once the rows since the last one have as many bytes as it had, and after 1,500
// rows in any case. Rows older than the last two snapshots are deleted in bounded batches.
//
// A relay that follows a stream reads each row once, snapshots without their payload, and looks every 5 s whether the
// last row that it has read is still stored: if not it begins at the last snapshot.
//
// A store that was restored from a backup, or failed over, may have lost rows. It refuses the stream's next row, as the
// one before it is missing; then the relay reads its stream again and tells what the lost rows had told. A relay with
// nothing to tell appends an empty row after 10 s, and so finds it too.
//
// A cell is forgotten a minute after it has expired by the origin's clock. No clock decides which rows are read. Cells
// of windows that have not begun anywhere, as a region tells whose clock is ahead, are left out, and the region is
// logged.
//
// A cell of another region takes some 135 bytes, with a name of 20 (go test -run '^$' -bench FanIn -benchtime 900x
// ./dataplane/relay). Cells of one namespace and window share what their names have in common, and go together;
// one that is alone takes some 500 bytes (BenchmarkLoneCells).
//
// Of each other region a relay holds 4,194,304 cells, in all shards; of one that tells of more, cells that the own
// region has not counted in are left out, counted and logged. So are the numbers of cells beyond 1,048,576 leaves of 32
// numbers of a region. What a region tells by a number whose name was not read takes no memory, and rows that are heard
// have no numbers: Apply refuses those that do. A relay follows 4,000 streams of news, and each shard holds cells of as
// many other regions: a party that makes regions up in Feed or the CountStore gains no more, and has what is left out
// counted and logged.
//
// Of the own region a relay takes as many cells from Feed and the CountStore as of another one. An emptied origin is
// not raised to what those beyond them have counted. What the origin itself holds, the relay holds.
//
// A load reads all that is stored, and takes as long as rows and answers come. It is given up once none has come for
// 5 s. One that fails is tried again at once, then after 1, 2, 4 and each 8 s.
//
// # Two relays at once
//
// For counts a lease only spares load. The number of a row is the fence: a relay that finds its number taken forgets
// what it knows, and starts again if it still has the lease. A relay takes changes off the origin only after it has
// stored a row that it appended after it took them. So once a successor has stored its first row, its predecessor takes
// nothing off, and what it took off before is in the origin that the successor scans afterwards.
//
// For settings the lease is the fence: the origin takes them only from the relay that has it, so what a relay has read
// and tells late does not replace what its successor has told.
//
// # An origin that was emptied
//
// Nodes notice it by the epoch and send all that they have accepted (store.Cost). The relay finds the shard not
// Healed: it raises the origin to what it knows of the own region's counts, by its news, the CountStore and its memory,
// and marks it as healed. Only then does it use what the origin holds in its new epoch. So what the relay raises an
// origin to was accepted in earlier epochs, and the origin counts nothing twice. It also tells the origin all foreign
// totals again.
//
// # What is stored for good
//
// ratelimit_window_counts stays the durable counter: one component for each region and cell, merged by maximum. The
// relay writes, every 5 s, totals from half of the limit on (or the floor, if that is higher) that have grown by 25
// steps or reached their limit: see StoreFloor. It is read when a relay takes over, once for all its shards, and by
// operators who query the table. A row that the store refuses for good is logged and counted
// (weir_relay_refused_counts_total), and not tried again; news carries its count all the same.
//
// # Invariants
//
//	R1  An origin's foreign total of a cell never exceeds what other regions accepted, and never falls unless the origin
//	    loses what it has acknowledged: it is emptied, or a replica of it is promoted.
//	R2  Within the convergence bound after the last accepted cost every origin's answer has the fleet's total of the
//	    cell, whether or not the region used the cell before; less what R5 allows. The bound is two intervals for
//	    what is told as a count at once, and four after a second region has begun to use the cell, plus the time
//	    that the stores take.
//	R3  A chunk is applied at most once in an epoch, whatever is repeated, reordered or late. The origin sees to it.
//	R4  Two relays of one shard at once change nothing but load.
//	R5  What a relay has not told is at most: less than the floor, and less than what reaches the limit, on a cell that
//	    no other region is known to use; or what was accepted within one interval.
//	R6  An origin that was emptied ends with no less than the sum of what the nodes that are left have accepted, and
//	    with no more than was accepted.
//
// Tests have the invariant that they hold in their names. storetest.TestOrigin holds R3.
//
// # Precision given up
//
//   - A region that is renamed and keeps its origin counts twice what it had accepted until those windows have ended,
//     as its rows of the old name are another region's. With an empty origin it counts once.
//   - An origin that loses the mark that it is healed, and no epoch, in the moment in which its relay is replaced, may
//     be raised to counts of the same epoch.
package relay
