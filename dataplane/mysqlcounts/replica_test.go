package mysqlcounts

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

// replicated is a primary and a real replica, which applies the primary's changes only when the test calls apply.
type replicated struct {
	t       *testing.T
	dsn     string // of the primary
	replica *servers.Replica
}

func replicate(t *testing.T) *replicated {
	t.Helper()
	r := &replicated{t: t, replica: servers.SharedReplica(t)}
	r.dsn = r.replica.Primary.DatabaseForTest(t)
	migrate(t, r.dsn)
	r.await(r.replica.CatchUp)
	r.await(r.replica.Hold)
	t.Cleanup(func() {
		if err := r.replica.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// readerDSN returns the replica's DSN for a user who may only read. The user is created on the replica, because the
// replica does not apply changes yet.
func (r *replicated) readerDSN() string {
	r.t.Helper()
	dsn, err := r.replica.Of(r.dsn)
	if err != nil {
		r.t.Fatal(err)
	}
	root := openPlain(r.t, dsn)
	exec(r.t, root, "CREATE USER IF NOT EXISTS reader IDENTIFIED BY ''")
	exec(r.t, root, "GRANT SELECT ON `"+one[string](r.t, root, "SELECT DATABASE()")+"`.* TO reader")
	return strings.Replace(dsn, "root@", "reader@", 1)
}

func (r *replicated) await(step func(context.Context) error) {
	r.t.Helper()
	if err := step(within(r.t, time.Minute)); err != nil {
		r.t.Fatal(err)
	}
}

// apply makes the replica apply all changes of the primary.
func (r *replicated) apply() {
	r.t.Helper()
	r.await(r.replica.Release)
	r.await(r.replica.CatchUp)
	r.await(r.replica.Hold)
}
