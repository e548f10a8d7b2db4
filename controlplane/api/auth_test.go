package api

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/watch"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/workspaces"
)

// ring holds a token for each role, whose secret is the role's name; "viewer@acme,beta" is that of a token with
// workspaces.
type ring struct {
	workspaces []string // of the last token that was made

	by    controlplane.By
	lives [2]time.Duration // overlap and expiresIn of the last change
	err   error
}

func (r *ring) Authenticate(_ context.Context, secret string) (access.Identity, error) {
	name, of, scoped := strings.Cut(secret, "@")
	role, valid := access.Role(name), (*workspaces.Set)(nil)
	if scoped {
		var err error
		if valid, err = workspaces.Parse(of); err != nil {
			return access.Identity{}, err
		}
	}
	if r.err == nil && !role.May(access.RoleViewer) {
		return access.Identity{}, fmt.Errorf("%w: the token is unknown or revoked", access.ErrUnauthenticated)
	}
	return access.Identity{Name: "bot-" + name, Role: role, Workspaces: valid}, r.err
}

func (r *ring) Holder(ctx context.Context, hash access.TokenHash) (access.Identity, error) {
	for _, role := range []string{"viewer", "operator", "admin"} {
		if access.HashToken(role) == hash {
			return r.Authenticate(ctx, role)
		}
	}
	return r.Authenticate(ctx, "")
}

func (r *ring) Create(_ context.Context, name string, _ access.Role, expiresIn time.Duration, by controlplane.By, names ...string) (string, error) {
	r.workspaces = names
	r.by, r.lives = by, [2]time.Duration{0, expiresIn}
	return "secret of " + name, nil
}

func (r *ring) Rotate(_ context.Context, name string, overlap, expiresIn time.Duration, by controlplane.By) (string, error) {
	r.by, r.lives = by, [2]time.Duration{overlap, expiresIn}
	return "new secret of " + name, nil
}

func (r *ring) Revoke(_ context.Context, _ string, by controlplane.By) error {
	r.by = by
	return nil
}

func (r *ring) List(_ context.Context, after string) ([]access.Token, bool, error) {
	acme, err := workspaces.New("acme")
	return []access.Token{{Name: "ci", Workspaces: acme, Role: access.RoleViewer, CreatedBy: "ann", CreatedAt: at}}, after == "b", err
}

// guarded serves an API that requires tokens.
func guarded(t *testing.T) (*fixture, *ring) {
	t.Helper()
	f, r := &fixture{schedule: &schedule{}}, &ring{}
	server := httptest.NewServer(NewHandler(Config{
		Cleanup: f.schedule, Rollouts: &f.rollouts, Tokens: r, Settings: &f.settings, RequireTokens: true,
		Ready: func(context.Context) error { return nil },
		Lag:   func(context.Context) (time.Duration, error) { return 0, nil },
		Fleet: func(context.Context) (fleet.Fleet, error) { return fleet.Fleet{}, nil },
		Audit: f, Tunings: f,
		Health:   func(context.Context) watch.HealthDocument { return watch.HealthDocument{} },
		Diagnose: func(context.Context) []watch.Check { return nil },
		Metrics:  prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		AuthFailed: func(reason controlplane.AuthFailure) { f.failures = append(f.failures, reason) },
	}))
	t.Cleanup(server.Close)
	f.url, f.http = server.URL, server.Client()
	return f, r
}

func (f *fixture) post(t *testing.T, procedure, token, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+procedure, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return do(t, req)
}

// The API enforces roles per procedure. Each RPC has its own role, and rejects calls without a token, with an unknown
// token or with a lesser role before it looks at anything else.
func TestEveryProcedureHasARole(t *testing.T) {
	f, _ := guarded(t)
	procedures := procedures(t)
	for _, procedure := range procedures {
		rule, ok := rules[procedure]
		if !ok {
			t.Errorf("%s has no role", procedure)
			continue
		}
		for token, want := range map[string]int{
			"":         http.StatusUnauthorized,
			"stranger": http.StatusUnauthorized,
			"viewer":   allowedFor(access.RoleViewer, rule.role),
			"operator": allowedFor(access.RoleOperator, rule.role),
			"admin":    allowedFor(access.RoleAdmin, rule.role),
		} {
			status, answer := f.post(t, procedure, token, "{}")
			refused := status == http.StatusUnauthorized || status == http.StatusForbidden
			if want == 0 && refused || want != 0 && status != want {
				t.Errorf("%s with %q: %d %s", procedure, token, status, answer)
			}
		}
	}
	if len(procedures) != len(rules) {
		t.Errorf("%d procedures, and %d with a role", len(procedures), len(rules))
	}
}

