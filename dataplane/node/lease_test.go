package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/bounded"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

func slotOf(identifier, id string, limit int64) *weirv1.AcquireRequest {
	return &weirv1.AcquireRequest{Workspace: "acme", Namespace: "exports", Identifier: identifier, Limit: limit, Id: id,
		TtlMs: 60_000, Holder: "a test"}
}

// A lease of one node can be renewed and released at another node, on every port and protocol.
func TestLeasesThroughEveryDoor(t *testing.T) {
	nodes := regionOf(t, memstore.NewOrigin(memstore.OriginOptions{}), 2)
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) { leaseThrough(t, door.open(t, nodes[0]), door.open(t, nodes[1]), door.name) })
	}
}

func leaseThrough(t *testing.T, a, b weirv1connect.RateLimitServiceClient, key string) {
	ctx := t.Context()
	acquire := func(c weirv1connect.RateLimitServiceClient, m *weirv1.AcquireRequest, allowed bool) *weirv1.AcquireResponse {
		t.Helper()
		got, err := c.Acquire(ctx, connect.NewRequest(m))
		if err != nil || got.Msg.GetAllowed() != allowed || (got.Msg.GetLease() != "") != allowed ||
			(got.Msg.GetRetryAfterMs() > 0) == allowed || got.Msg.GetLimit() != m.GetLimit() {
			t.Fatalf("%v: %v: %v", m, got, err)
		}
		return got.Msg
	}
	one := acquire(a, slotOf(key, "one", 2), true)
	if again := acquire(b, slotOf(key, "one", 2), true); again.GetHeld() != 1 || again.GetRemaining() != 1 ||
		again.GetTtlMs() < 60_000 || again.GetSource() != weirv1.Source_SOURCE_ORIGIN {
		t.Errorf("%v", again)
	}
	two := acquire(b, slotOf(key, "", 2), true)
	acquire(a, slotOf(key, "three", 2), false)
	both := []string{one.GetLease(), two.GetLease()}
	renew := func(c weirv1connect.RateLimitServiceClient, want ...weirv1.LeaseState) {
		t.Helper()
		got, err := c.Renew(ctx, connect.NewRequest(&weirv1.RenewRequest{Leases: both}))
		if err != nil || !slices.Equal(got.Msg.GetStates(), want) {
			t.Errorf("renewed: %v: %v, want %v", got, err, want)
		}
	}
	held, ended := weirv1.LeaseState_LEASE_STATE_HELD, weirv1.LeaseState_LEASE_STATE_ENDED
	renew(b, held, held)
	for range 2 {
		if _, err := a.Release(ctx, connect.NewRequest(&weirv1.ReleaseRequest{Leases: both[1:]})); err != nil {
			t.Error(err)
		}
	}
	renew(b, held, ended)
	released := make(chan error, 1)
	go func() {
		_, err := b.Release(ctx, connect.NewRequest(&weirv1.ReleaseRequest{Leases: both[:1]}))
		released <- err
	}()
	waits := slotOf(key, "waits", 1)
	waits.WaitMs = 10_000
	acquire(a, waits, true)
	if err := <-released; err != nil {
		t.Error(err)
	}
	waits.Id, waits.WaitMs = "in vain", 60
	acquire(b, waits, false)
}

