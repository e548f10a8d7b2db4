package console

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/console"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
	"github.com/weirhq/weir/shared/workspaces"
)

// large is the operators' API of 1,000 nodes in 20 regions with 10,000 overrides. No node runs: every value is a
// function of the time, and changes each second.
type large struct {
	regions   []string
	overrides []limits.Override // by pattern
	rollout   *rollout.Rollout
	retire    *retire.Retirement
	down      error // of everything below the API
	empty     bool
}

const (
	largeRegions   = 20
	largeNodes     = 1000
	largeOverrides = 10_000
)

// largePages are the pages whose figures it changes, by their addresses.
var largePages = map[string]string{
	"fleet": "/console/", "region": "/console/regions/region-07", "key": "/console/keys?workspace=acme&namespace=api&identifier=user_00042&limit=60000",
	"rollouts": "/console/rollouts", "rollout": "/console/rollouts/at/fewer-rows", "jobs": "/console/jobs", "health": "/console/health",
}

// everyLargePage are all pages.
var everyLargePage = map[string]string{
	"rollout-new": "/console/rollouts/new", "limits": "/console/limits?workspace=acme", "names": "/console/limits", "namespace": "/console/limits/namespace?workspace=acme&namespace=api",
	"namespace-delete": "/console/limits/namespace?workspace=acme&namespace=api&delete=user_00042", "tokens": "/console/tokens",
	"usage": "/console/usage?usage=7d", "usage-live": "/console/usage?usage=live", "namespace-7d": "/console/limits/namespace?workspace=acme&namespace=api&usage=7d",
	"namespace-90d":    "/console/limits/namespace?workspace=acme&namespace=api&usage=90d",
	"rollout-approval": "/console/rollouts/at/two-people",
	"keys":             "/console/keys", "listed": "/console/keys?workspace=acme&namespace=api", "audit": "/console/audit", "not-found": "/console/nowhere",
}

func init() { maps.Copy(everyLargePage, largePages) }

