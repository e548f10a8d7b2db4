package faults

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
)

// plan is how a fleet differs from two regions with two nodes each on the shared
// server of SQL, with quick tuning and true clocks.
type plan struct {
	regions []string
	nodes   int // of each region
	tuning  tuning.Tuning
	mysql   *servers.SQL                                // of the test's own, if it is to be killed
	skew    func(region string, node int) time.Duration // of a node's clock
}

// quick returns a tuning that stores every growth as a row, and soon, so that rows can be compared with the accepted
// cost exactly.
func quick() tuning.Tuning {
	t := tuning.Default()
	t.Floor, t.Step = 0, 0
	t.SettingsInterval = tuning.Duration(400 * time.Millisecond)
	t.MinGlobalDuration = tuning.Duration(time.Second)
	return t
}

// fleet is several regions in one process.
type fleet struct {
	t       *testing.T
	plan    plan
	server  *servers.SQL
	dsn     string
	db      *sql.DB // past all proxies
	regions []*region
	began   time.Time
	machine *canary
}

// region is a region with its own Redis, its nodes, and the cost that its callers were granted.
type region struct {
	fleet   *fleet
	name    string
	redis   *servers.Redis
	truth   *redisorigin.Origin // without a proxy
	nodes   []*node
	ledger  *ledger
	started int // nodes, ever
}

func newFleet(t *testing.T, p plan) *fleet {
	t.Helper()
	if p.regions == nil {
		p.regions = []string{"eu", "us"}
	}
	if p.nodes == 0 {
		p.nodes = 2
	}
	if p.tuning == (tuning.Tuning{}) {
		p.tuning = quick()
	}
	f := &fleet{t: t, plan: p, server: p.mysql, began: time.Now(), machine: newCanary(t)}
	if f.server == nil {
		f.server = servers.SharedSQL(t)
	}
	f.dsn = f.server.DatabaseForTest(t)
	f.db = migrated(t, f.dsn)
	f.storeTuning(p.tuning)
	for _, name := range p.regions {
		r := &region{fleet: f, name: name, redis: servers.RedisForTest(t), ledger: newLedger()}
		r.truth = originAt(t, r.redis.Addr())
		f.regions = append(f.regions, r)
		for range p.nodes {
			r.start()
		}
	}
	for _, n := range f.nodes() {
		await.True(t, n.id+" has its tuning", n.ready)
	}
	return f
}

// migrated opens a database and makes our tables in it.
func migrated(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db := openDB(t, dsn)
	must(t, schema.Migrate(t.Context(), db, slog.New(slog.DiscardHandler)))
	return db
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := mysqlcounts.Open(dsn)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// originOptions keep every cell of a test until its end, however short its window.
func originOptions() redisorigin.Options {
	return redisorigin.Options{Logger: slog.New(slog.DiscardHandler), Grace: time.Hour}
}

func originAt(t *testing.T, addr string) *redisorigin.Origin {
	t.Helper()
	o, err := redisorigin.Open([]string{"redis://" + addr}, originOptions())
	must(t, err)
	t.Cleanup(func() { must(t, o.Close()) })
	return o
}

func (f *fleet) storeTuning(tun tuning.Tuning) {
	document, err := tun.Document()
	must(f.t, err)
	f.exec("INSERT INTO ratelimit_tuning (region, document, actor, reason, created_at) VALUES ('', ?, 'test', 'test', 0)", document)
	f.exec(controlplanedb.SettingsChanged)
}

func (f *fleet) exec(statement string, args ...any) {
	f.t.Helper()
	if _, err := f.db.ExecContext(f.t.Context(), statement, args...); err != nil {
		f.t.Fatalf("%s: %v", statement, err)
	}
}

// nodes returns all running nodes.
func (f *fleet) nodes() (all []*node) {
	for _, r := range f.regions {
		all = append(all, r.nodes...)
	}
	return all
}

// region returns the region with a name.
func (f *fleet) region(name string) *region {
	for _, r := range f.regions {
		if r.name == name {
			return r
		}
	}
	panic("no region " + name)
}

// stop stops all limiters in good order, while their servers are up. Relays go on.
func (f *fleet) stop() {
	f.t.Helper()
	for _, n := range f.nodes() {
		f.stopLimiter(n)
	}
}

func (f *fleet) stopLimiter(n *node) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		f.t.Errorf("stop %s: %v", n.id, err)
	}
}

// metric returns the sum over a region's nodes.
func (r *region) metric(name string, labels ...string) (sum int64) {
	for _, n := range r.nodes {
		sum += n.metric(name, labels...)
	}
	return sum
}

// metric returns the sum over all nodes.
func (f *fleet) metric(name string, labels ...string) (sum int64) {
	for _, r := range f.regions {
		sum += r.metric(name, labels...)
	}
	return sum
}

// toRedis and toMySQL do something to every way of a region to its servers.
func (r *region) toRedis(f func(*servers.Proxy)) {
	for _, n := range r.nodes {
		f(n.toRedis)
	}
}

func (r *region) toMySQL(f func(*servers.Proxy)) {
	for _, n := range r.nodes {
		f(n.toMySQL)
	}
}

// heal ends every fault of every way, and returns when.
func (f *fleet) heal() time.Time {
	f.t.Helper()
	for _, n := range f.nodes() {
		must(f.t, n.toRedis.Heal())
		must(f.t, n.toMySQL.Heal())
	}
	return time.Now()
}

func (r *region) nextID() string {
	r.started++
	return fmt.Sprintf("%s-%d", r.name, r.started)
}
