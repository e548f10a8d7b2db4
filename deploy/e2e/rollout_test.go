package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
)

// A guardrail breach rolls back on its own within one bake interval, and weirctl prints the reason in a line. The
// breach: while the canary region bakes, its Redis is killed.
func TestTheCanaryRollsBackOnItsOwn(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testTheCanaryRollsBackOnItsOwn)
}

func testTheCanaryRollsBackOnItsOwn(t *testing.T) {
	s := start(t)
	const bake = 5 * time.Minute // it looks every 30 s
	rollouts := controlv1connect.NewRolloutServiceClient(http.DefaultClient, s.API())
	callers(t, s)
	baselineMs, bakeMs := (10 * time.Second).Milliseconds(), bake.Milliseconds()
	set := tuning.Default()
	set.Floor = 0.3
	document, err := set.Document()
	if err != nil {
		t.Fatal(err)
	}
	_, err = rollouts.StartRollout(t.Context(), connect.NewRequest(&controlv1.StartRolloutRequest{
		Actor: "ann", Reason: "test", Id: "canary", Tuning: string(document),
		Plan: &controlv1.RolloutPlan{BaselineMs: &baselineMs, Stages: []*controlv1.RolloutStage{{Regions: []string{"eu"}, BakeMs: &bakeMs}, {All: true, BakeMs: &bakeMs}}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	look := func() *controlv1.Rollout {
		answer, err := rollouts.RolloutStatus(t.Context(), connect.NewRequest(&controlv1.RolloutStatusRequest{Id: "canary"}))
		if err != nil {
			return nil
		}
		return answer.Msg.GetRollout()
	}
	await.True(t, "the canary bakes", func() bool { return look().GetPhase() == "baking" })
	if err := s.Redis["eu"].Kill(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "it is over", func() bool { return look().GetEndedAtMs() > 0 })
	r := look()
	if r.GetPhase() != "rolled_back" || !strings.HasPrefix(r.GetWhy(), "stage 1 (eu): ") || strings.Contains(r.GetWhy(), "\n") {
		t.Errorf("%s: %q", r.GetPhase(), r.GetWhy())
	}
	for _, region := range r.GetRegions() {
		if region.GetRegion() != "eu" || region.GetTrial() == 0 || !region.GetTrialEnded() || region.GetAppliedVersion() != 0 {
			t.Errorf("%v", region)
		}
	}
	var stdout bytes.Buffer
	weirctl := exec.CommandContext(t.Context(), filepath.Join(bin, "weirctl"), "--api", s.API(), "rollout", "status", "canary")
	weirctl.Stdout = &stdout
	if err := weirctl.Run(); err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(stdout.String(), "\n")
	if !strings.HasPrefix(first, "rollout canary, rolled back: stage 1 (eu): ") {
		t.Errorf("weirctl: %q", first)
	}
	t.Log(first)
}

// callers call the nodes of eu until the test ends, each time with a key of its own, because a node reads new keys from
// Redis.
func callers(t *testing.T, s *stack.Stack) {
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	calling.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			one, done := context.WithTimeout(ctx, 5*time.Second)
			_, _ = client(s.Nodes[i%2]).Limit(one, connect.NewRequest(limitRequest(fmt.Sprint("caller-", i), 1, 100, time.Minute)))
			done()
		}
	})
	t.Cleanup(func() { cancel(); calling.Wait() })
}
