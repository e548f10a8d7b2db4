package watch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/tuning"
)

var watchNow = time.UnixMilli(1_700_000_000_000)

// watched has the sources of a watch, in memory.
type watched struct {
	fleet       fleet.Fleet
	tunings     []tunings.RegionTuning
	lag         time.Duration
	partitions  cleanup.PartitionsProblem
	cleanup     cleanup.Status
	rollout     *rollout.Rollout
	retirement  *retire.Retirement
	invocations []Invocation

	mysql, restate, admin error
}

func (w *watched) watch() *Watch {
	return New(Sources{
		Fleet:       func(context.Context) (fleet.Fleet, error) { return w.fleet, w.mysql },
		Tunings:     func(context.Context) ([]tunings.RegionTuning, error) { return w.tunings, w.mysql },
		Lag:         func(context.Context) (time.Duration, error) { return w.lag, w.mysql },
		Partitions:  func(context.Context) (cleanup.PartitionsProblem, error) { return w.partitions, w.mysql },
		Cleanup:     func(context.Context) (cleanup.Status, error) { return w.cleanup, w.restate },
		Rollout:     func(context.Context) (*rollout.Rollout, error) { return w.rollout, w.restate },
		Retirement:  func(context.Context) (*retire.Retirement, error) { return w.retirement, w.restate },
		Invocations: func(context.Context) ([]Invocation, error) { return w.invocations, w.admin },
	})
}

// node returns a live node without a problem.
func node(name, region string) fleet.Node {
	ms := watchNow.UnixMilli()
	return fleet.Node{Heartbeat: heartbeat.Heartbeat{
		NodeID: name, Region: region, Build: "v1", StartedAtMs: ms - 3_600_000, SentAtMs: ms,
		Health: heartbeat.Health{Relay: &heartbeat.Relay{Shards: 1, Held: []int{0}, InStepAtMs: ms - 1000, UnpublishedMs: 200, LagP99Ms: map[string]int64{"ap": 300}}},
	}, SeenAt: watchNow, Live: true}
}

// relaysNothing leaves the lease to other nodes.
func relaysNothing(n fleet.Node) fleet.Node {
	n.Health.Relay = &heartbeat.Relay{Shards: n.Health.Relay.Shards}
	return n
}

func with(n fleet.Node, change func(*fleet.Node)) fleet.Node {
	change(&n)
	return n
}

func silent(n fleet.Node, ago time.Duration) fleet.Node {
	n.SeenAt, n.Age, n.Live = watchNow.Add(-ago), ago, false
	return n
}

