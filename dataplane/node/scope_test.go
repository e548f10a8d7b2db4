package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/dataplane/node/routes"
	kuadrantv1 "github.com/weirhq/weir/shared/gen/proto/kuadrant/service/ratelimit/v1"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// Tokens of the tests below. The name in each line describes the token.
const scopedTokens = `everything
acme workspaces=acme
both workspaces=acme,globex
reader workspaces=acme actions=read
metrics actions=metrics
profiles actions=profiles
limits actions=limit
`

// openScoped makes Tokens of lines that begin with the token itself.
func openScoped(t testing.TB, lines string) (tokens *access.Tokens, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "tokens")
	write(t, path, hashedLines(lines))
	tokens, err := access.Open(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return tokens, path
}

func hashedLines(lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		token, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		fmt.Fprintf(&b, "%s  %s\n", strings.Fields(hashed(token))[0], rest)
	}
	return b.String()
}

// startScoped runs all that a node serves: the service, Envoy's and Kuadrant's with keys in the workspace envoy, and
// the routes below /v2 with keys in the workspace v2.
func startScoped(t testing.TB) *harness {
	t.Helper()
	limiter := newLimiter(t, memstore.NewOrigin(memstore.OriginOptions{}))
	tokens, _ := openScoped(t, scopedTokens)
	return start(t, limiter, func(c *Config) {
		c.Tokens = tokens
		c.RLS = &rls.Service{Limiter: limiter, Rules: new(rls.Source), Workspace: "envoy"}
		c.Routes = &routes.Service{Limiter: limiter, Overrides: new(routes.Memory), Workspace: "v2",
			Logger: slog.New(slog.DiscardHandler)}
	})
}

// askedOf are messages of each procedure about keys of a workspace.
func askedOf(workspace string) map[string]proto.Message {
	one := &weirv1.LimitRequest{Workspace: workspace, Namespace: "api", Identifier: "known", Limit: 10, DurationMs: 60_000}
	lease := leaseOf(workspace)
	call := &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitv3.RateLimitDescriptor{
		{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "1"}},
			Limit: &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 10, Unit: 1}}}}
	return map[string]proto.Message{
		weirv1connect.RateLimitServiceLimitProcedure:     one,
		weirv1connect.RateLimitServiceLimitManyProcedure: &weirv1.LimitManyRequest{Requests: []*weirv1.LimitRequest{one}},
		weirv1connect.RateLimitServicePeekProcedure: &weirv1.PeekRequest{Workspace: workspace, Namespace: "api",
			Identifier: "known", Limit: 10, DurationMs: 60_000},
		weirv1connect.RateLimitServiceRefundProcedure: &weirv1.RefundRequest{Workspace: workspace, Namespace: "api",
			Identifier: "known", DurationMs: 60_000, Cost: 1},
		weirv1connect.RateLimitServiceReserveProcedure: &weirv1.ReserveRequest{Id: "r-" + workspace,
			Requests: []*weirv1.LimitRequest{one}},
		weirv1connect.RateLimitServiceSettleProcedure: &weirv1.SettleRequest{Id: "r-" + workspace, Costs: []int64{1}},
		weirv1connect.RateLimitServiceCancelProcedure: &weirv1.CancelRequest{Id: "r-" + workspace},
		weirv1connect.RateLimitServiceExtendProcedure: &weirv1.ExtendRequest{Id: "r-" + workspace, TtlMs: 60_000},
		weirv1connect.RateLimitServiceAcquireProcedure: &weirv1.AcquireRequest{Workspace: workspace, Namespace: "jobs",
			Identifier: "known", Limit: 10},
		weirv1connect.RateLimitServiceRenewProcedure:   &weirv1.RenewRequest{Leases: []string{lease}},
		weirv1connect.RateLimitServiceReleaseProcedure: &weirv1.ReleaseRequest{Leases: []string{lease}},
		weirv1connect.RateLimitServiceExplainProcedure: &weirv1.ExplainRequest{Workspace: workspace, Namespace: "api",
			Identifier: "known", Limit: 10, DurationMs: 60_000},
		weirv1connect.RateLimitServiceExplainLeaseProcedure: &weirv1.ExplainLeaseRequest{Workspace: workspace,
			Namespace: "jobs", Identifier: "known", Limit: 10},
		weirv1connect.RateLimitServiceTopKeysProcedure: &weirv1.TopKeysRequest{Workspace: workspace,
			By: weirv1.TopBy_TOP_BY_DENIED},
		streamProcedure:     &weirv1.LimitStreamRequest{Request: one},
		rls.Procedure:       call,
		rls.CheckProcedure:  call,
		rls.ReportProcedure: call,
		rls.ReserveProcedure: &kuadrantv1.ReserveRequest{Domain: "edge", Descriptors: call.GetDescriptors(),
			Amount: 1},
		rls.CommitProcedure: &kuadrantv1.CommitRequest{Domain: "edge", Descriptors: call.GetDescriptors(),
			ActualAmount: 1},
	}
}

