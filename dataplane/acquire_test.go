package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// jobs returns a request for a lease of a key.
func jobs(limit int64) dataplane.ConcurrencyRequest {
	return dataplane.ConcurrencyRequest{Workspace: "acme", Namespace: "jobs", Identifier: "export", Limit: limit}
}

// acquirer returns a started limiter with its own way to an origin.
func acquirer(t testing.TB, cfg dataplane.Config) *dataplane.Limiter {
	t.Helper()
	l, err := dataplane.New(cfg)
	if err == nil {
		err = l.Start(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Stop(ctx) // some tests have already removed the origin
	})
	return l
}

// acquisition is the expected result of an Acquire.
type acquisition struct {
	allowed         bool
	held, remaining int64
	source          dataplane.Source
}

func acquires(t testing.TB, l *dataplane.Limiter, r dataplane.ConcurrencyRequest, want acquisition) dataplane.Lease {
	t.Helper()
	lease, d := l.Acquire(context.Background(), r)
	if got := (acquisition{d.Allowed, d.Held, d.Remaining, d.Source}); got != want || d.Err != nil {
		t.Errorf("acquired %+v (%v), want %+v", got, d.Err, want)
	}
	if d.Allowed == (d.RetryAfter > 0) {
		t.Errorf("allowed %v, and to be tried again after %v", d.Allowed, d.RetryAfter)
	}
	return lease
}

func TestAcquireAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquirer(t, dataplane.Config{})
		first := acquires(t, l, jobs(2), acquisition{true, 1, 1, dataplane.SourceLocal})
		second := acquires(t, l, jobs(2), acquisition{true, 2, 0, dataplane.SourceLocal})
		acquires(t, l, jobs(2), acquisition{false, 2, 0, dataplane.SourceLocal})
		first.Release()
		first.Release() // does nothing
		third := acquires(t, l, jobs(2), acquisition{true, 2, 0, dataplane.SourceLocal})
		acquires(t, l, jobs(2), acquisition{false, 2, 0, dataplane.SourceLocal})
		first.Release() // does not release the third lease, which has its slot
		acquires(t, l, jobs(2), acquisition{false, 2, 0, dataplane.SourceLocal})
		if second.Err() != nil || third.Err() != nil || first.Err() == nil {
			t.Errorf("%v, %v and %v", first.Err(), second.Err(), third.Err())
		}
		acquires(t, l, jobs(0), acquisition{false, 2, 0, dataplane.SourceLocal})
		time.Sleep(time.Hour)
		if second.Err() != nil {
			t.Error("a lease has ended by itself:", second.Err())
		}
	})
}

func TestAcquireInAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		var nodes []*dataplane.Limiter
		for range 3 {
			nodes = append(nodes, acquirer(t, dataplane.Config{Origin: origin.Client(), Region: "eu", RegionNodes: 3}))
		}
		var leases []dataplane.Lease
		for i := range 5 {
			lease, d := nodes[i%3].Acquire(t.Context(), jobs(5))
			if leases = append(leases, lease); !d.Allowed {
				t.Fatalf("lease %d: %+v", i, d)
			}
		}
		for _, n := range nodes {
			acquires(t, n, jobs(5), acquisition{false, 5, 0, dataplane.SourceOrigin})
		}
		time.Sleep(time.Minute) // they are renewed
		for _, lease := range leases {
			if lease.Err() != nil {
				t.Error(lease.Err())
			}
		}
		leases[0].Release()
		time.Sleep(200 * time.Millisecond)
		acquires(t, nodes[2], jobs(5), acquisition{true, 5, 0, dataplane.SourceOrigin})
		if err := nodes[1].Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if !errors.Is(leases[1].Err(), dataplane.ErrLeaseStopped) {
			t.Error(leases[1].Err())
		}
		<-leases[1].Done()
		acquires(t, nodes[0], jobs(5), acquisition{true, 4, 1, dataplane.SourceOrigin})
	})
}

func TestAcquireGoesByTheSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "tried", Shadow: true})
		counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "jobs", Pattern: "exp*", Limit: 1})
		l := acquirer(t, dataplane.Config{Settings: counts, Region: "eu"})
		if err := l.RefreshSettings(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, d := l.Acquire(t.Context(), jobs(5))
		if d.Limit != 1 || d.Override != "exp*" || !d.Allowed {
			t.Errorf("%+v", d)
		}
		if _, d := l.Acquire(t.Context(), jobs(5)); d.Allowed {
			t.Errorf("%+v", d)
		}
		r := jobs(0)
		r.Namespace = "tried"
		lease, d := l.AcquireWait(t.Context(), r)
		if !d.Allowed || !d.Shadowed || lease.Err() != nil || lease.Done() != nil {
			t.Errorf("%+v", d)
		}
		lease.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if _, d := l.AcquireToken(ctx, r, "", true); !d.Allowed || !d.Shadowed || time.Since(began) > 0 {
			t.Errorf("by token, after %v: %+v", time.Since(began), d)
		}
	})
}

