package console

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/previews"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
	"github.com/weirhq/weir/shared/workspaces"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a console in front of the real API, with everything below the API in memory.
type world struct {
	t       testing.TB
	console *Console
	url     string
	log     *strings.Builder
	stop    func() // Run's end

	mu       sync.Mutex
	down     error // of everything below the API
	noTokens error // of the look-up of tokens
	fleet    fleet.Fleet
	cleanup  cleanup.Status
	one      *rollout.Rollout
	settings []limits.Override
	inForce  []tunings.RegionTuning
	overall  watch.Severity // of its health; empty: a warning
	// namespaces have settings, in addition to api.
	namespaces []string
	by         controlplane.By
	change     limits.NamespaceChange // the newest
	evidence   string                 // of the newest approval of a retirement
	order      rollout.Order
	revoked    bool
	retire     *retire.Retirement
	found      []watch.Finding
	audit      []audit.Record
	resets     []limits.Reset
	top        limits.TopKeys
	held       limits.HeldReport
	noTop      error
	refused    error     // of connections' certificates
	now        time.Time // the database's, of a key
	rows       []limits.KeyRow
	shadow     bool // of the namespace of rows
	keys       limits.KeyPage
	listed     limits.KeysQuery
	tokens     []access.Token // by name
	listDown   error          // of tokens
	made       int            // secrets
	asked      string         // of the newest change of a token

	overridePages int // of all namespaces, that were read

	rolloutCalls http.Handler       // serves calls about rollouts in place of the API, if it is not nil
	reports      []limits.UsageHour // of regions
	usage        map[heartbeat.UsageOf][]limits.UsageHour
	noUsage      error
	asking       limits.UsageQuery // the newest

	estimate   limits.Estimate
	estimated  []limits.Change
	noEstimate error
}

// start serves a console; an open console requires no tokens.
func start(t testing.TB, open bool) *world {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w := &world{inForce: []tunings.RegionTuning{{Document: controltest.Document()}}, t: t, log: &strings.Builder{}, stop: stop}
	var ran sync.WaitGroup
	service := api.NewHandler(api.Config{
		Cleanup: schedule{world: w}, Rollouts: rollouts{world: w}, Settings: settingCalls{world: w}, Tokens: ring{world: w}, RequireTokens: !open,
		Retirements: retirements{world: w}, Previews: previewCalls{w}, Audit: auditLog{w},
		Health: func(context.Context) watch.HealthDocument {
			return watch.HealthDocument{Overall: cmp.Or(w.overall, watch.SeverityWarning), AtMs: 1_700_000_000_000, Findings: w.found}
		},
		TopKeys: func(_ context.Context, q limits.TopQuery) (limits.TopKeys, error) {
			return w.top, cmp.Or(w.noTop, w.down)
		},
		Held: func(_ context.Context, q limits.TopQuery) (limits.HeldReport, error) {
			return w.held, cmp.Or(w.noTop, w.down)
		},
		Limits: func(_ context.Context, changes []limits.Change, _ *workspaces.Set) (limits.Estimate, error) {
			w.estimated = changes
			return w.estimate, cmp.Or(w.noEstimate, w.down)
		},
		Key: func(_ context.Context, q limits.KeyQuery) (limits.KeyReport, error) {
			if w.down != nil {
				return limits.KeyReport{}, w.down
			}
			return limits.GetKey(context.Background(), keyRows{w}, q)
		},
		Keys: func(_ context.Context, q limits.KeysQuery) (limits.KeyPage, error) {
			w.listed = q
			return w.keys, w.down
		},
		Usage: func(ctx context.Context, q limits.UsageQuery) (limits.Usage, error) {
			w.asking = q
			if err := cmp.Or(w.noUsage, w.down); err != nil {
				return limits.Usage{}, err
			}
			return limits.GetUsage(ctx, usageRows{w}, q)
		},
		Diagnose: func(context.Context) []watch.Check {
			return []watch.Check{{Area: "mysql", Name: "version", Result: watch.CheckOK, What: "10.11"}, {Area: "redis", Name: "policy", Result: "fail", What: "evicts", Do: "set noeviction"}}
		},
		Lag:     func(context.Context) (time.Duration, error) { return 3 * time.Second, w.down },
		Fleet:   func(context.Context) (fleet.Fleet, error) { return w.fleet, w.down },
		Tuning:  func(context.Context) ([]tunings.RegionTuning, error) { return w.inForce, w.down },
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Console: func(service http.Handler) http.Handler {
			w.console = New(Config{Service: w.locked(service), Log: slog.New(slog.NewTextHandler(w.log, nil)), Version: "v1.2.3",
				StillValid: func(*tls.ConnectionState) error {
					w.mu.Lock()
					defer w.mu.Unlock()
					return w.refused
				}})
			ran.Go(func() { w.console.Run(ctx) })
			return w.console
		},
	})
	server := httptest.NewServer(service)
	w.url = server.URL
	t.Cleanup(func() {
		stop()
		ran.Wait()
		server.Close()
	})
	return w
}