// byID are the procedures that name a reservation and nothing else.
var byID = []string{weirv1connect.RateLimitServiceSettleProcedure, weirv1connect.RateLimitServiceCancelProcedure,
	weirv1connect.RateLimitServiceExtendProcedure}

// leaseOf returns a lease of a workspace's key, as text.
func leaseOf(workspace string) string {
	limiter, err := dataplane.New(dataplane.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	defer func() { _ = limiter.Stop(context.Background()) }()
	token, d := limiter.AcquireToken(context.Background(), dataplane.ConcurrencyRequest{Workspace: workspace,
		Namespace: "jobs", Identifier: "known", Limit: 10, TTL: dataplane.LeaseTTLDefault}, "lease", false)
	if d.Err != nil {
		panic(d.Err)
	}
	return token
}

// proceduresOf returns all methods of services, by their descriptors.
func proceduresOf(t testing.TB, services ...protoreflect.FullName) (procedures []string) {
	t.Helper()
	for _, name := range services {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		methods := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			procedures = append(procedures, fmt.Sprintf("/%s/%s", name, methods.Get(i).Name()))
		}
	}
	return procedures
}

var scopedServices = []protoreflect.FullName{weirv1connect.RateLimitServiceName, "envoy.service.ratelimit.v3.RateLimitService",
	"kuadrant.service.ratelimit.v1.RateLimitService"}

// callRPC makes a call on the port for gRPC and returns how it ended.
func callRPC(t testing.TB, conn *grpc.ClientConn, token, procedure string, message proto.Message) error {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	if procedure != streamProcedure {
		return conn.Invoke(ctx, procedure, message, new(weirv1.RefundResponse))
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, procedure)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(message)
	_ = stream.CloseSend()
	answer := new(weirv1.LimitStreamResponse)
	if err := stream.RecvMsg(answer); err != nil {
		return err
	}
	if problem := answer.GetProblem(); problem != nil {
		return status.Error(map[string]codes.Code{"permission_denied": codes.PermissionDenied}[problem.GetCode()], problem.GetMessage())
	}
	return nil
}

