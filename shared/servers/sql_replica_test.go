package servers

import (
	"strings"
	"testing"
)

// "It applies the primary's commits immediately, unless it is held", and other writes fail.
func TestReplica(t *testing.T) {
	t.Parallel()
	EachSQL(t, testReplica)
}

func testReplica(t *testing.T) {
	t.Parallel()
	r := SharedReplica(t)
	dsn := r.Primary.DatabaseForTest(t)
	primary := openDB(t, dsn)
	mustExec(t, primary, "CREATE TABLE r (n INT PRIMARY KEY)")
	mustExec(t, primary, "INSERT INTO r VALUES (1)")
	// the test may run again on the same server
	mustExec(t, primary, "CREATE USER IF NOT EXISTS reader IDENTIFIED BY ''")
	// but none of the rights that read_only does not bind
	mustExec(t, primary, "GRANT ALL ON *.* TO reader")
	mustExec(t, primary, map[Engine]string{
		MariaDB: "REVOKE READ_ONLY ADMIN, SUPER ON *.* FROM reader", MySQL: "REVOKE CONNECTION_ADMIN, SUPER ON *.* FROM reader"}[r.Engine])
	must(t, r.CatchUp(t.Context()))
	there, err := r.Of(dsn)
	must(t, err)
	if n := count(t, there, "SELECT COUNT(*) FROM r"); n != 1 {
		t.Errorf("%d rows on the replica after CatchUp", n)
	}
	reader := openDB(t, strings.Replace(there, "root@", "reader@", 1))
	if _, err := reader.ExecContext(t.Context(), "INSERT INTO r VALUES (9)"); err == nil {
		t.Error("written to the replica")
	}

	must(t, r.Hold(t.Context()))
	mustExec(t, primary, "INSERT INTO r VALUES (2)")
	if n := count(t, there, "SELECT COUNT(*) FROM r"); n != 1 {
		t.Errorf("%d rows on a replica that is held", n)
	}
	must(t, r.Release(t.Context()))
	must(t, r.CatchUp(t.Context()))
	if n := count(t, there, "SELECT COUNT(*) FROM r"); n != 2 {
		t.Errorf("%d rows after Release", n)
	}
}