// locked has calls of the API one at a time, so that its parts need no lock.
func (w *world) locked(service http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.rolloutCalls != nil && strings.HasPrefix(r.URL.Path, "/"+controlv1connect.RolloutServiceName+"/") {
			w.rolloutCalls.ServeHTTP(rw, r)
			return
		}
		service.ServeHTTP(rw, r)
	})
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// Methods of the API that no test uses are in the embedded interfaces, which are nil.
type schedule struct {
	api.Cleanup
	*world
}

func (s schedule) Status(context.Context) (cleanup.Status, error) {
	return s.cleanup, s.down
}

func (s schedule) RunNow(_ context.Context, by controlplane.By) (cleanup.Run, error) {
	s.by = by
	return cleanup.Run{}, s.down
}

func (s schedule) Pause(_ context.Context, by controlplane.By) (cleanup.Status, error) {
	s.by = by
	s.cleanup.Running, s.cleanup.Paused = false, &cleanup.Pause{By: by, At: time.UnixMilli(1_700_000_000_000)}
	return s.cleanup, s.down
}

func (s schedule) Resume(_ context.Context, by controlplane.By) (cleanup.Status, error) {
	s.by = by
	s.cleanup.Running, s.cleanup.Paused = true, nil
	return s.cleanup, s.down
}

type rollouts struct {
	api.Rollouts
	*world
}

func (s rollouts) Start(_ context.Context, start rollout.Start) (rollout.Rollout, error) {
	if s.one != nil {
		return rollout.Rollout{}, fmt.Errorf("%w: rollout %s is under way", controlplane.ErrConflict, s.one.ID)
	}
	r, err := rollout.New(start.ID, start.Spec, start.By, []string{"eu", "us"}, time.Now().UnixMilli())
	if err != nil {
		return rollout.Rollout{}, err
	}
	s.one, s.by = r, start.By
	return *r, s.down
}

func (s rollouts) Operate(_ context.Context, id string, order rollout.Order) (rollout.Rollout, error) {
	if s.one == nil || s.one.ID != id {
		return rollout.Rollout{}, fmt.Errorf("%w: there is no rollout %q", controlplane.ErrNotFound, id)
	}
	s.by, s.order = order.By, order
	return *s.one, s.down
}

func (s rollouts) Status(_ context.Context, id string) (rollout.Rollout, error) {
	if s.one == nil || s.one.ID != id {
		return rollout.Rollout{}, fmt.Errorf("%w: there is no rollout %q", controlplane.ErrNotFound, id)
	}
	return *s.one, s.down
}

func (s rollouts) List(context.Context) (list []rollout.Summary, err error) {
	if s.one != nil {
		list = append(list, s.one.Summary())
	}
	return list, s.down
}

type settingCalls struct {
	api.Settings
	*world
}

