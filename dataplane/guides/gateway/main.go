// Gateway is an example: a small gateway before a language model, which limits tokens while answers are streamed. It
// comes with a model that repeats "word" many times:
//
//	go run ./dataplane/guides/gateway
//
// It serves POST /v1/chat/completions on 127.0.0.1:8088, to the API key "demo". See the guide on tokens.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/streamed"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8088", "address to serve on")
	upstream := flag.String("upstream", "", "URL of the model's API, without a path; empty: a model of its own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	listener, err := net.Listen("tcp", *listen)
	if err == nil {
		err = run(ctx, listener, *upstream)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, listener net.Listener, upstream string) error {
	// Alone, this process decides by itself. With Config.Origin, the region's Redis, all gateways share the limits.
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		return err
	}
	if err := limiter.Start(ctx); err != nil {
		return err
	}
	streams, err := streamed.New(streamed.Config{Reservations: limiter})
	if err != nil {
		return err
	}
	if upstream == "" {
		var closes func()
		if upstream, closes, err = serveFake(); err != nil {
			return err
		}
		defer closes()
	}
	g := &gateway{limiter: limiter, upstream: upstream, client: http.DefaultClient,
		orgs: map[string]string{"demo": "acme"}, window: time.Minute, orgLimit: 10_000,
		models: map[string]int64{"words": 50_000}, streams: streams}
	server := &http.Server{Handler: g.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(os.Stderr, "http://%s/v1/chat/completions\n", listener.Addr())
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// The answers end first, then they are settled, and then the limiter sends its counts.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(within), streams.Stop(within), limiter.Stop(within))
}
