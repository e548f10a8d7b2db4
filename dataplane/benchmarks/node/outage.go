package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc"

	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servers"
)

// redisOutage is the case in which weir-node's Redis is killed, and later started again. It measures the effect on
// callers.
const redisOutage = "redis outage"

const (
	// outageLoad is the open loop's share of the rate that a healthy node keeps up with.
	outageLoad = 0.8
	// spikeMicros is how long a call may take, and spikePercent how many more of an outage's calls than of a healthy
	// node's may take longer.
	spikeMicros  = 5_000
	spikePercent = 0.1
	// healthyPercentMax is how many calls of the healthy phase may: with more the machine did something else, and the
	// outage shows nothing.
	healthyPercentMax = 1.0
	// sustainedTries bounds the search for the rate that a node keeps up with: each try has sustainedStep times the rate
	// of the try before.
	sustainedTries = 8
	sustainedStep  = 0.8
	// outageIdentifiers is how many identifiers each caller uses, in turn.
	outageIdentifiers = 64
)

// phase is a part of an open loop, with an action on Redis after a quarter of it.
type phase struct {
	name   string
	happen func(context.Context, *servers.Redis) error
}

var phases = []phase{
	{"healthy", nil},
	{"Redis killed", func(_ context.Context, r *servers.Redis) error { return r.Kill() }},
	{"Redis back, empty", func(ctx context.Context, r *servers.Redis) error { return r.Restart(ctx) }},
}

// outage has the measurements of all rounds.
type outage struct {
	rates   []float64                 // calls a second, of each round
	latency []*hdrhistogram.Histogram // of each phase, all rounds together
}

// measure measures a round. A window is as long as a phase, so that each phase has the first calls of a window.
func (a *outage) measure(ctx context.Context, o options) error {
	server, err := startServer(ctx, weirWithRedis, o.rivals)
	if err != nil {
		return err
	}
	defer server.stop()
	length := time.Duration(o.phase * float64(time.Second))
	callers, err := limitOften(server, o.callers, length)
	if err != nil {
		return err
	}
	defer callers.close()
	if _, err := drive(ctx, callers.call, warmUp, 0); err != nil {
		return err
	}
	rate := o.rate
	if rate == 0 {
		sustained, err := sustainedRate(ctx, callers.call, time.Duration(o.seconds*float64(time.Second)))
		if err != nil {
			return err
		}
		rate = outageLoad * sustained
	}
	a.rates = append(a.rates, rate)
	for i, p := range phases {
		var happened error
		var wait sync.WaitGroup
		if p.happen != nil {
			wait.Go(func() {
				<-time.After(length / 4)
				happened = p.happen(ctx, server.redis)
			})
		}
		latency, err := drive(ctx, callers.call, length, rate)
		wait.Wait()
		if err := errors.Join(err, happened); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if len(a.latency) == i {
			a.latency = append(a.latency, hdrhistogram.New(1, latencyMicrosMax, 3))
		}
		a.latency[i].Merge(latency)
	}
	return nil
}

// sustainedRate returns the highest tried rate at which an open loop has 99 of 100 calls answered in time. A closed
// loop reaches a higher rate, because nothing waits there while the machine does something else, and no goroutine has
// to be woken.
func sustainedRate(ctx context.Context, calls []call, length time.Duration) (rate float64, err error) {
	closed, err := drive(ctx, calls, length, 0)
	if err != nil {
		return 0, err
	}
	rate = float64(closed.TotalCount()) / length.Seconds()
	for range sustainedTries {
		latency, err := drive(ctx, calls, length, rate)
		if err != nil || latency.ValueAtQuantile(99) <= spikeMicros {
			return rate, err
		}
		rate *= sustainedStep
	}
	return rate, nil
}

// limitOften makes each caller use many identifiers in turn.
func limitOften(s *server, n int, window time.Duration) (callers, error) {
	return dial(s.grpc, n, func(conn *grpc.ClientConn, i int) call {
		asks := make([]call, outageIdentifiers)
		for j := range asks {
			message := request(outageIdentifiers*i + j)
			message.DurationMs = window.Milliseconds()
			asks[j] = invoke(conn, weirv1connect.RateLimitServiceLimitProcedure, encoded(message), limitAllowed)
		}
		next := 0
		return func(ctx context.Context) error {
			next = (next + 1) % len(asks)
			return asks[next](ctx)
		}
	})
}

// bars compare each phase of an outage with the healthy phase.
func (a *outage) bars() (all []bar) {
	for i, p := range phases {
		if p.happen == nil {
			continue
		}
		b := bar{text: fmt.Sprintf("%% of calls over %d ms, %s, more than healthy", spikeMicros/1000, p.name),
			most: spikePercent}
		if b.found = len(a.latency) == len(phases) && percentOver(a.latency[0]) <= healthyPercentMax; b.found {
			b.got = max(0, percentOver(a.latency[i])-percentOver(a.latency[0]))
		}
		all = append(all, b)
	}
	return all
}

// over counts the calls that took longer than a spike may.
func over(l *hdrhistogram.Histogram) (n int64) {
	for _, bar := range l.Distribution() {
		if bar.From > spikeMicros {
			n += bar.Count
		}
	}
	return n
}

func percentOver(l *hdrhistogram.Histogram) float64 {
	return 100 * float64(over(l)) / float64(max(1, l.TotalCount()))
}

func (a *outage) print(out io.Writer, o options) {
	fmt.Fprintf(out, "\nweir-node with a Redis that is killed and started again: open loop of %.0f calls a second (by "+
		"round), %v s each phase.\n\n", a.rates, o.phase)
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "| phase\t| calls\t| p50 ms\t| p99 ms\t| p99.9 ms\t| max ms\t| over %d ms\t| %%\t|\n", spikeMicros/1000)
	fmt.Fprintln(w, "| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t|")
	for i, p := range phases {
		l := a.latency[i]
		ms := func(q float64) float64 { return float64(l.ValueAtQuantile(q)) / 1000 }
		fmt.Fprintf(w, "| %s\t| %d\t| %.2f\t| %.2f\t| %.2f\t| %.2f\t| %d\t| %.3f\t|\n", p.name, l.TotalCount(), ms(50),
			ms(99), ms(99.9), float64(l.Max())/1000, over(l), percentOver(l))
	}
	_ = w.Flush()
}
