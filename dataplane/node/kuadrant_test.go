package node

import (
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/shared/await"
	kuadrantv1 "github.com/weirhq/weir/shared/gen/proto/kuadrant/service/ratelimit/v1"
)

// kuadrant returns a client of Kuadrant's service of a node with these rules.
func kuadrant(t *testing.T, rules string, change ...func(*Config)) (kuadrantv1.RateLimitServiceClient, *harness, string) {
	t.Helper()
	conn, h, path := startRLS(t, rules, change...)
	return kuadrantv1.NewRateLimitServiceClient(conn), h, path
}

// Kuadrant's own client checks, reports, reserves and commits, by rules that are reloaded as Envoy's are.
func TestKuadrantIsServed(t *testing.T) {
	client, h, path := kuadrant(t, envoyRules)
	h.running.Go(func() { h.reload(h.life, time.Millisecond, time.Millisecond) })
	t.Cleanup(h.abandon)
	call := userCall("1")
	reserve := func(amount uint64) *kuadrantv1.ReserveResponse {
		r, err := client.Reserve(t.Context(), &kuadrantv1.ReserveRequest{Domain: "edge", Descriptors: call.Descriptors,
			Amount: amount, Ttl: durationpb.New(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	granted := reserve(2)
	if granted.Code != rlsv3.RateLimitResponse_OK || granted.ReservationId == "" {
		t.Errorf("reserve: %v", granted)
	}
	if r := reserve(1); r.Code != rlsv3.RateLimitResponse_OVER_LIMIT || r.ReservationId != "" {
		t.Errorf("reserve 3 of 2: %v", r)
	}
	for _, released := range []bool{true, false} {
		r, err := client.Commit(t.Context(), &kuadrantv1.CommitRequest{Domain: "edge", Descriptors: call.Descriptors,
			ReservationId: granted.ReservationId, ActualAmount: 1})
		if err != nil || r.ReservationReleased != released {
			t.Errorf("commit: %v, %v", r, err)
		}
	}
	if r, err := client.CheckRateLimit(t.Context(), call); err != nil || r.OverallCode != rlsv3.RateLimitResponse_OK {
		t.Errorf("check: %v, %v", r, err)
	}
	call.HitsAddend = 5
	if r, err := client.Report(t.Context(), call); err != nil || r.OverallCode != rlsv3.RateLimitResponse_OK {
		t.Errorf("report: %v, %v", r, err)
	}
	if r, err := client.CheckRateLimit(t.Context(), userCall("1")); err != nil ||
		r.OverallCode != rlsv3.RateLimitResponse_OVER_LIMIT || len(r.ResponseHeadersToAdd) == 0 {
		t.Errorf("check of 6 of 2: %v, %v", r, err)
	}
	rules := "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 7}}]"
	if err := os.WriteFile(path+".new", []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the new rules are in force", func() bool {
		r, err := client.CheckRateLimit(t.Context(), userCall("1"))
		return err == nil && r.OverallCode == rlsv3.RateLimitResponse_OK
	})
	if got := value(h.gate.metrics.calls[rls.ReserveProcedure].byCode[codeOK]); got != 2 {
		t.Errorf("counted %v reservations, want 2", got)
	}
}

// If tokens are required, each of Kuadrant's calls needs a token.
func TestKuadrantNeedsAToken(t *testing.T) {
	client, _, _ := kuadrant(t, envoyRules, withTokens(t, "secret"))
	call := userCall("1")
	for name, ask := range map[string]func(metadata.MD) error{
		"check": func(md metadata.MD) error {
			_, err := client.CheckRateLimit(metadata.NewOutgoingContext(t.Context(), md), call)
			return err
		},
		"report": func(md metadata.MD) error {
			_, err := client.Report(metadata.NewOutgoingContext(t.Context(), md), call)
			return err
		},
		"reserve": func(md metadata.MD) error {
			_, err := client.Reserve(metadata.NewOutgoingContext(t.Context(), md),
				&kuadrantv1.ReserveRequest{Domain: "edge", Descriptors: call.Descriptors})
			return err
		},
		"commit": func(md metadata.MD) error {
			_, err := client.Commit(metadata.NewOutgoingContext(t.Context(), md),
				&kuadrantv1.CommitRequest{Domain: "edge", Descriptors: call.Descriptors})
			return err
		},
	} {
		if err := ask(nil); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s without a token: %v", name, err)
		}
		if err := ask(metadata.Pairs("authorization", "Bearer secret")); err != nil {
			t.Errorf("%s with one: %v", name, err)
		}
	}
}
