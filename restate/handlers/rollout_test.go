package handlers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// village is a fleet of nodes that consist of heartbeats only: each applies the tuning of its region as real nodes do,
// and sends a heartbeat every 20 ms.
type village struct {
	t    *testing.T
	db   *sql.DB
	sick atomic.Value // string: nodes with this tuning fail to read settings

	outages atomic.Bool // MySQL may be down: nodes then miss a heartbeat

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup
}

var villageRegions = []string{"ap", "eu", "us"}

func newVillage(t *testing.T, db *sql.DB) *village {
	v := &village{t: t, db: db}
	v.ctx, v.stop = context.WithCancel(t.Context())
	v.speak(map[string]*heartbeat.Health{})
	v.done.Go(func() {
		totals := map[string]*heartbeat.Health{}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for v.ctx.Err() == nil {
			v.speak(totals)
			select {
			case <-tick.C:
			case <-v.ctx.Done():
			}
		}
	})
	t.Cleanup(func() { v.stop(); v.done.Wait() })
	return v
}

func (v *village) speak(totals map[string]*heartbeat.Health) {
	q := dataplanedb.New(v.db)
	for _, region := range villageRegions {
		h := totals[region]
		if h == nil {
			h = &heartbeat.Health{}
			totals[region] = h
		}
		version, trial, document, err := readInForce(v.ctx, v.db, region)
		if err != nil {
			v.missed(err)
			continue
		}
		h.AllowedTotal += 100
		h.ActiveKeys = 100
		if v.sick.Load() == document {
			h.SettingsErrors += 100
		}
		h.Trial, h.TuningHash = trial, hashOf(document)
		text, _ := json.Marshal(h)
		err = q.NodeBeat(v.ctx, dataplanedb.NodeBeatParams{
			NodeID: []byte(region + "-1"), Region: []byte(region), Build: "v1", TuningVersion: uint64(version),
			StartedAt: 1, SentAt: uint64(time.Now().UnixMilli()), Health: string(text),
		})
		if err != nil {
			v.missed(err)
		}
	}
}

// missed is called for a heartbeat that was not written.
func (v *village) missed(err error) {
	if v.ctx.Err() == nil && !v.outages.Load() {
		v.t.Error(err)
	}
}

// inForce returns the tuning of a node of a region.
func inForce(ctx context.Context, t *testing.T, db *sql.DB, region string) (version int64, document string) {
	version, _, document, err := readInForce(ctx, db, region)
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	return version, document
}

// readInForce reads settings as relays do.
func readInForce(ctx context.Context, db *sql.DB, region string) (version, trial int64, document string, err error) {
	s, err := mysqlcounts.New(db, mysqlcounts.Options{}).Settings(ctx, region)
	switch {
	case s.Trial.Number != 0 && s.Trial.Left > 0:
		return s.TuningVersion, s.Trial.Number, string(s.Trial.Document), err
	case s.TuningVersion == 0:
		return 0, 0, oldTuning, err
	}
	return s.TuningVersion, 0, string(s.TuningDocument), err
}

func hashOf(document string) string {
	if settings.IsLimitsTrial([]byte(document)) {
		return hashOf(oldTuning)
	}
	t, err := tuning.Read([]byte(document))
	if err != nil {
		panic(err)
	}
	return t.Hash()
}

// oldTuning is in force before a test, newTuning and otherTuning are rolled out. Plans of these tests wait for seconds.
var oldTuning, newTuning, otherTuning = documentOf(tuning.Default()), quickly(tuning.RFC()), quickly(tuning.Default())

func quickly(t tuning.Tuning) string {
	t.SettingsInterval = tuning.Duration(100 * time.Millisecond)
	return documentOf(t)
}

func documentOf(t tuning.Tuning) string {
	b, err := t.Document()
	if err != nil {
		panic(err)
	}
	return string(b)
}

func rolloutOptions(s *store.Store) Options {
	o := cleanupOptions(s)
	o.Rollouts = rollout.NewWork(s, 30*time.Second)
	o.StepRetryMax, o.TroubleRetry = time.Second, 100*time.Millisecond
	return o
}