// Bad input is named with its bound, and leases that no node has granted are refused.
func TestLeasesSayWhatIsWrong(t *testing.T) {
	nodes := regionOf(t, memstore.NewOrigin(memstore.OriginOptions{}), 1)
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) {
			c, ctx := door.open(t, nodes[0]), t.Context()
			acquire := func(spoil func(*weirv1.AcquireRequest)) error {
				m := slotOf(door.name, "", 1)
				spoil(m)
				_, err := c.Acquire(ctx, connect.NewRequest(m))
				return err
			}
			renew := func(ttlMs int64, leases ...string) error {
				_, err := c.Renew(ctx, connect.NewRequest(&weirv1.RenewRequest{Leases: leases, TtlMs: ttlMs}))
				return err
			}
			release := func(leases ...string) error {
				_, err := c.Release(ctx, connect.NewRequest(&weirv1.ReleaseRequest{Leases: leases}))
				return err
			}
			for words, err := range map[string]error{
				"workspace is empty (1 to 191 bytes)":     acquire(func(m *weirv1.AcquireRequest) { m.Workspace = "" }),
				"namespace is 256 bytes long (1 to 255":   acquire(func(m *weirv1.AcquireRequest) { m.Namespace = strings.Repeat("x", 256) }),
				"identifier is empty (1 byte or more)":    acquire(func(m *weirv1.AcquireRequest) { m.Identifier = "" }),
				"limit is -1 (0 to 9007199254740991)":     acquire(func(m *weirv1.AcquireRequest) { m.Limit = -1 }),
				"ttl_ms is 999 (1000 to 300000, or 0)":    acquire(func(m *weirv1.AcquireRequest) { m.TtlMs = 999 }),
				"wait_ms is 10001 (0 to 10000)":           acquire(func(m *weirv1.AcquireRequest) { m.WaitMs = 10_001 }),
				"wait_ms is -1 (0 to 10000)":              acquire(func(m *weirv1.AcquireRequest) { m.WaitMs = -1 }),
				"id is 129 bytes long (0 to 128 bytes)":   acquire(func(m *weirv1.AcquireRequest) { m.Id = strings.Repeat("x", 129) }),
				"holder is 65 bytes long (0 to 64 bytes)": acquire(func(m *weirv1.AcquireRequest) { m.Holder = strings.Repeat("x", 65) }),
				"leases has 0 items (1 to 100)":           renew(0),
				"leases has 101 items (1 to 100)":         release(slices.Repeat([]string{"AQ"}, 101)...),
				"ttl_ms is 300001 (1000 to 300000, or 0)": renew(300_001, "AQ"),
				"leases[0] is not a lease that Acquire":   renew(0, "AQ"),
				"; leases[1] is not a lease that Acquire": release("not one", "nor this"),
				"items (1 to 100)":                        renew(0, slices.Repeat([]string{"AQ"}, 102)...),
			} {
				wantCode(t, words, err, connect.CodeInvalidArgument, words)
			}
		})
	}
}

// Without an answer of the origin, a release is unavailable, a renewed lease has an unknown state, and no response
// contains the origin's address. Acquire then follows the outage policy.
func TestLeasesInAnOutage(t *testing.T) {
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			limiter := newLimiter(t, origin)
			c, ctx := door.open(t, start(t, limiter)), t.Context()
			got, err := c.Acquire(ctx, connect.NewRequest(slotOf("k", "", 1)))
			if err != nil || !got.Msg.GetAllowed() {
				t.Fatalf("%v: %v", got, err)
			}
			origin.Faults.Fail(errors.New("10.0.0.1:6379 is down"))
			leases := []string{got.Msg.GetLease()}
			renewed, err := c.Renew(ctx, connect.NewRequest(&weirv1.RenewRequest{Leases: leases}))
			if err != nil || renewed.Msg.GetStates()[0] != weirv1.LeaseState_LEASE_STATE_UNKNOWN {
				t.Errorf("%v: %v", renewed, err)
			}
			_, err = c.Release(ctx, connect.NewRequest(&weirv1.ReleaseRequest{Leases: leases}))
			wantCode(t, "release", err, connect.CodeUnavailable, "try again")
			if err != nil && strings.Contains(err.Error(), "10.0.0.1") {
				t.Error(err)
			}
			got, err = c.Acquire(ctx, connect.NewRequest(slotOf("k", "", 2)))
			if err != nil || got.Msg.GetAllowed() || got.Msg.GetSource() != weirv1.Source_SOURCE_DEGRADED {
				t.Errorf("%v: %v", got, err)
			}
		})
	}
}

// withTokens has callers show tokens, which their clients then do.
func withTokens(t testing.TB, tokens ...string) func(*Config) {
	t.Helper()
	opened, _ := openScoped(t, strings.Join(tokens, "\n"))
	return func(c *Config) { c.Tokens = opened }
}

func as[T any](token string, m *T) *connect.Request[T] {
	r := connect.NewRequest(m)
	r.Header().Set("Authorization", "Bearer "+token)
	return r
}

