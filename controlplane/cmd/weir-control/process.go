package main

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/cmd/weir-control/preview"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/previews"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/restate/handlers"
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/shared/hosts"
	"github.com/weirhq/weir/shared/traces"
	"github.com/weirhq/weir/shared/workspaces"
)

const (
	keepEvery  = 15 * time.Second // see handlers.Keeper
	watchEvery = 15 * time.Second // MySQL and the lag, the fleet, the rollout under way

	// apiDrainShare is the part of the drain that operators' calls may take. The rest belongs to the handlers, because
	// operators' calls may wait for their work.
	apiDrainShare = 0.4
)

// process is a running control plane.
type process struct {
	config *config
	log    *slog.Logger
	ctx    context.Context // done: drain

	db        *sql.DB
	traces    *traces.Traces
	transport *http.Transport // under restate
	restate   *http.Client
	api       *http.Server
	endpoint  *handlers.Endpoint

	apiListener, handlersListener net.Listener
	onlyValid                     func(http.Handler) http.Handler // see servertls.TLS
	stillValid                    func(*tls.ConnectionState) error

	work   sync.WaitGroup // loops and servers
	failed chan error     // of a server that ended by itself
}

// start binds the listeners and starts everything. Only faults on this machine are errors: other servers may be down,
// and come up later.
func start(ctx context.Context, c *config, dsn string, log *slog.Logger) (*process, error) {
	p := &process{config: c, log: log, ctx: ctx, failed: make(chan error, 2)}
	var err error
	if p.db, err = store.Open(dsn); err != nil {
		return nil, err
	}
	if p.traces, err = traces.Open(ctx, traces.Process{Service: "weir-control", Version: version()}, log); err != nil {
		return nil, errors.Join(err, p.db.Close())
	}
	if err := p.build(); err != nil {
		return nil, errors.Join(err, p.db.Close())
	}
	return p, nil
}

