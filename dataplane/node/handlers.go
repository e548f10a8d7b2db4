package node

import (
	"net/http"
	"net/http/pprof"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	_ "google.golang.org/grpc/health/grpc_health_v1" // the descriptors that reflection shows

	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// compressBytesMin is the shortest answer worth compressing for a caller who
// would take it compressed: only those of large batches are.
const compressBytesMin = 8 << 10

// callHandler is the service behind its gate, and the path both live under.
func (s *Server) callHandler(m *metrics) (string, http.Handler) {
	wire := &connectService{service: service{s.limiter}}
	path, handler := weirv1connect.NewRateLimitServiceHandler(wire,
		jsonCodecs(),
		boundMessages(),
		connect.WithCompressMinBytes(compressBytesMin),
	)
	s.gate = newGate(handler, s.limiter, s.config.MaxInFlight, s.config.Tokens, m, s.logger)
	wire.gate = s.gate
	return path, s.gate
}

// adminMux is what the port for operators serves. Health is for whoever asks, all
// else for who has a token, where there are any.
func adminMux(ready *readiness, registry *prometheus.Registry, tokens *Tokens) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", live)
	mux.Handle("/readyz", ready)
	mux.Handle("/metrics", tokens.guard(promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})))
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/":        pprof.Index,
		"/debug/pprof/cmdline": pprof.Cmdline,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
	} {
		mux.Handle(path, tokens.guard(handler))
	}
	handleHealth(mux, ready, tokens)
	return mux
}

// handleHealth serves grpc.health.v1 and reflection; both ports do.
func handleHealth(mux *http.ServeMux, ready *readiness, tokens *Tokens) {
	reflector := grpcreflect.NewStaticReflector(weirv1connect.RateLimitServiceName, grpchealth.HealthV1ServiceName)
	mux.Handle(grpchealth.NewHandler(ready))
	for _, newHandler := range []func(*grpcreflect.Reflector, ...connect.HandlerOption) (string, http.Handler){
		grpcreflect.NewHandlerV1, grpcreflect.NewHandlerV1Alpha,
	} {
		path, handler := newHandler(reflector)
		mux.Handle(path, tokens.guard(keptOpen(handler)))
	}
}

// keptOpen serves streams, which people keep open, on a server of calls.
func keptOpen(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		withoutDeadlines(w)
		next.ServeHTTP(w, r)
	})
}

// withoutDeadlines frees a call from the deadlines of its server.
func withoutDeadlines(w http.ResponseWriter) {
	stream := http.NewResponseController(w)
	_ = stream.SetReadDeadline(time.Time{})
	_ = stream.SetWriteDeadline(time.Time{})
}
