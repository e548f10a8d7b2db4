package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// flooded has calls that wait for the origin, with one token.
var flooded = map[string]func(ctx context.Context, c weirv1connect.RateLimitServiceClient, token string, i int) error{
	"Reserve": func(ctx context.Context, c weirv1connect.RateLimitServiceClient, token string, i int) error {
		r := connect.NewRequest(&weirv1.ReserveRequest{Requests: []*weirv1.LimitRequest{keyOf(fmt.Sprint(token, i), 1)}})
		r.Header().Set("Authorization", "Bearer "+token)
		_, err := c.Reserve(ctx, r)
		return err
	},
	"Acquire": func(ctx context.Context, c weirv1connect.RateLimitServiceClient, token string, i int) error {
		_, err := c.Acquire(ctx, as(token, slotOf(fmt.Sprint(token, i), "", 1)))
		return err
	},
	"Acquire and wait": func(ctx context.Context, c weirv1connect.RateLimitServiceClient, token string, i int) error {
		m := slotOf(fmt.Sprint(token, i%10), "", 1)
		m.WaitMs = 1000
		_, err := c.Acquire(ctx, as(token, m))
		return err
	},
}

// BenchmarkBesideAFlood measures the 99th percentile of a caller's latency, without and together with another caller
// that has 300 calls in progress, and how many of the caller's calls then fail. The origin answers after 20 ms, so the
// two do not compete for processors: both together need a fifth of a processor. timer-p99-ms is the 99th percentile of
// a timer of 20 ms in the same process during the flood. If it is far above 20, the machine is busy with other work,
// and the calls take longer too.
func BenchmarkBesideAFlood(b *testing.B) {
	for flood, throw := range flooded {
		for _, victim := range []string{"Reserve", "Acquire"} {
			b.Run(victim+" beside "+flood, func(b *testing.B) {
				origin := memstore.NewOrigin(memstore.OriginOptions{})
				origin.Faults.Delay(20 * time.Millisecond)
				limiter := limiterOf(b, dataplane.Config{Region: "eu", Origin: origin, ReadTimeout: 5 * time.Second})
				h := start(b, limiter, withTokens(b, "flood", "victim"))
				next, failed := 0, 0
				p99 := func(call func()) time.Duration {
					took := make([]time.Duration, 0, 100)
					for range cap(took) {
						from := time.Now()
						call()
						took = append(took, time.Since(from))
					}
					slices.Sort(took)
					return took[len(took)*99/100]
				}
				own := doors[7].open(b, h)
				call := func() {
					next++
					if flooded[victim](b.Context(), own, "victim", next) != nil {
						failed++
					}
				}
				quiet := p99(call)
				ctx, end := context.WithCancel(b.Context())
				var running sync.WaitGroup
				for i := range 300 {
					c := doors[7].open(b, h)
					running.Go(func() {
						for n := i; ctx.Err() == nil; n += 300 {
							if throw(ctx, c, "flood", n) != nil {
								<-time.After(100 * time.Millisecond) // the flood shares the processors with the node
							}
						}
					})
				}
				<-time.After(time.Second) // the flood is under way
				failed = 0
				timed := make(chan time.Duration, 1)
				go func() { timed <- p99(func() { <-time.After(20 * time.Millisecond) }) }()
				loud := p99(call)
				timer := <-timed
				end()
				running.Wait()
				b.ReportMetric(float64(timer.Microseconds())/1000, "timer-p99-ms")
				b.ReportMetric(float64(quiet.Microseconds())/1000, "quiet-p99-ms")
				b.ReportMetric(float64(loud.Microseconds())/1000, "flooded-p99-ms")
				b.ReportMetric(float64(failed), "failed")
			})
		}
	}
}
