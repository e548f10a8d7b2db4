package scale

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/limits"
	operators "github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/node"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servers"
)

const (
	listNodes    = 4
	listInterval = time.Second
	listPortRate = 200 // calls a second over the port

	// decidedKeys are the keys that are decided about. Each is used several times a second, so that its node need not read
	// it from the origin, and decides locally.
	decidedKeys = 2_000

	usageNamespaces = 200 // as many as a node reports by name
	usageHours      = 7 * 24
)

// Measures lists of operators, and what they cost decisions meanwhile. Four nodes have 1,000,000 keys together, 250,000
// each, and share a region's origin. A client requests a page of a list after the other, as weirctl and the console do.
// Seconds with and without the list take turns. In each second, the benchmark takes the 99th percentile of the
// decisions in process, and of the calls to the nodes' ports. It reports the median over all pairs of seconds of the
// value with the list divided by the value without:
//
//	go test -run '^$' -bench ListsAndDecisions -benchtime 20x ./deploy/scale
//
// Decisions take half of a core. So two cores are not short of time, and the ratio shows interference. The nodes,
// weir-control's API and the callers share a process and its garbage collector. That is harsher than in a fleet, where
// nodes make only the list of hot keys. With list=none there is no list in either second: its ratio is the effect of
// chance. With list=busy a loop keeps a processor busy instead. The ratios mean nothing on a machine with much other
// work.
func BenchmarkListsAndDecisions(b *testing.B) { servers.EachSQL(b, benchListsAndDecisions) }

func benchListsAndDecisions(b *testing.B) {
	d := newTable(b, 0, 0)
	d.fillKeys(listedKeys)
	d.fillUsage()
	f := newListFleet(b, d)
	for _, list := range []struct {
		name string
		page func(context.Context) error
	}{
		{"none", nil},
		{"busy", busyPage},
		{"top", f.topPage},
		{"keys/limit=50", f.keysPage(50)},
		{"keys/limit=1000", f.keysPage(limits.KeysMax)},
		{"usage", f.usagePage},
	} {
		b.Run("list="+list.name, func(b *testing.B) { f.bench(b, list.page) })
	}
}

// listFleet has nodes and weir-control's API, all in this process.
type listFleet struct {
	limiters []*dataplane.Limiter
	nodes    []weirv1connect.RateLimitServiceClient
	keys     controlv1connect.TopKeysServiceClient
	next     int // the node whose hot keys are listed next
	after    []byte
}

func newListFleet(b *testing.B, d *table) *listFleet {
	log := slog.New(slog.DiscardHandler)
	origin, f := memstore.NewOrigin(memstore.OriginOptions{}), &listFleet{}
	for i := range listNodes {
		limiter, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: fmt.Sprint("eu-", i+1), Origin: origin.Client(),
			Settings: mysqlcounts.New(d.db, mysqlcounts.Options{}), EntriesMax: listedKeys / 2, NewKeysMax: 1_000_000})
		must(b, err)
		server, err := node.New(node.Config{Limiter: limiter, Listen: "127.0.0.1:0", AdminListen: "127.0.0.1:0",
			Registry: prometheus.NewRegistry(), Logger: log})
		must(b, err)
		must(b, server.Start(b.Context()))
		b.Cleanup(func() { must(b, server.Drain()) })
		f.limiters = append(f.limiters, limiter)
		f.nodes = append(f.nodes, weirv1connect.NewRateLimitServiceClient(http.DefaultClient,
			"http://"+server.Addr().String()))
	}
	store := operators.New(d.db)
	control := httptest.NewServer(api.NewHandler(api.Config{Log: log, Metrics: prometheus.NewRegistry(), Loopback: true,
		Keys: func(ctx context.Context, q limits.KeysQuery) (limits.KeyPage, error) {
			return limits.ListKeys(ctx, store, q, liveWithin)
		},
		Usage: func(ctx context.Context, q limits.UsageQuery) (limits.Usage, error) {
			return limits.GetUsage(ctx, store, q)
		},
	}))
	b.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); control.Close() })
	f.keys = controlv1connect.NewTopKeysServiceClient(http.DefaultClient, control.URL)
	f.fill(b)
	return f
}

