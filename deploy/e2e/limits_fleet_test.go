package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/servers"
)

// limitsFleet is a stack on which rollouts of limits are played, and counts how many of them end as they should.
type limitsFleet struct {
	*day
	s        *stack.Stack
	rollouts controlv1connect.RolloutServiceClient
	health   controlv1connect.HealthServiceClient
	window   time.Duration

	scenarios []string  // in the order in which they were first played
	began     time.Time // the newest scenario
	played    map[string]int
	right     map[string]int
	slowest   time.Duration // until all nodes had the stored limits after a process was killed
}

func newLimitsFleet(t *testing.T) *limitsFleet {
	s := start(t, func(o *stack.Options) { o.ControlArgs = []string{"--watch-interval=1s"} })
	l := &limitsFleet{day: &day{t: t, api: s.API(), dir: t.TempDir()}, s: s, window: 24 * roomyWindow(),
		rollouts: controlv1connect.NewRolloutServiceClient(http.DefaultClient, s.API()),
		health:   controlv1connect.NewHealthServiceClient(http.DefaultClient, s.API()),
		played:   map[string]int{}, right: map[string]int{}, began: time.Now()}
	l.run(0, "tuning", "set", "--set", "settings_interval_ms=500", "--all", "--at-once", "--watch", "--yes",
		"--reason", "see changes soon")
	l.set(roomyLimit, "as agreed")
	l.document("less.yaml", lessRoomy)
	l.document("narrow.yaml", narrowLimit)
	l.plan("careful.json", `"newly_denied_callers": 1`, 2000)
	l.plan("tolerant.json", `"newly_denied_callers": 5, "newly_denied_share": 1, "protected": [{"workspace": "acme", `+
		`"namespace": "api", "pattern": "user_39"}]`, 2000)
	l.plan("slow.json", `"newly_denied_callers": 1`, 60_000)
	l.enforcing("gone.json", killedLease, 20*time.Second)
	l.enforcing("back.json", trialLease, 4*time.Second)
	return l
}

// enforcing writes a plan with a single stage, in which all nodes decide by the new limits.
func (d *day) enforcing(name string, lease, bake time.Duration) {
	d.file(name, fmt.Sprintf(`{"baseline_ms": 1000, "apply_timeout_ms": 60000, "lease_ms": %d,
  "stages": [{"all": true, "bake_ms": %d}],
  "guardrails": %s}`, lease.Milliseconds(), bake.Milliseconds(), onlyTheOrigin))
}

// set stores a limit, and waits until all nodes decide by it.
func (l *limitsFleet) set(limit int64, reason string) {
	l.t.Helper()
	l.run(0, "override", "set", "acme", "api", "user_*", "--limit", fmt.Sprint(limit), "--reason", reason)
	await.True(l.t, fmt.Sprintf("all nodes have the limit %d", limit), func() bool { return l.inForce(limit) })
}

// begin starts a rollout of a document of limits.
func (l *limitsFleet) begin(id, limits, plan string) {
	l.t.Helper()
	l.run(0, "rollout", "start", "--id", id, "--limits", limits, "--plan", plan, "--reason", "enough for all")
}

// inForce reports whether all nodes decide by a limit.
func (l *limitsFleet) inForce(limit int64) bool {
	l.t.Helper()
	return !slices.ContainsFunc(l.limits(), func(is int64) bool { return is != limit })
}

// limits returns the limits by which the nodes decide.
func (l *limitsFleet) limits() (limits []int64) {
	l.t.Helper()
	for _, n := range l.s.Nodes {
		limits = append(limits, limit(l.t, n, limitRequest("user_0", 0, 7, l.window)).GetLimit())
	}
	return limits
}

// tries reports whether any node runs a trial, or does not answer.
func (l *limitsFleet) tries() bool {
	return slices.ContainsFunc(l.s.Nodes, func(n *stack.Node) bool {
		metrics, err := n.Metrics(l.t.Context())
		return err != nil || !strings.Contains(metrics, "\nweir_tuning_trial 0\n")
	})
}

// look returns a rollout, or nil while the control plane does not answer.
func (l *limitsFleet) look(id string) *controlv1.Rollout {
	answer, err := l.rollouts.RolloutStatus(l.t.Context(), connect.NewRequest(&controlv1.RolloutStatusRequest{Id: id}))
	if err != nil {
		return nil
	}
	return answer.Msg.GetRollout()
}

// critical reports whether the fleet's health is critical or unknown.
func (l *limitsFleet) critical() bool {
	answer, err := l.health.GetHealth(l.t.Context(), connect.NewRequest(&controlv1.GetHealthRequest{}))
	return err != nil || answer.Msg.GetHealth().GetOverall() == "critical"
}

// ends waits until a rollout is over, and reports whether its status has the outcome and a further text.
func (l *limitsFleet) ends(id, outcome, text string) bool {
	l.t.Helper()
	watched, _ := l.call([]string{"rollout", "status", "--watch", "--every", "500ms", id})
	await.True(l.t, id+" is over", func() bool { return l.look(id).GetEndedAtMs() > 0 })
	is := headline(l.run(0, "rollout", "status", id))
	if strings.Contains(is, outcome) && strings.Contains(is, text) {
		return true
	}
	l.t.Errorf("%s is over with %q, want %q and %q:\n%s", id, is, outcome, text, watched)
	return false
}

