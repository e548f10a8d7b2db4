package handlers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/servers"
)

// A retirement has exactly one outcome, never drops a table without both approvals, never deletes rows that have not
// expired, and has each action in the audit log once. Some retirements are sent back by a write or aborted, while the
// handlers' process, Restate and MySQL are killed at random steps. WEIR_SOAK=1 plays 50 rounds instead of 5.
func TestSoakRetirementsSurviveKills(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakRetirementsSurviveKills)
}

func testSoakRetirementsSurviveKills(t *testing.T) {
	t.Parallel()
	rounds := soakRounds(5, 50)
	k := newRetirementKiller(t, 11)
	outcomes := map[retire.Phase]int{}
	for round := range rounds {
		outcomes[k.round(round)]++
		if t.Failed() {
			r, err := k.client.Status(t.Context(), retired)
			t.Fatalf("round %d: %+v, %v", round, r.Events, err)
		}
	}
	k.wantAllKilled(rounds, outcomes)
	if len(outcomes) < 2 {
		t.Error("nothing was proven")
	}
}

// retirementKiller is a killer with a table to retire.
type retirementKiller struct {
	*killer
	client  RetirementClient
	audited int64 // rows of the audit log before this round
}

func newRetirementKiller(t *testing.T, seed uint64) *retirementKiller {
	t.Helper()
	k := &retirementKiller{killer: newKiller(t, "retirement", seed)}
	newHamlet(t, k.db)
	c := newCluster(t, retirementOptions(store.New(k.db)), func(*stepper) map[string]Job { return nil })
	k.client = RetirementClient{c.client}
	k.serve(c)
	return k
}

// round plays a retirement from a table with rows to its outcome.
func (k *retirementKiller) round(n int) retire.Phase {
	t := k.t
	t.Helper()
	k.try("the table", func(ctx context.Context) error {
		text, err := os.ReadFile("../../schema/00002_blocklist.sql")
		if err == nil {
			_, err = k.db.ExecContext(ctx, string(text))
		}
		return err
	})
	live := time.Now().Add(3 * time.Second)
	k.try("rows", func(ctx context.Context) error {
		if err := block(ctx, k.db, "old", 25, -time.Minute); err != nil {
			return err
		}
		return block(ctx, k.db, "live", 10, time.Until(live))
	})
	k.try("the audit log", func(ctx context.Context) error {
		return k.db.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM ratelimit_audit").Scan(&k.audited)
	})
	k.try("the start", func(ctx context.Context) error {
		_, err := k.client.Start(ctx, retired, briefly(), operator)
		return err
	})
	aborts, after := n%3 == 1, n/3%3 // aborts after this many approvals
	for approved := 0; ; {
		k.killOne()
		r := k.settled()
		k.wantLive(live)
		k.wantApproved(r)
		switch {
		case r.Phase.Over():
			return k.over(r)
		case aborts && approved >= after:
			_, _ = k.client.Abort(t.Context(), retired, operator) // the answer may be lost
		case r.Phase == retire.Awaiting:
			if n%5 == 2 && approved == 0 {
				k.try("a write", func(ctx context.Context) error { return block(ctx, k.db, fmt.Sprint("late", n), 1, -time.Second) })
			}
			_, _ = k.client.ApproveRename(t.Context(), retired, retire.Order{By: operator, Evidence: r.EvidenceHash()})
			approved++
		case r.Phase == retire.AwaitingFinal:
			_, _ = k.client.ApproveDrop(t.Context(), retired, retire.Order{By: operator, Evidence: r.EvidenceHash()})
		}
	}
}

// settled waits until the retirement waits for a person or is over, but sometimes not for long enough.
func (k *retirementKiller) settled() (r retire.Retirement) {
	k.t.Helper()
	hasty := k.random.IntN(3) == 0
	return retires(k.t, k.client, "a person is asked", func(r retire.Retirement) bool {
		return hasty || r.Phase.Over() || r.Phase == retire.Awaiting || r.Phase == retire.AwaitingFinal
	})
}