// Each problem that a person should look at is a finding, with its kind, its severity and advice. A look at a healthy
// fleet finds nothing.
func TestLook(t *testing.T) {
	slow := tuning.Default()
	slow.FeedInterval = tuning.Duration(time.Minute)
	document, err := slow.Document()
	if err != nil {
		t.Fatal(err)
	}
	ms := watchNow.UnixMilli()
	for name, tc := range map[string]struct {
		world watched
		want  string // "severity kind subject", by line
		says  string
	}{
		"healthy":                               {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{node("n1", "eu"), node("n2", "us")}}}, "", ""},
		"no nodes":                              {watched{}, "", ""},
		"a node silent":                         {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{node("n1", "eu"), silent(node("n2", "eu"), time.Minute)}}}, "warning nodes_dead eu", "in eu 1 node sends no heartbeats any more: n2"},
		"a node silent for long was taken away": {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{node("n1", "eu"), silent(node("n2", "eu"), 2*time.Hour)}}}, "", ""},
		"a region silent":                       {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{silent(node("n1", "eu"), 2*time.Hour), node("n2", "us")}}}, "critical region_dark eu", "no node of eu"},
		"a relay hangs": {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{
			with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.InStepAtMs = ms - 300_000 }), relaysNothing(node("n2", "eu")),
		}}}, "critical relay_stalled eu", "n1 in eu: the relay has sent or read no changes for more than 1m0s"},
		"a relay that was never in step": {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{
			with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.InStepAtMs = 0 }),
		}}}, "critical relay_stalled eu", ""},
		"counts wait to be told": {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{
			with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.UnpublishedMs = 11_000 }),
		}}}, "warning relay_late eu", "n1 in eu: counts have waited up to 11s"},
		"changes are late": {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{
			with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.LagP99Ms = map[string]int64{"us": 12_000, "ap": 300} }),
		}}}, "warning relay_late eu", "changes of us are up to 12s old when eu reads them"},
		"a region is not relayed": {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{
			relaysNothing(node("n1", "eu")), relaysNothing(node("n2", "eu")), node("n3", "us"),
		}}}, "critical relay_missing eu", "no node of eu relays shard 0"},
		"a shard is not relayed": {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{
			with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.Shards = 6 }),
		}}}, "critical relay_missing eu", "relays shards 1, 2, 3 and 2 more"},
		"more nodes than a listing holds": {watched{fleet: fleet.Fleet{Truncated: true, Nodes: []fleet.Node{node("n1", "eu"), relaysNothing(node("n2", "us"))}}},
			"warning fleet_cut_off ", "the fleet has more than 10000 nodes, and the rest are not watched: those after n2 in us"},
		"a region that a listing cuts off": {watched{fleet: fleet.Fleet{Truncated: true, Nodes: []fleet.Node{node("n1", "eu"), silent(node("n2", "us"), time.Hour)}}},
			"warning fleet_cut_off ", ""},
		"only a silent node relays": {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{
			relaysNothing(node("n1", "eu")), silent(node("n2", "eu"), 2*time.Hour),
		}}}, "critical relay_missing eu", ""},
		"no origin, no relay":          {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay = nil })}}}, "", ""},
		"a node that has just started": {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health, n.StartedAtMs = heartbeat.Health{}, ms-5000 })}}}, "", ""},
		"intervals of the tuning count": {watched{
			tunings: []tunings.RegionTuning{{Region: "eu", Version: 3, Document: string(document)}},
			fleet:   fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Relay.InStepAtMs, n.TuningVersion = ms-170_000, 3 })}},
		}, "", ""},
		"tunings that differ": {watched{
			tunings: []tunings.RegionTuning{{Version: 2, Document: "{}"}, {Region: "eu", Version: 3, Document: `{"floor":0.7}`}},
			fleet: fleet.Fleet{Nodes: []fleet.Node{
				with(node("n1", "ap"), func(n *fleet.Node) { n.TuningVersion = 2 }), with(node("n2", "eu"), func(n *fleet.Node) { n.TuningVersion = 3 }), with(node("n3", "us"), func(n *fleet.Node) { n.TuningVersion = 2 }),
			}},
		}, "warning tunings_differ ", "regions have 2 different tunings, and no rollout is under way: ap, us; eu"},
		"tunings that a rollout brings": {watched{
			tunings: []tunings.RegionTuning{{Version: 2, Document: "{}"}, {Region: "eu", Version: 3, Document: `{"floor":0.7}`}},
			rollout: &rollout.Rollout{ID: "r1", Phase: rollout.Baking},
			fleet: fleet.Fleet{Nodes: []fleet.Node{
				with(node("n2", "eu"), func(n *fleet.Node) { n.TuningVersion = 3 }), with(node("n3", "us"), func(n *fleet.Node) { n.TuningVersion = 2 }),
			}},
		}, "", ""},
		"rows of their own that say the same": {watched{
			tunings: []tunings.RegionTuning{{Version: 2, Document: `{"floor":0.7}`}, {Region: "eu", Version: 3, Document: `{ "floor": 0.7 }`}},
			fleet: fleet.Fleet{Nodes: []fleet.Node{
				with(node("n2", "eu"), func(n *fleet.Node) { n.TuningVersion = 3 }), with(node("n3", "us"), func(n *fleet.Node) { n.TuningVersion = 2 }),
			}},
		}, "", ""},
		"another tuning": {watched{
			tunings: []tunings.RegionTuning{{Version: 2, Document: "{}"}, {Region: "eu", Version: 3, Document: "{}"}},
			fleet: fleet.Fleet{Nodes: []fleet.Node{
				with(node("n1", "eu"), func(n *fleet.Node) { n.TuningVersion = 2 }), with(node("n2", "eu"), func(n *fleet.Node) { n.TuningVersion = 3 }), with(node("n3", "us"), func(n *fleet.Node) { n.TuningVersion = 2 }),
			}},
		}, "warning tuning_skew eu", "n1 in eu: not running version 3 of the tuning"},
		"a clock":                {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.ClockSkew = -1500 * time.Millisecond })}}}, "warning clock_skew eu", "1.5s"},
		"a clock far off":        {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.ClockSkew = time.Minute })}}}, "critical clock_skew eu", "1m0s"},
		"Redis of a region":      {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.BreakersOpen = 1 })}}}, "critical origin_down eu", "Redis"},
		"Redis for one node":     {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.BreakersOpen = 1 }), node("n2", "eu")}}}, "warning origin_down eu", "n1 in eu"},
		"dropped cost":           {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.DroppedCost = 1 })}}}, "warning cost_dropped eu", "dropped"},
		"full table":             {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.TableFullAtMs = n.SentAtMs - 1000 })}}}, "warning table_full eu", "no room"},
		"settings refused":       {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.SettingsProblem = "floor is 2" })}}}, "warning settings_refused eu", "floor is 2"},
		"a problem nearby":       {watched{fleet: fleet.Fleet{Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.Health.Problems = []string{"Redis may drop counts"} })}}}, "warning node_problem eu", "n1 in eu: Redis may drop counts"},
		"cleanup late":           {watched{lag: 20 * time.Minute}, "warning cleanup_lag cleanup", "20m0s"},
		"cleanup very late":      {watched{lag: 3 * time.Hour}, "critical cleanup_lag cleanup", "3h0m0s"},
		"cleanup paused":         {watched{cleanup: cleanup.Status{Paused: &cleanup.Pause{By: controlplane.By{Actor: "ann", Reason: "deploy"}, At: watchNow}}}, "warning cleanup_paused cleanup", "paused by ann: deploy"},
		"cleanup fails":          {watched{cleanup: cleanup.Status{History: []cleanup.Run{{Error: "disk is full"}, {}}}}, "warning cleanup_fails cleanup", "disk is full"},
		"clocks differ":          {watched{cleanup: cleanup.Status{History: []cleanup.Run{{Error: "plan: " + controlplane.ErrClocksDiffer.Error() + " by 2m"}}}}, "critical cleanup_fails cleanup", "by 2m"},
		"cleanup is refused":     {watched{cleanup: cleanup.Status{History: []cleanup.Run{{Report: cleanup.Report{Refused: "no such definer"}}}}}, "warning cleanup_in_batches cleanup", "partitions: no such definer"},
		"no partitions":          {watched{cleanup: cleanup.Status{History: []cleanup.Run{{Report: cleanup.Report{Refused: cleanup.NoPartitions}}}}}, "info cleanup_in_batches cleanup", cleanup.NoPartitions},
		"no partitions ahead":    {watched{partitions: cleanup.PartitionsProblem{Missing: cleanup.MissingPartitions([]string{cleanup.PartitionsOfHours})}}, "warning cleanup_partitions_missing cleanup", "no partitions of hours are ahead"},
		"a server without any":   {watched{partitions: cleanup.PartitionsProblem{Refused: cleanup.NoPartitions}}, "info cleanup_in_batches cleanup", cleanup.NoPartitions},
		"cleanup failed before":  {watched{cleanup: cleanup.Status{History: []cleanup.Run{{}, {Error: "disk is full"}}}}, "", ""},
		"rollout in trouble":     {watched{rollout: &rollout.Rollout{ID: "r1", Phase: rollout.Applying, Trouble: "table is locked"}}, "critical rollout_trouble r1", "table is locked"},
		"rollout rolls back":     {watched{rollout: &rollout.Rollout{ID: "r1", Phase: rollout.RollingBack, Why: "errors"}}, "warning rollout_trouble r1 rolls back", "errors"},
		"rollout paused":         {watched{rollout: &rollout.Rollout{ID: "r1", Phase: rollout.Baking, Paused: &rollout.Paused{By: controlplane.By{Actor: "ann", Reason: "lunch"}}}}, "warning rollout_waits r1", "lunch"},
		"rollout waits":          {watched{rollout: &rollout.Rollout{ID: "r1", Phase: rollout.Awaiting}}, "info rollout_waits r1", "approval of stage 1"},
		"retirement waits":       {watched{retirement: &retire.Retirement{ID: "t1", Table: "old", Phase: retire.Awaiting}}, "info retirement_waits old", "weirctl retire approve rename"},
		"retirement waits again": {watched{retirement: &retire.Retirement{ID: "t1", Table: "old", Phase: retire.AwaitingFinal}}, "info retirement_waits old", "weirctl retire approve drop"},
		"retirement in trouble":  {watched{retirement: &retire.Retirement{ID: "t1", Table: "old", Phase: retire.Renaming, Trouble: "access denied"}}, "warning retirement_trouble old", "access denied"},
		"retirement goes on":     {watched{retirement: &retire.Retirement{ID: "t1", Table: "old", Phase: retire.Observing}}, "", ""},
		"retirement over":        {watched{retirement: &retire.Retirement{ID: "t1", Table: "old", Phase: retire.Aborted, Trouble: "old"}}, "", ""},
		"no retirement yet":      {watched{retirement: &retire.Retirement{}}, "", ""},
		"rollout over":           {watched{rollout: &rollout.Rollout{ID: "r1", Phase: rollout.Done, Trouble: "old"}}, "", ""},
		"invocations": {watched{invocations: []Invocation{
			{ID: "inv_1", Target: "WeirAudit/Write", Paused: true, Retries: 500, Failure: "denied"}, {ID: "inv_2", Target: "WeirCron/cleanup/Tick", Retries: 3}, {ID: "inv_3", Retries: 2},
		}}, "critical invocation_paused inv_1\nwarning invocation_backing_off inv_2", "denied"},
		"MySQL down":           {watched{mysql: errors.New("MySQL does not answer")}, "critical mysql_down ", "MySQL does not answer"},
		"Restate down":         {watched{restate: errors.New("ingress is away")}, "critical restate_down ", "ingress is away"},
		"Restate's admin down": {watched{admin: errors.New("admin is away")}, "warning restate_admin_down ", "admin is away"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.world.fleet.Now = watchNow
			d := HealthDocument{}.Next(tc.world.watch().Look(t.Context(), watchNow))
			// findings that must settle do
			d = d.Next(tc.world.watch().Look(t.Context(), watchNow.Add(time.Hour)))
			var got []string
			for _, f := range d.Findings {
				got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Kind, f.Subject))
				if f.What == "" || f.Do == "" || f.SinceMs == 0 {
					t.Errorf("%+v does not say what, since when and what to do", f)
				}
			}
			wants := SeverityOK // a finding that only awaits a person is not wrong
			for _, worse := range []Severity{SeverityWarning, SeverityCritical} {
				if strings.Contains(tc.want, string(worse)+" ") {
					wants = worse
				}
			}
			if d.Overall != wants {
				t.Errorf("%s overall, want %s", d.Overall, wants)
			}
			if strings.Join(got, "\n") != tc.want {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), tc.want)
			}
			if tc.says != "" && !strings.Contains(fmt.Sprint(d.Findings), tc.says) {
				t.Errorf("%+v does not say %q", d.Findings, tc.says)
			}
		})
	}
}

