package handlers

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// A rollout survives kill -9 of every process at every point, with exactly one outcome. Some rollouts are sick and some
// are aborted, while the handlers' process, Restate and MySQL are killed at random steps. WEIR_SOAK=1 plays 60 rounds
// instead of 5.
func TestSoakRolloutsSurviveKills(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakRolloutsSurviveKills)
}

func testSoakRolloutsSurviveKills(t *testing.T) {
	t.Parallel()
	rounds := soakRounds(5, 60)
	k := newKiller(t, "rollouts", 7)
	v := newVillage(t, k.db)
	v.outages.Store(true)
	cl := newCluster(t, rolloutOptions(store.New(k.db)), func(*stepper) map[string]Job { return nil })
	k.serve(cl)
	c := RolloutClient{cl.client}
	running := oldTuning
	outcomes := map[rollout.Phase]int{}
	for round := range rounds {
		id := fmt.Sprintf("round-%d", round)
		spec := twoStages(int64(200 + k.random.IntN(300)))
		spec.Tuning = newTuning
		if running == newTuning {
			spec.Tuning = otherTuning
		}
		v.sick.Store("")
		if round%3 == 1 {
			v.sick.Store(spec.Tuning)
		}
		await.NoError(t, "the start of "+id, func() error {
			_, err := c.Start(t.Context(), starting(id, spec))
			return err
		})
		for range 1 + k.random.IntN(3) {
			k.killDuring(c, id)
		}
		if round%4 == 2 {
			await.NoError(t, "the abort of "+id, func() error {
				_, err := c.Operate(t.Context(), id, order(rollout.Abort))
				if now, look := c.Status(t.Context(), id); err != nil && look == nil && (now.Phase.Over() || now.Phase == rollout.RollingBack) {
					return nil // it was over before, or the answer was lost
				}
				return err
			})
			k.killDuring(c, id)
		}
		r := reaches(t, c, id, "the end of "+id, abortsIfPaused(t, c, over))
		outcomes[r.Phase]++
		if r.Phase == rollout.Done {
			running = r.Document
		}
		wantInForce(t, k.db, running)
		wantUnlocked(t, k.db, c, id, r.Phase)
		wantOneOutcome(t, r)
		wantWrittenOnce(t, k.db)
		if t.Failed() {
			t.Fatalf("%s: %+v", id, r.Events)
		}
	}
	k.wantAllKilled(rounds, outcomes)
	if len(outcomes) < 2 {
		t.Error("nothing was proven")
	}
}

func wantOneOutcome(t *testing.T, r rollout.Rollout) {
	t.Helper()
	n := 0
	for _, e := range r.Events {
		if rollout.Phase(e.What).Over() {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%s has %d outcomes", r.ID, n)
	}
}

// wantWrittenOnce checks that two attempts of the same step never wrote two versions of the tuning.
func wantWrittenOnce(t *testing.T, db *sql.DB) {
	t.Helper()
	var twice int
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) - COUNT(DISTINCT write_id) FROM ratelimit_tuning`).Scan(&twice); err != nil || twice != 0 {
		t.Errorf("%d versions were written twice, %v", twice, err)
	}
}

// killDuring waits for a random number of transitions, or the end.
func (k *killer) killDuring(c RolloutClient, id string) {
	k.t.Helper()
	from, most := int64(-1), int64(k.random.IntN(12))
	reaches(k.t, c, id, "some transitions more", abortsIfPaused(k.t, c, func(r rollout.Rollout) bool {
		if from < 0 {
			from = r.Epoch
		}
		return r.Phase.Over() || r.Epoch >= from+most
	}))
	k.kill()
}

// abortsIfPaused returns an operator who aborts a sick rollout that pauses because its baseline was too short to judge
// it.
func abortsIfPaused(t *testing.T, c RolloutClient, holds func(rollout.Rollout) bool) func(rollout.Rollout) bool {
	return func(r rollout.Rollout) bool {
		if r.Paused != nil {
			_, _ = c.Operate(t.Context(), r.ID, order(rollout.Abort)) // if it is lost, the next look repeats it
		}
		return holds(r)
	}
}
