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

// Limiter is a limiter that the server starts and stops. *dataplane.Limiter is one.
type Limiter interface {
	access.Limiter

	// Start returns when the limiter runs.
	Start(ctx context.Context) error
	// Stop returns when everything that the limiter has accepted is at the origin, or when ctx is done.
	Stop(ctx context.Context) error
}

// Config says what a Server serves, and where.
type Config struct {
	// Limiter is started and stopped by the server.
	Limiter Limiter

	// Listen, GRPCListen and AdminListen are host:port; port 0 takes any free one.
	// GRPCListen may be empty: then plain gRPC is served on Listen alone, at three
	// times the cost.
	Listen, GRPCListen, AdminListen string

	// Registry is what /metrics shows. The server adds its own metrics to it.
	Registry *prometheus.Registry

	Logger *slog.Logger

	// MaxInFlight is how many calls may be in flight before further ones are
	// shed; 0 stands for MaxInFlightDefault. Higher: more memory in a pile-up (a
	// batch is up to 1 MiB), longer waits instead of quick refusals.
	MaxInFlight int

	// ConnectionsMax is how many connections each port for calls keeps open; 0 stands for
	// ConnectionsMaxDefault. A further one is let in, and closes the one that the address
	// with the most was heard on least recently.
	ConnectionsMax int

	// AllowedHosts are names, beside loopback ones, by which requests over HTTP/1.x may address
	// a port that only this machine reaches; see package hosts.
	AllowedHosts []string

	// Tokens are asked for by every call, metrics and profiles; not by health. Nil: not
	// by anybody.
	Tokens *access.Tokens

	// TLS is what calls are served with, on both of their ports. The port for operators
	// has none.
	TLS *servertls.TLS

	// RLS is Envoy's rate limit service, and Kuadrant's, on the port for gRPC; nil: they are not served.
	RLS *rls.Service

	// Routes are the HTTP routes of existing clients; nil: they are not served.
	Routes *routes.Service

	// API is one more API, on Listen and GRPCListen; nil: none is served.
	API *API

	// GRPCConnectionAge is after how long a connection of GRPCListen is told to end, so that its caller makes another
	// one and meets other nodes; its calls have as long again. 0: never.
	GRPCConnectionAge time.Duration

	// Reloads are checked every few seconds while the server runs.
	Reloads []Reload

	// Problems returns the problems of the node's surroundings, which become further lines of
	// /readyz. If it is nil, there are none.
	Problems func() []string

	// Traces makes spans of calls; nil: none.
	Traces *traces.Traces

	// DrainDelay is how long a draining node that has said so (/readyz) goes on
	// serving, so that load balancers can take note.
	DrainDelay time.Duration

	// DrainTimeout bounds the drain after that delay; 0 stands for
	// DrainTimeoutDefault. At most half of it is spent on waiting for calls in
	// flight; the rest is the limiter's, to send what it has accepted.
	DrainTimeout time.Duration
}

// What Config's zero values stand for.
const (
	MaxInFlightDefault    = 1024
	ConnectionsMaxDefault = 4096
	DrainTimeoutDefault   = 20 * time.Second
)

// adminConnectionsMax are apart from those of calls, so that probes find room.
const adminConnectionsMax = 256

// Server serves a Limiter on its ports. Its life is New, Start, Wait, Drain, each
// once. Start fails if a port is taken; afterwards the server runs until Drain.
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

// knownHosts refuses what a page lets a browser send to a port that only this machine reaches.
func (s *Server) knownHosts(address string, next http.Handler) http.Handler {
	if !hosts.Loopback(address) {
		return next
	}
	return hosts.Only(s.config.AllowedHosts, "allowed-hosts", s.bounds.refused[bounded.BoundHost].Inc, next)
}

// port is what Server needs to know of each of its ports.
type port interface {
	listen(ctx context.Context) error
	serve() error
	close() // drops the port and every connection, whatever they are doing
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

// enter moves the server to its next phase, in all forms in which it is asked for.
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

// Addr is the address that calls are served on. Valid after Start.
func (s *Server) Addr() net.Addr { return s.calls.listener.Addr() }

// GRPCAddr is the address that gRPC alone is served on; nil without GRPCListen.
// Valid after Start.
func (s *Server) GRPCAddr() net.Addr {
	if s.grpc == nil {
		return nil
	}
	return s.grpc.listener.Addr()
}

// ProbeAddr is the address of API.ProbeListen; nil without it. Valid after Start.
func (s *Server) ProbeAddr() net.Addr {
	if s.probes == nil {
		return nil
	}
	return s.probes.listener.Addr()
}

// AdminAddr is the address of health, metrics and profiles. Valid after Start.
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

// Drain ends the server in the order that loses nothing: it says that it wants
// no more calls, lets the calls in flight finish, has the limiter send on what
// they were allowed, and only then closes the port on which all of that can be
// watched. It returns an error if anything had to be cut short.
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

// finishCalls ends streams between two of their requests, and waits for the calls that are worked
// on; those whose callers send slowly, or do not read, are given a moment.
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