// "A finding that goes on keeps its Since", also through looks that cannot read it. A finding that ends is gone, and
// starts again later. A finding that must settle is only listed then.
func TestHealthDocumentOverTime(t *testing.T) {
	w := watched{fleet: fleet.Fleet{Now: watchNow, Nodes: []fleet.Node{with(node("n1", "eu"), func(n *fleet.Node) { n.TuningVersion = 1 })}}}
	var d HealthDocument
	for i, step := range []struct {
		after time.Duration
		do    func()
		want  string // "kind since", by line
	}{
		{0, func() { w.lag = time.Hour }, "cleanup_lag 0s"},
		{30 * time.Second, func() {}, "cleanup_lag 0s"},
		{60 * time.Second, func() { w.mysql = errors.New("down") }, "mysql_down 1m0s\ncleanup_lag 0s"},
		{90 * time.Second, func() {}, "mysql_down 1m0s\ncleanup_lag 0s"},
		{120 * time.Second, func() { w.mysql, w.lag = nil, 0 }, "tuning_skew 0s"}, // seen since 0s, told after 2m
		{150 * time.Second, func() { w.fleet.Nodes = nil }, ""},
		{180 * time.Second, func() { w.lag = time.Hour }, "cleanup_lag 3m0s"},
	} {
		step.do()
		d = d.Next(w.watch().Look(t.Context(), watchNow.Add(step.after)))
		var got []string
		for _, f := range d.Findings {
			got = append(got, fmt.Sprintf("%s %v", f.Kind, time.UnixMilli(f.SinceMs).Sub(watchNow)))
		}
		if strings.Join(got, "\n") != step.want {
			t.Errorf("step %d:\n%s\nwant\n%s", i, strings.Join(got, "\n"), step.want)
		}
	}
}