func newRolloutCluster(t *testing.T) (*cluster, *village, *sql.DB, string, RolloutClient) {
	t.Helper()
	db, dsn := rows(t)
	v := newVillage(t, db)
	c := newCluster(t, rolloutOptions(store.New(db)), func(*stepper) map[string]Job { return nil })
	return c, v, db, dsn, RolloutClient{c.client}
}

// twoStages returns a canary and all other regions, watched for a moment each.
func twoStages(bakeMs int64) rollout.Spec {
	p := plan.DefaultPlan()
	p.BaselineMs, p.ApplyTimeoutMs = 100, 6000
	p.Stages = []plan.Stage{{Regions: []string{"eu"}, BakeMs: bakeMs}, {All: true, BakeMs: bakeMs}}
	return rollout.Spec{Tuning: newTuning, Plan: p}
}

// reaches polls until holds returns true for the rollout.
func reaches(t *testing.T, c RolloutClient, id, what string, holds func(rollout.Rollout) bool) (r rollout.Rollout) {
	t.Helper()
	await.NoError(t, what, func() (err error) {
		if r, err = c.Status(t.Context(), id); err == nil && !holds(r) {
			err = fmt.Errorf("%s of stage %d: %s%s%s", r.Phase, r.Stage+1, r.Why, r.Trouble, r.Waiting)
		}
		return err
	})
	return r
}

func in(phase rollout.Phase, stage int) func(rollout.Rollout) bool {
	return func(r rollout.Rollout) bool { return r.Phase == phase && r.Stage == stage }
}

func over(r rollout.Rollout) bool { return r.Phase.Over() }

func wantInForce(t *testing.T, db *sql.DB, document string) {
	t.Helper()
	for _, region := range append([]string{"a region to come"}, villageRegions...) {
		if _, got := inForce(t.Context(), t, db, region); got != document {
			t.Errorf("%s runs %s, want %s", region, got, document)
		}
	}
}

