package handlers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// A cluster of three survives the loss of any node: kill -9 of the leader, and then of the node that the client uses,
// each in the middle of a rollout and while a schedule ticks. Both continue on the other two nodes, and nothing happens
// twice. The test measures how long they stood still.
func TestLosingNodesOfRestate(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testLosingNodesOfRestate)
}

func testLosingNodesOfRestate(t *testing.T) {
	t.Parallel()
	db, _ := rows(t)
	newVillage(t, db)
	trio := servers.RestateClusterForTest(t)
	ticks := &tickLog{}
	c := newClusterOn(t, trio.Nodes, rolloutOptions(store.New(db)), func(s *stepper) map[string]Job {
		return map[string]Job{"n": ticks.job(s)}
	})
	rollouts := RolloutClient{c.client}
	await.NoError(t, "the schedule", func() error { _, err := c.client.Start(t.Context(), "n", 200*time.Millisecond); return err })
	for round, victim := range []struct {
		is   string
		node func() int
	}{
		{"the node that leads", func() int { return leader(t, trio) }},
		{"the node that is asked", func() int { return int(c.client.at.latest.Load()) }},
	} {
		id, spec := fmt.Sprintf("round-%d", round), twoStages(1500)
		spec.Plan.ApplyTimeoutMs = 60_000
		if round%2 == 1 {
			spec.Tuning = oldTuning
		}
		await.NoError(t, "the start of "+id, func() error {
			_, err := rollouts.Start(t.Context(), starting(id, spec))
			return err
		})
		reaches(t, rollouts, id, "the first stage", func(r rollout.Rollout) bool { return r.Phase == rollout.Baking || r.Stage > 0 })
		looks := lookAt(t, c)
		before, node := ticks.count(), trio.Nodes[victim.node()]
		if err := node.Kill(); err != nil {
			t.Fatal(err)
		}
		await.NoError(t, "ticks without "+victim.is, func() error {
			if got := ticks.count(); got < before+10 {
				return fmt.Errorf("%d, want %d", got, before+10)
			}
			return nil
		})
		r := reaches(t, rollouts, id, "the end of "+id, over)
		t.Logf("MEASURED kill -9 of %s: no tick for %v, no answer for %v", victim.is, ticks.gap(before), looks())
		if err := node.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := trio.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantOneOutcome(t, r)
		wantUnlocked(t, db, rollouts, id, rollout.Done)
		wantInForce(t, db, spec.Tuning)
		wantWrittenOnce(t, db)
	}
	ticks.wantEachOnce(t, c)
}

func leader(t *testing.T, trio *servers.RestateCluster) (most int) {
	t.Helper()
	leads := make([]int, len(trio.Nodes))
	for i, node := range trio.Nodes {
		await.NoError(t, "how many partitions a node leads", func() (err error) { leads[i], err = node.Leads(t.Context()); return err })
		if leads[i] > leads[most] {
			most = i
		}
	}
	return most
}

// lookAt reads the status repeatedly. The function that it returns stops that and returns the longest time without an
// answer.
func lookAt(t *testing.T, c *cluster) func() time.Duration {
	ctx, stop := context.WithCancel(t.Context())
	var gap time.Duration
	var done sync.WaitGroup
	done.Go(func() {
		poll := time.NewTicker(20 * time.Millisecond)
		defer poll.Stop()
		for last := time.Now(); ctx.Err() == nil; <-poll.C {
			if _, err := c.client.Status(ctx, "n"); err == nil {
				gap, last = max(gap, time.Since(last)), time.Now()
			}
		}
	})
	end := func() time.Duration { stop(); done.Wait(); return gap.Round(time.Millisecond) }
	t.Cleanup(func() { end() })
	return end
}

// tickLog is a job that records when it ran, and in which invocation.
type tickLog struct {
	mu  sync.Mutex
	at  []time.Time
	ids map[string]bool
}

func (l *tickLog) job(s *stepper) Job {
	return Job{Run: func(ctx restate.ObjectContext) (Report, error) {
		id := ctx.Request().ID
		_, err := controlplane.Do(s.on(ctx), "note", func(context.Context) (int, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.ids == nil {
				l.ids = map[string]bool{}
			}
			l.ids[id] = true
			l.at = append(l.at, time.Now())
			return len(l.at), nil
		})
		return Report{}, err
	}}
}

func (l *tickLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.at)
}

// gap returns the longest time between two ticks, from the from-th on.
func (l *tickLog) gap(from int) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := max(from, 1); i < len(l.at); i++ {
		longest = max(longest, l.at[i].Sub(l.at[i-1]))
	}
	return longest.Round(time.Millisecond)
}

// wantEachOnce checks that there is one chain, and that each of its numbers was a single invocation that ran once.
func (l *tickLog) wantEachOnce(t *testing.T, c *cluster) {
	t.Helper()
	if s := c.status("n"); s.Generation != 1 {
		t.Errorf("the chain was begun %d times", s.Generation)
	}
	await.NoError(t, "one tick on its way", func() error {
		s := c.status("n")
		if ids := c.ticks("n"); len(ids) != 1 || ids[0] != s.NextTick {
			return fmt.Errorf("ticks %v, want %s alone", ids, s.NextTick)
		}
		return nil
	})
	var s State
	await.NoError(t, "the pause", func() (err error) { s, err = c.client.Pause(t.Context(), "n", operator); return err })
	l.mu.Lock()
	defer l.mu.Unlock()
	if taken := s.Sequence - 1; s.Runs != taken || int64(len(l.ids)) != taken || s.Errors != 0 {
		t.Errorf("%d numbers were taken by %d runs of %d invocations, %d of them failed", taken, s.Runs, len(l.ids), s.Errors)
	}
}
