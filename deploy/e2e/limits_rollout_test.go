package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// Rollouts of limits on a whole system. Of 40 callers of eu, two use much: a limit between them and the others newly
// denies 5 % of the callers. Each round plays a rollout of every kind, and kills a process in the middle of another
// rollout. The test plays one round, or 20 with WEIR_SOAK=1, all on one stack, and one rollout after the other, because
// a fleet has only one at a time. WEIR_HUNT_FROM, which make test takes from the commit, chooses the process that is
// killed first.
//
// Nodes read settings and send heartbeats every 0.5 s here, so that a stage needs seconds to collect its evidence.
func TestSoakLimitsAreRolledOutInStages(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakLimitsAreRolledOutInStages)
}

const (
	roomyLimit   = 1_000_000
	lessRoomy    = 900_000 // newly denies no caller
	editedLimit  = 999_999
	narrowLimit  = 50_000 // newly denies the two callers who use much
	usedByHeavy  = 100_000
	limitCallers = 40
	trialLease   = 30 * time.Second
)

func testSoakLimitsAreRolledOutInStages(t *testing.T) {
	rounds := 1
	if os.Getenv("WEIR_SOAK") != "" {
		rounds = 20
	}
	l := newLimitsFleet(t)
	defer l.print()
	for _, heavy := range []string{"user_38", "user_39"} {
		limit(t, l.s.Nodes[0], limitRequest(heavy, usedByHeavy, roomyLimit, l.window))
	}
	callOften(t, l.s, l.window)
	from, _ := strconv.Atoi(os.Getenv("WEIR_HUNT_FROM"))
	for round := range rounds {
		l.harmless(fmt.Sprint("harmless-", round))
		l.tooNarrow(fmt.Sprint("narrow-", round))
		l.protected(fmt.Sprint("protected-", round))
		l.edited(fmt.Sprint("edited-", round))
		l.killed(fmt.Sprint("killed-", round), from+round)
	}
}

// harmless plays a rollout that reaches the fleet, and rolls it back afterwards.
func (l *limitsFleet) harmless(id string) {
	l.says("A harmless limit reaches the fleet.")
	l.begin(id, "less.yaml", "careful.json")
	passed := l.ends(id, "done", "") && l.agrees(id, lessRoomy, time.Now(), trialLease)
	l.says("It is taken back.")
	l.run(anyCode, "rollout", "rollback", id, "--reason", "they ask for more", "--yes")
	l.count("a harmless rollout passes", l.ends(id, "rolled back", "") && l.restored(id) && passed)
}

// tooNarrow plays a rollout that would deny 5 % of the callers.
func (l *limitsFleet) tooNarrow(id string) {
	l.says("Two of forty callers would be denied: it is rolled back while it only counts.")
	l.begin(id, "narrow.yaml", "careful.json")
	caught := l.ends(id, "rolled back: stage 1", "newly denied")
	l.count("5 % of callers newly denied: caught in stage 1", l.restored(id) && caught)
}

// protected plays a rollout that would deny a protected caller.
func (l *limitsFleet) protected(id string) {
	l.says("A protected caller would be denied.")
	l.begin(id, "narrow.yaml", "tolerant.json")
	caught := l.ends(id, "rolled back: stage 1", "user_39")
	l.count("a protected caller denied: caught in stage 1", l.restored(id) && caught)
}

// edited plays a rollout whose limit a person edits meanwhile.
func (l *limitsFleet) edited(id string) {
	l.says("Somebody edits the limit meanwhile: the edit stays.")
	l.begin(id, "less.yaml", "slow.json")
	await.True(l.t, id+" bakes", func() bool { return l.look(id).GetPhase() == "baking" })
	l.set(editedLimit, "an edit")
	caught := l.ends(id, "rolled back: stage 1", controlplane.Digits(editedLimit)) &&
		l.agrees(id, editedLimit, time.Now(), trialLease)
	l.set(roomyLimit, "as agreed")
	l.count("a fight with an edit: caught in stage 1", l.restored(id) && caught)
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
	d.file(name, fmt.Sprintf(`{"baseline_ms": 1000, "apply_timeout_ms": 60000, "lease_ms": %d, "stages": [
  {"regions": ["eu"], "shadow": true, "bake_ms": %d},
  {"regions": ["eu"], "nodes": 1, "bake_ms": %d},
  {"all": true, "bake_ms": 2000}],
  "guardrails": %s, %s}}`, trialLease.Milliseconds(), bakeMs, bakeMs, strings.TrimSuffix(onlyTheOrigin, "}"),
		guardrails))
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