// wantUnlocked checks that the list has the outcome once, and that the next rollout can start.
func wantUnlocked(t *testing.T, db *sql.DB, c RolloutClient, id string, phase rollout.Phase) {
	t.Helper()
	await.NoError(t, "the list says how it ended", func() error {
		list, err := rollout.NewWork(store.New(db), time.Minute).List(t.Context())
		if err != nil {
			return err
		}
		if lock, err := c.Standing(t.Context()); err != nil || lock.Active == id {
			return fmt.Errorf("%+v, %w", lock, err)
		}
		n := 0
		for _, s := range list {
			if s.ID == id && s.Phase == phase && s.EndedMs > 0 {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
}

func wantAudited(t *testing.T, db *sql.DB, id string, actions ...string) {
	t.Helper()
	await.NoError(t, "the audit log", func() error {
		var all sql.NullString
		err := db.QueryRowContext(t.Context(), `SELECT GROUP_CONCAT(CONCAT(action, ' ', actor) ORDER BY id SEPARATOR ', ') FROM ratelimit_audit WHERE subject = ?`, "rollout "+id).Scan(&all)
		if err != nil {
			return err
		}
		for _, a := range actions {
			if !slices.Contains(strings.Split(all.String, ", "), a) {
				return fmt.Errorf("%q is not in %s", a, all.String)
			}
		}
		return nil
	})
}

// wantAuditedWith checks that the entries of an action have exactly these actors and this field of the state after it.
func wantAuditedWith(t *testing.T, db *sql.DB, id, action, field string, want ...string) {
	t.Helper()
	await.NoError(t, "the audit log", func() error {
		var all sql.NullString
		err := db.QueryRowContext(t.Context(), `SELECT GROUP_CONCAT(CONCAT(actor, ' ', JSON_UNQUOTE(JSON_EXTRACT(after_state, ?))) ORDER BY id SEPARATOR ', ')
			FROM ratelimit_audit WHERE subject = ? AND action = ?`, "$."+field, "rollout "+id, action).Scan(&all)
		if got := strings.Join(want, ", "); err == nil && all.String != got {
			err = fmt.Errorf("%q, want %q", all.String, got)
		}
		return err
	})
}

// Two stages run one after the other; one rollout runs at a time; a repeated start is idempotent; and a rollout that is
// done can be rolled back.
func TestRolloutHappyPath(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRolloutHappyPath)
}

func testRolloutHappyPath(t *testing.T) {
	t.Parallel()
	_, _, db, _, c := newRolloutCluster(t)
	if _, err := c.Status(t.Context(), "one"); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("a rollout that is not there: %v", err)
	}
	bad := twoStages(300)
	bad.Tuning = `{"floor":2}`
	if _, err := c.Start(t.Context(), starting("one", bad)); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), "floor is 2") {
		t.Errorf("a tuning out of bounds: %v", err)
	}
	bad = twoStages(300)
	bad.Plan.Stages[0].Regions[0] = "mars"
	if _, err := c.Start(t.Context(), starting("one", bad)); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), `region "mars" has no live node`) {
		t.Errorf("a region that is not there: %v", err)
	}
	for range 2 {
		if r, err := c.Start(t.Context(), starting("one", twoStages(3000))); err != nil || r.ID != "one" || len(r.Stages) != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if _, err := c.Start(t.Context(), starting("one", twoStages(400))); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "with another tuning or plan") {
		t.Errorf("the same id for another plan: %v", err)
	}
	if _, err := c.Start(t.Context(), starting("two", twoStages(300))); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "rollout one is under way") {
		t.Errorf("a second one beside it: %v", err)
	}
	reaches(t, c, "one", "the canary bakes", in(rollout.Baking, 0))
	for region, want := range map[string]string{"eu": newTuning, "us": oldTuning, "ap": oldTuning} {
		if _, got := inForce(t.Context(), t, db, region); got != want {
			t.Errorf("while the canary bakes %s runs %s", region, got)
		}
	}
	if r := reaches(t, c, "one", "the end", over); r.Phase != rollout.Done || r.Why != "" {
		t.Fatalf("%s %q", r.Phase, r.Why)
	}
	wantInForce(t, db, newTuning)
	wantUnlocked(t, db, c, "one", rollout.Done)
	wantAudited(t, db, "one", "rollout.start ann", "rollout.done weir-control")
	if _, err := c.Operate(t.Context(), "one", order(rollout.RollBack)); err != nil {
		t.Fatal(err)
	}
	if r := reaches(t, c, "one", "the rollback", over); r.Phase != rollout.RolledBack || r.Why != "rolled back by ann: deploy" {
		t.Errorf("%s %q", r.Phase, r.Why)
	}
	wantInForce(t, db, oldTuning)
	wantUnlocked(t, db, c, "one", rollout.RolledBack)
	wantAudited(t, db, "one", "rollout.rollback ann", "rollout.rolled_back weir-control")
	if _, err := c.Start(t.Context(), starting("two", twoStages(300))); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// A breach of a guardrail rolls back within one bake interval, without an operator, and the status has a one-line
// reason.
func TestRolloutRollsBackByItself(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRolloutRollsBackByItself)
}

func testRolloutRollsBackByItself(t *testing.T) {
	t.Parallel()
	_, v, db, _, c := newRolloutCluster(t)
	v.sick.Store(newTuning)
	const bake = 30_000
	spec := twoStages(bake)
	spec.Plan.BaselineMs = bake // errors come unevenly on a busy machine, so a shorter baseline would prove little
	if _, err := c.Start(t.Context(), starting("sick", spec)); err != nil {
		t.Fatal(err)
	}
	r := reaches(t, c, "sick", "the end", over) // within 50 s
	if r.Phase != rollout.RolledBack || !strings.HasPrefix(r.Why, "stage 1 (eu): errors of relays and settings a node and minute: ") || strings.Contains(r.Why, "\n") {
		t.Errorf("%s %q", r.Phase, r.Why)
	}
	wantInForce(t, db, oldTuning)
	wantUnlocked(t, db, c, "sick", rollout.RolledBack)
	wantAudited(t, db, "sick", "rollout.rolling_back weir-control", "rollout.rolled_back weir-control")
}

