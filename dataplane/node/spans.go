package node

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"

	"github.com/weirhq/weir/dataplane/node/routes"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// spanNames are the span names of HTTP calls, by path: a call's method, as in gRPC. Requests that are no calls (health,
// unknown paths) have no span.
var spanNames = func() map[string]string {
	names := make(map[string]string)
	methods := weirv1.File_weir_v1_ratelimit_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		name := string(methods.Get(i).Parent().FullName()) + "/" + string(methods.Get(i).Name())
		names["/"+name] = name
	}
	for _, path := range routes.Paths {
		names[path] = strings.TrimPrefix(path, "/")
	}
	return names
}()

func (s *Server) spanName(r *http.Request) string {
	if name := spanNames[r.URL.Path]; name != "" {
		return name
	}
	return s.config.API.spanName(r.URL.Path)
}

// spansOf makes a span of each call on the port for gRPC.
func spansOf(provider trace.TracerProvider) stats.Handler {
	return otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(provider),
		otelgrpc.WithPropagators(propagation.TraceContext{}))
}
