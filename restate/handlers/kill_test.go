package handlers

import (
	"bufio"
	"context"
	"database/sql"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// killer kills one of the three processes that durable work depends on, drawn by a seed, and starts it again.
type killer struct {
	t       *testing.T
	cluster *cluster
	mysql   *servers.SQL
	db      *sql.DB
	dsn     string
	what    string // the child's handlers: see childVariable
	random  *rand.Rand
	child   *exec.Cmd
	lines   *bufio.Scanner

	next  []int  // the processes to kill, drawn ahead, so that every five kills include each of the three
	kills [3]int // of the handlers, Restate, MySQL
}

// newKiller makes a killer with tables on a MySQL of its own. serve starts the handlers.
func newKiller(t *testing.T, what string, seed uint64) *killer {
	t.Helper()
	server := servers.SQLForTest(t)
	server.CreateForTest(t, "weir")
	db, err := store.Open(server.DSN("weir"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	k := &killer{t: t, mysql: server, db: db, dsn: server.DSN("weir"), what: what, random: rand.New(rand.NewPCG(seed, 12))}
	k.try("the tables", func(ctx context.Context) error { return schema.Migrate(ctx, db, slog.New(slog.DiscardHandler)) })
	return k
}

// serve makes the child serve the handlers at the cluster's address.
func (k *killer) serve(c *cluster) {
	k.t.Helper()
	k.cluster = c
	c.down()
	k.handlersUp()
	k.t.Cleanup(k.tellTroubled)
}

// tellTroubled logs, for a test that failed, the invocations that made no progress, and why.
func (k *killer) tellTroubled() {
	if !k.t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	troubled, err := k.cluster.adminClient().Troubled(ctx)
	k.t.Logf("after kills %v, in trouble: %+v, %v", k.kills, troubled, err)
}

func (k *killer) handlersUp() {
	k.child, k.lines = startChild(k.t, k.cluster.address, k.dsn, k.what)
}

func (k *killer) kill() {
	k.t.Helper()
	if len(k.next) == 0 {
		k.next = []int{0, 0, 0, 1, 2}
		k.random.Shuffle(len(k.next), func(i, j int) { k.next[i], k.next[j] = k.next[j], k.next[i] })
	}
	which := k.next[0]
	k.next = k.next[1:]
	k.kills[which]++
	switch which {
	case 1:
		k.cluster.crash()
	case 2:
		if err := k.mysql.Kill(); err != nil {
			k.t.Fatal(err)
		}
		if err := k.mysql.Restart(k.t.Context()); err != nil {
			k.t.Fatal(err)
		}
	default:
		if err := k.child.Process.Kill(); err != nil {
			k.t.Fatal(err)
		}
		_ = k.child.Wait()
		k.handlersUp()
	}
}

// try repeats an action while a process is coming back.
func (k *killer) try(what string, do func(context.Context) error) {
	k.t.Helper()
	await.NoError(k.t, what, func() error {
		ctx, cancel := context.WithTimeout(k.t.Context(), 10*time.Second)
		defer cancel()
		return do(ctx)
	})
}

// count returns the number that a query returns.
func (k *killer) count(query string, args ...any) (n int) {
	k.t.Helper()
	k.try(query, func(ctx context.Context) error { return k.db.QueryRowContext(ctx, query, args...).Scan(&n) })
	return n
}

// wantAllKilled checks that each of the three processes was killed; otherwise the test has proven too little.
func (k *killer) wantAllKilled(rounds int, outcomes any) {
	k.t.Helper()
	k.t.Logf("%d rounds with %d kills of the handlers, %d of Restate and %d of MySQL: %v", rounds, k.kills[0], k.kills[1], k.kills[2], outcomes)
	if slices.Contains(k.kills[:], 0) {
		k.t.Error("one of the three was never killed")
	}
}

// soakRounds returns how many rounds a random test plays: more with WEIR_SOAK=1.
func soakRounds(few, many int) int {
	if os.Getenv("WEIR_SOAK") != "" {
		return many
	}
	return few
}
