// Command beside measures how long a caller of weir-node waits during another caller's flood.
//
// Run the victim and the flood as processes of their own, on a processor that the node does not use, so that the
// measured latency is the node's and not a queue in the load program:
//
//	taskset -c 0 weir-node --grpc-listen 127.0.0.1:7002
//	taskset -c 1 nice -n 10 beside -flood streams -for 20s &
//	taskset -c 1 nice -n -10 beside -for 10s
//
// The flood takes processor time from the victim's own process too. To see how much, measure the victim once more while
// the flood goes to a second node (-node).
//
// The flood calls from 127.0.0.66 and the victim from 127.0.0.2, so they are two callers.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

const (
	callTimeout = 5 * time.Second
	service     = "/weir.v1.RateLimitService/"
)

// floods are the kinds of flood: how many goroutines repeat do, on how many connections.
var floods = map[string]struct {
	workers, connections int
	do                   func(context.Context, *grpc.ClientConn) error
}{
	"streams": {1000, 20, stream},
	"calls":   {1000, 20, func(ctx context.Context, c *grpc.ClientConn) error { return call(ctx, c, newIdentifier()) }},
	"few":     {64, 4, func(ctx context.Context, c *grpc.ClientConn) error { return call(ctx, c, newIdentifier()) }},
	"batches": {32, 4, batch},
}

func main() {
	address := flag.String("node", "127.0.0.1:7002", "the node's address for gRPC")
	flood := flag.String("flood", "", "streams, calls, few or batches; empty: be the victim")
	length := flag.Duration("for", 10*time.Second, "how long to run")
	rate := flag.Int("rate", 200, "the victim's calls a second")
	flag.Parse()
	run := func() error { return beVictim(*address, *length, *rate) }
	if *flood != "" {
		run = func() error { return beFlood(*address, *flood, *length) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "beside:", err)
		os.Exit(1)
	}
}

func dial(address, from string) (*grpc.ClientConn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	open := func(ctx context.Context, to string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to) }
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithContextDialer(open),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return conn, nil
}

// beVictim calls at a fixed rate for a thousand keys. It measures each call from the time at which
// it was due, so a call that starts late counts as slow.
func beVictim(address string, length time.Duration, rate int) error {
	c, err := dial(address, "127.0.0.2")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var latencies []time.Duration
	outcomes := map[string]int{}
	var calls sync.WaitGroup
	began := time.Now()
	for i := range int(length.Seconds() * float64(rate)) {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		<-time.After(time.Until(due))
		calls.Go(func() {
			err := call(context.Background(), c, fmt.Sprint("key", i%1000))
			mu.Lock()
			defer mu.Unlock()
			outcomes[fmt.Sprint(err)]++
			latencies = append(latencies, time.Since(due))
		})
	}
	calls.Wait()
	slices.Sort(latencies)
	quantile := func(q float64) time.Duration {
		return latencies[int(q*float64(len(latencies)-1))].Round(10 * time.Microsecond)
	}
	fmt.Printf("%d calls: p50 %v, p99 %v, max %v, errors %v\n", len(latencies), quantile(0.5), quantile(0.99),
		quantile(1), outcomes)
	return nil
}

// beFlood floods the node with new identifiers, and prints how many calls ended with each error.
func beFlood(address, name string, length time.Duration) error {
	flood, ok := floods[name]
	if !ok {
		return fmt.Errorf("-flood is %q (streams, calls, few or batches)", name)
	}
	clients := make([]*grpc.ClientConn, flood.connections)
	for i := range clients {
		var err error
		if clients[i], err = dial(address, "127.0.0.66"); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var mu sync.Mutex
	outcomes := map[string]int{}
	var workers sync.WaitGroup
	for i := range flood.workers {
		workers.Go(func() {
			for ctx.Err() == nil {
				err := flood.do(ctx, clients[i%len(clients)])
				mu.Lock()
				outcomes[fmt.Sprint(err)]++
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	fmt.Printf("%s: errors %v\n", name, outcomes)
	return nil
}

func newIdentifier() string { return fmt.Sprint(rand.Uint64(), strings.Repeat("x", 8)) }

func request(identifier string) *weirv1.LimitRequest {
	return &weirv1.LimitRequest{Workspace: "w", Namespace: "n", Identifier: identifier, Limit: 1_000_000,
		DurationMs: time.Minute.Milliseconds()}
}

func call(ctx context.Context, c *grpc.ClientConn, identifier string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.Invoke(ctx, service+"Limit", request(identifier), new(weirv1.LimitResponse))
}

func batch(ctx context.Context, c *grpc.ClientConn) error {
	requests := &weirv1.LimitManyRequest{}
	for range 1000 {
		requests.Requests = append(requests.Requests, request(newIdentifier()))
	}
	return c.Invoke(ctx, service+"LimitMany", requests, new(weirv1.LimitManyResponse))
}

// stream sends as fast as the node reads, and receives the answers meanwhile.
func stream(ctx context.Context, c *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	s, err := c.NewStream(ctx, both, service+"LimitStream")
	if err != nil {
		return err //nolint:wrapcheck // counted by its text
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if err := s.RecvMsg(new(weirv1.LimitStreamResponse)); err != nil {
				ended <- err
				return
			}
		}
	}()
	for s.SendMsg(&weirv1.LimitStreamRequest{Request: request(newIdentifier())}) == nil {
	}
	return <-ended
}