func (s settingCalls) ChangeOverride(_ context.Context, workspace, namespace, pattern string, change limits.OverrideChange, by controlplane.By) (limits.Override, error) {
	at := slices.IndexFunc(s.world.settings, func(o limits.Override) bool { return o.Pattern == pattern })
	o := limits.Override{Workspace: workspace, Namespace: namespace, Pattern: pattern}
	if at >= 0 {
		o = s.world.settings[at]
	}
	if seen := change.IfUpdatedMs; seen == nil || at >= 0 && *seen != o.UpdatedAt.UnixMilli() || at < 0 && *seen != 0 {
		return o, fmt.Errorf("%w: override %s was changed after it was looked at", controlplane.ErrConflict, pattern)
	}
	o.Limit, o.DurationMs, o.Candidate, o.Shadow, o.UpdatedAt = *change.Limit, *change.DurationMs, *change.Candidate, *change.Shadow, o.UpdatedAt.Add(time.Second)
	if err := o.Validate(); err != nil {
		return o, err
	}
	if at < 0 {
		o.UpdatedAt = time.UnixMilli(1_700_000_000_000)
		s.world.settings = append(s.world.settings, o)
	} else {
		s.world.settings[at] = o
	}
	s.by = by
	return o, s.down
}

func (s settingCalls) Override(_ context.Context, _, _, pattern string) (limits.Override, error) {
	for _, o := range s.world.settings {
		if o.Pattern == pattern {
			return o, s.down
		}
	}
	return limits.Override{}, fmt.Errorf("%w: there is no override %q", controlplane.ErrNotFound, pattern)
}

func (s settingCalls) DeleteOverride(_ context.Context, _, _, pattern string, ifUpdatedMs *int64, by controlplane.By) error {
	for i, o := range s.world.settings {
		if o.Pattern == pattern {
			if ifUpdatedMs != nil && *ifUpdatedMs != o.UpdatedAt.UnixMilli() {
				return fmt.Errorf("%w: override %s was changed after it was looked at", controlplane.ErrConflict, pattern)
			}
			s.world.settings, s.by = append(s.world.settings[:i], s.world.settings[i+1:]...), by
			return s.down
		}
	}
	return fmt.Errorf("%w: there is no override %q", controlplane.ErrNotFound, pattern)
}

func (s settingCalls) Overrides(_ context.Context, _, _, after string) (page []limits.Override, more bool, err error) {
	for _, o := range s.world.settings {
		if o.Pattern > after {
			page = append(page, o)
		}
	}
	return page[:min(len(page), 1000)], len(page) > 1000, s.down
}

func (s settingCalls) SetNamespace(_ context.Context, workspace, namespace string, change limits.NamespaceChange, by controlplane.By) (limits.Namespace, error) {
	s.by, s.change = by, change
	n := limits.DefaultNamespace(workspace, namespace)
	n.Mode, n.Outage, n.NodeShare, n.Window = *change.Mode, *change.Outage, *change.NodeShare, *change.Window
	return n, cmp.Or(s.down, n.Validate())
}

func (s settingCalls) Namespace(_ context.Context, workspace, namespace string) (limits.Namespace, error) {
	if s.down == nil && namespace != "api" && !slices.Contains(s.namespaces, namespace) {
		return limits.Namespace{}, fmt.Errorf("%w: namespace %s has no settings", controlplane.ErrNotFound, namespace)
	}
	return limits.DefaultNamespace(workspace, namespace), s.down
}

func (s settingCalls) Namespaces(_ context.Context, workspace, after string) (page []limits.Namespace, more bool, err error) {
	for _, name := range append([]string{"api"}, s.namespaces...) {
		if name > after {
			page = append(page, limits.DefaultNamespace(workspace, name))
		}
	}
	return page[:min(len(page), 1000)], len(page) > 1000, s.down
}

func (s settingCalls) AllOverrides(_ context.Context, _ *workspaces.Set, after limits.OverrideName) (page []limits.Override, more bool, err error) {
	s.overridePages++
	for _, o := range s.world.settings {
		if cmp.Or(cmp.Compare(o.Workspace, after.Workspace), cmp.Compare(o.Namespace, after.Namespace), cmp.Compare(o.Pattern, after.Pattern)) > 0 {
			page = append(page, o)
		}
	}
	return page[:min(len(page), 1000)], len(page) > 1000, s.down
}

