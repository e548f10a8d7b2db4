package handlers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

const (
	expiredARound = 200
	liveARound    = 20
)

// There is one chain, all rows that expired before the last cutoff are deleted, and no live row is. Rows of both kinds
// are added while the handlers' process, Restate and MySQL are killed at random batches. WEIR_SOAK=1 plays 60 rounds
// instead of 5.
func TestSoakCleanupsSurviveKills(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakCleanupsSurviveKills)
}

func testSoakCleanupsSurviveKills(t *testing.T) {
	t.Parallel()
	rounds := soakRounds(5, 60)
	k := newKiller(t, "cleanup", 5)
	k.try("an unpartitioned table", func(ctx context.Context) error { // a partition is dropped when its hour is over
		_, err := k.db.ExecContext(ctx, "ALTER TABLE ratelimit_window_counts REMOVE PARTITIONING")
		return err
	})
	k.serve(newCleanupCluster(t, store.New(k.db)))
	k.try("the schedule", func(ctx context.Context) error {
		_, err := k.cluster.client.Start(ctx, CleanupJob, 200*time.Millisecond)
		return err
	})
	for round := range rounds {
		k.addRows(round)
		for range 1 + k.random.IntN(2) {
			k.cleaned(round, k.random.IntN(expiredARound))
			k.kill()
		}
		if round%2 == 1 {
			k.cleaned(round, expiredARound) // otherwise the run under way also sees the next round's rows
		}
		if live := k.count(`SELECT COUNT(*) FROM ratelimit_window_counts WHERE identifier LIKE 'live%'`); live != (round+1)*liveARound {
			t.Fatalf("round %d: %d live rows, want %d", round, live, (round+1)*liveARound)
		}
	}
	k.cleaned(rounds-1, expiredARound)
	k.cluster.lastRun(k.cluster.status(CleanupJob).Runs + 2) // a run with a cutoff after the last kill has ended
	k.wantOneChain()
	if live := k.count(`SELECT COUNT(*) FROM ratelimit_window_counts`); live != rounds*liveARound {
		t.Errorf("%d rows left, want the %d live ones", live, rounds*liveARound)
	}
	s := k.cluster.status(CleanupJob)
	k.wantAllKilled(rounds, fmt.Sprintf("%d runs, %d rows", s.Runs, s.Totals[countRows]))
	// Each kill can lose the count of the batch under way, but never adds to a count.
	if rows := s.Totals[countRows]; rows > int64(rounds*expiredARound) || s.Errors != 0 {
		t.Errorf("%d rows deleted of %d, %d failed runs", rows, rounds*expiredARound, s.Errors)
	}
}

// addRows adds a round's rows, once: an insert whose answer was lost is repeated.
func (k *killer) addRows(round int) {
	k.t.Helper()
	for name, rows := range map[string]struct {
		expires time.Time
		number  int
	}{"expired": {time.Now().Add(-time.Hour), expiredARound}, "live": {time.Now().Add(time.Hour), liveARound}} {
		k.try(name+" rows", func(ctx context.Context) error {
			_, err := k.db.ExecContext(ctx, `INSERT IGNORE INTO ratelimit_window_counts
				(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
				SELECT 'acme', 'api', CONCAT(?, seq), 60000, 1, 'eu', 5, ? + seq, 1 FROM `+servers.Numbers(1, 200)+` WHERE seq <= ?`,
				fmt.Sprintf("%s-%d-", name, round), rows.expires.UnixMilli(), rows.number)
			return err
		})
	}
}

// cleaned waits until this many of a round's expired rows are deleted.
func (k *killer) cleaned(round, rows int) {
	k.t.Helper()
	await.NoError(k.t, "a round's rows are deleted", func() error {
		left := k.count(`SELECT COUNT(*) FROM ratelimit_window_counts WHERE identifier LIKE ?`, fmt.Sprintf("expired-%d-%%", round))
		if gone := expiredARound - left; gone < rows {
			return fmt.Errorf("%d of %d", gone, rows)
		}
		return nil
	})
}

// wantOneChain checks that the chain was begun once, and has one tick under way.
func (k *killer) wantOneChain() {
	k.t.Helper()
	await.NoError(k.t, "one tick on its way", func() error {
		s, ids := k.cluster.status(CleanupJob), k.cluster.ticks(CleanupJob)
		if s.Generation != 1 || len(ids) != 1 || ids[0] != s.NextTick {
			return fmt.Errorf("generation %d, ticks %v, want %s alone", s.Generation, ids, s.NextTick)
		}
		return nil
	})
}