// build wires the parts and starts them.
func (p *process) build() error {
	metrics := controlplane.NewMetrics()
	registry := prometheus.NewRegistry()
	cleanups, watched := cleanup.NewMetrics(), watch.NewMetrics()
	registry.MustRegister(metrics, cleanups, watched, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	steps := store.New(p.db)
	tables := store.SchemaCheck{Version: schema.Version, Latest: schema.Latest(), Migrates: p.config.Migrate}
	cleanup, err := cleanup.New(p.config.cleanup(), steps, cleanups)
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	p.transport = transport
	p.restate = &http.Client{Transport: p.traces.Transport(transport)}
	orders, orderFiles, err := p.config.orderKeys()
	if err != nil {
		return err
	}
	client, admin := handlers.NewClient(p.restate, orders, p.config.RestateIngress...),
		handlers.NewAdmin(p.restate, p.config.RestateAdmin...)
	fleet := func(ctx context.Context) (fleet.Fleet, error) {
		return fleet.List(ctx, steps, p.config.NodeLiveWithin)
	}
	watching := watch.New(watch.Sources{
		Fleet: fleet, Tunings: steps.NewestTunings, Lag: cleanup.Lag, Partitions: cleanup.PartitionsProblem,
		Cleanup: handlers.CleanupClient{Client: client}.Status,
		Rollout: handlers.RolloutClient{Client: client}.UnderWay,
		Retirement: func(ctx context.Context) (*retire.Retirement, error) {
			return retirementUnderWay(ctx, handlers.RetirementClient{Client: client})
		},
		Invocations: admin.Troubled,
	})
	rollouts := rollout.NewWork(steps, p.config.NodeLiveWithin)
	if url := p.config.PrometheusURL; url != "" {
		rollouts = rollouts.WithPrometheus(queries.NewPrometheusClient(&http.Client{}, url))
	}
	simulator, err := preview.NewRunner("")
	if err != nil {
		return err
	}
	previews := previews.New(simulator, rollouts)
	adminToken, err := p.config.adminToken()
	if err != nil {
		return err
	}
	tokens, err := access.NewTokens(steps, adminToken)
	if err != nil {
		return fmt.Errorf("api-admin-token-file: %w", err)
	}
	approvers := access.Credentials{Tokens: tokens, Subjects: p.config.subjects(),
		Required: p.config.APIAuth == "token"}
	p.endpoint, err = handlers.NewEndpoint(handlers.Options{
		Cleanup: cleanup, Watch: watching, Rollouts: rollouts,
		Retirement: retire.NewWork(steps, p.config.NodeLiveWithin, p.config.CleanupGrace, metrics),
		Audit:      steps, Saves: steps, Metrics: metrics, Log: p.log, IdentityKey: p.config.RestateIdentityKey,
		Traces:       p.traces,
		AllowedHosts: p.config.APIAllowedHosts, Orders: orders, Approvers: approvers,
	})
	if err != nil {
		return fmt.Errorf("restate-identity-key: %w", err)
	}
	health := &watch.HealthReader{Stored: client.Health, Watch: watching, Every: p.config.WatchInterval, Now: time.Now}
	service := api.Config{
		Cleanup:     handlers.CleanupClient{Client: client},
		Rollouts:    api.SavedRollouts{LiveRollouts: handlers.RolloutClient{Client: client}, Saves: rollouts},
		Retirements: handlers.RetirementClient{Client: client},
		Previews:    previews,
		Settings:    limits.NewSettings(steps),
		Tuning: func(ctx context.Context) ([]tunings.RegionTuning, error) {
			return tunings.InForce(ctx, steps.NewestTunings)
		},
		Tunings: steps,
		Tokens:  tokens, RequireTokens: p.config.APIAuth == "token", Subjects: p.config.subjects(),
		TopKeys: func(ctx context.Context, q limits.TopQuery) (limits.TopKeys, error) {
			return limits.ListTopKeys(ctx, steps, q, p.config.NodeLiveWithin)
		},
		Held: func(ctx context.Context, q limits.TopQuery) (limits.HeldReport, error) {
			return limits.ListHeld(ctx, steps, q, p.config.NodeLiveWithin)
		},
		Key: func(ctx context.Context, q limits.KeyQuery) (limits.KeyReport, error) {
			return limits.GetKey(ctx, steps, q)
		},
		Keys: func(ctx context.Context, q limits.KeysQuery) (limits.KeyPage, error) {
			return limits.ListKeys(ctx, steps, q, p.config.NodeLiveWithin)
		},
		Usage: func(ctx context.Context, q limits.UsageQuery) (limits.Usage, error) {
			return limits.GetUsage(ctx, steps, q)
		},
		Limits: func(ctx context.Context, changes []limits.Change,
			visible *workspaces.Set) (limits.Estimate, error) {
			return limits.EstimateLimits(ctx, steps, changes, visible, p.config.NodeLiveWithin)
		},
		Ready: func(ctx context.Context) error { return steps.Ready(ctx, tables) },
		Lag:   cleanup.Lag, Partitions: cleanup.PartitionsProblem, Fleet: fleet, Health: health.Health, Audit: steps,
		Approvers: approvers,
		Diagnose:  p.doctor(steps, tables, client, admin, fleet),
		Metrics:   registry, AuthFailed: metrics.AuthFailed, Refused: metrics.Refused, Log: p.log,
		Loopback: hosts.Loopback(p.config.APIListen), AllowedHosts: p.config.APIAllowedHosts,
	}
	if err := p.listen(metrics); err != nil {
		return err
	}
	if err := p.secure(); err != nil {
		return errors.Join(err, p.apiListener.Close(), p.handlersListener.Close())
	}
	if err := p.consoleOf(&service); err != nil {
		return errors.Join(fmt.Errorf("console: %w", err), p.apiListener.Close(), p.handlersListener.Close())
	}
	p.api = api.NewServer(p.onlyValid(p.traces.Handler(api.NewHandler(service), spanName)), p.log)
	keeper := &handlers.Keeper{
		Registrar: handlers.NewRegistrar(admin, p.handlersURL(), p.endpoint.Fingerprint()),
		Client:    client,
		Jobs: map[string]time.Duration{handlers.CleanupJob: p.config.CleanupInterval,
			handlers.WatchJob: p.config.WatchInterval},
		Retiring: []string{retire.Blocklist},
		Rollouts: steps.Rollouts,
		Saves:    steps,
		Every:    keepEvery,
		Metrics:  metrics,
		Log:      p.log,
	}
	p.serve("api", p.apiListener, p.api.Serve)
	p.serve("handlers", p.handlersListener, p.endpoint.Serve)
	p.work.Go(func() { p.endpoint.Warm(p.ctx) })
	p.work.Go(func() { keeper.Run(p.ctx) })
	p.work.Go(func() { p.keepOrderKeys(orderFiles) })
	p.work.Go(func() {
		if p.config.Migrate {
			migrate(p.ctx, p.db, p.log)
		}
		watchMySQL(p.ctx, cleanup, metrics, p.log)
	})
	p.work.Go(func() { watchFleet(p.ctx, p.config.NodeLiveWithin, steps, watched, p.log) })
	p.work.Go(func() { watchRollouts(p.ctx, handlers.RolloutClient{Client: client}, watched) })
	p.work.Go(func() { watchHealth(p.ctx, health, watched, p.log) })
	p.log.Info("serving", "api", p.apiListener.Addr().String(), "handlers", p.handlersListener.Addr().String(),
		"version", version())
	return nil
}

func (p *process) listen(metrics *controlplane.Metrics) (err error) {
	if p.apiListener, err = net.Listen("tcp", p.config.APIListen); err != nil {
		return fmt.Errorf("api-listen: %w", err)
	}
	p.apiListener = api.Listen(p.apiListener, metrics.Refused)
	if p.handlersListener, err = net.Listen("tcp", p.config.HandlersListen); err != nil {
		return errors.Join(fmt.Errorf("handlers-listen: %w", err), p.apiListener.Close())
	}
	return nil
}

func (p *process) handlersURL() string {
	if p.config.HandlersURL != "" {
		return p.config.HandlersURL
	}
	return "http://" + p.handlersListener.Addr().String()
}

func (p *process) serve(what string, l net.Listener, serve func(net.Listener) error) {
	p.work.Go(func() {
		if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			p.failed <- fmt.Errorf("%s: %w", what, err)
		}
	})
}

