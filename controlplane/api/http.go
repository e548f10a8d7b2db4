package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/hosts"
)

const requestBytesMax = 64 << 10

// NewHandler serves the RPCs and these paths:
//
//	/healthz  200 as long as the process serves
//	/readyz   200 if MySQL, with the tables of this build, and Restate answer, else 503;
//	          the body has the error of each; checked once a second at most
//	/metrics  Prometheus
//	/console/ the web console, if there is one
func NewHandler(c Config) http.Handler {
	s := &service{c}
	mux := http.NewServeMux()
	options := []connect.HandlerOption{connect.WithReadMaxBytes(requestBytesMax), connect.WithRecover(s.recovered),
		connect.WithInterceptors(s.authenticated(), s.answering())}
	handle := func(path string, h http.Handler) { mux.Handle(path, s.certified(h)) }
	handle(controlv1connect.NewControlServiceHandler(controlService{s}, options...))
	handle(controlv1connect.NewRolloutServiceHandler(rolloutService{s}, options...))
	handle(controlv1connect.NewRetirementServiceHandler(retirementService{s}, options...))
	handle(controlv1connect.NewTokenServiceHandler(tokenService{s}, options...))
	handle(controlv1connect.NewSettingsServiceHandler(settingsService{s}, options...))
	handle(controlv1connect.NewTopKeysServiceHandler(keyService{s}, options...))
	handle(controlv1connect.NewHealthServiceHandler(healthService{s}, options...))
	handle(controlv1connect.NewAuditServiceHandler(auditService{s}, options...))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	ready := &readiness{mysql: c.Ready, restate: func(ctx context.Context) error {
		_, err := c.Cleanup.Status(ctx)
		return err
	}}
	mux.HandleFunc("GET /readyz", ready.serve)
	mux.Handle("GET /metrics", bounded.Few(bounded.Scrapes, metricsMax, c.Refused, promhttp.HandlerFor(c.Metrics,
		promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn)})))
	if c.Console != nil {
		mux.Handle("/console/", c.Console(mux))
		mux.Handle("GET /{$}", http.RedirectHandler("/console/", http.StatusFound))
	}
	handler := http.NewCrossOriginProtection().Handler(boundedRoutes(mux, c.Refused))
	if c.RequireTokens && !c.Loopback {
		return handler
	}
	return hosts.Only(c.AllowedHosts, "--api-allowed-hosts of weir-control", bound(c.Refused, bounded.BoundHost), handler)
}

// NewServer bounds the cost of a connection; [Listen] bounds the number of connections. Connect and gRPC share the
// port, with TLS and without.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      runTimeout + 15*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    headerBytesMax,
		ConnContext:       bounded.ConnContext,
		ErrorLog:          bounded.ErrorLog(log),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          streamsMax,
			MaxReadFrameSize:              frameBytes,
			MaxReceiveBufferPerStream:     requestBytesMax,
			MaxReceiveBufferPerConnection: aheadBytes,
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingTimeout,
			WriteByteTimeout:              writeStalled,
		},
	}
}

func (s *service) recovered(ctx context.Context, spec connect.Spec, _ http.Header, panicked any) error {
	s.Log.ErrorContext(ctx, "call panicked", "rpc", spec.Procedure, "panic", panicked)
	return connect.NewError(connect.CodeInternal, fmt.Errorf("internal error; see the log of weir-control"))
}
