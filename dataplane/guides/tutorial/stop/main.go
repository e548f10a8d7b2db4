// Stop is the last step of the tutorial: an API that sends its counts before it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
	"github.com/weirhq/weir/dataplane/metrics"
	"github.com/weirhq/weir/dataplane/redisorigin"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address of the API")
	operators := flag.String("operators", "127.0.0.1:9090", "address of the metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *operators); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen, operators string) error {
	limiter, err := newLimiter()
	if err != nil {
		return err
	}
	if err := limiter.Start(ctx); err != nil {
		return err
	}
	handler, err := api(limiter)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	if err := serveMetrics(limiter, operators); err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done(): // SIGINT or SIGTERM
	}
	fmt.Println("stopping")
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	// First the requests end, then the limiter sends their cost.
	if err := errors.Join(server.Shutdown(within), limiter.Stop(within)); err != nil {
		return err
	}
	fmt.Println("stopped, and all counts are sent")
	return nil
}

// serveMetrics serves the limiter's metrics. Callers of the API should not reach its address.
func serveMetrics(limiter *dataplane.Limiter, listen string) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(metrics.New(limiter)); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/metrics\n", listener.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { log.Println(server.Serve(listener)) }()
	return nil
}

// newLimiter returns a limiter that shares its counts through Redis if WEIR_REDIS_URL is set.
func newLimiter() (*dataplane.Limiter, error) {
	url := os.Getenv("WEIR_REDIS_URL")
	if url == "" {
		return dataplane.New(dataplane.Config{})
	}
	origin, err := redisorigin.Open([]string{url}, redisorigin.Options{})
	if err != nil {
		return nil, err
	}
	return dataplane.New(dataplane.Config{
		Region: "eu",
		Origin: origin,
		// The number of copies of this program. With MySQL, leave it out: heartbeats count the copies.
		RegionNodes: 2,
	})
}

// api greets its callers, and allows each API key five requests per hour.
func api(limiter *dataplane.Limiter) (http.Handler, error) {
	guard, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Policies: []httplimit.Policy{{
			Name: "key", Workspace: "acme", Key: httplimit.Header("X-Api-Key"),
			Quota: httplimit.Quota{Limit: 5, Duration: time.Hour},
		}},
	})
	if err != nil {
		return nil, err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello", r.Header.Get("X-Api-Key"))
	})
	return guard.Handler(hello), nil
}