// A request that makes a change has an actor and a reason, and a viewer must not send it. No other request has a
// reason. weirctl --dry-run recognizes changes by that.
func TestChangesSayWhoAndWhy(t *testing.T) {
	for _, procedure := range procedures(t) {
		name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(procedure, "/"), "/", "."))
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		method := found.(protoreflect.MethodDescriptor)
		says := method.Input().Fields().ByName("actor") != nil && method.Input().Fields().ByName("reason") != nil
		verb, _, _ := strings.Cut(regexp.MustCompile(`[a-z][A-Z]`).ReplaceAllStringFunc(string(method.Name()),
			func(border string) string { return border[:1] + " " + border[1:] }), " ")
		looks := slices.Contains([]string{"Get", "List", "Preview", "Who", "Fleet", "Diagnose", "Top", "Export", "Estimate"}, verb) ||
			strings.HasSuffix(string(method.Name()), "Status")
		if says == looks || says && rules[procedure].role == access.RoleViewer {
			t.Errorf("%s: actor and reason %v, of a look %v, for a %s", procedure, says, looks, rules[procedure].role)
		}
	}
}

// procedures returns all of the package's, as its files describe them.
func procedures(t *testing.T) (all []string) {
	t.Helper()
	protoregistry.GlobalFiles.RangeFilesByPackage("weir.control.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				if m.IsStreamingClient() || m.IsStreamingServer() {
					t.Errorf("%s: streams pass by the interceptor", m.FullName())
				}
				all = append(all, fmt.Sprintf("/%s/%s", s.FullName(), m.Name()))
			}
		}
		return true
	})
	return all
}

// allowedFor returns 0 if a role suffices, and otherwise the code of the refusal.
func allowedFor(has, needs access.Role) int {
	if has.May(needs) {
		return 0
	}
	return http.StatusForbidden
}

// AuthFailed gets the reason of each rejected call, and is not called for accepted calls.
func TestRefusalsAreTold(t *testing.T) {
	f, _ := guarded(t)
	for _, token := range []string{"", "stranger", "viewer", "operator"} {
		f.post(t, controlv1connect.ControlServiceCleanupRunProcedure, token, "{}")
	}
	if want := []controlplane.AuthFailure{controlplane.AuthNoToken, controlplane.AuthUnknownToken, controlplane.AuthRole}; !slices.Equal(f.failures, want) {
		t.Errorf("told %v, want %v", f.failures, want)
	}
}

// The actor in the audit log is the token's name; the actor in the request is ignored.
func TestTheActorIsTheToken(t *testing.T) {
	f, r := guarded(t)
	if status, answer := f.post(t, controlv1connect.ControlServiceCleanupRunProcedure, "operator", `{"actor":"somebody else","reason":"x"}`); status != http.StatusOK || f.schedule.runBy != (controlplane.By{Actor: "bot-operator", Reason: "x"}) {
		t.Errorf("%d %s, by %+v", status, answer, f.schedule.runBy)
	}
	if status, answer := f.post(t, controlv1connect.TokenServiceCreateTokenProcedure, "admin", `{"reason":"x","name":"ci","role":"viewer"}`); status != http.StatusOK || answer != `{"secret":"secret of ci"}` || r.by.Actor != "bot-admin" {
		t.Errorf("%d %s, by %+v", status, answer, r.by)
	}
	if status, _ := f.post(t, controlv1connect.TokenServiceRevokeTokenProcedure, "admin", `{"reason":"x","name":"ci"}`); status != http.StatusOK {
		t.Errorf("%d", status)
	}
	if status, answer := f.post(t, controlv1connect.TokenServiceListTokensProcedure, "admin", `{"after":"b"}`); status != http.StatusOK || !strings.Contains(answer, `"createdBy":"ann"`) || !strings.Contains(strings.ReplaceAll(answer, " ", ""), `"hasMore":true`) {
		t.Errorf("%d %s", status, answer)
	}
}

