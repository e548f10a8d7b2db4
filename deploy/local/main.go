// Command weir-local runs all of Weir on this machine until it is interrupted: two regions with two nodes each, one of
// them without MySQL, and real servers, all on loopback. `make run` builds and starts it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "weir-local:", err)
		os.Exit(1)
	}
}

// The ports of `make run`, a block that is easy to remember and seldom taken.
var ports = stack.Ports{
	Node:      func(region, node int) int { return 7001 + 10*region + node },
	NodeAdmin: func(region, node int) int { return 7101 + 10*region + node },
	NodeGRPC:  func(region, node int) int { return 7201 + 10*region + node },
	Redis:     func(region int) int { return 7096 + region },
	API:       7080, Handlers: 7081,
	SQL:            7090,
	RestateIngress: 7091, RestateAdmin: 7092, RestateFabric: 7093,
}

func run() error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find my own directory: %w", err)
	}
	bin := flag.String("bin", filepath.Dir(executable), "directory with weir-node and weir-control")
	data := flag.String("data", filepath.Join("out", "run"),
		"directory for data and logs; it is kept between runs, remove it to start afresh")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	dir, err := filepath.Abs(*data)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	began := time.Now()
	s, err := stack.Start(ctx, stack.Options{Bin: *bin, Data: dir, Ports: ports})
	if err != nil {
		return err
	}
	took := time.Since(began)
	introduce(os.Stdout, s, relaysOf(ctx, s), *data, *bin, took)

	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	kept := make(map[string]server)
	for name, process := range s.Servers() {
		kept[name] = process
	}
	for _, n := range s.Nodes {
		kept["node "+n.ID] = keptNode{n, s}
	}
	keeping := keepServers(watch, os.Stdout, kept)
	<-ctx.Done()
	fmt.Println("\nStopping: nodes send their last counts, then the servers end.")
	stop() // a second Ctrl-C ends at once
	cancel()
	keeping()
	return s.Stop()
}