// Pause, resume, approval and abort, each by an operator with a reason.
func TestRolloutByOperators(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRolloutByOperators)
}

func testRolloutByOperators(t *testing.T) {
	t.Parallel()
	cl, _, db, _, c := newRolloutCluster(t)
	spec := twoStages(6000) // time to pause it in
	spec.Plan.Stages[1].Approval = true
	spec.Plan.Stages[1].BakeMs = 60_000
	spec.Plan.Approvers = 2
	forced := starting("gated", spec)
	forced.Forced = "region_dark ap: No node is live"
	if _, err := c.Start(t.Context(), forced); err != nil {
		t.Fatal(err)
	}
	do := func(action rollout.Action) rollout.Rollout {
		t.Helper()
		asked, err := c.Status(t.Context(), "gated")
		if err != nil {
			t.Fatal(err)
		}
		o := order(action)
		o.Stage, o.Asked, o.Evidence = asked.Stage+1, asked.Asked, asked.Evidence()
		r, err := c.Operate(t.Context(), "gated", o)
		if err != nil {
			t.Fatalf("%s: %v", action, err)
		}
		return r
	}
	reaches(t, c, "gated", "the canary bakes", in(rollout.Baking, 0))
	paused := do(rollout.Pause)
	if paused.Paused == nil || paused.Paused.By != operator {
		t.Errorf("%+v", paused.Paused)
	}
	early := order(rollout.Approve)
	early.Stage, early.Asked, early.Evidence = 1, 1, "none"
	if _, err := c.Operate(t.Context(), "gated", early); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "rollout gated is baking, paused by ann") {
		t.Errorf("%v", err)
	}
	// It is looked at as before, with a single timer at a time, and does not advance.
	reaches(t, c, "gated", "it is watched while it is paused", func(r rollout.Rollout) bool { return r.Epoch >= paused.Epoch+3 })
	if r, err := c.Status(t.Context(), "gated"); err != nil || r.Phase != rollout.Baking || cl.timers("gated") > 1 {
		t.Errorf("%+v, %v, %d timers", r, err, cl.timers("gated"))
	}
	do(rollout.Resume)
	reaches(t, c, "gated", "it waits for an approval", in(rollout.Awaiting, 1))
	if _, got := inForce(t.Context(), t, db, "us"); got != oldTuning {
		t.Error("us has it without an approval")
	}
	one := do(rollout.Approve)
	if one.Phase != rollout.Awaiting || len(one.Approvals) != 1 {
		t.Errorf("%s, %+v", one.Phase, one.Approvals)
	}
	other := rollout.Order{Action: rollout.Approve, By: controlplane.By{Actor: "bob", Reason: "looks well"}, Stage: 2, Asked: one.Asked, Evidence: one.Evidence()}
	if _, err := c.Operate(t.Context(), "gated", other); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "gated", "all bake", in(rollout.Baking, 1))
	wantInForce(t, db, newTuning)
	wantAuditedWith(t, db, "gated", "rollout.start", "forced", operator.Actor+" "+forced.Forced)
	evidence := controlplane.ShortEvidence(other.Evidence)
	wantAuditedWith(t, db, "gated", "rollout.approve", "approved_evidence", operator.Actor+" "+evidence, "bob "+evidence)
	do(rollout.Abort)
	if r := reaches(t, c, "gated", "the end", over); r.Phase != rollout.Aborted || r.Why != "aborted by ann: deploy" {
		t.Errorf("%s %q", r.Phase, r.Why)
	}
	wantInForce(t, db, oldTuning)
	wantUnlocked(t, db, c, "gated", rollout.Aborted)
	wantAudited(t, db, "gated", "rollout.pause ann", "rollout.resume ann", "rollout.approve ann", "rollout.approve bob", "rollout.abort ann", "rollout.aborted weir-control")
}

// starting returns a start of a healthy fleet's rollout.
func starting(id string, spec rollout.Spec) rollout.Start {
	return rollout.Start{ID: id, Spec: spec, By: operator}
}

