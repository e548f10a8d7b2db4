package node

import (
	"context"
	"net/http"
	"net/http/pprof"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	_ "google.golang.org/grpc/health/grpc_health_v1" // the descriptors that reflection shows

	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// compressBytesMin is the shortest response that is compressed for a caller who accepts compression. Only responses of
// large batches are longer.
const compressBytesMin = 8 << 10

// callHandler returns the service behind its gate, and the path of both.
func (s *Server) callHandler(m *metrics, own service) (string, http.Handler) {
	handlers := make(byPath)
	s.gate = newGate(handlers, own, &s.config, m, s.bounds)
	for _, method := range own.methods(s.gate) {
		handlers[method.procedure] = method.connect
	}
	handlers[streamProcedure] = connectStream(own, s.gate)
	return "/" + weirv1connect.RateLimitServiceName + "/", s.gate
}

// adminMux returns the handler of the port for operators. If tokens are set, all routes but health
// require a token.
func (s *Server) adminMux() *http.ServeMux {
	mux := http.NewServeMux()
	guard := s.config.Tokens.Guard
	mux.Handle("/healthz", s.bounds.probe(http.HandlerFunc(live)))
	mux.Handle("/readyz", s.bounds.probe(&s.ready))
	mux.Handle("/metrics", s.scrapes)
	mux.Handle("/debug/pprof/",
		guard(access.ActionProfiles, s.bounds.few(bounded.Profiles, profilesMax, profiled(pprofMux()))))
	s.handleHealth(mux)
	return mux
}

// scraped is /metrics.
func (s *Server) scraped() http.Handler {
	metrics := promhttp.HandlerFor(s.config.Registry, promhttp.HandlerOpts{Registry: s.config.Registry})
	return s.config.Tokens.Guard(access.ActionMetrics, s.bounds.probe(s.bounds.few(bounded.Scrapes, scrapesMax, metrics)))
}

// How many answers of a kind there are at a time on the port for operators: each takes more of the
// processor, or of memory, than thousands of calls.
const (
	scrapesMax  = 4
	profilesMax = 4
)

func pprofMux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// few serves at most `most` requests at a time, three quarters of them for a single caller.
func (b *bounds) few(kind bounded.Kind, most int, next http.Handler) http.Handler {
	return bounded.Few(kind, most, b.countBound, next)
}

// timed bounds how long an answer may take, and how many bytes of a request's body are read.
func timed(most time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(most))
		r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
		next.ServeHTTP(w, r)
	})
}

// profileTimeMax is how long a profile may take.
const profileTimeMax = 10 * time.Minute

// profiled ends a profile after profileTimeMax, and answers with the samples so far.
func profiled(next http.Handler) http.Handler {
	return timed(profileTimeMax+writeTimeout, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), profileTimeMax)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	}))
}

// handleHealth serves grpc.health.v1 and reflection; both ports do.
func (s *Server) handleHealth(mux *http.ServeMux) {
	reflector := grpcreflect.NewStaticReflector(weirv1connect.RateLimitServiceName, grpchealth.HealthV1ServiceName)
	bytesMax := connect.WithReadMaxBytes(probeBytesMax)
	path, health := grpchealth.NewHandler(&s.ready, bytesMax)
	mux.Handle(path, s.bounds.probe(health))
	for _, newHandler := range []func(*grpcreflect.Reflector, ...connect.HandlerOption) (string, http.Handler){
		grpcreflect.NewHandlerV1, grpcreflect.NewHandlerV1Alpha,
	} {
		path, handler := newHandler(reflector, bytesMax)
		mux.Handle(path, s.gate.keptOpen(handler))
	}
}

// keptOpen serves reflection, whose streams people keep open, on a server for calls. It accepts any
// valid token.
func (g *gate) keptOpen(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := credentialsOfHTTP(r)
		c.procedure = anyProcedure
		by, err := g.judge(&c)
		if err != nil {
			g.write(w, r, err)
			return
		}
		at := g.stand(c, by)
		defer g.leave(at)
		hold, cut, err := g.hold(r.Context(), g.streams, by.caller, httpStreamBytes)
		if err != nil {
			g.write(w, r, err)
			return
		}
		defer hold.Give()
		stream := http.NewResponseController(w)
		if r.ProtoMajor >= 2 { // over HTTP/1.x the stream is refused: see serveStream
			_ = stream.SetReadDeadline(time.Now().Add(streamIdleMax))
			_ = stream.SetWriteDeadline(time.Now().Add(streamIdleMax + streamSendMax))
		}
		ctx, end := context.WithCancel(r.Context())
		defer end()
		g.readers.Go(func() {
			select {
			case <-at.over: //nolint:errcheck // the client no longer reads the answer
				_ = stream.SetReadDeadline(time.Unix(1, 0))
			case <-cut:
				g.refused[bounded.BoundMemory].Inc()
				_ = stream.SetReadDeadline(time.Unix(1, 0))
			case <-ctx.Done():
			}
		})
		next.ServeHTTP(w, r)
	})
}

// withoutDeadlines frees a call from the deadlines of its server.
func withoutDeadlines(w http.ResponseWriter) {
	stream := http.NewResponseController(w)
	_ = stream.SetReadDeadline(time.Time{})
	_ = stream.SetWriteDeadline(time.Time{})
}
