package handlers

import (
	"bufio"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/weirhq/weir/controlplane"
)

// "Survives kill -9 of every process at every point with exactly one outcome": rollouts,
// some of them sick and some aborted, while the handlers' process and Restate itself are
// killed at random moments. WEIR_SOAK=1 plays 60 rounds instead of 5.
func TestSoakRolloutsSurviveKills(t *testing.T) {
	t.Parallel()
	rounds := 5
	if os.Getenv("WEIR_SOAK") != "" {
		rounds = 60
	}
	cl, v, db, dsn, c := newRolloutCluster(t)
	cl.down() // the child serves at its address
	k := &killer{t: t, cluster: cl, dsn: dsn, random: rand.New(rand.NewPCG(7, 12))}
	k.handlersUp()
	running := oldTuning
	outcomes := map[controlplane.RolloutPhase]int{}
	for round := range rounds {
		id := fmt.Sprintf("round-%d", round)
		spec := twoStages(int64(200 + k.random.IntN(300)))
		spec.Tuning = newTuning
		if running == newTuning {
			spec.Tuning = oldTuning
		}
		v.sick.Store("")
		if round%3 == 1 {
			v.sick.Store(spec.Tuning)
		}
		eventually(t, "the start of "+id, func() error { _, err := c.Start(t.Context(), id, spec, operator); return err })
		for range 1 + k.random.IntN(3) {
			k.killOne(c, id)
		}
		if round%4 == 2 {
			eventually(t, "the abort of "+id, func() error {
				_, err := c.Operate(t.Context(), id, controlplane.RolloutAbort, operator)
				if now, look := c.Status(t.Context(), id); err != nil && look == nil && (now.Phase.Over() || now.Phase == controlplane.RolloutRollingBack) {
					return nil // it was over before, or the answer was lost
				}
				return err
			})
			k.killOne(c, id)
		}
		r := reaches(t, c, id, "the end of "+id, over)
		outcomes[r.Phase]++
		if r.Phase == controlplane.RolloutDone {
			running = r.Document
		}
		wantInForce(t, db, running)
		wantUnlocked(t, c, id, r.Phase)
		wantOneOutcome(t, r)
		wantWrittenOnce(t, db)
		if t.Failed() {
			t.Fatalf("%s: %+v", id, r.Events)
		}
	}
	t.Logf("%d rounds with %d kills of the handlers and %d of Restate: %v", rounds, k.handlers, k.restates, outcomes)
	if k.handlers == 0 || k.restates == 0 || len(outcomes) < 2 {
		t.Error("nothing was proven")
	}
}

func wantOneOutcome(t *testing.T, r controlplane.Rollout) {
	t.Helper()
	n := 0
	for _, e := range r.Events {
		if controlplane.RolloutPhase(e.What).Over() {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%s has %d outcomes", r.ID, n)
	}
}

// wantWrittenOnce: no version of the tuning was written by two attempts of one step.
func wantWrittenOnce(t *testing.T, db *sql.DB) {
	t.Helper()
	var twice int
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) - COUNT(DISTINCT write_id) FROM ratelimit_tuning`).Scan(&twice); err != nil || twice != 0 {
		t.Errorf("%d versions were written twice, %v", twice, err)
	}
}

// killer kills one of the two processes at a random point, and starts it again.
type killer struct {
	t       *testing.T
	cluster *cluster
	dsn     string
	random  *rand.Rand
	child   *exec.Cmd
	lines   *bufio.Scanner

	handlers, restates int
}

func (k *killer) handlersUp() {
	k.child, k.lines = startChild(k.t, k.cluster.address, k.dsn, "rollouts")
}

// killOne waits for a random number of transitions, or the end.
func (k *killer) killOne(c RolloutClient, id string) {
	k.t.Helper()
	from, most := int64(-1), int64(k.random.IntN(12))
	reaches(k.t, c, id, "some transitions more", func(r controlplane.Rollout) bool {
		if from < 0 {
			from = r.Epoch
		}
		return r.Phase.Over() || r.Epoch >= from+most
	})
	if k.random.IntN(3) == 0 {
		k.restates++
		k.cluster.crash()
		return
	}
	k.handlers++
	if err := k.child.Process.Kill(); err != nil {
		k.t.Fatal(err)
	}
	_ = k.child.Wait()
	k.handlersUp()
}