// "One document … bounded": a thousand dark regions are a hundred findings, and a count.
func TestHealthDocumentIsBounded(t *testing.T) {
	w := watched{fleet: fleet.Fleet{Now: watchNow}, lag: time.Hour}
	for i := range 1000 {
		w.fleet.Nodes = append(w.fleet.Nodes, silent(node(strings.Repeat("é", 2000), fmt.Sprint("r", i)), time.Minute))
	}
	look := w.watch().Look(t.Context(), watchNow)
	look.Findings = append(look.Findings, look.Findings[0], Finding{Kind: FindingClockSkew, Severity: SeverityWarning})
	d := HealthDocument{}.Next(look)
	if len(d.Findings) != findingsMax || d.LeftOut != 2 || d.Overall != SeverityCritical || len(d.Findings[0].What) > controlplane.TextBytesMax+3 || d.Findings[findingsMax-1].Severity != SeverityCritical {
		t.Errorf("%d findings, %d left out, %s, %+v", len(d.Findings), d.LeftOut, d.Overall, d.Findings[0])
	}
	if err := (HealthDocument{Version: healthVersion + 1}).Check(); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("a newer document: %v", err)
	}
}

// "Returns the document of the watch on Restate. If there is no fresh document …, it looks itself": it continues from
// its last document.
func TestHealthReader(t *testing.T) {
	w := &watched{fleet: fleet.Fleet{Now: watchNow}, lag: time.Hour}
	now := watchNow
	stored, storedErr := HealthDocument{}, error(nil)
	r := &HealthReader{Watch: w.watch(), Every: 30 * time.Second, Now: func() time.Time { return now },
		Stored: func(context.Context) (HealthDocument, error) { return stored, storedErr }}
	for i, step := range []struct {
		after time.Duration
		do    func()
		live  bool
		want  string
	}{
		{0, func() {}, true, "cleanup_lag 0s"}, // the watch has not looked yet: it has a minute
		{time.Minute, func() {}, true, "cleanup_lag 0s watch_late 0s"},
		{time.Minute, func() {
			stored = HealthDocument{}.Next(w.watch().Look(t.Context(), now.Add(time.Minute)))
		}, false, "cleanup_lag 2m0s"},
		{time.Minute, func() { storedErr = fmt.Errorf("%w: away", controlplane.ErrUnavailable); w.restate = storedErr }, true, "restate_down 3m0s cleanup_lag 2m0s"},
		{time.Minute, func() { storedErr = errors.New("unreadable"); w.restate = nil }, true, "cleanup_lag 2m0s"},
		{time.Minute, func() { storedErr = nil }, true, "cleanup_lag 2m0s watch_late 4m0s"},
	} {
		step.do()
		now = now.Add(step.after)
		if i == 0 {
			now = watchNow
		}
		d := r.Health(t.Context())
		var got []string
		for _, f := range d.Findings {
			got = append(got, fmt.Sprintf("%s %v", f.Kind, time.UnixMilli(f.SinceMs).Sub(watchNow)))
		}
		if strings.Join(got, " ") != step.want || d.Live != step.live {
			t.Errorf("step %d: live %v, %s; want %v, %s", i, d.Live, strings.Join(got, " "), step.live, step.want)
		}
	}
}