// A token with workspaces gets the same answer to every call about another workspace, whether there is such a workspace
// or not, by gRPC, Connect and JSON. A call that names a reservation finds none.
func TestATokenOutOfScopeMayCallNothing(t *testing.T) {
	h := startScoped(t)
	conn := dial(t, h.GRPCAddr().String())
	for procedure, message := range askedOf("globex") { // so that there is something to be found
		if !slices.Contains(byID, procedure) {
			if err := callRPC(t, conn, "everything", procedure, message); err != nil {
				t.Errorf("%s with a token of no scope: %v", procedure, err)
			}
		}
	}
	for _, procedure := range proceduresOf(t, scopedServices...) {
		answers := make(map[string]string)
		for _, workspace := range []string{"globex", "nowhere"} {
			message, listed := askedOf(workspace)[procedure]
			if !listed {
				t.Fatalf("%s is not listed in askedOf, so nothing is known of its scope", procedure)
			}
			want := codes.PermissionDenied
			if slices.Contains(byID, procedure) {
				want = codes.NotFound
			}
			for _, token := range []string{"acme", "metrics"} {
				if token == "metrics" {
					want = codes.PermissionDenied
				}
				err := callRPC(t, conn, token, procedure, message)
				if status.Code(err) != want {
					t.Errorf("%s about %s with the token %s: %v, want %v", procedure, workspace, token, err, want)
				}
				answers[token+workspace] = strings.ReplaceAll(fmt.Sprint(err), workspace, "")
			}
			if strings.HasPrefix(procedure, "/"+weirv1connect.RateLimitServiceName) && procedure != streamProcedure {
				body, err := protojson.Marshal(message)
				if err != nil {
					t.Fatal(err)
				}
				got, _, answer := curl(t, h.base+procedure, string(body), "Authorization", "Bearer acme")
				if want := map[bool]int{false: 403, true: 404}[slices.Contains(byID, procedure)]; got != want {
					t.Errorf("%s about %s by JSON: %d %s, want %d", procedure, workspace, got, answer, want)
				}
			}
		}
		if answers["acmeglobex"] != answers["acmenowhere"] {
			t.Errorf("%s tells a workspace that exists, %q, from one that does not, %q", procedure, answers["acmeglobex"],
				answers["acmenowhere"])
		}
	}
	for name, path := range routes.Paths {
		for _, token := range []string{"acme", "metrics", "both"} {
			if got, _, answer := curl(t, h.base+path, `{}`, "Authorization", "Bearer "+token); got != http.StatusForbidden {
				t.Errorf("%s with the token %s: %d %s", name, token, got, answer)
			}
		}
		if got, _, answer := curl(t, h.base+path, `{}`, "Authorization", "Bearer everything"); got != http.StatusBadRequest {
			t.Errorf("%s with a token of no scope: %d %s", name, got, answer)
		}
	}
}

// Every procedure and route that a node serves has a need: the permission that its token must have.
func TestEveryProcedureHasANeed(t *testing.T) {
	h := startScoped(t)
	served := slices.Concat(proceduresOf(t, scopedServices...), slices.Collect(maps.Values(routes.Paths)))
	for _, path := range served {
		if n, ok := h.gate.needs[path]; !ok || n.action == 0 {
			t.Errorf("%s has no need: a token with a scope can not call it", path)
		}
	}
	for path := range h.metrics.calls {
		if !slices.Contains(served, path) {
			t.Errorf("%s is served, and is not among the procedures of this test", path)
		}
	}
}

