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
	path, handler := weirv1connect.NewRateLimitServiceHandler(service{s.limiter},
		jsonCodecs(),
		boundMessages(),
		connect.WithCompressMinBytes(compressBytesMin),
	)
	s.gate = newGate(handler, s.config.MaxInFlight, m, s.logger)
	return path, s.gate
}

// adminMux is what the second port serves.
func adminMux(ready *readiness, registry *prometheus.Registry) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", live)
	mux.Handle("/readyz", ready)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	handleHealth(mux, ready)
	return mux
}

// handleHealth serves grpc.health.v1 and reflection; both ports do.
func handleHealth(mux *http.ServeMux, ready *readiness) {
	reflector := grpcreflect.NewStaticReflector(weirv1connect.RateLimitServiceName, grpchealth.HealthV1ServiceName)
	mux.Handle(grpchealth.NewHandler(ready))
	for _, newHandler := range []func(*grpcreflect.Reflector, ...connect.HandlerOption) (string, http.Handler){
		grpcreflect.NewHandlerV1, grpcreflect.NewHandlerV1Alpha,
	} {
		path, handler := newHandler(reflector)
		mux.Handle(path, withoutDeadlines(handler))
	}
}

// withoutDeadlines frees a handler of streams, which people keep open, from the
// deadlines of a server of calls.
func withoutDeadlines(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream := http.NewResponseController(w)
		_ = stream.SetReadDeadline(time.Time{})
		_ = stream.SetWriteDeadline(time.Time{})
		next.ServeHTTP(w, r)
	})
}