// A finding that began while a clock was ahead no longer counts as settling once the clock is set right. An earlier
// finding stays.
func TestAFindingDoesNotHideForACorrectionOfTheClock(t *testing.T) {
	look := func(after time.Duration) Look {
		return Look{AtMs: watchNow.Add(after).UnixMilli(), Findings: []Finding{{Kind: FindingTuningSkew, Severity: SeverityWarning}}}
	}
	ahead := HealthDocument{}.Next(look(24 * time.Hour))
	if len(ahead.Findings) != 0 || len(ahead.Settling) != 1 {
		t.Fatalf("%+v", ahead)
	}
	d := ahead.Next(look(0)).Next(look(2 * time.Minute))
	if len(d.Findings) != 1 || d.Findings[0].SinceMs != watchNow.UnixMilli() || d.Overall != SeverityWarning {
		t.Errorf("two minutes after the correction: %+v", d)
	}
	d = ahead.Next(look(24*time.Hour + 2*time.Minute)).Next(look(0))
	if len(d.Findings) != 1 || d.Findings[0].SinceMs != watchNow.UnixMilli() {
		t.Errorf("known before the correction: %+v", d)
	}
}

// A document that is ahead of the clock is not a fresh document: the watch may have ended since it wrote it.
func TestADocumentThatIsAheadIsNotFresh(t *testing.T) {
	for ahead, live := range map[time.Duration]bool{time.Minute: false, 3*30*time.Second + lookTimeout: false, time.Hour: true, 24 * time.Hour: true} {
		w := &watched{fleet: fleet.Fleet{Now: watchNow}, lag: time.Hour}
		now := watchNow
		stored := HealthDocument{Version: healthVersion, AtMs: now.Add(ahead).UnixMilli(), Overall: SeverityOK}
		r := &HealthReader{Watch: w.watch(), Every: 30 * time.Second, Now: func() time.Time { return now },
			Stored: func(context.Context) (HealthDocument, error) { return stored, nil }}
		if d := r.Health(t.Context()); d.Live != live {
			t.Errorf("%v ahead: live is %v: %+v", ahead, d.Live, d)
		}
		now = now.Add(2 * time.Minute)
		if d := r.Health(t.Context()); live && ahead > time.Hour && (len(d.Findings) == 0 || d.Overall == SeverityOK) {
			t.Errorf("%v ahead, two minutes later: %+v", ahead, d)
		}
	}
}

