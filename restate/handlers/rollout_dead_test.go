package handlers

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// If the delayed message of a rollout was lost (its invocation was killed), the keeper revives the rollout once, and
// the rollout continues from its phase.
func TestKeeperRevivesARollout(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testKeeperRevivesARollout)
}

func testKeeperRevivesARollout(t *testing.T) {
	t.Parallel()
	cl, _, db, _, c := newRolloutCluster(t)
	k := cl.keeper(nil)
	if err := k.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	const bake = 20_000 // a look every 2 s
	if _, err := c.Start(t.Context(), starting("lost", twoStages(bake))); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "lost", "the canary bakes", in(rollout.Baking, 0))
	var dead rollout.Rollout
	await.NoError(t, "its timers are killed", func() (err error) {
		for _, id := range cl.stepIDs("lost") {
			cl.admin(http.MethodPatch, "/invocations/"+id+"/kill", nil, nil)
		}
		if n := cl.timers("lost"); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		dead, err = c.Status(t.Context(), "lost")
		return err
	})
	if !dead.Overdue(dead.TimerMs+10_001, 10*time.Second) || dead.Overdue(dead.TimerMs, 0) {
		t.Errorf("dead at %d, whose timer was due at %d?", dead.TimerMs+10_001, dead.TimerMs)
	}
	var alive rollout.Rollout
	await.NoError(t, "the keeper revives it", func() (err error) {
		if err = k.Once(t.Context()); err != nil {
			return err
		}
		if alive, err = c.Status(t.Context(), "lost"); err == nil && alive.Epoch < dead.Epoch+3 {
			err = fmt.Errorf("epoch %d, after %d", alive.Epoch, dead.Epoch)
		}
		return err
	})
	revived := 0
	for _, e := range alive.Events {
		if e.What == "revive" {
			revived++
		}
	}
	if revived < 1 || alive.Phase != rollout.Baking || cl.timers("lost") > 1 {
		t.Errorf("revived %d times, %s, %d timers", revived, alive.Phase, cl.timers("lost"))
	}
	// once, or again if the machine is so busy that the new timer is late as well
	if repairs := metric(t, cl.options.Metrics, "weir_control_chain_repairs_total", ""); repairs != float64(revived) {
		t.Errorf("weir_control_chain_repairs_total is %v, want %d", repairs, revived)
	}
	if _, err := c.Operate(t.Context(), "lost", order(rollout.Abort)); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "lost", "the end", over)
	wantInForce(t, db, oldTuning)
	wantUnlocked(t, db, c, "lost", rollout.Aborted)
}

// A redeploy in the middle of a bake: another build, at an address of its own, gets the timers that are under way. The
// old process ends once it has no invocations.
func TestRolloutMovesToAnotherDeployment(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRolloutMovesToAnotherDeployment)
}

func testRolloutMovesToAnotherDeployment(t *testing.T) {
	t.Parallel()
	cl, _, db, _, c := newRolloutCluster(t)
	if _, err := c.Start(t.Context(), starting("moves", twoStages(4000))); err != nil {
		t.Fatal(err)
	}
	before := reaches(t, c, "moves", "the canary bakes", in(rollout.Baking, 0))
	last, served, old := cl.endpoint, cl.served, "http://"+cl.address
	cl.address = "" // any other
	cl.up()
	cl.register()
	if "http://"+cl.address == old {
		t.Fatal("the same address")
	}
	reaches(t, c, "moves", "some transitions", func(r rollout.Rollout) bool { return r.Epoch >= before.Epoch+3 })
	// An invocation ends where it began, so the old process ends when all of its invocations have ended.
	await.NoError(t, "nothing is left to do at the old address", func() error {
		if n := cl.startedAt(old); n > 0 {
			return fmt.Errorf("%d invocations have not ended", n)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := last.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if r := reaches(t, c, "moves", "the end", over); r.Phase != rollout.Done {
		t.Errorf("%s %q", r.Phase, r.Why)
	}
	wantInForce(t, db, newTuning)
	wantUnlocked(t, db, c, "moves", rollout.Done)
}

// startedAt returns the number of invocations that began at an address and have not ended.
func (c *cluster) startedAt(uri string) (n int) {
	c.t.Helper()
	var answer struct{ Rows []struct{ N int } }
	c.admin(http.MethodPost, "/query", map[string]string{"query": fmt.Sprintf(`SELECT COUNT(i.id) AS n FROM sys_invocation i
		JOIN sys_deployment d ON i.pinned_deployment_id = d.id
		WHERE d.endpoint LIKE '%s%%' AND i.status <> 'completed'`, uri)}, &answer)
	return answer.Rows[0].N
}

// stepIDs returns the invocations of a rollout's timers that are under way.
func (c *cluster) stepIDs(id string) (ids []string) {
	c.t.Helper()
	var answer struct{ Rows []struct{ ID string } }
	c.admin(http.MethodPost, "/query", map[string]string{"query": fmt.Sprintf(`SELECT id FROM sys_invocation
		WHERE target_service_name = '%s' AND target_service_key = '%s' AND target_handler_name = 'Step' AND status <> 'completed'`, RolloutService, id)}, &answer)
	for _, r := range answer.Rows {
		ids = append(ids, r.ID)
	}
	return ids
}