// killOne waits for a random number of transitions, or the end.
func (k *retirementKiller) killOne() {
	k.t.Helper()
	from, most := int64(-1), int64(k.random.IntN(8))
	retires(k.t, k.client, "some transitions more", func(r retire.Retirement) bool {
		if from < 0 {
			from = r.Epoch
		}
		return r.Phase.Over() || r.Epoch >= from+most
	})
	k.kill()
}

// wantLive checks that, before they expire, all the rows exist, under either name of the table.
func (k *retirementKiller) wantLive(until time.Time) {
	k.t.Helper()
	var rows int
	k.try("the rows", func(ctx context.Context) error {
		err := k.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM ratelimit_blocklist WHERE identifier LIKE 'live%'`).Scan(&rows)
		var answered *mysql.MySQLError
		if errors.As(err, &answered) && answered.Number == 1146 { // no such table, and so no row
			return nil
		}
		return err
	})
	if rows != 10 && time.Now().Before(until) {
		k.t.Errorf("%d rows of 10 that have not expired", rows)
	}
}

// wantApproved checks that the table has a name that its approvals allow.
func (k *retirementKiller) wantApproved(r retire.Retirement) {
	k.t.Helper()
	names := blocklistTables(k.t, k.db)
	switch {
	case names == retired, names == "" && r.Drop != nil, names == r.Dated && r.Rename != nil:
	default:
		if now, err := k.client.Status(k.t.Context(), retired); err != nil || now.Epoch == r.Epoch {
			k.t.Errorf("%s with tables %q, approvals %v %v, %v", r.Phase, names, r.Rename, r.Drop, err)
		}
	}
}

// over checks that the tables agree with the single outcome, and that the audit log has each event once.
func (k *retirementKiller) over(r retire.Retirement) retire.Phase {
	k.t.Helper()
	want := map[retire.Phase]string{retire.Dropped: "", retire.Aborted: retired}[r.Phase]
	if names := blocklistTables(k.t, k.db); names != want {
		k.t.Errorf("%s with tables %q", r.Phase, names)
	}
	if r.Phase == retire.Dropped && (r.Rename == nil || r.Drop == nil) {
		k.t.Error("dropped without both approvals")
	}
	ends := 0
	var did []string
	for _, e := range r.Events {
		if retire.Phase(e.What).Over() {
			ends++
		}
		if e.Actor != "weir-control" && e.What != "aborted" {
			did = append(did, strings.ReplaceAll(e.What, " ", "_"))
		}
	}
	if ends != 1 {
		k.t.Errorf("%d outcomes", ends)
	}
	k.wantAudited(did)
	return r.Phase
}

// wantAudited checks that the audit log has each of the operators' actions once.
func (k *retirementKiller) wantAudited(did []string) {
	k.t.Helper()
	slices.Sort(did)
	want := strings.Join(did, ",")
	k.try("the audit log", func(ctx context.Context) error {
		var got sql.NullString
		err := k.db.QueryRowContext(ctx, `SELECT GROUP_CONCAT(SUBSTR(action, 12) ORDER BY SUBSTR(action, 12)) FROM ratelimit_audit WHERE id > ? AND actor = ?`, k.audited, operator.Actor).Scan(&got)
		if err == nil && got.String != want {
			err = fmt.Errorf("%q, want %q", got.String, want)
		}
		return err
	})
	var twice int
	k.try("the audit log", func(ctx context.Context) error {
		return k.db.QueryRowContext(ctx, `SELECT COUNT(*) - COUNT(DISTINCT action, after_state) FROM ratelimit_audit WHERE id > ?`, k.audited).Scan(&twice)
	})
	if twice != 0 {
		k.t.Errorf("%d entries of the audit log are there twice", twice)
	}
}