// fill requests each key once, in batches.
func (f *listFleet) fill(b *testing.B) {
	const batch = 500
	for i, limiter := range f.limiters {
		var requests []dataplane.Request
		for key := i; key < listedKeys; key += listNodes {
			if requests = append(requests, keyRequest(key)); len(requests) < batch {
				continue
			}
			if d := limiter.AllowMany(b.Context(), requests); !d.Allowed {
				b.Fatalf("the keys before %d: %+v", key, d)
			}
			requests = requests[:0]
		}
	}
}

func keyRequest(key int) dataplane.Request {
	return dataplane.Request{Workspace: "acme", Namespace: "keys", Identifier: keyNames()[key], Limit: 1_000_000,
		Duration: time.Hour, Cost: 1}
}

// decide requests a key of the node that has it.
func (f *listFleet) decide(tb testing.TB, key int) {
	if d := f.limiters[key%listNodes].Allow(tb.Context(), keyRequest(key)); !d.Allowed {
		tb.Errorf("%+v", d)
	}
}

// keyNames are the names of all keys. Decisions should not take the time to write them.
var keyNames = sync.OnceValue(func() []string {
	names := make([]string, listedKeys)
	for i := range names {
		names[i] = keyName(i)
	}
	return names
})

// fillUsage stores a week of usage of two regions.
func (d *table) fillUsage() {
	d.tb.Helper()
	for region := range 2 {
		_, err := d.db.ExecContext(d.tb.Context(), `INSERT INTO ratelimit_usage
			(workspace_id, namespace, hour_at, region, accepted, denied)
			SELECT 'acme', CONCAT('ns_', seq DIV ?), (? - seq MOD ?) * 3600000, ?, seq, 1 FROM `+
			servers.Numbers(0, usageNamespaces*usageHours-1),
			usageHours, d.now.UnixMilli()/time.Hour.Milliseconds(), usageHours, fmt.Sprint("region-", region))
		must(d.tb, err)
	}
}

// keysPage returns a client of the list of keys, which reads the next page with each call.
func (f *listFleet) keysPage(limit int32) func(context.Context) error {
	return func(ctx context.Context) error {
		page, err := f.keys.ListKeys(ctx, connect.NewRequest(&controlv1.ListKeysRequest{Workspace: "acme",
			Namespace: "keys", After: f.after, Limit: limit}))
		if err != nil {
			return err
		}
		if f.after = page.Msg.GetNext(); len(page.Msg.GetKeys()) == 0 {
			return fmt.Errorf("a page has no key")
		}
		return nil
	}
}

func (f *listFleet) usagePage(ctx context.Context) error {
	page, err := f.keys.GetUsage(ctx, connect.NewRequest(&controlv1.GetUsageRequest{
		FromMs: time.Now().Add(-usageHours * time.Hour).UnixMilli()}))
	if err == nil && len(page.Msg.GetSeries()) == 0 {
		return fmt.Errorf("the usage has no namespace")
	}
	return err
}

// busyPage takes a processor for about as long as a page of keys does, without any list. So its ratio is the effect of
// the processor alone.
func busyPage(context.Context) error {
	for began := time.Now(); time.Since(began) < 5*time.Millisecond; {
	}
	return nil
}

// topPage lists the hot keys of the next node, which walks its table.
func (f *listFleet) topPage(ctx context.Context) error {
	f.next++
	page, err := f.nodes[f.next%listNodes].TopKeys(ctx, connect.NewRequest(&weirv1.TopKeysRequest{
		By: weirv1.TopBy_TOP_BY_HOT, Limit: dataplane.TopKeysMax}))
	if err == nil && len(page.Msg.GetKeys()) != dataplane.TopKeysMax {
		return fmt.Errorf("%d keys are hot", len(page.Msg.GetKeys()))
	}
	return err
}

