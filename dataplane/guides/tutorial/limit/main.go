// Limit is the first step of the tutorial: an API with a limit.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address of the API")
	flag.Parse()
	if err := run(*listen); err != nil {
		log.Fatal(err)
	}
}

func run(listen string) error {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		return err
	}
	if err := limiter.Start(context.Background()); err != nil {
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
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	return server.Serve(listener)
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
