package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/hosts"
	"github.com/weirhq/weir/shared/servertls"
	"github.com/weirhq/weir/shared/traces"
)

// Limiter is a limiter that the server starts and stops. *dataplane.Limiter implements it.
type Limiter interface {
	access.Limiter

	// Start returns when the limiter runs.
	Start(ctx context.Context) error
	// Stop returns when everything that the limiter has accepted is at the origin, or when ctx is done.
	Stop(ctx context.Context) error
}

// Config is the configuration of a Server.
type Config struct {
	// Limiter is started and stopped by the server.
	Limiter Limiter

	// Listen, GRPCListen and AdminListen are host:port; port 0 means any free port. GRPCListen can be empty: then plain
	// gRPC is served only on Listen, at three times the cost.
	Listen, GRPCListen, AdminListen string

	// Registry has the metrics that /metrics serves. The server adds its own metrics to it.
	Registry *prometheus.Registry

	Logger *slog.Logger

	// MaxInFlight is the number of calls in flight above which further calls are shed. 0 means MaxInFlightDefault. A
	// higher value takes more memory if calls pile up (a batch has up to 1 MiB), and calls wait longer instead of being
	// rejected soon.
	MaxInFlight int

	// ConnectionsMax is the number of connections that each port for calls keeps open. 0 means ConnectionsMaxDefault. A
	// further connection is accepted, and closes a connection of the address that has the most: the connection that has
	// been idle longest.
	ConnectionsMax int

	// AllowedHosts are further names, in addition to loopback names, by which requests over HTTP/1.x can address a port
	// that only this machine reaches. See package hosts.
	AllowedHosts []string

	// Tokens are required for every call, metrics and profiles, but not for health. If it is nil, no token is required.
	Tokens *access.Tokens

	// TLS is used for calls on both of their ports. The port for operators has no TLS.
	TLS *servertls.TLS

	// RLS is Envoy's rate limit service, and Kuadrant's, on the port for gRPC; nil: they are not served.
	RLS *rls.Service

	// Routes are the HTTP routes of existing clients; nil: they are not served.
	Routes *routes.Service

	// API is a further API on Listen and GRPCListen; nil: there is none.
	API *API

	// GRPCConnectionAge is the age at which the server ends a connection of GRPCListen, so that its client reconnects and
	// reaches other nodes. Its calls have the same time again to finish. 0 means never. Set it if calls come through
	// connections that last for long, for example 10 minutes behind a load balancer that balances connections.
	GRPCConnectionAge time.Duration

	// Reloads are checked every few seconds while the server runs.
	Reloads []Reload

	// Problems returns the problems of the node's surroundings, which become further lines of
	// /readyz. If it is nil, there are none.
	Problems func() []string

	// Traces makes spans of calls; nil: none.
	Traces *traces.Traces

	// DrainDelay is how long a draining node serves after /readyz has begun to report the drain, so that load balancers
	// can react. For example, set 5 s if probes run every two seconds; 0 means no delay.
	DrainDelay time.Duration

	// DrainTimeout bounds the drain after that delay; 0 means DrainTimeoutDefault. Waiting for calls in flight takes at
	// most half of it. The limiter can use the rest to send the cost that it has accepted.
	DrainTimeout time.Duration
}

// Values for Config's zero values.
const (
	MaxInFlightDefault    = 1024
	ConnectionsMaxDefault = 4096
	DrainTimeoutDefault   = 20 * time.Second
)

// adminConnectionsMax bounds the port for operators separately from calls, so that probes find room.
const adminConnectionsMax = 256

// Server serves a Limiter on its ports. Call New, Start, Wait and Drain in this order, each once. Start fails if a port
// is taken; afterwards the server runs until Drain.
type Server struct {
	limiter Limiter
	config  Config
	logger  *slog.Logger
	metrics *metrics
	bounds  *bounds
	ready   readiness
	gate    *gate
	calls   endpoint
	grpc    *grpcEndpoint // nil without GRPCListen
	admin   endpoint
	probes  *endpoint // nil without API.ProbeListen
	scrapes http.Handler
	running sync.WaitGroup
	failed  chan error
	abandon context.CancelFunc  // cancels the context of every call still in flight
	life    context.Context     // ends with abandon
	pause   func(time.Duration) // sleeps for DrainDelay; a test ends it by hand
}