// Within its scope a token may do everything that its actions name, and nothing else.
func TestATokenInItsScope(t *testing.T) {
	h := startScoped(t)
	conn := dial(t, h.GRPCAddr().String())
	reads := []string{weirv1connect.RateLimitServiceExplainProcedure, weirv1connect.RateLimitServiceExplainLeaseProcedure,
		weirv1connect.RateLimitServiceTopKeysProcedure}
	ordered := slices.Concat([]string{weirv1connect.RateLimitServiceReserveProcedure}, byID)
	for procedure := range askedOf("acme") {
		if strings.HasPrefix(procedure, "/"+weirv1connect.RateLimitServiceName) && !slices.Contains(ordered, procedure) {
			ordered = append(ordered, procedure)
		}
	}
	for _, procedure := range ordered {
		message := askedOf("acme")[procedure]
		if err := callRPC(t, conn, "acme", procedure, message); status.Code(err) == codes.PermissionDenied ||
			status.Code(err) == codes.NotFound && procedure == weirv1connect.RateLimitServiceSettleProcedure {
			t.Errorf("%s in the token's workspace: %v", procedure, err)
		}
		want := codes.PermissionDenied
		if slices.Contains(reads, procedure) {
			want = codes.OK
		}
		if err := callRPC(t, conn, "reader", procedure, message); status.Code(err) != want {
			t.Errorf("%s with a token that may read: %v, want %v", procedure, err, want)
		}
	}
	for token, may := range map[string]map[string]int{
		"everything": {"/metrics": 200, "/debug/pprof/cmdline": 200},
		"acme":       {"/metrics": 403, "/debug/pprof/cmdline": 403},
		"metrics":    {"/metrics": 200, "/debug/pprof/cmdline": 403},
		"profiles":   {"/metrics": 403, "/debug/pprof/cmdline": 200},
		"unknown":    {"/metrics": 401, "/debug/pprof/cmdline": 401},
	} {
		for path, want := range may {
			if got, _, _ := curl(t, h.adminBase+path, "", "Authorization", "Bearer "+token); got != want {
				t.Errorf("%s with the token %s: %d, want %d", path, token, got, want)
			}
		}
	}
	if err := callRPC(t, conn, "limits", weirv1connect.RateLimitServiceLimitProcedure,
		askedOf("anywhere")[weirv1connect.RateLimitServiceLimitProcedure]); err != nil {
		t.Errorf("Limit with a token for limits of all workspaces: %v", err)
	}
}

// A token with workspaces gets only the keys of these workspaces.
func TestTopKeysAreThoseOfTheScope(t *testing.T) {
	h := startScoped(t)
	client := doors[0].open(t, h)
	for _, workspace := range []string{"acme", "globex", "initech"} {
		call := connect.NewRequest(&weirv1.LimitRequest{Workspace: workspace, Namespace: "api", Identifier: "x", Limit: 0,
			DurationMs: 60_000})
		call.Header().Set("Authorization", "Bearer everything")
		if _, err := client.Limit(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	for token, want := range map[string][]string{"everything": {"acme", "globex", "initech"}, "both": {"acme", "globex"},
		"reader": {"acme"}} {
		call := connect.NewRequest(&weirv1.TopKeysRequest{By: weirv1.TopBy_TOP_BY_DENIED})
		call.Header().Set("Authorization", "Bearer "+token)
		answer, err := client.TopKeys(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, key := range answer.Msg.GetKeys() {
			got = append(got, key.GetWorkspace())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("the token %s sees keys of %v, want %v", token, got, want)
		}
	}
}

// Two tokens with different workspaces may use the same id for a reservation; neither learns of the other's.
func TestReservationsOfScopesAreApart(t *testing.T) {
	h := startScoped(t)
	client := doors[0].open(t, h)
	reserve := func(token, workspace string) (*connect.Response[weirv1.ReserveResponse], error) {
		call := connect.NewRequest(&weirv1.ReserveRequest{Id: "r-17", Requests: []*weirv1.LimitRequest{{Workspace: workspace,
			Namespace: "api", Identifier: "x", Limit: 10, DurationMs: 60_000, Cost: 3}}})
		call.Header().Set("Authorization", "Bearer "+token)
		return client.Reserve(t.Context(), call)
	}
	for token, workspace := range map[string]string{"everything": "initech", "acme": "acme", "both": "globex"} {
		answer, err := reserve(token, workspace)
		if err != nil || !answer.Msg.GetAllowed() || answer.Msg.GetId() != "r-17" {
			t.Errorf("reserve with the token %s: %v, %v", token, answer, err)
		}
	}
	for _, token := range []string{"acme", "both", "everything"} {
		call := connect.NewRequest(&weirv1.SettleRequest{Id: "r-17", Costs: []int64{1}})
		call.Header().Set("Authorization", "Bearer "+token)
		answer, err := client.Settle(t.Context(), call)
		if err != nil || answer.Msg.GetSettlement().GetId() != "r-17" {
			t.Errorf("settle with the token %s: %v, %v", token, answer, err)
		}
	}
}
