package scale

import (
	"context"
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/retire"
	operators "github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
)

// A table of the former design is retired from its rows to its drop, while a region publishes and another imports: no
// publish is lost, and none fails. With WEIR_SOAK=1 it has a million rows.
func TestSoakRetirementAtScale(t *testing.T) { servers.EachSQL(t, testSoakRetirementAtScale) }

func testSoakRetirementAtScale(t *testing.T) {
	rows, live := size()
	d := newTable(t, 0, live)
	d.fillBlocklist(rows)
	before := d.sum("live")
	busy := d.traffic(t)
	began := time.Now()
	r := d.retire(t)
	took := time.Since(began)
	publishes, imports := busy()
	if r.Phase != retire.Dropped || r.RowsDeleted != int64(rows) {
		t.Errorf("%s (%s), %d rows of %d deleted", r.Phase, r.Why, r.RowsDeleted, rows)
	}
	d.wantKept(before, publishes)
	t.Logf("%d rows in %v; meanwhile %d publishes, 99 %% within %v and %d imports, 99 %% within %v",
		rows, took.Round(time.Millisecond), len(publishes), p99(publishes), len(imports), p99(imports))
}

func (d *table) fillBlocklist(rows int) {
	d.tb.Helper()
	const turn = 50_000
	for at := 0; at < rows; at += turn {
		_, err := d.db.ExecContext(d.tb.Context(), "INSERT INTO ratelimit_blocklist "+
			"(workspace_id, namespace, identifier, duration_ms, sequence, `limit`, expires_at) "+
			"SELECT 'acme', 'api', LEFT(SHA2(seq, 256), 40), 60000, seq DIV 1000, 10, ? FROM "+
			servers.Numbers(at, min(at+turn, rows)-1), d.now.Add(-time.Hour).UnixMilli())
		must(d.tb, err)
	}
}

// retire takes a retirement from its start to its outcome, with both approvals as soon as they are due.
func (d *table) retire(t *testing.T) *retire.Retirement {
	t.Helper()
	spec := retire.DefaultSpec()
	spec.QuietMs, spec.SoakMs, spec.BatchRows = 100, 100, 5_000
	work := retire.NewWork(operators.New(d.db), time.Minute, 0, controlplane.NewMetrics())
	steps := work.On(retiring{controlplane.Once(t.Context()), d.db}, nil)
	nowMs := func() int64 {
		now, err := steps.NowMs()
		must(t, err)
		return now
	}
	by := controlplane.By{Actor: "ann", Reason: "nothing needs it"}
	r, err := retire.Begin(steps, retire.Blocklist, spec, by)
	must(t, err)
	for deadline := time.Now().Add(10 * time.Minute); r.UnderWay() && time.Now().Before(deadline); {
		wait, err := r.Advance(steps, nowMs())
		must(t, err)
		r.Settle(nowMs(), wait)
		order := retire.Order{By: by, Evidence: r.EvidenceHash()}
		approve := map[retire.Phase]func(retire.Order, retire.Look,
			int64) (time.Duration, error){
			retire.Awaiting: r.ApproveRename, retire.AwaitingFinal: r.ApproveDrop,
		}[r.Phase]
		if approve != nil {
			look, err := steps.Look(r)
			must(t, err)
			wait, err = approve(order, look, nowMs())
			must(t, err)
			r.Settle(nowMs(), wait)
		}
		pause(t.Context(), wait)
	}
	return r
}

// retiring executes the steps of a retirement once each, in a fleet of a single node that relays: it sends a heartbeat
// whenever the time is read.
type retiring struct {
	controlplane.Journal
	db *sql.DB
}

func (r retiring) Do(name string, answer any, step func(context.Context) (any, error)) error {
	return r.Journal.Do(name, answer, func(ctx context.Context) (any, error) {
		value, err := step(ctx)
		if at, is := value.(int64); is && err == nil && name == controlplane.StepNow {
			err = r.beat(ctx, at)
		}
		return value, err
	})
}

func (r retiring) beat(ctx context.Context, at int64) error {
	health, err := json.Marshal(heartbeat.Health{Relay: &heartbeat.Relay{Shards: 1, Held: []int{0}, InStepAtMs: at}})
	if err != nil {
		return err
	}
	return dataplanedb.New(r.db).NodeBeat(ctx, dataplanedb.NodeBeatParams{NodeID: []byte("eu-1"),
		Region: []byte("eu"), Build: "v1", StartedAt: 1, SentAt: uint64(at), Health: string(health)})
}