// New registers the server's metrics and prepares its ports.
func New(config Config) (*Server, error) {
	if config.MaxInFlight == 0 {
		config.MaxInFlight = MaxInFlightDefault
	}
	if config.ConnectionsMax == 0 {
		config.ConnectionsMax = ConnectionsMaxDefault
	}
	if config.DrainTimeout == 0 {
		config.DrainTimeout = DrainTimeoutDefault
	}
	m, err := newMetrics(config.Registry, config.API.labels())
	if err != nil {
		return nil, fmt.Errorf("register the node's metrics: %w", err)
	}
	s := &Server{
		limiter: config.Limiter,
		config:  config,
		logger:  config.Logger,
		metrics: m,
		bounds:  newBounds(m),
		failed:  make(chan error, 4), // one for each port
		pause:   time.Sleep,
	}
	base, abandon := context.WithCancel(context.Background())
	s.life, s.abandon = base, abandon

	s.scrapes = s.scraped()

	mux := http.NewServeMux()
	own := newService(config.Limiter, config.MaxInFlight, s.bounds)
	mux.Handle(s.callHandler(m, own))
	if config.Routes != nil {
		mux.Handle("/v2/", routesGate{s.gate, config.Routes})
	}
	s.handleAPI(mux)
	if l, ok := s.limiter.(interface{ TableFull() bool }); ok {
		s.ready.tableFull = l.TableFull
	}
	s.ready.problems = config.Problems
	s.handleHealth(mux)
	handler := s.knownHosts(config.Listen, config.Traces.Handler(mux, s.spanName))
	s.calls = endpoint{name: "listen", address: config.Listen, bounds: s.bounds, most: config.ConnectionsMax,
		server: callServer(base, s.bounds.begin(bounded.Calls, handler), s.logger)}
	if config.TLS != nil {
		s.calls.server.TLSConfig = config.TLS.Config("h2", "http/1.1")
	}
	if config.GRPCListen != "" {
		services := []*grpc.ServiceDesc{describe(own, s.gate)}
		if config.RLS != nil {
			services = append(services, describeRLS(config.RLS, s.gate),
				describeKuadrant(rls.Kuadrant{Service: config.RLS}, s.gate))
		}
		if config.API != nil {
			services = append(services, describeAPI(config.API, s.gate))
		}
		s.grpc = newGRPCEndpoint(config.GRPCListen, s.gate, config.ConnectionsMax, config.TLS,
			config.Traces.Provider(), services...)
		s.grpc.age = config.GRPCConnectionAge
	}
	s.admin = endpoint{
		name: "admin-listen", address: config.AdminListen, bounds: s.bounds, most: adminConnectionsMax,
		server: adminServer(s.bounds.begin(bounded.Probes, s.knownHosts(config.AdminListen, s.adminMux())), s.logger),
	}
	return s, nil
}

// knownHosts rejects requests that a page of another site makes a browser send to a port that only this machine
// reaches.
func (s *Server) knownHosts(address string, next http.Handler) http.Handler {
	if !hosts.Loopback(address) {
		return next
	}
	return hosts.Only(s.config.AllowedHosts, "allowed-hosts", s.bounds.refused[bounded.BoundHost].Inc, next)
}

// port has the methods that Server needs of each of its ports.
type port interface {
	listen(ctx context.Context) error
	serve() error
	close() // closes the port and every connection immediately
}

func (s *Server) ports() []port {
	all := []port{&s.calls}
	if s.grpc != nil {
		all = append(all, s.grpc)
	}
	if s.probes != nil {
		all = append(all, s.probes)
	}
	return append(all, &s.admin)
}