// restored waits until all nodes have the limit from before a rollout, and reports whether they had it in time.
func (l *limitsFleet) restored(id string) bool {
	l.t.Helper()
	return l.agrees(id, roomyLimit, time.Now(), trialLease)
}

// agrees waits until all nodes decide by a limit, and none runs a trial. It reports whether this took at most within.
func (l *limitsFleet) agrees(id string, limit int64, since time.Time, within time.Duration) bool {
	l.t.Helper()
	await.NoError(l.t, fmt.Sprintf("after %s, all nodes have the limit %d, and no trial", id, limit), func() error {
		if !l.inForce(limit) || l.tries() {
			return fmt.Errorf("they have %v", l.limits())
		}
		return nil
	})
	took := time.Since(since)
	if took > within {
		l.t.Errorf("%s: all nodes had the limit %d after %v, want at most %v", id, limit, took, within)
	}
	return took <= within
}

// count adds the result of a scenario.
func (l *limitsFleet) count(scenario string, right bool) {
	l.t.Helper()
	if !slices.Contains(l.scenarios, scenario) {
		l.scenarios = append(l.scenarios, scenario)
	}
	l.played[scenario]++
	if right {
		l.right[scenario]++
	}
	l.t.Logf("%s: %d of %d, %v", scenario, l.right[scenario], l.played[scenario], time.Since(l.began).Round(time.Second))
	l.began = time.Now()
}

// print logs how often each scenario ended as it should.
func (l *limitsFleet) print() {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "\nscenario\tso in\t\n")
	for _, scenario := range l.scenarios {
		_, _ = fmt.Fprintf(w, "%s\t%d of %d\t\n", scenario, l.right[scenario], l.played[scenario])
	}
	_ = w.Flush()
	l.t.Logf("%sslowest return to the stored limits after a kill, with a lease of %v: %v", &b, killedLease,
		l.slowest.Round(time.Millisecond))
}

const (
	killedLease = 10 * time.Second
	// killedSlack is for the calls that find out on a busy machine that a lease has ended.
	killedSlack = 2 * time.Second
)

// victims are the processes that are killed by turns.
var victims = []struct {
	name string
	of   func(*stack.Stack) *servers.Process
}{
	{"the control plane", func(s *stack.Stack) *servers.Process { return s.Control.Process }},
	{"Restate", func(s *stack.Stack) *servers.Process { return s.Restate.Process }},
	{"MySQL", func(s *stack.Stack) *servers.Process { return s.SQL.Process }},
	{"a node", func(s *stack.Stack) *servers.Process { return s.Nodes[0].Process }},
}

// killed kills a process in the middle of a rollout, while all nodes decide by its limits, and starts it again: in half
// of the turns at once, and otherwise when the lease of the trial has ended. A node is always started at once, because
// the lease of a node that is gone matters to no caller.
func (l *limitsFleet) killed(id string, turn int) {
	l.t.Helper()
	victim, atOnce := victims[turn%len(victims)], turn/len(victims)%2 == 1
	process := victim.of(l.s)
	atOnce = atOnce || process == l.s.Nodes[0].Process
	plan, how := "gone.json", "until the lease ends"
	if atOnce {
		plan, how = "back.json", "for a moment"
	}
	l.says(fmt.Sprintf("%s is gone %s.", victim.name, how))
	l.begin(id, "less.yaml", plan)
	await.True(l.t, "all nodes try the limit", func() bool { return l.inForce(lessRoomy) })
	if err := process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	at, right := time.Now(), true
	if !atOnce {
		right = l.agrees(id, roomyLimit, at, killedLease+killedSlack)
		l.slowest = max(l.slowest, time.Since(at))
	}
	if err := process.Restart(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	right = l.endsOnce(id, atOnce) && right
	// While the watch's newest look has found a server down, the next rollout would not start.
	await.True(l.t, "the fleet's health is no longer critical", func() bool { return !l.critical() })
	l.count(fmt.Sprintf("%s killed %s: one outcome", victim.name, how), l.restored(id) && right)
}

// endsOnce waits until a rollout is over. It reports whether the rollout has a single outcome, with which the limits of
// all nodes agree. A rollout that is done is rolled back.
func (l *limitsFleet) endsOnce(id string, mayBeDone bool) (right bool) {
	l.t.Helper()
	if !mayBeDone {
		right = l.ends(id, "rolled back", "")
	} else {
		right = l.ends(id, "", "")
	}
	r, outcomes := l.look(id), 0
	for _, e := range r.GetEvents() {
		if slices.Contains([]string{"done", "rolled_back", "aborted"}, e.GetWhat()) {
			outcomes++
		}
	}
	if outcomes != 1 {
		l.t.Errorf("%s has %d outcomes: %v", id, outcomes, r.GetEvents())
		right = false
	}
	l.t.Logf("%s: %s %s", id, r.GetPhase(), r.GetWhy())
	if r.GetPhase() != "done" {
		return right
	}
	right = l.agrees(id, lessRoomy, time.Now(), trialLease) && right
	l.run(0, "rollout", "rollback", id, "--reason", "they ask for more", "--yes")
	return l.ends(id, "rolled back", "") && right
}
