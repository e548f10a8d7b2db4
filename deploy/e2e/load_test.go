package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

const (
	loadPerSecond = 600                 // over all regions, where the machine can
	loadWindow    = 30 * 24 * time.Hour // the whole test is in a single cell
	loadKeys      = 20
)

// load is a steady stream of requests to all nodes, like clients behind a balancer: if a node does not answer, the
// request goes to the next node of its region.
type load struct {
	stop  func()
	began time.Time

	decisions atomic.Int64
	errors    atomic.Int64 // requests that no node of the region answered
	retried   atomic.Int64 // requests that the first node did not answer: it may have counted them
	firstErr  atomic.Pointer[error]

	mu       sync.Mutex
	accepted map[string]map[string]int64 // by region, identifier
	slowest  time.Duration
}

// startLoad sends cost 1 on identifiers that begin with prefix until stop is called.
func startLoad(t *testing.T, s *stack.Stack, prefix string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	hc := &http.Client{Transport: transport, Timeout: await.Patience}
	l := &load{began: time.Now(), accepted: map[string]map[string]int64{}}
	byRegion := map[string][]weirv1connect.RateLimitServiceClient{}
	var regions []string
	for _, n := range s.Nodes {
		if byRegion[n.Region] == nil {
			regions = append(regions, n.Region)
			l.accepted[n.Region] = map[string]int64{}
		}
		byRegion[n.Region] = append(byRegion[n.Region], weirv1connect.NewRateLimitServiceClient(hc, n.URL()))
	}
	const workers = 12
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			tick := time.NewTicker(workers * time.Second / loadPerSecond)
			defer tick.Stop()
			region := regions[w%len(regions)]
			for i := w; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				l.one(byRegion[region], region, i, fmt.Sprintf("%s%02d", prefix, i%loadKeys))
			}
		})
	}
	l.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		transport.CloseIdleConnections()
	})
	t.Cleanup(l.stop)
	return l
}

func (l *load) one(nodes []weirv1connect.RateLimitServiceClient, region string, i int, identifier string) {
	r := &weirv1.LimitRequest{Workspace: "acme", Namespace: "load", Identifier: identifier, Limit: 1 << 40, DurationMs: loadWindow.Milliseconds()}
	began := time.Now()
	var err error
	for attempt := range nodes {
		var res *connect.Response[weirv1.LimitResponse]
		// A request that has begun runs to its end, because the test must count it or not.
		if res, err = nodes[(i+attempt)%len(nodes)].Limit(context.Background(), connect.NewRequest(r)); err != nil {
			l.retried.Add(1)
			continue
		}
		l.decisions.Add(1)
		l.mu.Lock()
		l.slowest = max(l.slowest, time.Since(began))
		if res.Msg.Allowed {
			l.accepted[region][identifier]++
		}
		l.mu.Unlock()
		return
	}
	l.errors.Add(1)
	l.firstErr.CompareAndSwap(nil, &err)
}

// check ends the load and checks that no fault changed the promised outcome.
func (l *load) check(t *testing.T) {
	t.Helper()
	lasted := time.Since(l.began)
	l.stop()
	if n := l.errors.Load(); n != 0 {
		t.Errorf("%d requests were not answered, the first: %v", n, *l.firstErr.Load())
	}
	if l.decisions.Load() == 0 {
		t.Error("the load made no request")
	}
	t.Logf("%d decisions, %.0f/s, slowest %v, %d retried on the other node", l.decisions.Load(), float64(l.decisions.Load())/lasted.Seconds(), l.slowest.Round(time.Millisecond), l.retried.Load())
}

// total returns the cost that a region's callers were granted.
func (l *load) total(region string) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.accepted[region] {
		n += c
	}
	return n
}
