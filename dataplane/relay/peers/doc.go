// Package peers carries rows directly between the relays of different regions, if the regions can reach each other. The
// rows have the form of change feed rows. Use it if counts must reach other regions sooner than through MySQL, or while
// MySQL is down.
//
// # How much sooner counts arrive
//
// Through MySQL a count needs an interval of the writer, MySQL's delay twice, and an interval of the reader to reach
// another region: up to two intervals and two round trips. Through a peer it needs half an interval and the link's
// delay. If a second region begins to use a key, it needs the link's delay once more and an eighth of an interval. For
// example, with an interval of 200 ms and a link of 80 ms, a count arrives within some 180 ms. Tests hold the bounds
// (TestR2ThroughPeers, TestR2WithTheStreamsCut).
//
// MySQL stays the truth: relays store and read everything that they send to peers as if there were no peers, and rows
// from peers move no cursor. So rows may be lost, repeated or out of order between peers, and a fleet with all streams
// cut works like a fleet without peers. While MySQL is down, peers go on sending rows to each other.
//
// # Who connects to whom
//
//	relay of eu ──► us-0, us-1, us-2     rows of eu; us-1 leads, and has the stream
//	relay of us ──► eu-0, eu-1, eu-2     rows of us
//
// A relay that leads a shard of its region's origin connects to each address of each peer, and sends its rows to each
// address whose relay leads a shard. That makes a stream for each direction and pair of regions, and more only if
// several nodes lead an origin's shards. Other relays refuse the stream, and the sender tries them again every second.
// A relay that does not lead connects to nothing. When a lease moves to another relay, which takes about three seconds,
// the streams follow within a second or two.
//
// A stream begins with all counts that were sent before, because a relay that takes over has received none of them, and
// MySQL may be away. Without them the new relay's sums would stay below the sums that the origin already has, and a
// count that grows would not be applied until it made up for the others. They are repeated on the same stream when its
// queue has dropped rows. A stream ends when the receiving relay loses its lease and with it the received counts, and
// is opened again.
//
// Name all relays of a region in Peer.Addresses, or a host name with all their addresses: each attempt takes the next
// address. A host name finds a single relay that leads; the rows of shards that other relays lead come through MySQL.
//
// # Who is let in
//
// Both ends show a certificate, over TLS 1.3, that the other end's authorities have signed. The sender requires that
// the server's certificate was issued to the Name of the peer that it means to reach, and the server that the caller's
// was issued to the Name of the region that the caller claims. So a relay can send rows of its own region and of no
// other. Both ends name both regions, so that a wrong address is an error and not a wrong count.
//
// A certificate must serve both ends, by its extended key usage, and have the region's name as a subject alternative
// name. An authority for the fleet and a certificate for each region are enough:
//
//	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=relays" \
//	    -keyout authority.key -out authority.pem
//	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=eu" \
//	    -addext subjectAltName=DNS:eu.relays.example -addext extendedKeyUsage=serverAuth,clientAuth \
//	    -addext basicConstraints=critical,CA:FALSE -CA authority.pem -CAkey authority.key -keyout eu.key -out eu.pem
//
// To change a certificate, replace its files: TLS.Check reads them again. To change the authority, make all relays
// trust both authorities, then give them certificates of the new authority, then remove the old authority. Files that
// disagree are an error, and the last files that agreed stay in use. New connections use the current files; a sender
// opens each stream again after 15 to 45 minutes, and a server closes each connection after about an hour.
//
// Plaintext does without certificates. It is for tests on a single machine: every address must be on loopback.
//
// # Bounds
//
//	a row            store.FeedBytesMax, and 1 KiB around it
//	a stream out     a queue of 64 rows and 4 MiB, which drops the oldest; a row not read for 10 s ends the stream;
//	                 rows that repeat are made one at a time, as the peer reads them
//	a stream in      512 KiB on its way; hello within 5 s
//	a peer           16 addresses; 8 streams in; one row at a time that is read and merged
//	connections in   256, a quarter from one address; a further one closes the one that was silent longest
//	a connection     2 streams, 8 KiB of headers, 5 s for the handshake, a ping after 10 s of silence, an hour
//
// Publish, which a relay calls up to eight times an interval, takes a lock that no I/O is done under. A failing address
// is tried again after 250 ms, then after twice as long each time up to 10 s, each time multiplied by 0.5 to 1.5, so
// that relays that lost a peer together do not come back together.
//
// A peer that is let in is trusted with its own region's counts, as it is in MySQL: it can claim cost that was never
// accepted, so that keys are denied in other regions. The memory that it can take of a relay is bounded: see package
// relay.
package peers
