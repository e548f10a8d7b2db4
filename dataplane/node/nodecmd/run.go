package nodecmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/metrics"
	"github.com/weirhq/weir/dataplane/node"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/shared/signals"
	"github.com/weirhq/weir/shared/strict"
	"github.com/weirhq/weir/shared/traces"
)

// Exit codes.
const (
	exitOK     = 0 // ended after a clean drain, or printed the requested output
	exitFailed = 1 // could not serve, or the drain had to be cut short
	exitUsage  = 2 // the configuration is at fault
)

const lastSpansTimeout = 3 * time.Second

// Main runs weir-node and returns the exit code of the process. The node drains and ends when ctx ends, on SIGTERM or
// SIGINT, or when its terminal hangs up. A second SIGTERM or SIGINT ends the process immediately. Without a terminal,
// SIGHUP has no effect, because the node reads changed files by itself.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return weirNode.Main(ctx, args, stdout, stderr)
}

// Main calls the package function Main with the program.
func (p Program) Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == checkRulesCommand {
		return runCheckRules(args[1:], stdout, stderr)
	}
	if len(args) > 0 && strict.Misspells(args[0], checkRulesCommand) {
		fmt.Fprintf(stderr, "%s: unknown command %q, did you mean %s?\n", p.Name, args[0], checkRulesCommand)
		return exitUsage
	}
	config, done, err := p.load(args, stdout, stderr)
	switch {
	case err != nil:
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(stderr, "%s: %s\n", p.Name, p.inItsWords(strings.TrimSuffix(line, "\n")))
		}
		return exitUsage
	case done:
		return exitOK
	}
	defer leaveGarbage()()
	defer spareThreads()()
	logger := newLogger(stderr, config.LogLevel)
	ctx, stop := signals.Context(ctx, func(s os.Signal) {
		logger.Info("ignored a signal: the node reads changed files again by itself", "signal", s.String())
	})
	defer stop()

	if err := p.run(ctx, config, stdout, logger); err != nil {
		logger.Error("exited with an error", "error", err)
		return exitFailed
	}
	logger.Info("ended")
	return exitOK
}

func (p Program) run(ctx context.Context, config Config, stdout io.Writer, logger *slog.Logger) error {
	if config.NodeID == "" {
		config.NodeID = newNodeID()
	}
	stores, err := openStores(config, logger)
	if err != nil {
		return err
	}
	defer stores.close()
	if config.embedded() && stores.settings != nil && config.Region == "" {
		config.Region = aloneRegion
	}

	spans, err := traces.Open(ctx, traces.Process{Service: p.Name, Version: Build(), Instance: config.NodeID,
		Region: config.Region}, logger)
	if err != nil {
		return err
	}
	defer closeTraces(spans, logger)

	var regions regions
	var limiter *dataplane.Limiter
	settings := stores.settings
	var figures func() relay.Figures
	if stores.relays() {
		settings = &either{origin: stores.origin, store: settings, interval: func() time.Duration {
			return limiter.RelayTuning().SettingsInterval
		}}
		figures = func() relay.Figures { return regions.relay.Figures() }
	}
	surroundings := stores.watch(config.NodeID, logger)
	if surroundings != nil {
		if settings == nil {
			settings = stores.origin
		}
		settings = withRelay(settings, figures, surroundings)
		stores.collectors = append(stores.collectors, surroundings)
	}
	limiter, err = dataplane.New(dataplane.Config{
		Region:          config.Region,
		NodeID:          config.NodeID,
		Build:           Build(),
		Origin:          stores.origin,
		Settings:        settings,
		EntriesMax:      config.EntriesMax,
		NewKeysMax:      config.NewKeysMax,
		ReadTimeout:     config.ReadTimeout,
		TraceBackground: spans.Turn,
		Logger:          logger,
	})
	if err != nil {
		return fmt.Errorf("make the limiter: %w", err)
	}
	if err := stores.file.drive(ctx, limiter); err != nil {
		return fmt.Errorf("settings-file: %w", err)
	}
	regions, err = newRegions(config, stores, limiter, logger)
	if err != nil {
		return err
	}
	envoy, err := newRLS(config, limiter, logger)
	if err != nil {
		return err
	}
	registry, err := newRegistry(slices.Concat(stores.collectors, regions.collectors(),
		[]prometheus.Collector{metrics.New(limiter), envoy.Unmatched}))
	if err != nil {
		return err
	}
	access, err := openAccess(config, logger)
	if err != nil {
		return err
	}
	if access.tls != nil {
		access.tls.VersionMin = p.TLSVersionMin
	}
	api, err := p.api(limiter)
	if err != nil {
		return err
	}
	server, err := node.New(node.Config{
		Limiter:     limiter,
		Listen:      config.Listen,
		GRPCListen:  config.GRPCListen,
		AdminListen: config.AdminListen,
		Registry:    registry,
		Logger:      logger,
		MaxInFlight: config.MaxInFlight,

		ConnectionsMax: config.ConnectionsMax,
		AllowedHosts:   config.allowedHosts(),

		RLS:    envoy,
		Routes: &routes.Service{Limiter: limiter, Overrides: stores.overrides, Workspace: config.V2Workspace, Logger: logger},
		API:    api,
		Tokens: access.tokens,
		TLS:    access.tls,
		Reloads: slices.Concat(access.reloads, regions.reloads(), stores.file.reloads(),
			[]node.Reload{{Name: "rules", Check: envoy.Rules.Check}}),
		GRPCConnectionAge: p.GRPCConnectionAge,

		Problems: surroundings.texts,

		Traces:       spans,
		DrainDelay:   config.DrainDelay,
		DrainTimeout: config.DrainTimeout,
	})
	if err != nil {
		return err
	}

	announce(config, logger)
	if err := server.Start(ctx); err != nil {
		return err
	}
	defer regions.stop(logger)
	if err := regions.start(ctx, logger); err != nil {
		return errors.Join(err, server.Drain())
	}
	if address := server.ProbeAddr(); address != nil {
		logger.Info("serving health alone", "probe_listen", address.String())
	}
	logger.Info("serving", "listen", server.Addr().String(), "grpc_listen", fmt.Sprint(server.GRPCAddr()), "admin_listen",
		server.AdminAddr().String())
	if config.embedded() && access.open() && api == nil {
		invite(stdout, server.Addr())
	}
	var probing sync.WaitGroup
	probing.Go(func() { stores.probe(ctx, logger) })
	watching, endWatch := context.WithCancel(ctx)
	probing.Go(func() { surroundings.run(watching) })

	err = server.Wait(ctx)
	endWatch()
	err = errors.Join(err, server.Drain())
	probing.Wait()
	return err
}

