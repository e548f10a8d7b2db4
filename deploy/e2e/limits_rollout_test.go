package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// Rollouts of limits on a whole system. Of 40 callers of eu, two use much: a limit between them and the others newly
// denies 5 % of the callers.
func TestLimitsAreRolledOutInStages(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testLimitsAreRolledOutInStages)
}

const (
	roomyLimit   = 1_000_000
	lessRoomy    = 900_000 // newly denies no caller
	narrowLimit  = 50_000  // newly denies the two callers who use much
	usedByHeavy  = 100_000
	limitCallers = 40
)

func testLimitsAreRolledOutInStages(t *testing.T) {
	s := start(t)
	d := &day{t: t, api: s.API(), dir: t.TempDir()}
	window := roomyWindow()
	d.run(0, "override", "set", "acme", "api", "user_*", "--limit", fmt.Sprint(roomyLimit), "--reason", "as agreed")
	inForce := func(n *stack.Node) int64 {
		return limit(t, n, limitRequest("user_0", 0, 7, window)).GetLimit()
	}
	for _, n := range s.Nodes {
		await.True(t, n.ID+" has the override", func() bool { return inForce(n) == roomyLimit })
	}
	for _, heavy := range []string{"user_38", "user_39"} {
		limit(t, s.Nodes[0], limitRequest(heavy, usedByHeavy, roomyLimit, window))
	}
	callOften(t, s, window)

	d.document("less.yaml", lessRoomy)
	d.document("narrow.yaml", narrowLimit)
	d.plan("careful.json", `"newly_denied_callers": 1`, 3000)
	d.plan("tolerant.json", `"newly_denied_callers": 5, "newly_denied_share": 1, "protected": [{"workspace": "acme", `+
		`"namespace": "api", "pattern": "user_39"}]`, 3000)
	d.plan("slow.json", `"newly_denied_callers": 1`, 600_000)

	d.says("Two of forty callers would be denied: it is rolled back while it only counts.")
	d.run(0, "rollout", "start", "--id", "narrow", "--limits", "narrow.yaml", "--plan", "careful.json", "--reason", "too much")
	d.over("narrow", "rolled back: stage 1", "newly denied")
	d.says("A protected caller would be denied.")
	d.run(0, "rollout", "start", "--id", "protected", "--limits", "narrow.yaml", "--plan", "tolerant.json", "--reason", "too much")
	d.over("protected", "rolled back: stage 1", "user_39")

	d.says("Somebody edits the limit meanwhile: the edit stays.")
	d.run(0, "rollout", "start", "--id", "edited", "--limits", "less.yaml", "--plan", "slow.json", "--reason", "less")
	d.until("baking", "rollout", "status", "edited")
	d.run(0, "override", "set", "acme", "api", "user_*", "--limit", "999999", "--reason", "an edit")
	d.over("edited", "rolled back: stage 1", "999999")
	await.True(t, "the edit is in force", func() bool { return inForce(s.Nodes[0]) == 999_999 })
	d.run(0, "override", "set", "acme", "api", "user_*", "--limit", fmt.Sprint(roomyLimit), "--reason", "as agreed")

	d.says("A harmless limit reaches the fleet.")
	d.run(0, "rollout", "start", "--id", "less", "--limits", "less.yaml", "--plan", "careful.json", "--reason", "less is enough")
	d.over("less", "done", "")
	for _, n := range s.Nodes {
		await.True(t, n.ID+" has the new limit", func() bool { return inForce(n) == lessRoomy })
	}
	d.says("It is taken back.")
	d.run(0, "rollout", "rollback", "less", "--reason", "they ask for more", "--yes")
	d.over("less", "rolled back", "")
	for _, n := range s.Nodes {
		await.True(t, n.ID+" has the earlier limit", func() bool { return inForce(n) == roomyLimit })
	}
}

// If the control plane dies, nodes return to the stored limits when the lease of the trial ends. When it is back, the
// rollout has a single outcome, and nothing was stored.
func TestALimitOnTrialEndsWithItsControlPlane(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testALimitOnTrialEndsWithItsControlPlane)
}

func testALimitOnTrialEndsWithItsControlPlane(t *testing.T) {
	s := start(t)
	d := &day{t: t, api: s.API(), dir: t.TempDir()}
	window := roomyWindow()
	d.run(0, "override", "set", "acme", "api", "user_*", "--limit", fmt.Sprint(roomyLimit), "--reason", "as agreed")
	inForce := func() int64 { return limit(t, s.Nodes[0], limitRequest("user_0", 0, 7, window)).GetLimit() }
	await.True(t, "the node has the override", func() bool { return inForce() == roomyLimit })
	d.document("less.yaml", lessRoomy)
	d.file("enforce.json", `{"baseline_ms": 1000, "lease_ms": 45000, "stages": [{"all": true, "bake_ms": 300000}],
  "guardrails": `+onlyTheOrigin+`}`)
	d.run(0, "rollout", "start", "--id", "less", "--limits", "less.yaml", "--plan", "enforce.json", "--reason", "less")
	await.True(t, "the node tries the limit", func() bool { return inForce() == lessRoomy })
	if err := s.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the node returns to the stored limit", func() bool { return inForce() == roomyLimit })
	if err := s.Control.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.api = s.API()
	d.over("less", "rolled back", "")
	if got := inForce(); got != roomyLimit {
		t.Errorf("the limit is %d, want %d", got, roomyLimit)
	}
}

// document writes a document of settings in which all users have a limit.
func (d *day) document(name string, limit int64) {
	d.file(name, fmt.Sprintf("kind: weir-settings\nversion: 1\noverrides:\n"+
		"  - {workspace: acme, namespace: api, pattern: \"user_*\", limit: %d}\n", limit))
}

// plan writes a plan of three stages, the first of which only counts.
func (d *day) plan(name, guardrails string, bakeMs int64) {
	d.file(name, fmt.Sprintf(`{"baseline_ms": 1000, "stages": [
  {"regions": ["eu"], "shadow": true, "bake_ms": %d},
  {"regions": ["eu"], "nodes": 1, "bake_ms": %d},
  {"all": true, "bake_ms": 2000}],
  "guardrails": %s, %s}}`, bakeMs, bakeMs, strings.TrimSuffix(onlyTheOrigin, "}"), guardrails))
}

// over waits until a rollout is over, and checks its status for the outcome and a further text.
func (d *day) over(id, outcome, text string) {
	d.t.Helper()
	out, _ := d.call([]string{"rollout", "status", "--watch", "--every", "1s", id})
	first := headline(d.run(0, "rollout", "status", id))
	if !strings.Contains(first, outcome) || !strings.Contains(first, text) {
		d.t.Fatalf("rollout %s is over with %q, want %q and %q:\n%s", id, first, outcome, text, out)
	}
}

// headline returns what a status says above its table, which can take several lines, in one line.
func headline(status string) string {
	above, _, _ := strings.Cut(status, "\nstarted ")
	return strings.Join(strings.Fields(above), " ")
}

// callOften calls the nodes of eu until the test ends, for each caller in turn.
func callOften(t *testing.T, s *stack.Stack, window time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	calling.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			one, done := context.WithTimeout(ctx, 5*time.Second)
			who := fmt.Sprint("user_", i/2%limitCallers)
			_, _ = client(s.Nodes[i%2]).Limit(one, connect.NewRequest(limitRequest(who, 1, roomyLimit, window)))
			done()
		}
	})
	t.Cleanup(func() { cancel(); calling.Wait() })
}
