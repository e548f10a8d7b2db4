package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// regionOf starts nodes of a region.
func regionOf(t *testing.T, origin *memstore.Origin, n int) (nodes []*harness) {
	for i := range n {
		limiter := limiterOf(t, dataplane.Config{Region: "eu", NodeID: fmt.Sprint(i), Origin: origin.Client()})
		nodes = append(nodes, start(t, limiter))
	}
	return nodes
}

func keyOf(identifier string, cost int64) *weirv1.LimitRequest {
	return &weirv1.LimitRequest{Workspace: "acme", Namespace: "tokens", Identifier: identifier, Limit: 100,
		DurationMs: 3_600_000, Cost: cost}
}

func wantCode(t *testing.T, what string, err error, want connect.Code, words string) {
	t.Helper()
	if connect.CodeOf(err) != want || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %v, want %v with %q", what, err, want, words)
	}
}

// A reservation of one node can be settled at another node, on every port and protocol.
func TestReservationsThroughEveryDoor(t *testing.T) {
	nodes := regionOf(t, memstore.NewOrigin(memstore.OriginOptions{}), 2)
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) { reserveThrough(t, door.open(t, nodes[0]), door.open(t, nodes[1]), door.name) })
	}
}

func reserveThrough(t *testing.T, a, b weirv1connect.RateLimitServiceClient, key string) {
	ctx, id := t.Context(), "id of "+key
	reserve := &weirv1.ReserveRequest{Id: id, Requests: []*weirv1.LimitRequest{keyOf(key, 60), keyOf(key+"2", 1)},
		Returned: true, Holder: "a test", TtlMs: 60_000}
	for range 2 {
		got, err := a.Reserve(ctx, connect.NewRequest(reserve))
		if err != nil || !got.Msg.GetAllowed() || got.Msg.GetId() != id || len(got.Msg.GetResponses()) != 2 ||
			got.Msg.GetResponses()[0].GetRemaining() != 40 || got.Msg.GetEndsAtMs() == 0 {
			t.Fatalf("%v: %v", got, err)
		}
	}
	denied, err := b.Reserve(ctx, connect.NewRequest(&weirv1.ReserveRequest{Requests: []*weirv1.LimitRequest{keyOf(key, 41)}}))
	if err != nil || denied.Msg.GetAllowed() || denied.Msg.GetId() == "" || denied.Msg.GetResponses()[0].GetAllowed() {
		t.Errorf("%v: %v", denied, err)
	}
	more, err := b.Settle(ctx, connect.NewRequest(&weirv1.SettleRequest{Id: id, Costs: []int64{20, 0}, More: true}))
	if err != nil || !slices.Equal(more.Msg.GetSettlement().GetSpent(), []int64{20, 0}) || more.Msg.GetSettlement().GetSettled() {
		t.Errorf("%v: %v", more, err)
	}
	extended, err := b.Extend(ctx, connect.NewRequest(&weirv1.ExtendRequest{Id: id, TtlMs: 3_600_000}))
	if err != nil || extended.Msg.GetSettlement().GetEndsAtMs() < more.Msg.GetSettlement().GetEndsAtMs()+3_000_000 {
		t.Errorf("%v: %v", extended, err)
	}
	for i := range 2 {
		got, err := b.Settle(ctx, connect.NewRequest(&weirv1.SettleRequest{Id: id, Costs: []int64{30, 1}}))
		s := got.Msg.GetSettlement()
		if err != nil || !s.GetSettled() || s.GetLate() != (i == 1) || !slices.Equal(s.GetSpent(), []int64{30, 1}) {
			t.Errorf("%v: %v", s, err)
		}
	}
	late, err := a.Cancel(ctx, connect.NewRequest(&weirv1.CancelRequest{Id: id}))
	if s := late.Msg.GetSettlement(); err != nil || !s.GetLate() || !slices.Equal(s.GetSpent(), []int64{30, 1}) {
		t.Errorf("%v: %v", s, err)
	}
}