func (s settingCalls) AllNamespaces(context.Context, *workspaces.Set, string, string) (page []limits.Namespace, more bool, err error) {
	for _, name := range s.namespaces {
		page = append(page, limits.DefaultNamespace("acme", name))
	}
	return page[:min(len(page), 1000)], len(page) > 1000, s.down
}

func (s settingCalls) ResetKey(_ context.Context, workspace, namespace, identifier string, _ time.Duration, by controlplane.By) (limits.Reset, error) {
	reset := limits.Reset{Workspace: workspace, Namespace: namespace, Identifier: identifier, Generation: 1, SetAt: time.UnixMilli(1_700_000_000_000)}
	s.resets, s.by = append(s.resets, reset), by
	return reset, s.down
}

func (s settingCalls) Resets(context.Context, string, string) ([]limits.Reset, error) {
	return s.resets, s.down
}

// keyRows are the rows of every key; the world is locked.
type keyRows struct{ *world }

func (s keyRows) KeyRows(context.Context, string, string, string, int) (time.Time, []limits.KeyRow, error) {
	return s.now, s.rows, nil
}

func (s keyRows) KeyReset(_ context.Context, _, _, identifier string) (*limits.Reset, error) {
	for i := range s.resets {
		if s.resets[i].Identifier == identifier {
			return &s.resets[i], nil
		}
	}
	return nil, nil
}

func (s keyRows) Namespace(_ context.Context, workspace, namespace string) (*limits.Namespace, error) {
	n := limits.DefaultNamespace(workspace, namespace)
	n.Shadow = s.shadow
	return &n, nil
}

func (s keyRows) OverrideOf(_ context.Context, _, _, identifier string) (applies *limits.Override, err error) {
	for i, o := range s.world.settings {
		if window.Matches(o.Pattern, identifier) && (applies == nil || window.ComparePatterns(o.Pattern, applies.Pattern) < 0) {
			applies = &s.world.settings[i]
		}
	}
	return applies, nil
}

// usageRows are the stored hours of usage; the world is locked.
type usageRows struct{ *world }

func (s usageRows) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (s usageRows) UsageReported(_ context.Context, from, until time.Time, _ int) ([]limits.UsageHour, error) {
	return slices.DeleteFunc(slices.Clone(s.reports), func(h limits.UsageHour) bool {
		return h.At.Before(from) || !h.At.Before(until)
	}), nil
}

func (s usageRows) UsageOf(_ context.Context, of heartbeat.UsageOf, from, until time.Time, _ int) ([]limits.UsageHour, error) {
	return s.world.usage[of], nil
}

func (s usageRows) UsageTop(_ context.Context, _ []string, _ string, from, until time.Time, rows int) (top []limits.UsageSeries, err error) {
	for of, hours := range s.world.usage {
		one := limits.UsageSeries{UsageOf: of}
		for _, h := range hours {
			if !h.At.Before(from) && h.At.Before(until) {
				one.Sum.Accepted, one.Sum.Denied = one.Sum.Accepted+h.Accepted, one.Sum.Denied+h.Denied
			}
		}
		top = append(top, one)
	}
	slices.SortFunc(top, func(a, b limits.UsageSeries) int {
		return cmp.Or(cmp.Compare(b.Sum.Accepted+b.Sum.Denied, a.Sum.Accepted+a.Sum.Denied), cmp.Compare(a.Namespace, b.Namespace))
	})
	return top[:min(len(top), rows)], nil
}

type retirements struct {
	api.Retirements
	*world
}

func (s retirements) Status(context.Context, string) (retire.Retirement, error) {
	if s.down != nil {
		return retire.Retirement{}, s.down
	}
	if s.retire == nil {
		return retire.Retirement{}, fmt.Errorf("%w: there has been no retirement", controlplane.ErrNotFound)
	}
	return *s.retire, nil
}

