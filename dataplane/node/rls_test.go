package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/shared/await"
)

const envoyRules = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 2}}
`

func writeRules(t testing.TB, rules string) (source *rls.Source, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := rls.OpenRules(path)
	if err != nil {
		t.Fatal(err)
	}
	return source, path
}

// startRLS runs a node with these rules, and returns a connection to it and the path of the rules.
func startRLS(t *testing.T, rules string, change ...func(*Config)) (conn *grpc.ClientConn, h *harness, path string) {
	t.Helper()
	source, path := writeRules(t, rules)
	limiter := newLimiter(t, nil)
	h = start(t, limiter, append(change, func(c *Config) {
		c.RLS = &rls.Service{Limiter: limiter, Rules: source, Workspace: "envoy"}
		c.Reloads = []Reload{{Name: "rules", Check: source.Check}}
	})...)
	return dial(t, h.GRPCAddr().String()), h, path
}

// envoy returns a client, built only from the published protos, for a node with these rules.
func envoy(t *testing.T, rules string) (rlsv3.RateLimitServiceClient, *harness, string) {
	t.Helper()
	conn, h, path := startRLS(t, rules)
	return rlsv3.NewRateLimitServiceClient(conn), h, path
}

func userCall(value string) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitv3.RateLimitDescriptor{{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: value}}}}}
}

// Envoy's own client gets its answers, statuses and fields, and its faults as such.
func TestEnvoyIsServed(t *testing.T) {
	client, h, _ := envoy(t, envoyRules)
	for i, want := range []rlsv3.RateLimitResponse_Code{rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT} {
		r, err := client.ShouldRateLimit(t.Context(), userCall("42"))
		if err != nil {
			t.Fatal(err)
		}
		s := r.Statuses[0]
		if r.OverallCode != want || s.Code != want || s.CurrentLimit.RequestsPerUnit != 2 || s.LimitRemaining != uint32(max(0, 1-i)) || s.DurationUntilReset.AsDuration() <= 0 {
			t.Errorf("call %d: %v", i, r)
		}
		if (len(r.ResponseHeadersToAdd) > 0) != (want == rlsv3.RateLimitResponse_OVER_LIMIT) {
			t.Errorf("call %d: fields %v", i, r.ResponseHeadersToAdd)
		}
	}
	if _, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{}); status.Code(err) != codes.InvalidArgument || len(status.Convert(err).Details()) != 1 {
		t.Errorf("a faulty call: %v", err)
	}
	await.True(t, "the calls are counted", func() bool {
		byCode := h.gate.metrics.calls[rls.Procedure].byCode
		return value(byCode["ok"]) == 3 && value(byCode["invalid_argument"]) == 1
	})
}

// Changed rules apply shortly after. Invalid rules do not, and are logged and counted.
func TestRulesAreReloaded(t *testing.T) {
	client, h, path := envoy(t, envoyRules)
	h.running.Go(func() { h.reload(h.life, time.Millisecond, time.Millisecond) })
	t.Cleanup(h.abandon)
	for _, step := range []struct {
		rules, outcome string
		limit          uint32
	}{
		{"domain: edge\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 7}}]", "ok", 7},
		{"domain: edge\ndescriptors: [{key: user, rate_limit: {unit: eon, requests_per_unit: 8}}]", "error", 7},
	} {
		// By rename, so that no half of a file is seen.
		if err := os.WriteFile(path+".new", []byte(step.rules), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the change is noticed: "+step.outcome, func() bool {
			return value(h.metrics.reloads.WithLabelValues("rules", step.outcome)) == 1
		})
		r, err := client.ShouldRateLimit(t.Context(), userCall("1"))
		if err != nil || r.Statuses[0].CurrentLimit.GetRequestsPerUnit() != step.limit {
			t.Errorf("after %s: %v, %v; want a limit of %d", step.rules, r, err, step.limit)
		}
	}
}

// An error from the files does not stop the node from serving.
func TestFailingReloadIsLogged(t *testing.T) {
	h := start(t, scripted{}, func(c *Config) {
		c.Reloads = []Reload{{Name: "tokens", Check: func() (bool, error) { return false, errors.New("the disk is gone") }}}
	})
	ctx, stop := context.WithCancel(t.Context())
	h.running.Go(func() { h.reload(ctx, time.Millisecond, time.Millisecond) })
	await.True(t, "it is counted", func() bool { return value(h.metrics.reloads.WithLabelValues("tokens", "error")) > 1 })
	stop()
}