// Counters are published at 0 from the start: one for each kind, and none for others.
func TestFindingsMetric(t *testing.T) {
	m, registry := NewMetrics(), prometheus.NewRegistry()
	registry.MustRegister(m)
	if n, err := testutil.GatherAndCount(registry, "weir_watch_findings"); err != nil || n != len(FindingKinds) {
		t.Errorf("%d series, %v", n, err)
	}
	m.Health(HealthDocument{Overall: SeverityCritical, AtMs: 5000, Findings: []Finding{{Kind: FindingClockSkew, Subject: "eu"}, {Kind: FindingClockSkew, Subject: "us"}, {Kind: "of a newer build"}}})
	if n, err := testutil.GatherAndCount(registry, "weir_watch_findings"); err != nil || n != len(FindingKinds) {
		t.Errorf("%d series, %v", n, err)
	}
	if got := testutil.ToFloat64(m.findings[FindingClockSkew]); got != 2 || testutil.ToFloat64(m.overall) != 2 || testutil.ToFloat64(m.lookedAt) != 5 {
		t.Errorf("%v, %v, %v", got, testutil.ToFloat64(m.overall), testutil.ToFloat64(m.lookedAt))
	}
	m.Health(HealthDocument{Overall: SeverityOK})
	if got := testutil.ToFloat64(m.findings[FindingClockSkew]); got != 0 {
		t.Errorf("%v after it is over", got)
	}
}