func (s retirements) Start(_ context.Context, table string, spec retire.Spec, by controlplane.By) (retire.Retirement, error) {
	s.by, s.retire = by, &retire.Retirement{ID: "t1", Table: table, Spec: spec, By: by, Phase: retire.Observing}
	return *s.retire, s.down
}

func (s retirements) ApproveRename(_ context.Context, _ string, o retire.Order) (retire.Retirement, error) {
	s.by, s.evidence = o.By, o.Evidence
	return *s.retire, s.down
}

func (s retirements) ApproveDrop(_ context.Context, _ string, o retire.Order) (retire.Retirement, error) {
	s.by, s.evidence = o.By, o.Evidence
	return *s.retire, s.down
}

type auditLog struct{ *world }

func (s auditLog) AuditLinks(context.Context, int64, int) (audit.Links, error) {
	return audit.Links{}, s.down
}

func (s auditLog) Audit(_ context.Context, before int64, rows int) (page []audit.Record, err error) {
	for _, e := range s.audit {
		if before == 0 || e.Row < before {
			page = append(page, e)
		}
	}
	return page[:min(len(page), rows)], s.down
}

type previewCalls struct{ *world }

func (s previewCalls) Preview(_ context.Context, r previews.Request) (previews.Answer, error) {
	one := previews.Prediction{FeedIntervalMs: 200, RowsWrittenPerS: 100, RowsReadPerS: 900, ConvergenceP99Ms: 2900, Overshoot: 1.26}
	two := one
	two.FeedIntervalMs, two.RowsReadPerS, two.Overshoot = 500, 450, 1.6
	return previews.Answer{OldText: "{}", NewText: r.New, Shape: previews.FleetShape{Nodes: []int{3, 3}, Keys: 1000, Assumed: []string{"hot_share"}},
		Predictions: previews.Predictions{Old: one, New: two, Curve: []previews.Prediction{one, two}, Notes: []string{"scaled by 10"}}}, s.down
}

// ring holds a token for each role, whose secret is the role's name.
type ring struct {
	api.Tokens
	*world
}

func (r ring) Authenticate(ctx context.Context, secret string) (access.Identity, error) {
	return r.Holder(ctx, access.HashToken(secret))
}

func (r ring) Holder(_ context.Context, hash access.TokenHash) (access.Identity, error) {
	if r.noTokens != nil {
		return access.Identity{}, r.noTokens
	}
	for _, role := range []access.Role{access.RoleViewer, access.RoleOperator, access.RoleAdmin} {
		if hash == access.HashToken(string(role)) && !r.revoked {
			return access.Identity{Name: "bot-" + string(role), Role: role}, nil
		}
		if acme, err := workspaces.New("acme"); err == nil && hash == access.HashToken(string(role)+"@acme") && !r.revoked {
			return access.Identity{Name: "bot-acme", Role: role, Workspaces: acme}, nil
		}
	}
	return access.Identity{}, fmt.Errorf("%w: the token is unknown or revoked", access.ErrUnauthenticated)
}

func (r ring) Create(_ context.Context, name string, role access.Role, expiresIn time.Duration, by controlplane.By, names ...string) (string, error) {
	valid, err := workspaces.New(names...)
	if err != nil {
		return "", err
	}
	return r.change(fmt.Sprint("create ", name, " ", role, " ", expiresIn), by, func() error {
		if slices.ContainsFunc(r.tokens, func(t access.Token) bool { return t.Name == name }) {
			return fmt.Errorf("%w: there is a token %s already", controlplane.ErrConflict, name)
		}
		r.tokens = append(r.tokens, access.Token{Name: name, Role: role, Workspaces: valid, CreatedBy: by.Actor, CreatedAt: time.UnixMilli(1_700_000_000_000)})
		return nil
	})
}

func (r ring) Rotate(_ context.Context, name string, overlap, expiresIn time.Duration, by controlplane.By) (string, error) {
	return r.change(fmt.Sprint("rotate ", name, " ", overlap, " ", expiresIn), by, func() error { return nil })
}