// closeTraces sends the last spans, for a few seconds at most, since nothing depends on them.
func closeTraces(spans *traces.Traces, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), lastSpansTimeout)
	defer cancel()
	if err := spans.Close(ctx); err != nil {
		logger.Warn("the last spans are lost", "error", err)
	}
}

// announce writes the log's first line, which describes the node's place in the fleet.
func announce(config Config, logger *slog.Logger) {
	if config.embedded() {
		logger.Info("starting alone: no Redis and no MySQL are configured, so this process decides alone, in memory, "+
			"and its counts are lost when it ends",
			"build", Build(), "settings_file", config.SettingsFile)
		return
	}
	logger.Info("starting",
		"build", Build(), "region", config.Region, "node_id", config.NodeID,
		"redis", mask("redis-url", config.RedisURL), "mysql", mask("mysql-dsn", config.MySQLDSN))
}

// invite prints a command to try, for a person who has just started a node.
func invite(stdout io.Writer, address net.Addr) {
	fmt.Fprintf(stdout,
		`weir-node is serving in memory. Try: curl http://%s/weir.v1.RateLimitService/Limit -H 'Content-Type: application/json' -d '{"workspace":"acme","namespace":"api","identifier":"user_42","limit":10,"duration_ms":60000}'`+"\n", address)
}

// aloneRegion is the region of a node without stores that keeps overrides. The limiter requires a region, and no other
// process sees it.
const aloneRegion = "local"

func newLogger(w io.Writer, level string) *slog.Logger {
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // the flag has checked the value
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: least}))
}

// newRegistry makes a registry of the process's own, which no library adds to by itself.
func newRegistry(others []prometheus.Collector) (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	for _, c := range append(others, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return registry, nil
}

// newNodeID returns an ID that distinguishes two processes on one host, and a process from its successor: both send
// heartbeats at the same time during a deployment.
func newNodeID() string {
	var suffix [4]byte
	_, _ = rand.Read(suffix[:]) // never fails
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	end := "-" + hex.EncodeToString(suffix[:])
	return host[:min(len(host), nodeIDBytesMax-len(end))] + end
}