// If a lease is refused because the origin does not answer, its key is not counted as denied.
func TestLeasesRefusedInAnOutageAreNoDeniedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		origin.Faults.Fail(errDown)
		counts := memstore.NewCounts(memstore.CountsOptions{})
		counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "jobs", Outage: "closed"})
		l := acquirer(t, dataplane.Config{Origin: origin, Region: "eu", Settings: counts})
		if err := l.RefreshSettings(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, d := l.Acquire(t.Context(), jobs(5)); d.Allowed || d.Source != dataplane.SourceDegradedClosed {
				t.Fatalf("%+v", d)
			}
			if _, d := l.AcquireToken(t.Context(), jobs(5), "", false); d.Allowed {
				t.Fatalf("by token: %+v", d)
			}
		}
		top, err := l.TopKeys(dataplane.TopQuery{By: dataplane.TopDenied, Limit: 5})
		if err != nil || len(top.Keys) != 0 {
			t.Errorf("%+v: %v", top, err)
		}
	})
}

func TestAcquireInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		counts := memstore.NewCounts(memstore.CountsOptions{})
		counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "open", Outage: "open"},
			store.NamespaceRow{Workspace: "acme", Namespace: "closed", Outage: "closed"})
		l := acquirer(t, dataplane.Config{Origin: origin, Region: "eu", Settings: counts})
		if err := l.RefreshSettings(t.Context()); err != nil {
			t.Fatal(err)
		}
		in := func(namespace string) dataplane.ConcurrencyRequest {
			r := jobs(100)
			r.Namespace = namespace
			return r
		}
		for _, namespace := range []string{"jobs", "open", "closed"} {
			acquires(t, l, in(namespace), acquisition{true, 1, 99, dataplane.SourceOrigin})
			acquires(t, l, in(namespace), acquisition{true, 2, 98, dataplane.SourceOrigin}) // and two spare slots
		}
		origin.Faults.Fail(errors.New("it is out"))
		fresh := in("jobs")
		fresh.Identifier = "fresh"
		acquires(t, l, fresh, acquisition{false, 0, 100, dataplane.SourceDegraded})
		kept := acquires(t, l, in("jobs"), acquisition{true, 3, 97, dataplane.SourceLocal})
		acquires(t, l, in("closed"), acquisition{false, 0, 100, dataplane.SourceDegradedClosed})
		open := in("open")
		open.Identifier = "fresh"
		began := time.Now()
		lease, d := l.AcquireWait(t.Context(), open)
		if !d.Allowed || d.Source != dataplane.SourceDegradedOpen || lease.Err() != nil || time.Since(began) > time.Second {
			t.Errorf("%+v after %v", d, time.Since(began))
		}
		time.Sleep(5 * time.Second)
		if kept.Err() != nil {
			t.Error("lost before its time:", kept.Err())
		}
		<-kept.Done()
		if took := time.Since(began); took > 11*time.Second || !errors.Is(kept.Err(), dataplane.ErrLeaseLost) {
			t.Errorf("%v after %v", kept.Err(), took)
		}
		origin.Faults.Fail(nil)
		if _, d := l.AcquireWait(t.Context(), fresh); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

// mute is an origin whose grant replies have no answers.
type mute struct{ store.FullOrigin }

func (o mute) Grants(ctx context.Context, shard int, call store.GrantCall) (store.GrantReply, error) {
	reply, err := o.FullOrigin.Grants(ctx, shard, call)
	reply.Answers = nil
	return reply, err
}

// A reply must have an answer to each ask. A reply without them counts as no reply.
func TestAReplyWithoutAnswersGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := mute{memstore.NewOrigin(memstore.OriginOptions{})}
		l := acquirer(t, dataplane.Config{Origin: origin, Region: "eu"})
		acquires(t, l, jobs(5), acquisition{false, 0, 5, dataplane.SourceDegraded})
		token, d := l.AcquireToken(t.Context(), jobs(5), "", false)
		if token != "" || d.Allowed || d.Source != dataplane.SourceDegraded {
			t.Errorf("%q, %+v", token, d)
		}
	})
}