// Start takes all ports, starts the limiter and serves. It returns when the node
// is ready. The limiter outlives ctx: it runs until Drain.
func (s *Server) Start(ctx context.Context) error {
	for _, p := range s.ports() {
		if err := p.listen(ctx); err != nil {
			s.close()
			return err
		}
	}
	if err := s.limiter.Start(context.WithoutCancel(ctx)); err != nil {
		s.close()
		return fmt.Errorf("start the limiter: %w", err)
	}
	for _, p := range s.ports() {
		s.running.Go(func() {
			if err := p.serve(); err != nil {
				s.failed <- err
			}
		})
	}
	s.running.Go(func() { s.reload(s.life, reloadEvery, soonEvery) })
	s.enter(serving)
	return nil
}

// enter moves the server to its next phase, and updates all health reports.
func (s *Server) enter(p phase) {
	s.ready.set(p)
	if s.grpc != nil {
		s.grpc.enter(p)
	}
	if api := s.config.API; p == draining && api != nil && api.Draining != nil {
		api.Draining()
	}
}

func (s *Server) close() {
	for _, p := range s.ports() {
		p.close()
	}
}

// Addr returns the address that calls are served on. Valid after Start.
func (s *Server) Addr() net.Addr { return s.calls.listener.Addr() }

// GRPCAddr returns the address of GRPCListen, or nil without GRPCListen. It is valid after Start.
func (s *Server) GRPCAddr() net.Addr {
	if s.grpc == nil {
		return nil
	}
	return s.grpc.listener.Addr()
}

// ProbeAddr returns the address of API.ProbeListen; nil without it. Valid after Start.
func (s *Server) ProbeAddr() net.Addr {
	if s.probes == nil {
		return nil
	}
	return s.probes.listener.Addr()
}

// AdminAddr returns the address of health, metrics and profiles. Valid after Start.
func (s *Server) AdminAddr() net.Addr { return s.admin.listener.Addr() }

// Wait returns nil when ctx is done, and an error if a port stops serving before.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// Drain ends the server without losing cost: it reports that the node should get no more calls, waits for the calls in
// flight, stops the limiter, which sends the cost of these calls, and only then closes the port for operators. It
// returns an error if a step was cut short.
func (s *Server) Drain() error {
	s.enter(draining)
	s.logger.Info("draining", "delay", s.config.DrainDelay.String(), "timeout", s.config.DrainTimeout.String())
	s.pause(s.config.DrainDelay)

	ctx, cancel := context.WithTimeout(context.Background(), s.config.DrainTimeout)
	defer cancel()
	err := errors.Join(s.finishCalls(ctx), s.stopLimiter(ctx))
	s.admin.close()
	if s.probes != nil {
		s.probes.close()
	}
	s.running.Wait()
	s.gate.readers.Wait()
	return err
}

// finishCalls ends streams between two of their requests, and waits for the calls in progress. Calls whose callers send
// slowly, or do not read, get a moment.
func (s *Server) finishCalls(ctx context.Context) error {
	defer s.abandon()
	patience, cancel := context.WithTimeout(ctx, s.config.DrainTimeout/2)
	defer cancel()
	s.gate.endStreams()

	var finishing sync.WaitGroup
	var cut [2]error
	finishing.Go(func() { cut[0] = s.calls.shutdown(patience, s.gate) })
	if s.grpc != nil {
		finishing.Go(func() { cut[1] = s.grpc.shutdown(patience, s.gate) })
	}
	finishing.Wait()
	if err := errors.Join(cut[:]...); err != nil {
		s.abandon()
		return errors.Join(fmt.Errorf("calls in flight were cut off: %w", err), s.gate.idle(ctx))
	}
	return nil
}

func (s *Server) stopLimiter(ctx context.Context) error {
	if err := s.limiter.Stop(ctx); err != nil {
		return fmt.Errorf("stop the limiter: %w", err)
	}
	return nil
}
