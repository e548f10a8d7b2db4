package faults

import (
	"database/sql"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// MySQL is killed at 600 requests per second. Relays treat nothing as stored that is not, and when it is back they
// store and publish everything that it has missed. A key at its limit stays denied everywhere meanwhile, and the other
// region then receives the cost that a region used up during the outage.
func TestSoakMySQLIsDown(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakMySQLIsDown)
}

func testSoakMySQLIsDown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{mysql: servers.SQLForTest(t)})
	eu, us := f.region("eu"), f.region("us")
	f.exhaust()
	before := f.granted()
	l := load{perSecond: 300, keys: 700}
	stop, stopVictims := l.start(t, f.regions...), victims.start(t, f.regions...)
	stopWatch := f.watch()
	pause(t.Context(), time.Second)

	must(t, f.server.Kill())
	await.True(t, "relays of both regions fail", func() bool { return eu.relaysFail() && us.relaysFail() })
	stored := f.metric("weir_relay_stored_counts_total")
	const late = "late"
	for eu.ask(eu.nodes[0], late, 100).Allowed { // us cannot have received it
		continue
	}
	pause(t.Context(), soak(4*time.Second, 5*time.Minute))
	f.decidesOn()
	if now := f.metric("weir_relay_stored_counts_total"); now != stored {
		t.Errorf("%d counts are taken for stored while MySQL is away", now-stored)
	}
	must(t, f.server.Restart(t.Context()))
	since := time.Now()
	took := f.recovered(since, 0)
	denied := await.True(t, "the other region denies as well", func() bool {
		return us.nodes[0].knows(late, oneCell) >= 100
	})
	if d := us.ask(us.nodes[0], late, 100); d.Allowed {
		t.Errorf("a full budget for the other region: %+v", d)
	}
	stop()
	stopVictims()
	stopWatch()
	if more := f.granted() - before; more != 0 {
		t.Errorf("keys at their limit were given %d more", more)
	}
	t.Logf("the late key was denied %v after the rest", denied)
	f.settle(soak("MySQL killed, back after 4 s", "MySQL killed, back after 5 min"), took, allowance{})
}

// relaysFail reports whether the region's relay has noticed a fault.
func (r *region) relaysFail() bool { return r.metric("weir_relay_errors_total") > 0 }

// Another writer updates the same rows in the opposite order, and holds them: a relay loses, tries again, and nothing
// is lost.
func TestSoakForeignWriterDeadlocks(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakForeignWriterDeadlocks)
}

func testSoakForeignWriterDeadlocks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{})
	l := load{perSecond: 1000, keys: 600}
	stop := l.start(t, f.regions...)
	stopWatch := f.watch()
	// InnoDB lets the transaction win that has written more, which is this transaction.
	f.exec("CREATE TABLE heavy (n INT PRIMARY KEY) AS SELECT seq AS n FROM " + servers.Numbers(1, 20_000))
	deadlocks := func() int64 { return f.metric("weir_mysql_retries_total", "deadlock") }
	fought := 0
	for ; deadlocks() < soak[int64](2, 20); fought++ {
		f.fight(l.key(10), l.key(450)) // shared keys, so both are rows of a single statement
	}
	f.outwait()
	took := f.recovered(time.Now(), 0)
	stop()
	stopWatch()
	t.Logf("%d deadlocks with %d foreign transactions", deadlocks(), fought)
	f.settle("rows locked, and in the opposite order", took, allowance{})
}

// fight runs a foreign transaction that locks the later of two rows of a region, waits until a statement waits for it,
// and then requests the earlier row, which that statement has locked.
func (f *fleet) fight(earlier, later string) {
	t := f.t
	t.Helper()
	tx, err := f.db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { must(t, tx.Rollback()) }()
	if _, err := tx.ExecContext(t.Context(), "UPDATE heavy SET n = -n"); err != nil {
		t.Fatal(err)
	}
	current := func() int64 { return window.Sequence(time.Now().UnixMilli(), oneCell.Milliseconds()) }
	sequence := current()
	lock := func(identifier string) error {
		var count int64
		return tx.QueryRowContext(t.Context(), "SELECT count FROM ratelimit_window_counts WHERE workspace_id = ? AND namespace = ?"+
			" AND identifier = ? AND duration_ms = ? AND sequence = ? AND region = ? FOR UPDATE", workspace, namespace, identifier, oneCell.Milliseconds(),
			sequence, f.regions[0].name).Scan(&count)
	}
	if lock(later) != nil { // it may not be there yet
		return
	}
	await.True(t, "a statement waits for a row", func() bool {
		if current() != sequence { // a cell that is over grows no more
			return true
		}
		pause(t.Context(), 150*time.Millisecond) // InnoDB renews the table only if it has not been read for 100 ms
		var waiting int
		err := f.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.innodb_trx "+
			"WHERE trx_state = 'LOCK WAIT'").Scan(&waiting)
		return err == nil && waiting > 0 // MySQL does not list a statement with binary data, such as rows of the change feed
	})
	_ = lock(earlier) // this transaction may lose; then it has ended
}

// outwait holds all rows of a region until its relay has given up waiting for them.
func (f *fleet) outwait() {
	t := f.t
	t.Helper()
	held := func() (tx *sql.Tx, err error) {
		tx, err = f.db.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), "SELECT COUNT(*) FROM ratelimit_window_counts WHERE region = ? FOR UPDATE", f.regions[0].name)
		return tx, err
	}
	tx, err := held()
	for err != nil { // it has lost
		must(t, tx.Rollback())
		tx, err = held()
	}
	defer func() { must(t, tx.Rollback()) }()
	fails := func() int64 { return f.regions[0].metric("weir_relay_errors_total") }
	before := fails()
	await.True(t, "the relay gives up waiting for a row", func() bool { return fails() > before })
}

// A row that the database rejects blocks no other row and is tried once, and other regions receive its count.
func TestRefusedRow(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRefusedRow)
}

func testRefusedRow(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{nodes: 1})
	f.exec("ALTER TABLE ratelimit_window_counts ADD CONSTRAINT no_poison CHECK (identifier <> 'poison00000')")
	l, poison := load{perSecond: 500, keys: 600}, load{perSecond: 50, keys: 1, prefix: "poison"}
	stop, stopPoison := l.start(t, f.regions...), poison.start(t, f.region("eu"))
	await.True(t, "a row is refused", func() bool { return f.metric("weir_relay_refused_counts_total") > 0 })
	pause(t.Context(), 7*time.Second) // the relay could try it again
	if n := f.metric("weir_relay_refused_counts_total"); n != 1 {
		t.Errorf("%d rows were refused, one is at fault", n)
	}
	stopPoison()
	refused := f.region("eu").ledger.of(poison.key(0))
	took := f.recovered(time.Now(), refused)
	stop()
	f.settle("a row that MySQL refuses", took, allowance{refused: refused})
}