// A call whose token cannot be checked is rejected, with an error that is not about the token. Health and metrics
// require no token. An API that requires tokens accepts any host name.
func TestGuarded(t *testing.T) {
	f, r := guarded(t)
	r.err = fmt.Errorf("%w: MySQL does not answer", controlplane.ErrUnavailable)
	if status, answer := f.post(t, controlv1connect.ControlServiceFleetProcedure, "admin", `{}`); status != http.StatusServiceUnavailable || !strings.Contains(answer, "MySQL does not answer") {
		t.Errorf("%d %s", status, answer)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if status, _ := get(t, f.url+path, nil); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
	r.err = nil
	client := controlv1connect.NewControlServiceClient(f.http, f.url)
	req := connect.NewRequest(&controlv1.FleetRequest{})
	req.Header().Set("Authorization", "Bearer viewer")
	if _, err := client.Fleet(t.Context(), req); err != nil {
		t.Error(err)
	}
	elsewhere, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere.Host = "weir.example:7080"
	if status, answer := do(t, elsewhere); status != http.StatusOK {
		t.Errorf("%d %s", status, answer)
	}
}

// "No request from outside has such a context": in this process a call is made by the
// holder of a hash, or by a part of the process, and its role counts as any other.
func TestCallsOfThisProcess(t *testing.T) {
	tokens := access.HashToken("viewer")
	for name, tc := range map[string]struct {
		with func(context.Context) context.Context
		who  string
		may  bool
	}{
		"holder of a hash": {func(ctx context.Context) context.Context { return WithHolder(ctx, tokens) }, "bot-viewer", false},
		"a part of ours": {func(ctx context.Context) context.Context {
			return WithIdentity(ctx, access.Identity{Name: "us", Role: access.RoleOperator})
		}, "us", true},
		"nobody":            {func(ctx context.Context) context.Context { return ctx }, "", false},
		"an unknown holder": {func(ctx context.Context) context.Context { return WithHolder(ctx, access.HashToken("x")) }, "", false},
	} {
		s := &service{Config{Tokens: &ring{}, RequireTokens: true, Log: slog.New(slog.DiscardHandler)}}
		who, err := s.identify(tc.with(t.Context()), "", controlv1connect.TokenServiceWhoAmIProcedure)
		if (err == nil) != (tc.who != "") || who.Name != tc.who {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
		if _, err := s.identify(tc.with(t.Context()), "", controlv1connect.ControlServiceCleanupPauseProcedure); (err == nil) != tc.may {
			t.Errorf("%s changes: %v", name, err)
		}
	}
}

func TestWhoAmI(t *testing.T) {
	f, _ := guarded(t)
	if status, answer := f.post(t, controlv1connect.TokenServiceWhoAmIProcedure, "operator", `{}`); status != http.StatusOK || strings.ReplaceAll(answer, " ", "") != `{"name":"bot-operator","role":"operator","tokensRequired":true}` {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer := serve(t).post(t, controlv1connect.TokenServiceWhoAmIProcedure, "", `{}`); status != http.StatusOK || answer != `{"role":"admin"}` {
		t.Errorf("%d %s", status, answer)
	}
}

// The lifetime of a token and the overlap of a rotation are the values in the request. The default overlap is a day.
func TestTokenLives(t *testing.T) {
	f, r := guarded(t)
	for _, tc := range []struct {
		procedure, body, answer string
		lives                   [2]time.Duration
	}{
		{controlv1connect.TokenServiceCreateTokenProcedure, `{"reason":"x","name":"ci","role":"viewer","expires_in_ms":60000}`, `{"secret":"secret of ci"}`, [2]time.Duration{0, time.Minute}},
		{controlv1connect.TokenServiceRotateTokenProcedure, `{"reason":"x","name":"ci"}`, `{"secret":"new secret of ci"}`, [2]time.Duration{24 * time.Hour, 0}},
		{controlv1connect.TokenServiceRotateTokenProcedure, `{"reason":"x","name":"ci","overlap_ms":0,"expires_in_ms":7200000}`, `{"secret":"new secret of ci"}`, [2]time.Duration{0, 2 * time.Hour}},
		{controlv1connect.TokenServiceRotateTokenProcedure, `{"reason":"x","name":"ci","overlap_ms":"9223372036854775807"}`, `{"secret":"new secret of ci"}`, [2]time.Duration{math.MaxInt64 / time.Millisecond * time.Millisecond, 0}},
	} {
		if status, answer := f.post(t, tc.procedure, "admin", tc.body); status != http.StatusOK || answer != tc.answer || r.lives != tc.lives || r.by.Actor != "bot-admin" {
			t.Errorf("%s: %d %s, %v", tc.body, status, answer, r.lives)
		}
	}
}