// "already_exists: the id belongs to another reservation … not_found: there is no reservation with the id". Errors
// about invalid input have the field and its bound.
func TestReservationsSayWhatIsWrong(t *testing.T) {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	nodes := regionOf(t, origin, 1)
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) {
			c, ctx, id := door.open(t, nodes[0]), t.Context(), "another of "+door.name
			reserve := func(m *weirv1.ReserveRequest) error {
				_, err := c.Reserve(ctx, connect.NewRequest(m))
				return err
			}
			settle := func(m *weirv1.SettleRequest) error {
				_, err := c.Settle(ctx, connect.NewRequest(m))
				return err
			}
			one := []*weirv1.LimitRequest{keyOf(door.name, 1)}
			if err := reserve(&weirv1.ReserveRequest{Id: id, Requests: one}); err != nil {
				t.Fatal(err)
			}
			for what, try := range map[string]struct {
				err   error
				code  connect.Code
				words string
			}{
				"other": {reserve(&weirv1.ReserveRequest{Id: id, Requests: []*weirv1.LimitRequest{keyOf(door.name, 2)}}),
					connect.CodeAlreadyExists, "another reservation"},
				"none": {settle(&weirv1.SettleRequest{Id: "nobody's", Costs: []int64{1}}), connect.CodeNotFound, "no reservation"},
				"costs": {settle(&weirv1.SettleRequest{Id: id, Costs: []int64{1, 2}}), connect.CodeInvalidArgument,
					"costs holds 2 items (the reservation has 1)"},
				"no costs": {settle(&weirv1.SettleRequest{Id: id}), connect.CodeInvalidArgument, "costs has 0 items (1 to 32)"},
				"cost":     {settle(&weirv1.SettleRequest{Id: id, Costs: []int64{-1}}), connect.CodeInvalidArgument, "costs[0] is -1 (0 to"},
				"no id":    {settle(&weirv1.SettleRequest{Costs: []int64{1}}), connect.CodeInvalidArgument, "id is empty (1 to 124 bytes)"},
				"many": {reserve(&weirv1.ReserveRequest{Requests: slices.Repeat(one, 33)}), connect.CodeInvalidArgument,
					"requests has 33 items (1 to 32)"},
				"nothing": {reserve(&weirv1.ReserveRequest{}), connect.CodeInvalidArgument, "requests has 0 items (1 to 32)"},
				"ttl": {reserve(&weirv1.ReserveRequest{Requests: one, TtlMs: 5}), connect.CodeInvalidArgument,
					"ttl_ms is 5 (1000 to 86400000, or 0)"},
				"long": {reserve(&weirv1.ReserveRequest{Requests: one, Id: strings.Repeat("x", 125)}), connect.CodeInvalidArgument,
					"id is 125 bytes long (1 to 124 bytes)"},
				"holder": {reserve(&weirv1.ReserveRequest{Requests: one, Holder: strings.Repeat("x", 65)}), connect.CodeInvalidArgument,
					"holder is 65 bytes long (0 to 64 bytes)"},
				"item": {reserve(&weirv1.ReserveRequest{Requests: []*weirv1.LimitRequest{keyOf("", 1)}}), connect.CodeInvalidArgument,
					"requests[0].identifier is empty"},
			} {
				wantCode(t, what, try.err, try.code, try.words)
			}
		})
	}
}

// Without an answer of the origin a settlement is unavailable, and the error does not contain the origin's address.
func TestSettlingWaitsForTheOrigin(t *testing.T) {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	limiter := newLimiter(t, origin)
	h := start(t, limiter)
	origin.Faults.Fail(errors.New("10.0.0.1:6379 is down"))
	for _, door := range doors {
		c := door.open(t, h)
		_, err := c.Settle(t.Context(), connect.NewRequest(&weirv1.SettleRequest{Id: "any", Costs: []int64{1}}))
		wantCode(t, door.name, err, connect.CodeUnavailable, "the origin has not answered")
		if strings.Contains(err.Error(), "10.0.0.1") {
			t.Error(err)
		}
	}
}