func TestAcquireChecksItsRequest(t *testing.T) {
	l := acquirer(t, dataplane.Config{})
	for name, spoil := range map[string]func(*dataplane.ConcurrencyRequest){
		"no workspace":    func(r *dataplane.ConcurrencyRequest) { r.Workspace = "" },
		"no identifier":   func(r *dataplane.ConcurrencyRequest) { r.Identifier = "" },
		"limit below 0":   func(r *dataplane.ConcurrencyRequest) { r.Limit = -1 },
		"too large limit": func(r *dataplane.ConcurrencyRequest) { r.Limit = window.LimitMax + 1 },
		"short TTL":       func(r *dataplane.ConcurrencyRequest) { r.TTL = time.Second - 1 },
		"long TTL":        func(r *dataplane.ConcurrencyRequest) { r.TTL = 5*time.Minute + 1 },
		"age":             func(r *dataplane.ConcurrencyRequest) { r.AgeMax = -1 },
		"holder":          func(r *dataplane.ConcurrencyRequest) { r.Holder = string(make([]byte, 65)) },
	} {
		r := jobs(1)
		spoil(&r)
		if _, d := l.Acquire(t.Context(), r); d.Allowed || !errors.Is(d.Err, dataplane.ErrInvalid) {
			t.Errorf("%s: %+v", name, d)
		}
	}
	lease, _ := l.Acquire(t.Context(), jobs(1))
	if err := lease.Renew(time.Millisecond); !errors.Is(err, dataplane.ErrInvalid) {
		t.Error(err)
	}
}

// A RenewedByHolder lease ends TTL after its last renewal. Other leases don't.
func TestLeasesThatTheirHoldersRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquirer(t, dataplane.Config{})
		r := jobs(1)
		r.RenewedByHolder, r.TTL = true, 2*time.Second
		lease := acquires(t, l, r, acquisition{true, 1, 0, dataplane.SourceLocal})
		for range 5 {
			time.Sleep(1900 * time.Millisecond)
			if err := lease.Renew(2 * time.Second); err != nil {
				t.Fatal(err)
			}
		}
		acquires(t, l, r, acquisition{false, 1, 0, dataplane.SourceLocal})
		time.Sleep(2*time.Second + 100*time.Millisecond)
		if err := lease.Renew(time.Second); !errors.Is(err, dataplane.ErrLeaseExpired) {
			t.Error(err)
		}
		<-lease.Done()
		r.RenewedByHolder, r.AgeMax = false, time.Minute
		lease = acquires(t, l, r, acquisition{true, 1, 0, dataplane.SourceLocal})
		time.Sleep(59 * time.Second)
		if lease.Err() != nil {
			t.Error(lease.Err())
		}
		time.Sleep(time.Second)
		if !errors.Is(lease.Err(), dataplane.ErrLeaseExpired) {
			t.Error(lease.Err())
		}
	})
}

func TestConcurrencyMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquirer(t, dataplane.Config{Origin: memstore.NewOrigin(memstore.OriginOptions{}), Region: "eu"})
		begin := gather(t, l)
		for _, name := range []string{"leases", "waiters", `requests_total{result="granted"}`,
			`requests_total{result="refused"}`, "leases_lost_total", "calls_total", "call_keys_total", "call_errors_total"} {
			if got, ok := begin["weir_concurrency_"+name]; got != 0 || !ok {
				t.Errorf("%s is %v at the start (%v)", name, got, ok)
			}
		}
		acquires(t, l, jobs(1), acquisition{true, 1, 0, dataplane.SourceOrigin})
		acquires(t, l, jobs(1), acquisition{false, 1, 0, dataplane.SourceOrigin})
		now := gather(t, l)
		for name, want := range map[string]float64{"leases": 1, "calls_total": 2, "call_keys_total": 2, "waiters": 0,
			`requests_total{result="granted"}`: 1, `requests_total{result="refused"}`: 1} {
			if got := now["weir_concurrency_"+name]; got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// ExplainConcurrency grants nothing, brings no key into memory, and agrees with the next Acquire.
func TestExplainConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		client := origin.Client()
		l := acquirer(t, dataplane.Config{Origin: client, Region: "eu", RegionNodes: 1})
		other := acquirer(t, dataplane.Config{Origin: origin.Client(), Region: "eu", RegionNodes: 1})
		explain := func() dataplane.ConcurrencyExplanation {
			t.Helper()
			x, err := l.ExplainConcurrency(jobs(3))
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		if x := explain(); x.Known || x.Decision.Allowed || !strings.Contains(x.String(), "holds no slots of the key") {
			t.Errorf("%v: %+v", x, x)
		}
		other.Acquire(t.Context(), jobs(3))
		first, _ := l.Acquire(t.Context(), jobs(3))
		x := explain()
		if !x.Known || x.Leases != 1 || x.Slots < 1 || x.Others < 1 || x.ValidFor <= 0 || x.Outage != "local" {
			t.Errorf("%v: %+v", x, x)
		}
		l.Acquire(t.Context(), jobs(3))
		if x := explain(); x.Decision.Allowed || x.Leases != 2 || !strings.Contains(x.String(), "No slot is free here") {
			t.Errorf("%v: %+v", x, x)
		}
		first.Release()
		if x := explain(); !x.Decision.Allowed || !strings.Contains(x.String(), "would be granted") {
			t.Errorf("%v: %+v", x, x)
		}
		l.Acquire(t.Context(), jobs(3))
		client.Faults.Fail(errors.New("away"))
		l.Acquire(t.Context(), jobs(3))
		if x := explain(); x.RestsFor <= 0 || x.Decision.Source != dataplane.SourceDegraded ||
			!strings.Contains(x.String(), "the outage policy is local") {
			t.Errorf("%v: %+v", x, x)
		}
		bad := jobs(-1)
		if _, err := l.ExplainConcurrency(bad); !errors.Is(err, dataplane.ErrInvalid) {
			t.Error(err)
		}
	})
}