func (f *listFleet) bench(b *testing.B, page func(context.Context) error) {
	var inProcess, port []float64
	var pages, alone []time.Duration
	for turn := 0; b.Loop(); turn++ {
		var with, without interval
		for _, lists := range []bool{turn%2 == 0, turn%2 == 1} {
			if lists {
				with = f.play(b, page)
				pages = append(pages, with.pages...)
			} else {
				without = f.play(b, nil)
			}
		}
		inProcess = append(inProcess, with.inProcess.Seconds()/without.inProcess.Seconds())
		port = append(port, with.port.Seconds()/without.port.Seconds())
		alone = append(alone, without.inProcess)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(inProcess, 0.5), "p99-ratio")
	b.ReportMetric(quantile(port, 0.5), "port-p99-ratio")
	b.ReportMetric(float64(quantile(alone, 0.5)), "p99-ns")
	if len(pages) > 0 {
		b.ReportMetric(quantile(pages, 0.5).Seconds()*1000, "page-p50-ms")
		b.ReportMetric(quantile(pages, 0.99).Seconds()*1000, "page-p99-ms")
		b.ReportMetric(float64(len(pages))/float64(len(alone)), "pages/s")
	}
}

// interval is the result of a second.
type interval struct {
	inProcess, port time.Duration // the 99th percentile
	pages           []time.Duration
}

// play makes decisions for a second, and meanwhile requests pages of a list, if any.
func (f *listFleet) play(b *testing.B, page func(context.Context) error) (r interval) {
	ctx, cancel := context.WithTimeout(b.Context(), listInterval)
	defer cancel()
	var callers sync.WaitGroup
	callers.Go(func() { r.inProcess = f.decideHalfTheTime(b, ctx) })
	callers.Go(func() { r.port = f.callPort(b, ctx) })
	if page != nil {
		callers.Go(func() { r.pages = listPages(b, ctx, page) })
	}
	callers.Wait()
	return r
}

// decideHalfTheTime decides about random keys until ctx ends, and rests after some decisions for as long as they took.
func (f *listFleet) decideHalfTheTime(b *testing.B, ctx context.Context) time.Duration {
	took := make([]time.Duration, 0, 4<<20)
	for ctx.Err() == nil {
		began := time.Now()
		last := began
		for range 500 {
			f.decide(b, rand.IntN(decidedKeys))
			now := time.Now()
			took = append(took, now.Sub(last))
			last = now
		}
		pause(ctx, last.Sub(began))
	}
	return quantile(took, 0.99)
}

// callPort calls the nodes over the wire at a fixed rate until ctx ends.
func (f *listFleet) callPort(b *testing.B, ctx context.Context) time.Duration {
	var took []time.Duration
	tick := time.NewTicker(time.Second / listPortRate)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return quantile(took, 0.99)
		case <-tick.C:
		}
		key, began := rand.IntN(decidedKeys), time.Now()
		_, err := f.nodes[key%listNodes].Limit(context.WithoutCancel(ctx), connect.NewRequest(&weirv1.LimitRequest{
			Workspace: "acme", Namespace: "keys", Identifier: keyNames()[key], Limit: 1_000_000,
			DurationMs: time.Hour.Milliseconds(), Cost: 1}))
		if took = append(took, time.Since(began)); err != nil {
			b.Error(err)
		}
	}
}

// listPages requests a page after the other until ctx ends. A node that has just walked its table rests first.
func listPages(b *testing.B, ctx context.Context, page func(context.Context) error) (took []time.Duration) {
	for ctx.Err() == nil {
		began := time.Now()
		err := page(context.WithoutCancel(ctx))
		switch {
		case connect.CodeOf(err) == connect.CodeUnavailable || connect.CodeOf(err) == connect.CodeResourceExhausted:
			pause(ctx, time.Millisecond)
		case err != nil:
			b.Error(err)
			return took
		default:
			took = append(took, time.Since(began))
		}
	}
	return took
}

func quantile[T float64 | time.Duration](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[int(q*float64(len(values)-1))]
}