// waitsCounted counts the calls that wait for a lease and have a place among the waiting calls. The count of calls in
// flight would include calls that are about to be rejected.
type waitsCounted struct {
	*dataplane.Limiter
	waits atomic.Int64
}

func (l *waitsCounted) AcquireToken(ctx context.Context, r dataplane.ConcurrencyRequest, id string,
	wait bool) (string, dataplane.ConcurrencyDecision) {
	if wait {
		l.waits.Add(1)
		defer l.waits.Add(-1)
	}
	return l.Limiter.AcquireToken(ctx, r, id, wait)
}

// acquirer acquires a lease through a node.
type acquirer func(context.Context, *weirv1.AcquireRequest) error

// waitForLeases returns when all callers wait, which they do until the test ends.
func waitForLeases(t *testing.T, limiter *waitsCounted, callers ...acquirer) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	var waits sync.WaitGroup
	t.Cleanup(waits.Wait)
	t.Cleanup(leave)
	want := limiter.waits.Load() + int64(len(callers))
	for _, acquire := range callers {
		waits.Go(func() { _ = acquire(ctx, waitingSlot()) })
	}
	await.True(t, "all callers wait", func() bool { return limiter.waits.Load() == want })
}

// waitingSlot returns a request that waits for longer than a test takes.
func waitingSlot() *weirv1.AcquireRequest {
	m := slotOf("k", "", 1)
	m.WaitMs = 10_000
	return m
}

// fullKey returns a node of whose key "k" the only lease is held, in two namespaces.
func fullKey(t *testing.T, adjust ...func(*Config)) (*waitsCounted, *harness) {
	t.Helper()
	limiter := limiterOf(t, dataplane.Config{Region: "eu", Origin: memstore.NewOrigin(memstore.OriginOptions{}),
		ReadTimeout: 10 * time.Second}) // a busy machine may need more than the default
	for _, namespace := range []string{"exports", "other"} {
		_, first := limiter.Acquire(t.Context(), dataplane.ConcurrencyRequest{
			Workspace: "acme", Namespace: namespace, Identifier: "k", Limit: 1, TTL: time.Minute})
		if !first.Allowed {
			t.Fatal(first)
		}
	}
	counted := &waitsCounted{Limiter: limiter}
	return counted, start(t, counted, adjust...)
}

// acquiring returns a caller at a door, with a token if it is not empty.
func acquiring(t *testing.T, h *harness, d door, token string) acquirer {
	c := d.open(t, h)
	return func(ctx context.Context, m *weirv1.AcquireRequest) error {
		_, err := c.Acquire(ctx, as(token, m))
		return err
	}
}

// "A quarter of its calls may wait": the bound holds for a node's ports together, and rejected waits are counted.
func TestFewWaitOnAllPortsTogether(t *testing.T) {
	limiter, h := fullKey(t, func(c *Config) { c.MaxInFlight = 4 * waitsShare }, withTokens(t, "one", "two", "three"))
	waitForLeases(t, limiter, acquiring(t, h, doors[0], "one"), acquiring(t, h, doors[7], "one"))
	waitForLeases(t, limiter, acquiring(t, h, doors[0], "two"))
	waitForLeases(t, limiter, inNamespace("other", acquiring(t, h, doors[7], "three")))
	for i, d := range []door{doors[0], doors[7]} {
		err := acquiring(t, h, d, "two")(t.Context(), waitingSlot())
		wantCode(t, d.name, err, connect.CodeResourceExhausted, "too many requests wait")
		if n := value(h.bounds.refused[bounded.BoundSlots]); n != float64(i+1) {
			t.Errorf("%s: %v refusals are counted, want %d", d.name, n, i+1)
		}
	}
}

// inNamespace makes an acquirer request a lease in a namespace.
func inNamespace(namespace string, next acquirer) acquirer {
	return func(ctx context.Context, m *weirv1.AcquireRequest) error {
		m.Namespace = namespace
		return next(ctx, m)
	}
}