// wait returns after a signal, when the process has drained, or when it cannot serve any more.
func (p *process) wait() error {
	var failed error
	select {
	case <-p.ctx.Done():
		p.log.Info("draining", "at_most", p.config.DrainTimeout.String())
	case failed = <-p.failed:
	}
	err := errors.Join(failed, p.drain())
	if failed == nil && err == nil {
		p.log.Info("drained")
	}
	return err
}

// drain ends parts from the outside in: operators' calls, then handlers, then the clients that both use.
func (p *process) drain() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), p.config.DrainTimeout)
	defer cancel()
	apiCtx, cancelAPI := context.WithTimeout(ctx, time.Duration(apiDrainShare*float64(p.config.DrainTimeout)))
	defer cancelAPI()
	var err error
	if shut := p.api.Shutdown(apiCtx); shut != nil {
		err = errors.Join(fmt.Errorf("drain the API: %w", shut), p.api.Close())
	}
	err = errors.Join(err, p.endpoint.Shutdown(ctx))
	if p.ctx.Err() == nil {
		return err // a server failed: its siblings' loops still run, and end with the process
	}
	p.work.Wait()
	p.transport.CloseIdleConnections()
	if lost := p.traces.Close(ctx); lost != nil { // nothing depends on them
		p.log.Warn("the last spans are lost", "error", lost)
	}
	return errors.Join(err, p.db.Close())
}

// migrate tries until it has succeeded once. It logs an obstacle once, and again when the obstacle changes.
func migrate(ctx context.Context, db *sql.DB, log *slog.Logger) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	told := ""
	controlplane.Every(ctx, watchEvery, func(ctx context.Context) error {
		err := schema.Migrate(ctx, db, log)
		if err == nil {
			done()
		} else if ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			log.Warn("cannot create or upgrade the tables yet", "error", err)
		}
		return err
	})
}

// watchMySQL keeps the lag's metric and the metric of MySQL's answers. An outage takes two lines of the log.
func watchMySQL(ctx context.Context, cleanup *cleanup.Cleanup, metrics *controlplane.Metrics, log *slog.Logger) {
	down := false
	controlplane.Every(ctx, watchEvery, func(ctx context.Context) error {
		_, err := cleanup.Lag(ctx)
		if ctx.Err() != nil {
			return err
		}
		metrics.MySQLUp(err == nil)
		if err != nil && !down {
			log.Warn("a call to MySQL failed", "error", err)
		}
		if err == nil && down {
			log.Info("MySQL answers again")
		}
		down = err != nil
		return err
	})
}

// watchHealth keeps the metrics of the watch's findings. It logs each change of the overall severity once.
func watchHealth(ctx context.Context, health *watch.HealthReader, metrics *watch.Metrics,
	log *slog.Logger) {
	was := watch.SeverityOK
	controlplane.Every(ctx, watchEvery, func(ctx context.Context) error {
		d := health.Health(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		metrics.Health(d)
		if d.Overall != was {
			was = d.Overall
			log.Info("health has changed", "overall", d.Overall, "findings", len(d.Findings), "see", "weirctl health")
		}
		return nil
	})
}