// serve serves the console of a fleet that is "large", "empty" or, with everything below
// the API, "down". It requires no sign-in. The result is its address.
func serve(t testing.TB, state string) (url string) {
	t.Helper()
	l := &large{empty: state == "empty"}
	if state == "down" {
		l.down = fmt.Errorf("%w: MySQL does not answer: look at /readyz", controlplane.ErrUnavailable)
	}
	for r := range largeRegions {
		l.regions = append(l.regions, fmt.Sprintf("region-%02d", r))
	}
	now := time.Now()
	for i := range largeOverrides {
		l.overrides = append(l.overrides, limits.Override{Workspace: "acme", Namespace: "api", Pattern: fmt.Sprintf("user_%05d", i), Limit: int64(100 * i), DurationMs: 60_000, UpdatedAt: now})
	}
	by := controlplane.By{Actor: "ann", Reason: "fewer rows"}
	p := plan.DefaultPlan()
	p.Stages = []plan.Stage{
		{Regions: l.regions[:1], StageNodes: plan.StageNodes{Nodes: 1}, BakeMs: 3_600_000},
		{Regions: l.regions[:1], StageNodes: plan.StageNodes{NodesPercent: 10}, BakeMs: 3_600_000},
		{All: true, BakeMs: 3_600_000, Approval: true},
	}
	p.Approvers = 2
	set := tuning.Default()
	set.Floor = 0.5
	document, err := set.Document()
	if err != nil {
		t.Fatal(err)
	}
	if l.rollout, err = rollout.New("fewer-rows", rollout.Spec{Tuning: string(document), Plan: p}, by, l.regions, now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	l.rollout.Touched = []rollout.Touched{{Region: l.regions[0], Below: tuning.TrialShares / 10, Trial: 4}}
	watch := guard.RegionWatch{Region: l.regions[0], Whole: true}
	for n := range largeNodes / largeRegions {
		watch.Nodes = append(watch.Nodes, guard.WatchedNode{ID: fmt.Sprintf("node-00-%02d", n)})
	}
	l.rollout.Watch = []guard.RegionWatch{watch}
	look := retire.Look{Table: &retire.TableFigures{Rows: 7}}
	if l.retire, err = retire.New(retire.Blocklist, retire.DefaultSpec(), by, look, now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	service := api.NewHandler(api.Config{
		Cleanup: largeCleanup{large: l}, Rollouts: largeRollouts{large: l}, Settings: largeSettings{large: l}, Retirements: largeRetirements{large: l}, Audit: l,
		Tokens: largeTokens{large: l},
		Limits: l.limits,
		Fleet:  l.fleet, Health: l.health, TopKeys: l.topKeys, Lag: func(context.Context) (time.Duration, error) { return 3 * time.Second, nil },
		Key: func(ctx context.Context, q limits.KeyQuery) (limits.KeyReport, error) {
			return limits.GetKey(ctx, l, q)
		},
		Keys: l.keys,
		Usage: func(ctx context.Context, q limits.UsageQuery) (limits.Usage, error) {
			return limits.GetUsage(ctx, largeUsage{l}, q)
		},
		Tuning: func(context.Context) ([]tunings.RegionTuning, error) {
			return []tunings.RegionTuning{{Version: 7, Document: l.rollout.Document}}, l.down
		},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Console: func(service http.Handler) http.Handler {
			con := console.New(console.Config{Service: service, Log: slog.New(slog.DiscardHandler), Version: "v1.2.3"})
			go func() { defer close(ran); con.Run(ctx) }()
			return con
		},
	})
	server := httptest.NewServer(service)
	t.Cleanup(func() {
		stop()
		<-ran
		server.Close()
	})
	return server.URL
}

// fleet has a heartbeat of each node every two seconds. In turn nodes fall silent and
// regions are late, so that states change as well as figures.
func (l *large) fleet(context.Context) (fleet.Fleet, error) {
	now := time.Now()
	if l.empty || l.down != nil {
		return fleet.Fleet{Now: now}, l.down
	}
	seen := now.Truncate(2 * time.Second)
	at, turn := seen.UnixMilli(), seen.Unix()/10
	f := fleet.Fleet{Now: now}
	for r, region := range l.regions {
		from := make(map[string]int64, len(l.regions))
		for o, other := range l.regions {
			if o != r && (int64(o+r)+turn)%7 != 0 {
				from[other] = 400 + (int64(o*r)*131+turn*37)%1500
			}
		}
		if (int64(r)+turn)%11 == 0 {
			from[l.regions[(r+1)%len(l.regions)]] = 12_000
		}
		for n := range largeNodes / largeRegions {
			i := int64(r*largeNodes/largeRegions + n)
			relay := &heartbeat.Relay{Shards: 1}
			if n == 0 {
				relay = &heartbeat.Relay{Shards: 1, Held: []int{0}, InStepAtMs: at, UnpublishedMs: turn % 300, LagP99Ms: from}
			}
			f.Nodes = append(f.Nodes, fleet.Node{
				Heartbeat: heartbeat.Heartbeat{NodeID: fmt.Sprintf("node-%02d-%02d", r, n), Region: region, Build: "v1.2.3", TuningVersion: 3, StartedAtMs: 1_700_000_000_000,
					Health: heartbeat.Health{AllowedTotal: at * (i%9 + 1) / 10, DeniedTotal: at * (i % 5) / 300, ShadowedTotal: at * (i % 3) / 900, Entries: 10_000 + i*turn%1000,
						ReplayedAtMs: at, SettingsAtMs: at, Relay: relay}},
				SeenAt: seen, Age: now.Sub(seen), Live: (i+turn)%97 != 0,
			})
		}
	}
	return f, nil
}

func (l *large) health(context.Context) watch.HealthDocument {
	now := time.Now()
	if l.empty {
		return watch.HealthDocument{Overall: watch.SeverityOK, AtMs: now.UnixMilli()}
	}
	region := l.regions[now.Unix()/5%largeRegions]
	return watch.HealthDocument{Overall: watch.SeverityWarning, AtMs: now.UnixMilli(), Findings: []watch.Finding{
		{Severity: watch.SeverityWarning, Subject: region, What: "2 of its 50 nodes are not heard of", Do: "look at their processes", SinceMs: now.Truncate(5 * time.Second).UnixMilli()},
	}}
}

func (l *large) topKeys(context.Context, limits.TopQuery) (limits.TopKeys, error) {
	now := time.Now()
	if l.empty || l.down != nil {
		return limits.TopKeys{Reports: limits.Reports{Now: now}}, l.down
	}
	top := limits.TopKeys{Reports: limits.Reports{Now: now, Nodes: largeNodes, Oldest: 2 * time.Second}}
	for i := range int64(100) {
		key := limits.TopKey{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprintf("user_%05d", 41+i), DurationMs: 60_000, Limit: 1000, Count: 10_000 - 50*i + now.Unix()%50}
		for _, region := range l.regions[:4] {
			key.Regions = append(key.Regions, limits.TopKeyRegion{Region: region, Count: key.Count / 4})
		}
		top.Keys = append(top.Keys, key)
	}
	return top, nil
}

// limits estimates that a change would have denied a little of the cost that ten keys have spent. A deletion leaves the
// keys to their callers' limits.
func (l *large) limits(_ context.Context, changes []limits.Change, _ *workspaces.Set) (limits.Estimate, error) {
	if l.empty || l.down != nil {
		return limits.Estimate{}, l.down
	}
	e := limits.Estimate{Reported: 14_210, Nodes: largeNodes, Oldest: 2 * time.Second, Matched: 10, Unknown: 10}
	if !changes[0].Deleted {
		e.Unknown, e.Cost, e.Denied, e.Keys = 2, 80_000, 2_500, 4
		for i := range int64(4) {
			e.Worst = append(e.Worst, limits.Key{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprintf("user_%05d", 41+i), Cost: 10_000 - 50*i, Limit: changes[0].Limit})
		}
	}
	return e, nil
}

// keys returns a page of keys, some at their limits. There is always a next page.
func (l *large) keys(_ context.Context, q limits.KeysQuery) (limits.KeyPage, error) {
	p := limits.KeyPage{Now: time.Now()}
	if l.empty || l.down != nil {
		return p, l.down
	}
	k := window.Key{Duration: time.Minute}
	start := window.Start(window.Sequence(p.Now.UnixMilli(), k.DurationMs()), k.DurationMs())
	for i := range q.Limit {
		count := int64(10_000 - 100*(i%7))
		listed := limits.KeyListed{Identifier: fmt.Sprintf("user_%05d", i)}
		w := limits.KeyWindow{DurationMs: k.DurationMs(), Effective: count, Current: limits.KeyCell{StartMs: start, Count: count}}
		if i%5 != 4 {
			w.Limit = new(int64(10_000))
			listed.Override = &limits.Override{Pattern: "user_*", Limit: 10_000}
		}
		listed.Windows, p.Next = []limits.KeyWindow{w}, listed.Identifier
		p.Keys = append(p.Keys, listed)
	}
	return p, nil
}

// KeyRows returns a key's parts of all regions: the current cell fills as time goes by.
func (l *large) KeyRows(context.Context, string, string, string, int) (now time.Time, rows []limits.KeyRow, err error) {
	now = time.Now()
	if l.empty || l.down != nil {
		return now, nil, l.down
	}
	k := window.Key{Duration: time.Minute}
	d, sequence := k.DurationMs(), window.Sequence(now.UnixMilli(), k.DurationMs())
	for r, region := range l.regions {
		most := int64(1000 + 100*r)
		for _, part := range []struct{ sequence, count int64 }{{sequence - 1, most}, {sequence, most * (now.UnixMilli() - sequence*d) / d}} {
			rows = append(rows, limits.KeyRow{
				KeyPart:        limits.KeyPart{Region: region, Count: part.count, UpdatedAt: now.Add(-300 * time.Millisecond)},
				StoredDuration: window.StoredDuration(&k), Sequence: part.sequence,
			})
		}
	}
	return now, rows, nil
}

func (l *large) KeyReset(context.Context, string, string, string) (*limits.Reset, error) {
	return nil, nil
}

func (l *large) Namespace(context.Context, string, string) (*limits.Namespace, error) {
	return nil, nil
}

func (l *large) OverrideOf(_ context.Context, _, _, identifier string) (*limits.Override, error) {
	if l.empty || l.down != nil {
		return nil, l.down
	}
	for i := range l.overrides {
		if l.overrides[i].Pattern == identifier {
			return &l.overrides[i], nil
		}
	}
	return nil, nil
}

func (l *large) Overrides(_ context.Context, _, _, after string, rows int) ([]limits.Override, error) {
	if l.empty || l.down != nil {
		return nil, l.down
	}
	from, _ := slices.BinarySearchFunc(l.overrides, after+"\x00", func(o limits.Override, after string) int {
		if o.Pattern < after {
			return -1
		}
		return 1
	})
	return l.overrides[from:min(len(l.overrides), from+rows)], nil
}

// largeUsage is usage that rises and falls with the hours of a day, of 25 namespaces. For some hours a region has not
// reported, and for some days no region has.
type largeUsage struct{ *large }

func (l largeUsage) Now(context.Context) (time.Time, error) { return time.Now(), l.down }

func (l largeUsage) UsageReported(_ context.Context, from, until time.Time, _ int) (hours []limits.UsageHour, err error) {
	if l.empty || l.down != nil {
		return nil, l.down
	}
	for at := from; at.Before(until); at = at.Add(time.Hour) {
		ago := int(time.Since(at) / time.Hour)
		if day := ago / 24; day > 82 || day > 30 && day < 34 {
			continue
		}
		for i, region := range l.regions {
			if i > 2 || ago%60 < 10 || ago%60 > 13 {
				hours = append(hours, limits.UsageHour{At: at, Region: region})
			}
		}
	}
	return hours, nil
}

func (l largeUsage) UsageOf(ctx context.Context, of heartbeat.UsageOf, from, until time.Time, rows int) (hours []limits.UsageHour, err error) {
	hours, err = l.UsageReported(ctx, from, until, rows)
	for i := range hours {
		hour := hours[i].At.Unix() / 3600 % 24
		wave := 12 - max(hour-12, 12-hour)
		hours[i].UsageCost = heartbeat.UsageCost{Accepted: int64(1+len(of.Namespace)) * (1000 + 900*wave), Denied: 70 * wave * wave}
	}
	return hours, err
}

func (l largeUsage) UsageTop(ctx context.Context, _ []string, _ string, from, until time.Time, rows int) (top []limits.UsageSeries, err error) {
	if l.empty || l.down != nil {
		return nil, l.down
	}
	for i := range 25 {
		of := heartbeat.UsageOf{Workspace: "acme", Namespace: fmt.Sprintf("a-service-with-a-long-name-%02d", i)}
		if i == 4 {
			of = heartbeat.UsageOf{}
		}
		top = append(top, limits.UsageSeries{UsageOf: of, Sum: heartbeat.UsageCost{Accepted: int64(1_000_000_000 - i)}})
	}
	return top, nil
}

// AuditLinks implements audit.Log. No page shows the chain.
func (l *large) AuditLinks(context.Context, int64, int) (audit.Links, error) {
	return audit.Links{}, l.down
}

func (l *large) Audit(_ context.Context, before int64, rows int) (page []audit.Record, err error) {
	if l.empty || l.down != nil {
		return nil, l.down
	}
	if before == 0 || before > largeOverrides {
		before = largeOverrides
	}
	for row := before - 1; row > 0 && len(page) < rows; row-- {
		page = append(page, audit.Record{Row: row, At: time.UnixMilli(1_700_000_000_000 + row*1000), Entry: audit.Entry{
			By: controlplane.By{Actor: "ann", Reason: "a contract"}, Action: "override.set", Subject: fmt.Sprintf("acme/api/user_%05d", row), After: `{"limit":100}`}})
	}
	return page, nil
}

// Methods of the API that no page calls are in the embedded interfaces, which are nil.
type largeCleanup struct {
	api.Cleanup
	*large
}

func (c largeCleanup) Status(context.Context) (cleanup.Status, error) {
	if c.empty || c.down != nil {
		return cleanup.Status{}, c.down
	}
	slot := time.Now().Truncate(5 * time.Second)
	s := cleanup.Status{Running: true, Interval: 5 * time.Second, NextAt: slot.Add(5 * time.Second), Runs: slot.Unix() / 5 % 1_000_000, Rows: slot.Unix() / 5}
	for i := range 50 {
		at := slot.Add(time.Duration(-5*i) * time.Second)
		run := cleanup.Run{StartedAt: at, Took: 300 * time.Millisecond, Trigger: cleanup.TriggerSchedule, Report: cleanup.Report{Rows: at.Unix() / 5 * 7919 % 5000}}
		if at.Unix()/5%17 == 0 {
			run.Error = "MySQL does not answer"
		}
		s.History = append(s.History, run)
	}
	return s, nil
}

type largeRollouts struct {
	api.Rollouts
	*large
}

// Status returns a stage that bakes for ever, on a part of a region's nodes, or a stage that waits for the second of
// two approvals.
func (r largeRollouts) Status(_ context.Context, id string) (rollout.Rollout, error) {
	if r.empty {
		return rollout.Rollout{}, fmt.Errorf("%w: there is no rollout %q", controlplane.ErrNotFound, id)
	}
	now := time.Now()
	one := *r.rollout
	one.Stage, one.Phase, one.DueMs = 1, rollout.Baking, now.Add(time.Hour).UnixMilli()
	if id == "two-people" {
		one.Stage, one.Phase, one.Asked, one.DueMs, one.ID = 2, rollout.Awaiting, 3, 0, id
		one.Approvals = []controlplane.Approval{{By: controlplane.By{Actor: "ann", Reason: "ten percent did well for an hour"}, AtMs: now.UnixMilli(), Evidence: one.Evidence()}}
		return one, r.down
	}
	was, is, rows := 0.2, 0.2+float64(now.Unix()%10)/100, 500+float64(now.Unix()%60)
	one.Baseline = fleet.HealthRates{Nodes: 50, DeniedShare: &was, RowsPerSecond: &rows}
	one.Now = fleet.HealthRates{Nodes: 50, DeniedShare: &is, RowsPerSecond: &rows}
	for i := range int64(40) {
		at := now.Truncate(5 * time.Second).Add(time.Duration(-5*(40-i)) * time.Second)
		one.Events = append(one.Events, controlplane.Event{AtMs: at.UnixMilli(), Actor: "weir", What: "baking", Text: fmt.Sprintf("health was looked at, number %d", at.Unix()/5)})
	}
	return one, r.down
}

func (r largeRollouts) List(context.Context) (list []rollout.Summary, err error) {
	if r.empty || r.down != nil {
		return nil, r.down
	}
	turn := time.Now().Unix() / 5
	for i := range int64(30) {
		one := *r.rollout
		one.ID, one.Phase = fmt.Sprintf("rollout-%d", turn-i), rollout.Done
		list = append(list, one.Summary())
	}
	return list, nil
}

type largeSettings struct {
	api.Settings
	*large
}

func (s largeSettings) Overrides(ctx context.Context, workspace, namespace, after string) ([]limits.Override, bool, error) {
	const most = 1000
	page, err := s.large.Overrides(ctx, workspace, namespace, after, most+1)
	return page[:min(len(page), most)], len(page) > most, err
}

func (s largeSettings) Namespaces(_ context.Context, workspace, after string) (list []limits.Namespace, more bool, err error) {
	if s.empty || s.down != nil {
		return nil, false, s.down
	}
	for i := range 50 {
		if name := fmt.Sprintf("api-%02d", i); name > after {
			list = append(list, limits.DefaultNamespace(workspace, name))
		}
	}
	return list, false, nil
}

func (s largeSettings) AllOverrides(ctx context.Context, _ *workspaces.Set, after limits.OverrideName) ([]limits.Override, bool, error) {
	return s.Overrides(ctx, "acme", "api", after.Pattern)
}

func (s largeSettings) AllNamespaces(ctx context.Context, _ *workspaces.Set, _, _ string) (list []limits.Namespace, more bool, err error) {
	return s.Namespaces(ctx, "acme", "")
}

func (s largeSettings) Namespace(_ context.Context, workspace, namespace string) (limits.Namespace, error) {
	if s.empty {
		return limits.Namespace{}, fmt.Errorf("%w: no settings", controlplane.ErrNotFound)
	}
	return limits.DefaultNamespace(workspace, namespace), s.down
}

func (s largeSettings) Resets(context.Context, string, string) (list []limits.Reset, err error) {
	if s.empty || s.down != nil {
		return nil, s.down
	}
	for i := range 100 {
		list = append(list, limits.Reset{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprintf("user_%05d", 100+i), Generation: 1, SetAt: time.UnixMilli(1_700_000_000_000), ExpiresAt: time.UnixMilli(1_800_000_000_000)})
	}
	return list, nil
}

type largeRetirements struct {
	api.Retirements
	*large
}

func (r largeRetirements) Status(context.Context, string) (retire.Retirement, error) {
	if r.empty {
		return retire.Retirement{}, fmt.Errorf("%w: there has been no retirement", controlplane.ErrNotFound)
	}
	return *r.retire, r.down
}

type largeTokens struct {
	api.Tokens
	*large
}

// List returns a token in each state, and more than a page of tokens in force.
func (k largeTokens) List(_ context.Context, after string) (page []access.Token, more bool, err error) {
	if k.empty || k.down != nil {
		return nil, false, k.down
	}
	now := time.Now()
	all := []access.Token{
		{Name: "a-laptop", Role: access.RoleOperator, ExpiresAt: now.Add(-time.Hour)},
		{Name: "a-pipeline", Role: access.RoleOperator, ExpiresAt: now.Add(24 * time.Hour), UsedAt: now, OldUntil: now.Add(time.Hour)},
		{Name: "a-robot", Role: access.RoleAdmin, RevokedAt: now.Add(-time.Hour), UsedAt: now.Add(-2 * time.Hour)},
	}
	for i := range 60 {
		all = append(all, access.Token{Name: fmt.Sprintf("dashboard-%02d", i), Role: access.RoleViewer, UsedAt: now})
	}
	for _, t := range all {
		if t.Name > after {
			t.CreatedBy, t.CreatedAt = "ann", time.UnixMilli(1_700_000_000_000)
			page = append(page, t)
		}
	}
	return page, false, nil
}