func order(action rollout.Action) rollout.Order {
	return rollout.Order{Action: action, By: operator}
}

// timers returns the number of a rollout's timers under way.
func (c *cluster) timers(id string) (n int) {
	c.t.Helper()
	var answer struct{ Rows []struct{ N int } }
	c.admin(http.MethodPost, "/query", map[string]string{"query": fmt.Sprintf(`SELECT COUNT(id) AS n FROM sys_invocation
		WHERE target_service_name = '%s' AND target_service_key = '%s' AND target_handler_name = 'Step' AND status <> 'completed'`, RolloutService, id)}, &answer)
	return answer.Rows[0].N
}

// A redeploy in the middle of a bake, with a changed state document, does not stop the rollout. The older build's
// document lacks fields, and has other fields that this build drops.
func TestRolloutGoesOnAfterARedeploy(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRolloutGoesOnAfterARedeploy)
}

func testRolloutGoesOnAfterARedeploy(t *testing.T) {
	t.Parallel()
	cl, _, db, _, c := newRolloutCluster(t)
	const bakeMs = 80_000 // a timer comes every twentieth of it
	if _, err := c.Start(t.Context(), starting("redeploy", twoStages(bakeMs))); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "redeploy", "the canary bakes", in(rollout.Baking, 0))
	document := cl.downBetweenTimers("redeploy", bakeMs/40*time.Millisecond)
	for _, field := range []string{"now", "events", "waiting"} {
		delete(document, field)
	}
	document["of_another_build"] = map[string]any{"a": 1}
	document["bake"] = map[string]any{"watched_ms": bakeMs} // which is over
	document["stages"].([]any)[1].(map[string]any)["bake_ms"] = 300
	cl.setState(RolloutService, "redeploy", rolloutKey, document)
	await.NoError(t, "the state is another", func() error {
		if !strings.Contains(cl.state(RolloutService, "redeploy", rolloutKey), "of_another_build") {
			return errors.New("not yet")
		}
		return nil
	})
	cl.up()
	if r := reaches(t, c, "redeploy", "the end", over); r.Phase != rollout.Done {
		t.Errorf("%s %q", r.Phase, r.Why)
	}
	wantInForce(t, db, newTuning)
}

// downBetweenTimers cuts the handlers off when no timer of a rollout is running, and the next comes in more than while.
// The state of an object cannot be set while its handler waits for a process. It returns the rollout's state.
func (c *cluster) downBetweenTimers(id string, while time.Duration) (document map[string]any) {
	c.t.Helper()
	await.NoError(c.t, "a moment between two timers", func() error {
		c.down()
		var timer struct {
			At int64 `json:"timer_ms"`
		}
		document = nil
		value := []byte(c.state(RolloutService, id, rolloutKey))
		err := errors.Join(json.Unmarshal(value, &document), json.Unmarshal(value, &timer))
		if left := time.Until(time.UnixMilli(timer.At)); err == nil && left < while {
			err = fmt.Errorf("the next timer comes in %v", left)
		}
		if err != nil {
			c.up()
		}
		return err
	})
	return document
}

// setState sets a value of an object, which has no other value.
func (c *cluster) setState(service, object, key string, value any) {
	c.t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		c.t.Fatal(err)
	}
	state := make([]int, len(text)) // the admin API accepts bytes as numbers
	for i, b := range text {
		state[i] = int(b)
	}
	c.admin(http.MethodPost, "/services/"+service+"/state", map[string]any{"object_key": object, "new_state": map[string]any{key: state}}, nil)
}

// state returns a value of an object.
func (c *cluster) state(service, object, key string) string {
	c.t.Helper()
	var answer struct {
		Rows []struct {
			Value string `json:"value_utf8"`
		}
	}
	c.admin(http.MethodPost, "/query", map[string]string{"query": fmt.Sprintf(
		"SELECT value_utf8 FROM state WHERE service_name = '%s' AND service_key = '%s' AND key = '%s'", service, object, key)}, &answer)
	if len(answer.Rows) != 1 {
		return ""
	}
	return answer.Rows[0].Value
}
