// Package relay carries the counts of a region's nodes to all other regions, and back.
//
// # Where it stands
//
//	nodes ─ Send, Read ────────► Origin (Redis) ◄─ relay ─► Feed, CountStore (MySQL) ◄─ relay ─► Origin ─► nodes
//	      ◄─ region, foreign ──             one lease a shard    one writer a (region, shard)
//
// A node calls its region's origin and nothing else. Each answer about a cell has the region's total and the foreign
// total, which is the sum of all other regions. For each shard of an origin, a relay has a lease and keeps the shard in
// step with MySQL. Package relay uses store.RelayOrigin, store.Mailbox, store.Feed and store.CountStore, but nothing of
// the limiter. Each weir-node that has Redis and MySQL runs a relay, and so does weir-sim.
//
// # A cost's way
//
//  1. A node accepts the cost and sends it to its origin, which adds it to the cell, and the cell to the shard's
//     changes.
//  2. After each read of the change feed, the relay takes the shard's changes, compares each total with the published
//     total, and appends a row to the feed. A row has totals, not differences, so readers may apply it twice or in any
//     order: they keep the maximum. Once the row is stored, the relay acknowledges the changes that it had taken before
//     it appended the row. The relay reads again an Interval (200 ms) after the last read began, and at least three
//     quarters of an interval after it ended. It waits for a read for at most 1.5 intervals.
//  3. The relays of other regions read the new rows, add up the cell's components, and apply the sum to their origins.
//     An origin stores the sum with the region's own total and announces it to the nodes that listen. Nodes that do not
//     hold the key receive it with their first answer. The relay applies a sum once more after store.KeepFor, because a
//     replica that was promoted may lack it, and again for as long as the origin turns out to lack it.
//
// # Publishing
//
// For each cell of a window of at least MinGlobalDuration a relay publishes its region's total:
//
//   - when the region first uses the cell;
//   - while no other region uses the cell, as far as rows show: whenever the total reaches another multiple of the
//     floor (10 % of the limit), and when it reaches the limit;
//   - once another region uses the cell: at once, and at each interval in which the total has grown.
//
// Only one region uses most cells, so most of the traffic would be counts of such cells. Other regions need the first
// count of a cell, which shows that the region uses it. After that, a count that is too low by less than a floor is
// enough. For example, with a limit of 1,000 a region publishes such a cell's total when it passes 100, 200, 300, and
// so on. As soon as a second region uses the cell, both regions publish each growth.
//
// The floor is the tuning's, and at least 1. When it changes, the relay decides again about all cells. When
// MinGlobalDuration changes, the relay starts again, because only the origin has the windows that were too short.
//
// The first count of a cell has the cell's name and a number. Later counts have the number alone and take 2 bytes: see
// payload.go and names.go. A reader that lacks a name, for example of a window that it had left out, reads the stream
// again from its last snapshot.
//
// If the totals don't fit into a row, the greatest shares of their limits go first. An interval has up to 8 rows, each
// with up to 5,000 changes and 256 KiB. The rest waits for the next interval; nothing is discarded.
// weir_relay_unpublished_age_seconds is how long the oldest count has waited.
//
// # Settings and heartbeats
//
// With Config.Settings, the relay also carries what operators set to its origin every SettingsInterval (5 s), and the
// nodes' heartbeats to MySQL, up to 100 with a statement. So nodes need no connection to MySQL, and its load grows with
// the number of regions, not of nodes. The relay reads the settings when
//
//   - their version has changed, which each read of Feed returns;
//   - a node of the region has come or gone, because the settings have the number of nodes;
//   - a minute has passed since it read them last;
//   - a third of the lease of a tuning on trial is over.
//
// While MySQL is down the origin keeps its copy, which grows old: see store.SettingsRows.Age. If the origin was
// emptied, the relay stores the settings in it at the next interval. It leaves out heartbeats that claim another
// region.
//
// # Peers
//
// Regions may also send each other rows directly. The relay calls Config.Publish with rows for peers, and Apply applies
// rows from peers; package peers carries them. Rows for peers follow the rules above, compared with what peers were
// sent before. The relay makes such rows every half interval, and as soon as another region turns out to use a cell
// whose count was kept back, but at most eight times an interval. They wait for no store, and go on while Feed is down.
// Handed returns rows that repeat all of it, for a peer's relay that has just taken over. Lost returns how often this
// relay has forgotten the rows that peers sent.
//
// Feed stays the truth: the relay stores and reads everything that peers were sent as if there were no peers, and rows
// from peers move no cursor. Everything below holds with peers, without them, and with rows between them that are lost,
// repeated or out of order, because a row is a lower bound of what its region has accepted, stored or not.
//
// # A relay's memory
//
// A relay's state is in its origin, in MySQL, or can be read again:
//
//	published  cell → published total           its own rows since the last snapshot
//	total      cell → the region's total        Scan of its origin
//	foreign    cell → region → count            other regions' rows, from Feed or peers
//	names      writer, number → cell            the rows of a stream, from its last snapshot on
//	sequence   of its next row                  its own last row
//
// A relay that takes over reads its own stream (Own), appends an empty row, scans its origin once (Scan), and goes on.
// A snapshot is all published totals, in as many rows as they need, with a row for each interval. A snapshot is due
// after SnapshotEvery (30 s), once the rows since the last snapshot have as many bytes as it had, and after 1,500 rows
// in any case. Readers begin with the last complete snapshot. The relay deletes rows that are older than the last two
// snapshots, in bounded batches.
//
// A relay that follows a stream reads each row once, and snapshots without their payload. Every 5 s it checks that the
// last row that it has read is still stored; if not, it begins with the last snapshot.
//
// A store that was restored from a backup, or failed over, may have lost rows. It then refuses the stream's next row,
// because the row before it is missing. The relay reads its stream again and publishes the counts of the lost rows
// again. A relay without anything to publish appends an empty row after 10 s, so it notices as well.
//
// A relay forgets a cell a minute after the cell has expired by the origin's clock. No clock decides which rows it
// reads. If a region's clock is ahead, its cells may be of windows that have not begun anywhere: the relay leaves them
// out and logs the region. If the clock of the relay's own origin is set back, the relay forgets the cells that are
// ahead and starts again: it loads its shard again, and reads the change feed from the last snapshots.
//
// A cell of another region takes about 135 bytes if its name has 20 (go test -run '^$' -bench FanIn -benchtime 900x
// ./dataplane/relay). Cells of the same namespace and window share a part of their names, and expire together. A cell
// that is alone in its namespace and window takes about 500 bytes (BenchmarkLoneCells).
//
// A relay has these bounds, and counts and logs the cells and rows beyond them:
//
//   - 4,194,304 cells of each other region, in all shards. Beyond them it leaves out cells that the own region has not
//     counted in. It takes as many cells of the own region from Feed and the CountStore, and does not raise an emptied
//     origin to the counts of others; cells that the origin itself holds have no bound.
//   - 1,048,576 leaves of 32 numbers of each region. Counts by a number whose name was not read take no memory, and
//     Apply refuses rows with numbers.
//   - 4,000 streams, and as many other regions in each shard: an account that invents regions in Feed or the CountStore
//     takes no more memory than that.
//
// A load reads all that is stored, and takes as long as rows and answers come. The relay gives up a load if nothing has
// come for 5 s. It tries again at once, then after 1, 2, 4 and each 8 s.
//
// # Two relays at once
//
// For counts, a lease only avoids double work. The number of a row is the fence: a relay whose next number is taken
// forgets its state, and starts again if it still has the lease. A relay acknowledges changes only after it has stored
// a row that it appended after it took them. So once a successor has stored its first row, its predecessor acknowledges
// nothing, and the successor's scan, which comes afterwards, finds the changes that the predecessor acknowledged
// before.
//
// For settings the lease is the fence: the origin takes settings only from the relay that has the lease, so a slow
// relay cannot replace the settings that its successor has stored.
//
// # An origin that was emptied
//
// Nodes notice it by the epoch and send everything that they have accepted (store.Cost). The relay finds that the shard
// is not Healed. It raises the origin to the own region's counts from Feed, the CountStore and its memory, and marks
// the origin as healed. Only then does it use the totals that the origin holds in the new epoch. So the counts that it
// raises the origin to were accepted in earlier epochs, and the origin counts nothing twice. It also applies all
// foreign totals again.
//
// # The durable counter
//
// ratelimit_window_counts is the durable counter: a component for each region and cell, merged by maximum. Every 5 s
// the relay writes totals from half of the limit on (or from the floor, if that is higher) that have grown by 25 steps
// or reached their limit: see StoreFloor. A relay reads the table when it takes over, once for all its shards, and
// operators query it. If the store refuses a row for good, the relay logs and counts it
// (weir_relay_refused_counts_total), and does not try it again. Feed has its count all the same.
//
// # Invariants
//
//	R1  An origin's foreign total of a cell never exceeds what other regions accepted, and never falls unless the origin
//	    loses what it has acknowledged: it is emptied, or a replica of it is promoted.
//	R2  Within the convergence bound after the last accepted cost every origin's answer has the fleet's total of the
//	    cell, whether or not the region used the cell before; less what R5 allows. The bound is two intervals for
//	    a count that is published at once, and four after a second region has begun to use the cell, plus the time
//	    that the stores take.
//	R3  A chunk is applied at most once in an epoch, whatever is repeated, reordered or late. The origin ensures it.
//	R4  Two relays of one shard at once change nothing but load.
//	R5  A relay has not published at most: less than the floor, and less than reaches the limit, of a cell that no other
//	    region is known to use; or the cost that was accepted within an interval.
//	R6  An origin that was emptied ends with no less than the sum of what the nodes that are left have accepted, and
//	    with no more than was accepted.
//
// Tests have the invariant that they check in their names. storetest.TestOrigin checks R3.
//
// # Precision given up
//
//   - If a region is renamed and keeps its origin, the cost that it had accepted counts twice until its windows have
//     ended, because its rows of the old name are another region's. With an empty origin it counts once.
//   - If an origin loses the mark that it is healed, and no epoch, at the moment in which its relay is replaced, it may
//     be raised to counts of the same epoch.
package relay
