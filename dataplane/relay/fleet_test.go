package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/schema/schematest"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// R2, R4, R6 on real servers: a relay of three regions is killed, two Redis servers are emptied, the second while the
// database is down, and the database is down for some dozen reads. In the end every origin has exactly the fleet's
// totals.
func TestR2TheFleetOverServers(t *testing.T) { servers.EachSQL(t, fleetOverServers) }

func fleetOverServers(t *testing.T) {
	f := newFleet(t, "eu", "us", "ap")
	eu, us, ap := f.members[0], f.members[1], f.members[2]
	f.accept(1)
	f.awaitKnown("at first")

	f.accept(2)
	eu.killLeader()
	us.empty()
	f.accept(3)
	f.awaitKnown("after a relay was killed and an origin emptied")

	if err := f.database.Kill(); err != nil {
		t.Fatal(err)
	}
	f.accept(4)
	ap.empty()
	f.accept(5)
	for _, m := range f.members {
		before := m.failed.Load()
		await.True(t, m.name+" cannot read", func() bool { return m.failed.Load() >= before+10 })
	}
	if err := f.database.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.accept(6)
	f.awaitKnown("after the database was away")
}

const fleetLimit = 1000

// fleet has regions with their own servers, and a database.
type fleet struct {
	*testing.T
	database *servers.SQL
	dsn      string
	cells    []window.Cell
	members  []*member
}

// member is a region: a Redis server, two relays, and a node that records the costs it has accepted.
type member struct {
	*fleet
	name   string
	redis  *redis.Client
	origin *redisorigin.Origin
	relays []*mortal
	failed atomic.Int64 // failed reads of the feed
	chunk  int64
	costs  []store.Cost // by cell: the costs that its node must send next
	all    []int64      // by cell: the cost that its node has accepted
	known  []int64      // by cell: the highest region total in an answer
}

// mortal is a relay whose connections to its servers can be cut.
type mortal struct {
	*relay.Relay
	ways []*servers.Proxy
}

func newFleet(t *testing.T, names ...string) *fleet {
	database := servers.SQLForTest(t)
	f := &fleet{T: t, database: database, dsn: database.DatabaseForTest(t)}
	schematest.Open(t, f.dsn, mysqlcounts.Open)
	for i := range 20 {
		key := window.Key{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprint("k\xff\x00", i), Duration: time.Hour}
		f.cells = append(f.cells, window.Cell{Key: key, Sequence: window.Sequence(time.Now().UnixMilli(), key.DurationMs())})
	}
	for _, name := range names {
		f.addMember(name)
	}
	return f
}

func (f *fleet) open(dsn string) *sql.DB {
	f.Helper()
	db, err := mysqlcounts.Open(dsn)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = db.Close() })
	return db
}

func (f *fleet) addMember(name string) {
	f.Helper()
	address := servers.RedisForTest(f.T).Addr()
	m := &member{fleet: f, name: name, all: make([]int64, len(f.cells)), known: make([]int64, len(f.cells))}
	m.redis = redis.NewClient(&redis.Options{Addr: address})
	f.Cleanup(func() { _ = m.redis.Close() })
	m.origin = f.openOrigin(address)
	for _, c := range f.cells {
		m.costs = append(m.costs, store.Cost{Cell: c, Limit: fleetLimit})
	}
	for _, holder := range []string{"first", "second"} {
		m.addRelay(holder, address)
	}
	f.members = append(f.members, m)
}

func (f *fleet) openOrigin(address string) *redisorigin.Origin {
	f.Helper()
	origin, err := redisorigin.Open([]string{"redis://" + address}, redisorigin.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = origin.Close() })
	return origin
}

func (m *member) addRelay(holder, address string) {
	m.Helper()
	toRedis, toSQL := servers.ProxyForTest(m.T, address), servers.ProxyForTest(m.T, m.database.Addr())
	config, err := mysql.ParseDSN(m.dsn)
	if err != nil {
		m.Fatal(err)
	}
	config.Addr = toSQL.Addr()
	counts := mysqlcounts.New(m.open(config.FormatDSN()), mysqlcounts.Options{})
	feed := watchedFeed{counts.Feed(), &m.failed}
	r, err := relay.New(relay.Config{Region: m.name, Holder: holder, Origin: m.openOrigin(toRedis.Addr()), Feed: feed, Counts: counts})
	if err != nil {
		m.Fatal(err)
	}
	start(m.T, r)
	m.relays = append(m.relays, &mortal{r, []*servers.Proxy{toRedis, toSQL}})
}

// watchedFeed counts the reads that fail.
type watchedFeed struct {
	store.Feed
	failed *atomic.Int64
}

func (n watchedFeed) Read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	page, err := n.Feed.Read(ctx, q)
	if err != nil {
		n.failed.Add(1)
	}
	return page, err
}

// killLeader cuts the connections of the relay that has the lease, before it can release the lease.
func (m *member) killLeader() {
	m.Helper()
	for _, r := range m.relays {
		if r.Leads() {
			for _, way := range r.ways {
				way.Cut()
			}
			_ = r.Stop(context.Background())
			return
		}
	}
	m.Fatalf("%s: no relay has the lease", m.name)
}

// empty deletes all data of the region's server.
func (m *member) empty() {
	m.Helper()
	if err := m.redis.FlushAll(m.Context()).Err(); err != nil {
		m.Fatal(err)
	}
}

// accept makes each node accept and send a cost in each cell, a different cost for each region and cell.
func (f *fleet) accept(round int64) {
	f.Helper()
	for i, m := range f.members {
		for at := range m.costs {
			cost := round + int64(i+at)
			m.all[at] += cost
			m.costs[at].Add += cost
		}
		m.send()
	}
}

// send sends until all costs are acknowledged in the origin's epoch. Costs of an earlier epoch are sent again in full.
func (m *member) send() {
	m.Helper()
	for again := true; again; {
		m.chunk++
		reply, err := m.origin.Send(m.Context(), store.Chunk{Stream: 1, Number: m.chunk, Costs: m.costs})
		if err != nil {
			m.Fatal(err)
		}
		again = false
		for at, total := range reply.Totals {
			cost := store.Cost{Cell: m.cells[at], Epoch: total.Epoch, Limit: fleetLimit}
			switch {
			case errors.Is(total.Err, store.ErrEpoch):
				again = true
				cost.Restore, cost.Known = m.all[at], m.known[at]
			case total.Err != nil:
				m.Fatal(total.Err)
			}
			m.known[at] = max(m.known[at], total.Region)
			m.costs[at] = cost
		}
	}
}

// awaitKnown waits until every origin has the region's total and the foreign total of every cell.
func (f *fleet) awaitKnown(when string) {
	f.Helper()
	await.NoError(f.T, when, func() error {
		for _, m := range f.members {
			if err := m.check(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *member) check() error {
	reply, err := m.origin.Read(m.Context(), m.cells)
	if err != nil {
		return err
	}
	for at, total := range reply.Totals {
		others := -m.all[at]
		for _, other := range m.members {
			others += other.all[at]
		}
		if total.Region > m.all[at] || total.Foreign > others {
			m.Fatalf("%s has %d and %d of %v, and %d and %d were accepted", m.name, total.Region, total.Foreign, m.cells[at], m.all[at], others)
		}
		if total.Region < m.all[at] || total.Foreign < others {
			return fmt.Errorf("%s has %d and %d of %v, want %d and %d", m.name, total.Region, total.Foreign, m.cells[at], m.all[at], others)
		}
	}
	return nil
}