// The explanation of a process without an origin has the limit's slots, and names no origin. The explanation of a
// limit of 0 names no origin either, because the origin isn't called for it.
func TestExplainConcurrencyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquirer(t, dataplane.Config{})
		for _, id := range []string{"", "a"} {
			if token, d := l.AcquireToken(t.Context(), jobs(2), id, false); token == "" {
				t.Fatalf("%+v", d)
			}
		}
		x, err := l.ExplainConcurrency(jobs(2))
		if said := x.String(); err != nil || x.Leases != 2 || x.Slots != 2 || x.Decision.Allowed ||
			!strings.Contains(said, "2 leases on 2 slots") || strings.Contains(said, "origin") {
			t.Errorf("%v: %+v: %v", x, x, err)
		}
		l = acquirer(t, dataplane.Config{Region: "eu", Origin: memstore.NewOrigin(memstore.OriginOptions{}).Client()})
		if x, err := l.ExplainConcurrency(jobs(0)); err != nil || strings.Contains(x.String(), "origin") {
			t.Errorf("%v: %v", x, err)
		}
	})
}

// Refused reservations are among the denied keys, together with the denials of other requests for the key. Each
// counts once. Reservations that only shadow mode let pass are included.
func TestRefusedReservationsAreDeniedKeys(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := region(t, 1, memstore.NewOrigin(memstore.OriginOptions{}), store.NamespaceRow{Shadow: shadow})
			defer stopAll(nodes)
			l := nodes[0]
			synctest.Wait() // a denial is sampled later if a heartbeat reads the denied keys
			wantReserved(t, l, reserveFor("all", 0, ask("k", 100, 100)), true)
			for i := range 5 {
				wantReserved(t, l, reserveFor(fmt.Sprint("more", i), 0, ask("k", 1, 100), ask("free", 1, 100)), shadow)
			}
			l.Allow(t.Context(), ask("k", 1, 100))
			top, err := l.TopKeys(dataplane.TopQuery{By: dataplane.TopDenied, Limit: 5})
			if err != nil || len(top.Keys) != 1 || top.Keys[0].Identifier != "k" || top.Keys[0].Count != 6 {
				t.Errorf("shadow %v: %+v: %v", shadow, top, err)
			}
		})
	}
}

// Refused leases are among the denied keys, without a duration. Heartbeats report held leases to operators.
func TestRefusedLeasesAreDeniedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := acquirer(t, dataplane.Config{})
		held, _ := l.Acquire(t.Context(), jobs(1))
		for range 5 {
			l.Acquire(t.Context(), jobs(1))
		}
		top, err := l.TopKeys(dataplane.TopQuery{By: dataplane.TopDenied, Limit: 5})
		if err != nil || len(top.Keys) != 1 {
			t.Fatalf("%+v: %v", top, err)
		}
		if k := top.Keys[0]; k.Namespace != "jobs" || k.Identifier != "export" || k.Duration != 0 || k.Limit != 1 || k.Count != 5 {
			t.Errorf("%+v", k)
		}
		held.Release()
	})
}