func (r ring) Revoke(_ context.Context, name string, by controlplane.By) error {
	_, err := r.change("revoke "+name, by, func() error { return nil })
	return err
}

func (r ring) change(asked string, by controlplane.By, change func() error) (string, error) {
	if r.down != nil {
		return "", r.down
	}
	if err := change(); err != nil {
		return "", err
	}
	r.made++
	r.asked, r.by = asked, by
	return fmt.Sprint("weir_s3cret-", r.made), nil
}

func (r ring) List(_ context.Context, after string) (page []access.Token, more bool, err error) {
	for _, t := range r.tokens {
		if t.Name > after {
			page = append(page, t)
		}
	}
	return page, false, cmp.Or(r.listDown, r.down)
}

// browser is somebody before the console, with cookies and without scripts.
type browser struct {
	w      *world
	client *http.Client
}

// visit returns a browser without a session.
func (w *world) visit() *browser {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	transport := &http.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &browser{w, &http.Client{Transport: transport, Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// as returns a browser signed in with the token of a role.
func (w *world) as(role string) *browser {
	w.t.Helper()
	b := w.visit()
	if a := b.post("/console/sign-in", url.Values{"token": {role}}); a.status != http.StatusSeeOther {
		w.t.Fatalf("sign in as %s: %d %s", role, a.status, a.body)
	}
	return b
}

type answered struct {
	status int
	header http.Header
	body   string
}

func (b *browser) get(path string) answered {
	b.w.t.Helper()
	return b.do(b.request(http.MethodGet, path, nil))
}

// post sends a form as a page of ours would, without the token against forgery.
func (b *browser) post(path string, form url.Values) answered {
	b.w.t.Helper()
	r := b.request(http.MethodPost, path, form)
	r.Header.Set("Origin", b.w.url)
	return b.do(r)
}

// send sends the form of a page with the given values.
func (b *browser) send(page, path string, form url.Values) answered {
	b.w.t.Helper()
	form.Set("forgery", b.forgery(page))
	return b.post(path, form)
}

var forgery = regexp.MustCompile(`name="forgery" value="([^"]+)"`)

func (b *browser) forgery(page string) string {
	b.w.t.Helper()
	found := forgery.FindStringSubmatch(b.get(page).body)
	if found == nil {
		b.w.t.Fatalf("%s has no form", page)
	}
	return found[1]
}

func (b *browser) request(method, path string, form url.Values) *http.Request {
	b.w.t.Helper()
	r, err := http.NewRequestWithContext(b.w.t.Context(), method, b.w.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.w.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

func (b *browser) do(r *http.Request) answered {
	b.w.t.Helper()
	res, err := b.client.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return answered{res.StatusCode, res.Header, string(body)}
}

// populous returns a fleet of regions with nodes each, in all states.
func populous(regions, nodes int, now time.Time) fleet.Fleet {
	listing := fleet.Fleet{Now: now}
	for r := range regions {
		for n := range nodes {
			at := now.Add(-time.Second).UnixMilli()
			node := fleet.Node{
				Heartbeat: heartbeat.Heartbeat{NodeID: fmt.Sprintf("node-%02d-%03d", r, n), Region: fmt.Sprintf("region-%02d", r), Build: "v1.2.3", TuningVersion: int64(n % 2), StartedAtMs: at - 60_000,
					Health: heartbeat.Health{AllowedTotal: int64(1000 * n), DeniedTotal: int64(10 * n), ReplayedAtMs: at, SettingsAtMs: at, Relay: &heartbeat.Relay{Shards: 1}}},
				SeenAt: now.Add(-time.Second), Age: time.Second, Live: n%10 != 9,
			}
			if n == 0 {
				node.Health.Relay = &heartbeat.Relay{Shards: 1, Held: []int{0}, InStepAtMs: at, UnpublishedMs: 200, LagP99Ms: map[string]int64{"region-00": int64(900 * r)}}
			}
			listing.Nodes = append(listing.Nodes, node)
		}
	}
	return listing
}