// A caller can have three quarters of the waits, over all ports together. A caller is identified by its token, if it
// has one. The remaining waits are for callers without any.
func TestWhoWaitsLeavesRoomForOthers(t *testing.T) {
	for _, d := range []door{doors[0], doors[7]} {
		for _, token := range []string{"", "one"} {
			t.Run(d.name+" with token "+token, func(t *testing.T) {
				limiter, h := fullKey(t, func(c *Config) {
					if c.MaxInFlight = 8 * waitsShare; token != "" {
						withTokens(t, "one", "two", "three")(c)
					}
				})
				caller := acquiring(t, h, d, token)
				waitForLeases(t, limiter, slices.Repeat([]acquirer{caller}, 6)...)
				refused := func(what string, by acquirer) {
					t.Helper()
					wantCode(t, what, by(t.Context(), waitingSlot()), connect.CodeResourceExhausted, "too many requests wait")
				}
				refused("the seventh", caller)
				want := 1.0
				if token != "" {
					waitForLeases(t, limiter, acquiring(t, h, d, "two"))
					refused("another caller's second", acquiring(t, h, d, "two"))
					waitForLeases(t, limiter, inNamespace("other", acquiring(t, h, d, "three")))
					want = 2
				}
				if n := value(h.bounds.refused[bounded.BoundCaller]); n != want {
					t.Errorf("%v refusals are counted, want %v", n, want)
				}
			})
		}
	}
}

// Calls that wait for a lease are a part of the calls in flight, so other calls find room.
func TestFewWaitForLeases(t *testing.T) {
	limiter, h := fullKey(t, func(c *Config) { c.MaxInFlight = 4 * waitsShare })
	caller := acquiring(t, h, doors[0], "")
	waitForLeases(t, limiter, caller, caller, caller)
	for range 2 {
		wantCode(t, "waits", caller(t.Context(), waitingSlot()), connect.CodeResourceExhausted, "too many requests wait")
	}
	if err := caller(t.Context(), slotOf("k", "", 1)); err != nil {
		t.Errorf("a call that does not wait: %v", err)
	}
}

// busyNode answers every call about leases and reservations as a limiter that makes as many calls as it may.
type busyNode struct{ *dataplane.Limiter }

func (busyNode) AcquireToken(context.Context, dataplane.ConcurrencyRequest, string,
	bool) (string, dataplane.ConcurrencyDecision) {
	return "", dataplane.ConcurrencyDecision{Err: dataplane.ErrBusy}
}

func (busyNode) ReleaseTokens(context.Context, ...string) []error { return []error{dataplane.ErrBusy} }

func (busyNode) Reserve(context.Context, dataplane.ReserveRequest) dataplane.Reserved {
	return dataplane.Reserved{Err: dataplane.ErrBusy}
}

// A node that makes as many calls as it may has no outage: resource_exhausted, with Retry-After over HTTP, and with
// google.rpc.RetryInfo for each client.
func TestABusyNodeIsResourceExhausted(t *testing.T) {
	limiter := limiterOf(t, dataplane.Config{})
	h := start(t, busyNode{limiter})
	for _, d := range doors {
		c := d.open(t, h)
		_, acquiring := c.Acquire(t.Context(), connect.NewRequest(slotOf("k", "", 1)))
		_, releasing := c.Release(t.Context(), connect.NewRequest(&weirv1.ReleaseRequest{Leases: []string{"x"}}))
		_, reserving := c.Reserve(t.Context(), connect.NewRequest(&weirv1.ReserveRequest{Id: "r",
			Requests: []*weirv1.LimitRequest{keyOf("k", 1)}}))
		for call, err := range map[string]error{"Acquire": acquiring, "Release": releasing, "Reserve": reserving} {
			wantCode(t, d.name+" "+call, err, connect.CodeResourceExhausted, "are under way")
			problem := new(connect.Error)
			if errors.As(err, &problem) && !d.grpcGo && problem.Meta().Get("Retry-After") != "1" {
				t.Errorf("%s %s: %v", d.name, call, problem.Meta())
			}
			if after := retryAfter(t, problem); after != time.Second {
				t.Errorf("%s %s: RetryInfo of %v, want 1s", d.name, call, after)
			}
		}
	}
}

// retryAfter returns the delay in an error's google.rpc.RetryInfo, or 0.
func retryAfter(t *testing.T, err *connect.Error) time.Duration {
	t.Helper()
	for _, d := range err.Details() {
		m, err := d.Value()
		if err != nil {
			t.Fatal(err)
		}
		if info, ok := m.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
