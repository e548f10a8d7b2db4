package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/shared/servers"
)

// Conformance 26: "Every accepted unit reaches the origin: 20,000 accepted a second for 60 s on one node → the origin's
// totals are exact at the end, at any origin latency up to 50 ms." Each latency runs for a minute with WEIR_SOAK=1,
// otherwise for two seconds. The cost for Redis is printed: the number of commands depends on keys and ticks, not on
// requests. The keys are warm, because at 50 ms no cold read would return within ReadTimeout.
func TestSoakEveryAcceptedUnitReachesTheOrigin(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakEveryAcceptedUnitReachesTheOrigin)
}

func testSoakEveryAcceptedUnitReachesTheOrigin(t *testing.T) {
	t.Parallel()
	const perSecond, keys = 20_000, 500
	for _, latency := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(latency.String(), func(t *testing.T) {
			f := newFleet(t, plan{regions: []string{"eu"}, nodes: 1})
			eu := f.region("eu")
			client := redis.NewClient(&redis.Options{Addr: eu.redis.Addr()})
			defer func() { must(t, client.Close()) }()
			load{keys: keys, shared: true}.touch(eu)
			warm := eu.ledger.decisions
			eu.toRedis(func(p *servers.Proxy) { p.SetDelay(latency) })
			before := commands(t, client)
			lasted := f.flood(eu, perSecond, keys, soak(2*time.Second, time.Minute))
			sent := commands(t, client) - before
			rate := float64(eu.ledger.decisions-warm) / lasted.Seconds()
			t.Logf("latency %v: %.0f decisions/s, %.0f Redis commands/s, %d pending at the end", latency, rate, float64(sent)/lasted.Seconds(), eu.nodes[0].Health().PendingCost)
			f.settle(fmt.Sprintf("%d decisions/s, Redis %v away", perSecond, latency), recovery{}, allowance{})
		})
	}
}

// flood decides at an even pace, as many as the machine can.
func (f *fleet) flood(r *region, perSecond, keys int, lasts time.Duration) time.Duration {
	var running sync.WaitGroup
	began := time.Now()
	ctx, cancel := context.WithTimeout(f.t.Context(), lasts)
	defer cancel()
	for w := range workersPerNode {
		running.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for done := 0; ctx.Err() == nil; {
				<-tick.C
				for due := int(time.Since(began).Seconds() * float64(perSecond/workersPerNode)); done < due; done++ {
					r.ask(r.nodes[0], load{}.key((done*workersPerNode+w)%keys), plenty)
				}
			}
		})
	}
	running.Wait()
	return time.Since(began)
}

// commands returns the number of commands that the server has run, including commands of scripts and transactions.
func commands(t *testing.T, client *redis.Client) (n int64) {
	t.Helper()
	stats, err := client.InfoMap(t.Context(), "stats").Result()
	must(t, err)
	_, err = fmt.Sscan(stats["Stats"]["total_commands_processed"], &n)
	must(t, err)
	return n
}
