package api

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/workspaces"
)

// The test covers every field of an estimate and of its request, the timeout, errors, and a process without estimates.
func TestEstimateLimits(t *testing.T) {
	var asked []limits.Change
	var failed error
	url := served(t, Config{Limits: func(ctx context.Context, changes []limits.Change, _ *workspaces.Set) (limits.Estimate, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("it may take for ever")
		}
		asked = changes
		return limits.Estimate{Reported: 1, Nodes: 2, Oldest: 3 * time.Second, Truncated: true, Matched: 4, Unknown: 5, Cost: 6, Denied: 7, Keys: 8,
			Worst: []limits.Key{{Workspace: "w", Namespace: "n", Identifier: "u\xfe", Cost: 9, Limit: 10}}}, failed
	}})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	estimate := func(url string) (*connect.Response[controlv1.EstimateLimitsResponse], error) {
		return controlv1connect.NewTopKeysServiceClient(&http.Client{Transport: transport}, url).EstimateLimits(t.Context(),
			connect.NewRequest(&controlv1.EstimateLimitsRequest{Changes: []*controlv1.LimitChange{
				{Workspace: "w", Namespace: "n", Pattern: "u*", Limit: 5, DurationMs: 6, Shadow: true}, {Workspace: "w", Namespace: "n", Pattern: "v", Deleted: true},
			}}))
	}
	answer, err := estimate(url)
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, answer.Msg, &controlv1.EstimateLimitsResponse{KeysReported: 1, Nodes: 2, OldestMs: 3000, Truncated: true, KeysMatched: 4, KeysUnknown: 5,
		Cost: 6, CostDenied: 7, KeysDenied: 8, Worst: []*controlv1.LimitKey{{Workspace: "w", Namespace: "n", Identifier: "u\uFFFD", Cost: 9, Limit: 10}}})
	if got := fmt.Sprint(asked); got != "[{w n u* 5 6 true false} {w n v 0 0 false true}]" {
		t.Errorf("asked for %s", got)
	}
	failed = fmt.Errorf("%w: changes has 65 (1 to 64)", controlplane.ErrInvalid)
	if _, err := estimate(url); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("%v", err)
	}
	if _, err := estimate(served(t, Config{})); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("%v", err)
	}
}
